"""Preprocess a manifest: turn every DICOM into its PNG, in parallel; a second run resumes.

An image that fails keeps its row in the manifest of the pictures, with its label and without a path.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trust_cache.base.errors import InputError, StoppedError
from trust_cache.base.executor import Cluster, WorkerDiedError, run_items
from trust_cache.base.places import absolute
from trust_cache.images.image_failures import Failure, ImageError, ImageWarning
from trust_cache.images.picture import process_image
from trust_cache.images.picture_folder import ImageSettings, PictureFolder, claim_folder, write_picture
from trust_cache.images.png_files import encode_png
from trust_cache.manifest.cases import IncompleteCases, count_incomplete
from trust_cache.manifest.manifest_file import Manifest, read_manifest


@dataclass(frozen=True)
class Job:
    """One image to process, in the form that is sent to a worker process."""

    image_id: str
    source: str
    laterality: str
    out: str


@dataclass(frozen=True)
class PreprocessRun:
    """The result of a run."""

    folder: str
    images: int
    reused: int
    failures: tuple[Failure, ...]
    warnings: tuple[ImageWarning, ...]  # of reused pictures too
    incomplete: IncompleteCases
    decoders: dict[str, int]


def preprocess(
    manifest_path: Path | str,
    out: Path | str,
    *,
    workers: int | Cluster,
    settings: ImageSettings | None = None,
    allow_urls: bool = False,
    on_start: Callable[[int, int], None] = lambda _images, _reused: None,
    advance: Callable[[], None] = lambda: None,
) -> PreprocessRun:
    """Write the PNG of every image that has none yet, then the folder's manifest and tables.

    The manifest, the DICOMs and `out` may each be behind a URL; `workers` is a number of local processes or
    a cluster, whose workers must be able to open all of them under the same names. Without `allow_urls`,
    a path in the manifest that is a URL of its own is a failure.
    """
    settings = settings or ImageSettings()
    if isinstance(workers, int) and workers < 1:
        raise InputError(f"workers: expected 1 or more, found {workers}")
    manifest = read_manifest(manifest_path, filled=("laterality", "path"))
    folder = claim_folder(str(out), settings)
    jobs, failures = _plan(manifest, folder, manifest.refused(allow_urls=allow_urls))
    unfinished = folder.unfinished(job.image_id for job in jobs)
    todo = [job for job in jobs if job.image_id in unfinished]
    images, reused = manifest.table.height, len(jobs) - len(todo)
    on_start(images, images - len(todo))
    kept = {job.image_id for job in jobs} - unfinished
    warnings = {image: texts for image, texts in folder.earlier_warnings().items() if image in kept}
    decoders = dict(folder.record.decoders)
    where = min(workers, max(len(todo), 1)) if isinstance(workers, int) else workers
    for outcome in run_items(partial(_process, settings=settings), todo, where) if todo else ():
        if outcome.value is None:
            failures.append(_failure(outcome.item, outcome.error))
        else:
            decoder, texts = outcome.value
            warnings[outcome.item.image_id] = texts
            decoders[decoder] = decoders.get(decoder, 0) + 1
        advance()
    failures.sort(key=lambda failure: failure.image_id)
    folder.finish(manifest, failures, warnings, decoders)
    usable = ~manifest.table["image_id"].is_in([failure.image_id for failure in failures]).to_numpy()
    return PreprocessRun(
        folder=folder.place,
        images=images,
        reused=reused,
        failures=tuple(failures),
        warnings=tuple(ImageWarning(image, text) for image in sorted(warnings) for text in warnings[image]),
        incomplete=count_incomplete(manifest.table, usable),
        decoders=decoders,
    )


def _plan(
    manifest: Manifest, folder: PictureFolder, refused: Mapping[str, str]
) -> tuple[list[Job], list[Failure]]:
    """Return a job for each image, or its failure where its row lacks a path or a laterality."""
    jobs, failures = [], []
    for image in manifest.images():
        if image.image_id in refused:
            failures.append(Failure(image.image_id, "read", refused[image.image_id]))
            continue
        if image.location is None or image.laterality is None:
            lacking = "path" if image.location is None else "laterality"
            failures.append(Failure(image.image_id, "read", f"the manifest has no {lacking} for it"))
            continue
        # Absolute: a worker may have another current folder.
        place = absolute(folder.picture(image.image_id))
        jobs.append(Job(image.image_id, absolute(image.location), image.laterality, place))
    return jobs, failures


def _process(job: Job, settings: ImageSettings) -> tuple[str, tuple[str, ...]]:
    """Write one image's PNG, in a worker process; return its decoder and warnings."""
    processed = process_image(job.source, job.laterality, settings)
    write_picture(job.out, encode_png(processed.png_pixels), job.image_id, processed.warnings)
    return f"{processed.decoder} ({processed.transfer_syntax})", processed.warnings


def _failure(job: Job, error: BaseException | None) -> Failure:
    if isinstance(error, ImageError):
        return Failure(job.image_id, error.stage, error.reason)
    if isinstance(error, WorkerDiedError):
        reason = "the decoder ended its whole process: the file is damaged or hostile"
        return Failure(job.image_id, "decode", reason)
    if isinstance(error, MemoryError):
        return Failure(job.image_id, "decode", "there was not enough memory")
    if isinstance(error, OSError):
        raise StoppedError(f"{job.out}: cannot be written ({error.strerror}); run it again") from error
    raise error if error is not None else RuntimeError("an outcome without value and error")
