"""Draw the steps of one image side by side, and contact sheets of many pictures."""

import math
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file
from trust_cache.base.places import read_bytes
from trust_cache.images.picture import PreparedImage, Processed
from trust_cache.images.png_files import decode_png, encode_png

HEIGHT, WIDTH = 160, 96  # of one picture, as the encoder's input is shaped
MOST = 1_000  # pictures on a sheet; of a larger folder every n-th is shown
_GAP = 12  # white columns between two steps
_OUTLINE = (255, 190, 0)  # red, green, blue: seen on grey and on black
_WHITE = 255
_WHITE_PERCENTILE = 99.5  # of the breast is shown below white

Colour = NDArray[np.uint8]


def draw_steps(prepared: PreparedImage, processed: Processed | None, height: int = 900) -> Colour:
    """Return the steps as one 8-bit picture (red first); of a failed image only the decoded one."""
    low, high = _shown_range(prepared.image, None if processed is None else processed.mask)
    decoded = _as_colour(prepared.image, low, high, height)
    if processed is None:
        return decoded
    small = cv2.resize(processed.mask.view(np.uint8), decoded.shape[1::-1], interpolation=cv2.INTER_NEAREST)
    outlines, _ = cv2.findContours(small, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    outlined = decoded.copy()
    cv2.drawContours(outlined, outlines, -1, _OUTLINE, thickness=2)
    cut = _as_colour(processed.png_pixels, low, high, height)
    gap = np.full((height, _GAP, 3), _WHITE, dtype=np.uint8)
    return np.concatenate([decoded, gap, outlined, gap, cut], axis=1)


def thumbnail(pixels: NDArray[np.uint16], height: int, width: int) -> NDArray[np.uint8]:
    """Return a crop as an 8-bit picture of this size, with its proportions and black beside it."""
    scale = min(height / pixels.shape[0], width / pixels.shape[1])
    rows, columns = (max(1, round(side * scale)) for side in pixels.shape)
    low, high = _shown_range(pixels, pixels > 0)
    small = cv2.resize(pixels, (columns, rows), interpolation=cv2.INTER_AREA)
    sheet = np.zeros((height, width), dtype=np.uint8)
    sheet[:rows, :columns] = _as_bytes(np.asarray(small, dtype=np.uint16), low, high)
    return sheet


def _shown_range(image: NDArray[np.uint16], mask: NDArray[np.bool_] | None) -> tuple[float, float]:
    seen = image if mask is None else image[mask]
    if seen.size == 0:
        return 0.0, 1.0
    low = float(image.min())  # from the air up: the skin line is darker than the tissue
    high = float(np.percentile(seen.ravel()[:: max(1, seen.size // 1_000_000)], _WHITE_PERCENTILE))
    return low, max(high, low + 1)


def _as_bytes(image: NDArray[np.uint16], low: float, high: float) -> NDArray[np.uint8]:
    shares = (image.astype(np.float32) - low) / (high - low)
    return np.asarray(np.rint(np.clip(shares, 0, 1) * _WHITE), dtype=np.uint8)


def _as_colour(image: NDArray[np.uint16], low: float, high: float, height: int) -> Colour:
    width = max(1, round(image.shape[1] * height / image.shape[0]))
    small = np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint16)
    return np.repeat(_as_bytes(small, low, high)[:, :, np.newaxis], 3, axis=2)


def write_sheet(pictures: Sequence[str | Path], out: Path) -> int:
    """Write a contact sheet of these PNG files, or of every n-th; return the number shown."""
    if not pictures:
        raise InputError("the contact sheet: expected at least one picture, found none")
    shown = pictures[:: math.ceil(len(pictures) / MOST)]
    columns = math.ceil(math.sqrt(len(shown) * HEIGHT / WIDTH))
    rows = math.ceil(len(shown) / columns)
    sheet = np.zeros((rows * HEIGHT, columns * WIDTH), dtype=np.uint8)
    for number, path in enumerate(shown):
        row, column = divmod(number, columns)
        small = thumbnail(decode_png(read_bytes(str(path))), HEIGHT, WIDTH)
        sheet[row * HEIGHT : (row + 1) * HEIGHT, column * WIDTH : (column + 1) * WIDTH] = small
    write_file(out, encode_png(sheet))
    return len(shown)
