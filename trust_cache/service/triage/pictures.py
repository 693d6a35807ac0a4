"""One picture from its DICOM file to the pixels that the encoder's view is made of; runs in a process."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.work import Outcome, WorkerDiedError
from trust_cache.images.errors import ImageError
from trust_cache.images.process import process_image
from trust_cache.images.settings import ImageSettings
from trust_cache.service.triage.examinations import Picture


@dataclass(frozen=True)
class Task:
    """A picture of the examination at a position of the list."""

    examination: int
    picture: Picture


@dataclass(frozen=True)
class Prepared:
    """The pixels that `preprocess` would put into a PNG, and what is odd about the file."""

    pixels: NDArray[np.uint16]
    warnings: tuple[str, ...]


def prepare(task: Task, settings: ImageSettings) -> Prepared:
    """Decode, mirror and crop a picture exactly as `preprocess` does."""
    made = process_image(task.picture.location, task.picture.laterality or "", settings)
    if made.png_pixels.min() == made.png_pixels.max():
        raise ImageError("intensity", f"the image is constant: every pixel is {made.png_pixels.flat[0]}")
    return Prepared(made.png_pixels, made.warnings)


def failure_of(outcome: Outcome[Task, Prepared]) -> str:
    """Return why a picture could not be prepared; an error of ours is raised."""
    error = outcome.error
    if isinstance(error, ImageError):
        return str(error)
    if isinstance(error, WorkerDiedError):
        return "decode: the decoder ended its whole process: the file is damaged or hostile"
    if isinstance(error, MemoryError):
        return "decode: there was not enough memory"
    if isinstance(error, OSError):
        return f"read: the file cannot be read ({error.strerror or 'input error'})"
    raise error if error is not None else RuntimeError("an outcome without value and error")
