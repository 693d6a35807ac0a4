"""Process one image: decode, apply look-up tables, mirror, mask, crop."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import cv2
import numpy as np
from blake3 import blake3
from numpy.typing import NDArray
from pydicom import Dataset

from trust_cache.base.errors import InputError, TrustCacheError
from trust_cache.images.decoding.decode import IMAGECODECS, Stored, decode
from trust_cache.images.dicom_file import header_of, quiet_pydicom, read_dataset
from trust_cache.images.gate.pixel_gate import PixelEvidence, findings_without_mask, pixel_findings
from trust_cache.images.image_failures import ImageError
from trust_cache.images.luts import GreyTable, build_table
from trust_cache.images.mask import Box, box_of, cut_out, find_breast, mirror, reduce_padding
from trust_cache.images.picture_folder import ImageSettings
from trust_cache.manifest.dicom_headers import ImageHeader
from trust_cache.manifest.picture_checks import finding
from trust_cache.statistics.sketches import sketch_vector

_SIDE = 32  # pixels of the reduced picture that is sketched


@dataclass(frozen=True)
class PreparedImage:
    """An image in canonical grey with the chest wall on the left."""

    image: NDArray[np.uint16]
    padding: NDArray[np.bool_]  # at the reduced size that the mask is found at
    stored: Stored
    table: GreyTable
    mirrored: bool
    projection: str | None
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
    sketch: str  # equal or nearly equal for equal pictures


def process_image(
    source: Dataset | Path | str | BinaryIO,
    laterality: str,
    settings: ImageSettings | None = None,
    projection: str | None = None,
    decoder: str = IMAGECODECS,
) -> Processed:
    """Return the canonical picture of a DICOM mammogram; side and projection are those of the manifest."""
    settings = settings or ImageSettings()
    return cut_breast(prepare_image(source, laterality, settings, projection, decoder), settings)


def prepare_image(
    source: Dataset | Path | str | BinaryIO,
    laterality: str,
    settings: ImageSettings,
    projection: str | None = None,
    decoder: str = IMAGECODECS,
) -> PreparedImage:
    """Decode an image, apply its look-up tables and mirror a right breast."""
    if laterality not in {"L", "R"}:
        raise InputError(f"laterality: expected L or R, found {laterality!r}")
    with _damaged_headers():
        dataset = source if isinstance(source, Dataset) else read_dataset(source)
        header = header_of(dataset)
        stored = decode(dataset, settings, decoder)
        table = build_table(dataset, stored)
        image = table.apply(stored.pixels)
        padding = table.find_padding(reduce_padding(stored.pixels))
        if laterality == "R":
            image, padding = mirror(image), padding[:, ::-1]
        warnings = (*header.findings, *_contradictions(header, laterality, projection))
    return PreparedImage(
        image, padding, stored, table, laterality == "R", projection or header.projection,
        (*warnings, *stored.warnings, *table.warnings),
    )  # fmt: skip


def _contradictions(header: ImageHeader, laterality: str, projection: str | None) -> list[str]:
    """Return where the header contradicts the manifest, which is used."""
    found = []
    for check, tagged, given in (
        ("laterality", header.side, laterality),
        ("projection", header.projection, projection),
    ):
        if tagged is not None and given is not None and tagged != given.upper():
            found.append(finding(check, f"the header's {check} is {tagged}, the manifest's {given.upper()}"))
    return found


@contextmanager
def _damaged_headers() -> Iterator[None]:
    """Turn pydicom's errors on a damaged header into one reason without the header's values.

    Elements are converted on first access, so the error can come at any step.
    """
    try:
        with quiet_pydicom():
            yield
    except (TrustCacheError, MemoryError):
        raise
    except Exception as error:
        raise ImageError("read", f"the header is damaged ({type(error).__name__})") from None


def cut_breast(prepared: PreparedImage, settings: ImageSettings) -> Processed:
    """Find the breast, cut it out, and check that the pixels are plausible."""
    table, stored = prepared.table, prepared.stored
    anywhere = np.ones(prepared.image.shape, dtype=np.bool_)
    evidence = PixelEvidence(
        stored.pixels, table.shown, table.is_padding, anywhere, prepared.mirrored, prepared.projection
    )
    try:
        mask = find_breast(prepared.image, prepared.padding, settings.closing)
    except ImageError as error:
        why = (*stored.warnings, *table.warnings, *findings_without_mask(evidence))
        raise ImageError(error.stage, "; ".join([error.reason, *why])) from None
    box = box_of(mask, settings.margin)
    cut = cut_out(prepared.image, mask, box)
    warnings = (*prepared.warnings, *pixel_findings(replace(evidence, mask=mask)))
    sketch = sketch_of_picture(cut, stored.pixels[:, ::-1] if prepared.mirrored else stored.pixels)
    return Processed(cut, mask, box, stored.decoder, stored.transfer_syntax, warnings, sketch)


def tagged_laterality(dataset: Dataset) -> str | None:
    """Return the side that the header names, L or R, or None."""
    with _damaged_headers():
        return header_of(dataset).side


def sketch_of_picture(picture: NDArray[np.uint16], stored: NDArray[Any] | None = None) -> str:
    """Return the sketch of a canonical picture as text; noise and rounding hardly change it.

    With stored values, chest wall on the left, their digest follows: two windows can make two pictures of
    the same values.
    """
    small = cv2.resize(picture.astype(np.float32), (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
    sketch = sketch_vector(np.asarray(small).ravel()).astype(">i2").tobytes().hex()
    if stored is None:
        return sketch
    return f"{sketch}-{blake3(np.ascontiguousarray(stored).tobytes()).hexdigest(16)}"
