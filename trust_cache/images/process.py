"""The whole way of one image: decode, look-up tables, mirror, mask, crop."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset

from trust_cache.base.errors import InputError, TrustCacheError
from trust_cache.images.crop import Box, box_of, cut_out, mirror
from trust_cache.images.decode import decode
from trust_cache.images.errors import ImageError
from trust_cache.images.luts import build_table
from trust_cache.images.mask import find_breast, reduce_padding
from trust_cache.images.reading import read_dataset
from trust_cache.images.settings import ImageSettings


@dataclass(frozen=True)
class Prepared:
    """An image in canonical grey with the chest wall on the left."""

    image: NDArray[np.uint16]
    padding: NDArray[np.bool_]  # at the reduced size that the mask is found at
    decoder: str
    transfer_syntax: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Processed:
    """A breast cut out, and what a record of it may hold: technical values only."""

    png_pixels: NDArray[np.uint16]
    mask: NDArray[np.bool_]  # of the whole image, chest wall on the left
    box: Box  # of png_pixels in the whole image
    decoder: str
    transfer_syntax: str
    warnings: tuple[str, ...]


def process_image(
    source: Dataset | Path | str, laterality: str, settings: ImageSettings | None = None
) -> Processed:
    """Turn a DICOM mammogram into the pixels of its canonical picture."""
    settings = settings or ImageSettings()
    return cut_breast(prepare_image(source, laterality, settings), settings)


def prepare_image(source: Dataset | Path | str, laterality: str, settings: ImageSettings) -> Prepared:
    """Decode an image, apply its look-up tables and mirror a right breast."""
    if laterality not in {"L", "R"}:
        raise InputError(f"laterality: expected L or R, found {laterality!r}")
    with _damage_in_words():
        dataset = source if isinstance(source, Dataset) else read_dataset(source)
        stored = decode(dataset, settings)
        table = build_table(dataset, stored)
        image = table.apply(stored.pixels)
        padding = table.find_padding(reduce_padding(stored.pixels))
        if laterality == "R":
            image, padding = mirror(image), padding[:, ::-1]
        warnings = (*stored.warnings, *table.warnings, *_other_side(dataset, laterality))
    return Prepared(image, padding, stored.decoder, stored.transfer_syntax, warnings)


@contextmanager
def _damage_in_words() -> Iterator[None]:
    """Turn whatever a damaged header makes pydicom raise into one reason, without the header's values.

    Elements are converted when they are first looked at, so the damage can show at any of the steps.
    """
    try:
        yield
    except (TrustCacheError, MemoryError):
        raise
    except Exception as error:
        raise ImageError("read", f"the header is damaged ({type(error).__name__})") from None


def cut_breast(prepared: Prepared, settings: ImageSettings) -> Processed:
    """Find the breast and cut it out."""
    mask = find_breast(prepared.image, prepared.padding, settings.closing)
    box = box_of(mask, settings.margin)
    return Processed(
        png_pixels=cut_out(prepared.image, mask, box),
        mask=mask,
        box=box,
        decoder=prepared.decoder,
        transfer_syntax=prepared.transfer_syntax,
        warnings=(*prepared.warnings, *_wrong_edge(mask)),
    )


def tagged_laterality(dataset: Dataset) -> str | None:
    """Return the side that the header names, L or R, or None."""
    with _damage_in_words():
        tagged = str(dataset.get("ImageLaterality") or dataset.get("Laterality") or "").strip().upper()
    return tagged if tagged in {"L", "R"} else None


def _other_side(dataset: Dataset, laterality: str) -> tuple[str, ...]:
    tagged = tagged_laterality(dataset)
    if tagged is not None and tagged != laterality:
        return (f"the header's laterality is {tagged}, the manifest's {laterality}; the manifest decides",)
    return ()


def _wrong_edge(mask: NDArray[np.bool_]) -> tuple[str, ...]:
    if np.count_nonzero(mask[:, -1]) > np.count_nonzero(mask[:, 0]):
        return ("the breast lies at the edge away from the chest wall: is the laterality right?",)
    return ()
