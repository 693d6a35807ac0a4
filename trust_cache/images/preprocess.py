"""Preprocess a manifest: turn every DICOM into its PNG, in parallel; a second run resumes.

A picture is kept if its DICOM file, its laterality and its own bytes are those of its record: names decide
nothing. What changed is made again.

An image that fails keeps its row in the manifest of the pictures, with its label and without a path.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.digests import bytes_blake3
from trust_cache.base.errors import InputError, StoppedError
from trust_cache.base.executor import Cluster, WorkerDiedError, run_items
from trust_cache.base.places import absolute, read_bytes
from trust_cache.images.decoding.decode import IMAGECODECS, require_decoder
from trust_cache.images.dicom_file import read_header
from trust_cache.images.image_bytes import digested_image
from trust_cache.images.image_failures import Failure, ImageError, ImageWarning
from trust_cache.images.picture import Processed, process_image
from trust_cache.images.picture_folder import (
    ImageSettings,
    MadePicture,
    PictureFolder,
    claim_folder,
    write_picture,
)
from trust_cache.images.png_files import encode_png, refuse_constant
from trust_cache.manifest.cases import IncompleteCases, count_incomplete
from trust_cache.manifest.dicom_headers import ImageHeader, disagreements
from trust_cache.manifest.manifest_file import Manifest, ManifestImage, read_manifest
from trust_cache.manifest.picture_checks import same_pictures


@dataclass(frozen=True)
class Job:
    """One image to process, in the form that is sent to a worker process."""

    image_id: str
    source: str
    laterality: str
    projection: str
    out: str  # the place of the PNG; empty: none is written
    earlier: MadePicture | None = None


@dataclass(frozen=True)
class JobResult:
    """A picture that is there, and whether it is new, as before, or changed and made again."""

    made: MadePicture
    state: Literal["new", "kept", "changed"]
    header: ImageHeader  # never written: it has digests of the patient's identity


@dataclass(frozen=True)
class JobPixels:
    """The pixels of a picture, on their way to an encoder, and the seconds that they took."""

    made: MadePicture
    header: ImageHeader
    pixels: NDArray[np.uint16]
    seconds: float


@dataclass(frozen=True)
class PreprocessRun:
    """The result of a run."""

    folder: str
    images: int
    reused: int
    changed: int  # made again: the DICOM, the laterality or the picture differed from the record
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
    decoder: str = IMAGECODECS,
    allow_urls: bool = False,
    on_start: Callable[[int, int], None] = lambda _images, _reused: None,
    advance: Callable[[], None] = lambda: None,
) -> PreprocessRun:
    """Write the PNG of every image, except where it is there already; then the manifest and tables.

    The manifest, the DICOMs and `out` may each be behind a URL; `workers` is a number of local processes or
    a cluster, whose workers must be able to open all of them under the same names. Without `allow_urls`,
    a path in the manifest that is a URL of its own is a failure. `decoder` is `imagecodecs`, or
    `nvimagecodec` for lossless frames on a GPU; the record has the decoder of every picture.
    """
    settings = settings or ImageSettings()
    require_decoder(decoder)
    if isinstance(workers, int) and workers < 1:
        raise InputError(f"workers: expected 1 or more, found {workers}")
    manifest = read_manifest(manifest_path, filled=("laterality", "path"))
    folder = claim_folder(str(out), settings)
    jobs, failures = _plan(manifest, folder, manifest.refused(allow_urls=allow_urls))
    on_start(manifest.table.height, len(failures))
    results: list[JobResult] = []
    where = min(workers, max(len(jobs), 1)) if isinstance(workers, int) else workers
    for outcome in (
        run_items(partial(_process, settings=settings, decoder=decoder), jobs, where) if jobs else ()
    ):
        if outcome.value is None:
            failures.append(failure_of(outcome.item, outcome.error))
        else:
            results.append(outcome.value)
        advance()
    failures.sort(key=lambda failure: failure.image_id)
    made = {result.made.image_id: result.made for result in results}
    together = _look_together(manifest, results)
    record = folder.finish(manifest, failures, made, together)
    usable = ~manifest.table["image_id"].is_in([failure.image_id for failure in failures]).to_numpy()
    states = [result.state for result in results]
    return PreprocessRun(
        folder=folder.place,
        images=manifest.table.height,
        reused=states.count("kept"),
        changed=states.count("changed"),
        failures=tuple(failures),
        warnings=tuple(
            ImageWarning(image, text)
            for image in sorted(made)
            for text in (*made[image].warnings, *together.get(image, ()))
        ),
        incomplete=count_incomplete(manifest.table, usable),
        decoders=record.decoders,
    )


def _plan(
    manifest: Manifest, folder: PictureFolder, refused: Mapping[str, str]
) -> tuple[list[Job], list[Failure]]:
    """Return a job for each image, or its failure where its row lacks a path or a laterality."""
    jobs, failures, earlier = [], [], folder.earlier()
    for image in manifest.images():
        failure = row_failure(image, refused)
        if failure is not None or image.location is None or image.laterality is None:
            failures += [] if failure is None else [failure]
            continue
        # Absolute: a worker may have another current folder.
        place = absolute(folder.picture(image.image_id))
        source, known = absolute(image.location), earlier.get(image.image_id)
        side, projection = image.laterality, image.projection or ""
        jobs.append(Job(image.image_id, source, side, projection, place, known))
    return jobs, failures


def row_failure(image: ManifestImage, refused: Mapping[str, str]) -> Failure | None:
    """Return why an image has no picture whatever its file is: its row lacks a path or a laterality."""
    if image.image_id in refused:
        return Failure(image.image_id, "read", refused[image.image_id])
    if image.location is None or image.laterality is None:
        lacking = "path" if image.location is None else "laterality"
        return Failure(image.image_id, "read", f"the manifest has no {lacking} for it")
    return None


def _look_together(manifest: Manifest, results: Sequence[JobResult]) -> dict[str, tuple[str, ...]]:
    """Return what is wrong with images beside those of their case and of other cases, by image."""
    cases = dict(manifest.table.select("image_id", "case_id").iter_rows())
    ids = [result.made.image_id for result in results]
    headers = {name: (cases[name], result.header) for name, result in zip(ids, results, strict=True)}
    sketches = {name: (cases[name], result.made.sketch) for name, result in zip(ids, results, strict=True)}
    found, same = disagreements(headers, named=False), same_pictures(sketches)
    texts = {name: (*found.get(name, ()), *filter(None, [same.get(name)])) for name in ids}
    return {name: listed for name, listed in texts.items() if listed}


def _process(job: Job, settings: ImageSettings, decoder: str) -> JobResult:
    """Write one image's PNG, in a worker process, if it is not there as its record says."""
    there = _digest_of_png(job)
    with digested_image(job.source) as (file, digest):
        header = read_header(file)
        file.seek(0)
        known = job.earlier
        found = digest, job.laterality, job.projection, there
        if known is not None and found == (
            known.dicom_blake3, known.laterality, known.projection, known.png_blake3,
        ):  # fmt: skip
            return JobResult(known, "kept", header)
        processed = process_image(file, job.laterality, settings, job.projection or None, decoder)
    made = _recorded(job, digest, processed)
    return JobResult(made, "new" if there is None else "changed", header)


def make_pixels(job: Job, settings: ImageSettings, decoder: str) -> JobPixels:
    """Return one image's pixels, in a worker process; write its PNG too if it has a place."""
    start = time.perf_counter()
    with digested_image(job.source) as (file, digest):
        header = read_header(file)
        file.seek(0)
        processed = process_image(file, job.laterality, settings, job.projection or None, decoder)
    made = _recorded(job, digest, processed)
    refuse_constant(processed.png_pixels)
    return JobPixels(made, header, processed.png_pixels, time.perf_counter() - start)


def _recorded(job: Job, digest: str, processed: Processed) -> MadePicture:
    """Write a picture with its note if it has a place; return what it was made from."""
    content = encode_png(processed.png_pixels) if job.out else b""
    made = MadePicture(
        image_id=job.image_id,
        laterality=job.laterality,
        projection=job.projection,
        dicom_blake3=digest,
        png_blake3=bytes_blake3(content) if job.out else "",
        decoder=f"{processed.decoder} ({processed.transfer_syntax})",
        sketch=processed.sketch,
        warnings=processed.warnings,
    )
    if job.out:
        write_picture(job.out, content, made)
    return made


def _digest_of_png(job: Job) -> str | None:
    try:
        return bytes_blake3(read_bytes(job.out))
    except FileNotFoundError:
        return None


def failure_of(job: Job, error: BaseException | None) -> Failure:
    """Return the failure of an image that has no picture; what stops the command is raised."""
    if isinstance(error, ImageError):
        return Failure(job.image_id, error.stage, error.reason)
    if isinstance(error, WorkerDiedError):
        reason = "the decoder ended its whole process: the file is damaged or hostile"
        return Failure(job.image_id, "decode", reason)
    if isinstance(error, MemoryError):
        return Failure(job.image_id, "decode", "there was not enough memory")
    if isinstance(error, OSError):
        place, what = (job.out, "written") if job.out else (job.source, "read")
        raise StoppedError(f"{place}: cannot be {what} ({error.strerror}); run it again") from error
    raise error if error is not None else RuntimeError("an outcome without value and error")
