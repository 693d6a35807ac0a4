"""Where the pixels of an extraction come from: PNG files, or DICOM files that worker processes preprocess."""

import time
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Protocol

import torch
from blake3 import blake3
from torch import Tensor

from trust_cache.base.executor import ItemOutcome, run_in_order
from trust_cache.base.places import absolute, join
from trust_cache.cache.extract.external_pictures import examine_picture
from trust_cache.images.examined_table import ExaminedPicture
from trust_cache.images.image_bytes import image_digest
from trust_cache.images.image_failures import Failure, ImageError
from trust_cache.images.picture_folder import ImageSettings, png_name
from trust_cache.images.png_files import decode_grey_png, read_png_bytes
from trust_cache.images.preprocess import Job, JobPixels, failure_of, make_pixels
from trust_cache.manifest.dicom_headers import ImageHeader


@dataclass(frozen=True)
class ImageFile:
    """An image and the place of its PNG or DICOM file, or why it has none."""

    image_id: str
    location: str
    failure: Failure | None = None
    expected: str | None = None  # the BLAKE3 digest of its PNG, if `preprocess` recorded it
    projection: str | None = None
    laterality: str = ""

    @property
    def external(self) -> bool:
        """Whether `preprocess` did not record its picture, so that `extract` has to examine it."""
        return bool(self.location) and self.expected is None


@dataclass(frozen=True)
class Decoded:
    """An image's pixels [height, width] and the digest of its file, or its failure; the seconds it took."""

    pixels: Tensor | None
    failure: Failure | None
    seconds: float
    digest: bytes | None = None
    examined: ExaminedPicture | None = None  # of a picture that `preprocess` did not record
    header: ImageHeader | None = None  # of a DICOM file


class PictureSource(Protocol):
    """Makes the pixels of images; it is pickled for other processes."""

    @property
    def workers(self) -> int:
        """Threads or processes at work."""
        ...

    def decoded(self, files: Sequence[ImageFile], *, pinned: bool) -> Generator[Decoded, None, None]:
        """Yield the images in order, a bounded number ahead; CUDA copies from `pinned` memory at once."""
        ...

    def digest(self, file: ImageFile) -> bytes:
        """Return the digest of an image's file as it is now; ImageError if it cannot be read."""
        ...


@dataclass(frozen=True)
class PngSource:
    """PNG files, read by threads."""

    workers: int

    def decoded(self, files: Sequence[ImageFile], *, pinned: bool) -> Generator[Decoded, None, None]:
        """Yield the images in order while the threads work on the next ones."""
        with ThreadPoolExecutor(self.workers) as threads:
            submitted = (threads.submit(read_picture, file, pinned=pinned) for file in files)
            waiting = deque(islice(submitted, 2 * self.workers + 1))
            try:
                while waiting:
                    first = waiting.popleft()
                    waiting.extend(islice(submitted, 1))
                    yield first.result()
            finally:
                for future in waiting:
                    future.cancel()

    def digest(self, file: ImageFile) -> bytes:
        """Return the digest of a PNG."""
        return bytes(blake3(read_png_bytes(file.location)).digest())


def read_picture(file: ImageFile, *, pinned: bool) -> Decoded:
    """Read and decode one PNG; examine it if `preprocess` did not record it."""
    if file.failure is not None:
        return Decoded(None, file.failure, 0.0)
    start = time.perf_counter()
    try:
        content = read_png_bytes(file.location)
        digest = blake3(content).digest()
        if file.expected not in (None, digest.hex()):
            reason = "changed since `trust-cache preprocess` made it; run preprocess again"
            raise ImageError("read", reason)
        grey = decode_grey_png(content)
        examined = None
        if file.external:
            examined = examine_picture(file.image_id, digest.hex(), grey, file.projection)
        pixels = torch.from_numpy(grey)
        pixels = pixels.pin_memory() if pinned else pixels
        return Decoded(pixels, None, time.perf_counter() - start, digest, examined)
    except ImageError as error:
        failure = Failure(file.image_id, error.stage, error.reason)
        return Decoded(None, failure, time.perf_counter() - start)


@dataclass(frozen=True)
class DicomSource:
    """DICOM files, preprocessed in worker processes: a file that kills its process fails alone."""

    workers: int
    settings: ImageSettings
    decoder: str
    folder: str = ""  # a picture folder that gets the PNGs as well

    def decoded(self, files: Sequence[ImageFile], *, pinned: bool) -> Generator[Decoded, None, None]:
        """Yield the images in order while the processes work on the next ones."""
        jobs = [self._job(file) for file in files if file.failure is None]
        work = partial(make_pixels, settings=self.settings, decoder=self.decoder)
        with closing(run_in_order(work, jobs, min(self.workers, max(1, len(jobs))))) as outcomes:
            for file in files:
                if file.failure is not None:
                    yield Decoded(None, file.failure, 0.0)
                else:
                    yield _decoded(next(outcomes), pinned=pinned)

    def digest(self, file: ImageFile) -> bytes:
        """Return the digest of a DICOM file."""
        return bytes.fromhex(image_digest(file.location))

    def _job(self, file: ImageFile) -> Job:
        # Absolute: a worker may have another current folder.
        out = absolute(join(self.folder, png_name(file.image_id))) if self.folder else ""
        source, projection = absolute(file.location), file.projection or ""
        return Job(file.image_id, source, file.laterality, projection, out)


def _decoded(outcome: ItemOutcome[Job, JobPixels], *, pinned: bool) -> Decoded:
    found = outcome.value
    if found is None:
        return Decoded(None, failure_of(outcome.item, outcome.error), 0.0)
    made, pixels = found.made, torch.from_numpy(found.pixels)
    pixels = pixels.pin_memory() if pinned else pixels
    examined = ExaminedPicture(made.image_id, made.dicom_blake3, made.sketch, made.warnings)
    return Decoded(pixels, None, found.seconds, bytes.fromhex(made.dicom_blake3), examined, found.header)
