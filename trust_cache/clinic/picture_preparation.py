"""Prepare the pictures of a triage in worker processes, exactly as `preprocess` does."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.executor import ItemOutcome, WorkerDiedError
from trust_cache.images.folders.folder_cases import IncomingImage
from trust_cache.images.image_bytes import digested_image
from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture import process_image
from trust_cache.images.picture_folder import ImageSettings
from trust_cache.images.png_files import refuse_constant

# Without torch: a worker process would import it for a second before its first picture.


@dataclass(frozen=True)
class Task:
    """A picture of the case at a position of the list."""

    case: int
    picture: IncomingImage


@dataclass(frozen=True)
class PreparedPicture:
    """The pixels that `preprocess` would write to a PNG, the warnings about the file, and its digest.

    Without pixels, the file cannot be scored for the reason in `failure`; one that cannot be read has no
    digest.
    """

    pixels: NDArray[np.uint16] | None
    warnings: tuple[str, ...]
    digest: str | None
    sketch: str = ""
    failure: str | None = None


def prepare(task: Task, settings: ImageSettings) -> PreparedPicture:
    """Decode, mirror and crop a picture exactly as `preprocess` does; the digest is of the bytes decoded."""
    picture, digest = task.picture, None
    try:
        with digested_image(picture.location) as (file, digest):
            made = process_image(file, picture.laterality or "", settings, picture.projection)
        refuse_constant(made.png_pixels)
    except ImageError as error:
        return PreparedPicture(None, (), digest, failure=str(error))
    return PreparedPicture(made.png_pixels, made.warnings, digest, made.sketch)


def failure_of(outcome: ItemOutcome[Task, PreparedPicture]) -> str:
    """Return why nothing is known of a picture; internal errors are raised."""
    error = outcome.error
    if isinstance(error, WorkerDiedError):
        return "decode: the decoder ended its whole process: the file is damaged or hostile"
    if isinstance(error, MemoryError):
        return "decode: there was not enough memory"
    if isinstance(error, OSError):
        return f"read: the file cannot be read ({error.strerror or 'input error'})"
    raise error if error is not None else RuntimeError("an outcome without value and error")
