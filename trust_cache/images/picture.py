"""Process one image: decode, apply look-up tables, mirror, mask, crop."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset

from trust_cache.base.errors import InputError, TrustCacheError
from trust_cache.images.decode import decode
from trust_cache.images.dicom_file import read_dataset
from trust_cache.images.image_failures import ImageError
from trust_cache.images.luts import build_table
from trust_cache.images.mask import Box, box_of, cut_out, find_breast, mirror, reduce_padding
from trust_cache.images.picture_folder import ImageSettings


@dataclass(frozen=True)
class PreparedImage:
    """An image in canonical grey with the chest wall on the left."""

    image: NDArray[np.uint16]
    padding: NDArray[np.bool_]  # at the reduced size that the mask is found at
    decoder: str
    transfer_syntax: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Processed:
    """A breast cut out, and the technical values that may be recorded."""

    png_pixels: NDArray[np.uint16]
    mask: NDArray[np.bool_]  # of the whole image, chest wall on the left
    box: Box  # of png_pixels in the whole image
    decoder: str
    transfer_syntax: str
    warnings: tuple[str, ...]


def process_image(
    source: Dataset | Path | str | BinaryIO, laterality: str, settings: ImageSettings | None = None
) -> Processed:
    """Return the canonical picture of a DICOM mammogram."""
    settings = settings or ImageSettings()
    return cut_breast(prepare_image(source, laterality, settings), settings)


def prepare_image(
    source: Dataset | Path | str | BinaryIO, laterality: str, settings: ImageSettings
) -> PreparedImage:
    """Decode an image, apply its look-up tables and mirror a right breast."""
    if laterality not in {"L", "R"}:
        raise InputError(f"laterality: expected L or R, found {laterality!r}")
    with _damaged_headers():
        dataset = source if isinstance(source, Dataset) else read_dataset(source)
        stored = decode(dataset, settings)
        table = build_table(dataset, stored)
        image = table.apply(stored.pixels)
        padding = table.find_padding(reduce_padding(stored.pixels))
        if laterality == "R":
            image, padding = mirror(image), padding[:, ::-1]
        warnings = (*stored.warnings, *table.warnings)
        if (tagged := tagged_laterality(dataset)) not in (None, laterality):
            other = (
                f"the header's laterality is {tagged}, the manifest's {laterality}; the manifest's is used"
            )
            warnings = (*warnings, other)
    return PreparedImage(image, padding, stored.decoder, stored.transfer_syntax, warnings)


@contextmanager
def _damaged_headers() -> Iterator[None]:
    """Turn pydicom's errors on a damaged header into one reason without the header's values.

    Elements are converted on first access, so the error can come at any step.
    """
    try:
        yield
    except (TrustCacheError, MemoryError):
        raise
    except Exception as error:
        raise ImageError("read", f"the header is damaged ({type(error).__name__})") from None


def cut_breast(prepared: PreparedImage, settings: ImageSettings) -> Processed:
    """Find the breast and cut it out."""
    mask = find_breast(prepared.image, prepared.padding, settings.closing)
    box = box_of(mask, settings.margin)
    cut = cut_out(prepared.image, mask, box)
    warnings = prepared.warnings
    if np.count_nonzero(mask[:, -1]) > np.count_nonzero(mask[:, 0]):
        edge = "the breast is at the edge away from the chest wall: is the laterality right?"
        warnings = (*warnings, edge)
    return Processed(cut, mask, box, prepared.decoder, prepared.transfer_syntax, warnings)


def tagged_laterality(dataset: Dataset) -> str | None:
    """Return the side that the header names, L or R, or None."""
    with _damaged_headers():
        tagged = str(dataset.get("ImageLaterality") or dataset.get("Laterality") or "").strip().upper()
    return tagged if tagged in {"L", "R"} else None
