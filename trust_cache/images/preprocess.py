"""Preprocessing a manifest: every DICOM to its PNG, over all cores, resumable, failures in a table."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

from trust_cache.base.documents import json_bytes, parse_json
from trust_cache.base.errors import InputError, StoppedError
from trust_cache.base.executor import run_items
from trust_cache.base.files import refuse_current
from trust_cache.base.places import absolute, is_url, join, list_names, read_bytes, write_bytes
from trust_cache.base.versions import versions_of
from trust_cache.base.work import Cluster, Outcome, WorkerDiedError
from trust_cache.images.errors import ImageError
from trust_cache.images.failures import Failure, failures_bytes
from trust_cache.images.png import encode_png
from trust_cache.images.process import process_image
from trust_cache.images.settings import ImageSettings
from trust_cache.manifest.reading import read_manifest
from trust_cache.manifest.table import ManifestImage, manifest_bytes

SCHEMA = 1
RECORD = "preprocess.json"
_PNG_BEGIN, _PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
_LONGEST_NAME = 200  # bytes of a file's name before its ending


@dataclass(frozen=True)
class Job:
    """One image to do, in the form that travels to a process."""

    image_id: str
    source: str
    laterality: str
    out: str


@dataclass(frozen=True)
class Done:
    """An image that was written, and by what."""

    decoder: str
    transfer_syntax: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class PreprocessRun:
    """What a run did."""

    folder: str
    images: int
    reused: int
    failures: tuple[Failure, ...]
    warnings: tuple[str, ...]
    decoders: dict[str, int]


def preprocess(
    manifest_path: Path | str,
    out: Path | str,
    *,
    workers: int | Cluster,
    settings: ImageSettings | None = None,
    on_start: Callable[[int, int], None] = lambda _images, _reused: None,
    advance: Callable[[], None] = lambda: None,
) -> PreprocessRun:
    """Write the PNG of every image that has none yet, then manifest.csv, failures.csv and the record.

    The manifest, the DICOMs and `out` may each lie behind a URL; `workers` is a number of processes here or
    a cluster, whose workers must then reach all of them under the same names.
    """
    settings = settings or ImageSettings()
    if isinstance(workers, int) and workers < 1:
        raise InputError(f"workers: expected 1 or more, found {workers}")
    manifest = read_manifest(manifest_path, filled=("laterality", "path"))
    folder = str(out)
    record = _claim(folder, settings)
    jobs = [_job(image, folder) for image in manifest.images()]
    todo = _without_png(jobs, folder)
    on_start(len(jobs), len(jobs) - len(todo))
    failures: list[Failure] = []
    warnings: list[str] = []
    decoders: dict[str, int] = record.get("decoders", {})
    for outcome in _outcomes(todo, settings, workers):
        if outcome.value is None:
            failures.append(_failure(outcome))
        else:
            warnings += [f"{outcome.item.image_id}: {text}" for text in outcome.value.warnings]
            key = f"{outcome.value.decoder} ({outcome.value.transfer_syntax})"
            decoders[key] = decoders.get(key, 0) + 1
        advance()
    failed = {failure.image_id for failure in failures}
    table = manifest.table.with_columns(path=pl.Series([png_name(job.image_id) for job in jobs]))
    kept = manifest_bytes(table.filter(~pl.col("image_id").is_in(failed)))
    write_bytes(join(folder, "manifest.csv"), kept)
    failures.sort(key=lambda failure: failure.image_id)
    write_bytes(join(folder, "failures.csv"), failures_bytes(failures))
    write_bytes(join(folder, RECORD), json_bytes(record | {"decoders": decoders}))
    return PreprocessRun(folder, len(jobs), len(jobs) - len(todo), tuple(failures), tuple(warnings), decoders)


def _without_png(jobs: list[Job], folder: str) -> list[Job]:
    """Return the jobs still to do; a store behind a URL holds whole files only, so their names tell."""
    if is_url(folder):
        there = list_names(folder)
        return [job for job in jobs if png_name(job.image_id) not in there]
    return [job for job in jobs if not is_whole_png(Path(job.out))]


def is_whole_png(path: Path) -> bool:
    """Tell whether a file begins and ends as a PNG does: an empty or torn one of another program does not."""
    try:
        with path.open("rb") as file:
            begin = file.read(len(_PNG_BEGIN))
            if begin != _PNG_BEGIN:
                return False
            file.seek(-len(_PNG_END), 2)
            return file.read() == _PNG_END
    except OSError:
        return False


def png_name(image_id: str) -> str:
    """Return an image's file name: its id, escaped so that two never share one and none leaves the folder."""
    escaped = quote(image_id, safe=" +,=@()[]")
    if len(escaped) > _LONGEST_NAME:
        raise InputError(f"image_id: expected at most {_LONGEST_NAME} characters escaped, found {image_id!r}")
    return f"{escaped.replace('.', '%2E') if set(escaped) == {'.'} else escaped}.png"


def _job(image: ManifestImage, folder: str) -> Job:
    """Name places so that a worker with another current folder finds them."""
    source, out = image.location or "", join(folder, png_name(image.image_id))
    return Job(image.image_id, absolute(source), image.laterality or "", absolute(out))


def _outcomes(
    todo: list[Job], settings: ImageSettings, workers: int | Cluster
) -> Iterator[Outcome[Job, Done]]:
    if todo:
        where = min(workers, len(todo)) if isinstance(workers, int) else workers
        yield from run_items(partial(_do, settings=settings), todo, where)


def _do(job: Job, settings: ImageSettings) -> Done:
    """Process one image and write its PNG; runs in a process of its own."""
    processed = process_image(job.source, job.laterality, settings)
    write_bytes(job.out, encode_png(processed.png_pixels))
    return Done(processed.decoder, processed.transfer_syntax, processed.warnings)


def _failure(outcome: Outcome[Job, Done]) -> Failure:
    error, image_id = outcome.error, outcome.item.image_id
    if isinstance(error, ImageError):
        return Failure(image_id, error.stage, error.reason)
    if isinstance(error, WorkerDiedError):
        return Failure(
            image_id, "decode", "the decoder ended its whole process: the file is damaged or hostile"
        )
    if isinstance(error, MemoryError):
        return Failure(image_id, "decode", "there was not enough memory")
    if isinstance(error, OSError):
        raise StoppedError(
            f"{outcome.item.out}: cannot be written ({error.strerror}); run it again"
        ) from error
    raise error if error is not None else RuntimeError("an outcome without value and error")


def _claim(out: str, settings: ImageSettings) -> dict[str, Any]:
    """Return the folder's record; refuse a folder that was made with other settings or by others."""
    if not is_url(out):
        refuse_current(Path(out))
    record = {"schema": SCHEMA, "settings": asdict(settings), "versions": _versions()}
    path, there = join(out, RECORD), list_names(out)
    if RECORD in there:
        found: dict[str, Any] = parse_json(read_bytes(path))
        for name in ("schema", "settings"):
            if found.get(name) != record[name]:
                raise InputError(
                    f"{out}: was made with other {name}: expected {record[name]}, found {found.get(name)};"
                    " choose another --out"
                )
        return found
    if there:
        raise InputError(f"{out}: expected a new or empty folder, found files without {RECORD}")
    write_bytes(path, json_bytes(record))
    return record


def _versions() -> dict[str, str]:
    return versions_of("numpy", "pydicom", "opencv-python-headless", "python-gdcm", "pylibjpeg-openjpeg")
