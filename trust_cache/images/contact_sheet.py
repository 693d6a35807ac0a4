"""Draw the steps of one image side by side, and contact sheets of many pictures."""

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file
from trust_cache.base.places import read_bytes
from trust_cache.images.picture import PreparedImage, Processed
from trust_cache.images.png_files import decode_png, encode_png

HEIGHT, WIDTH = 320, 192  # of one picture, as the encoder's input is shaped
CAPTION = 22  # rows below it, for its image id
MOST = 250  # pictures on a sheet; of a larger folder every n-th is shown
_GAP = 12  # white columns between two steps
_TITLE = 40  # white rows above a step, for its title
_LINE = 30  # rows of a line of text
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_OUTLINE = (255, 190, 0)  # red, green, blue: seen on grey and on black
_WHITE = 255
_WHITE_PERCENTILE = 99.5  # of the breast is shown below white

Colour = NDArray[np.uint8]


def draw_steps(
    prepared: PreparedImage | None, processed: Processed | None, failure: str = "", height: int = 900
) -> Colour:
    """Return the steps as one 8-bit picture with titles (red first).

    Of a failed image these are the steps that it reached, then the reason.
    """
    panels = []
    if prepared is not None:
        low, high = _shown_range(prepared.image, None if processed is None else processed.mask)
        decoded = _as_colour(prepared.image, low, high, height)
        panels.append(_titled("1 decoded, chest wall left", decoded))
    if prepared is not None and processed is not None:
        size = decoded.shape[1::-1]
        small = cv2.resize(processed.mask.view(np.uint8), size, interpolation=cv2.INTER_NEAREST)
        outlines, _ = cv2.findContours(small, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        outlined = decoded.copy()
        cv2.drawContours(outlined, outlines, -1, _OUTLINE, thickness=2)
        cut = _as_colour(processed.png_pixels, low, high, height)
        rows, columns = processed.png_pixels.shape
        panels += [_titled("2 breast found", outlined), _titled(f"3 picture, {rows} x {columns}", cut)]
    if failure:
        panels.append(_titled("failed", _written(failure, height)))
    gap = np.full((height + _TITLE, _GAP, 3), _WHITE, dtype=np.uint8)
    return np.concatenate([part for panel in panels for part in (panel, gap)][:-1], axis=1)


def _titled(title: str, panel: Colour) -> Colour:
    """Put a title above a panel, which becomes as wide as the title needs."""
    (needed, _), _ = cv2.getTextSize(title, _FONT, 0.7, 2)
    width = max(panel.shape[1], needed + 8)
    sheet = np.full((panel.shape[0] + _TITLE, width, 3), _WHITE, dtype=np.uint8)
    sheet[_TITLE:, : panel.shape[1]] = panel
    cv2.putText(sheet, title, (4, _TITLE - 13), _FONT, 0.7, (0, 0, 0), 2, cv2.LINE_AA)
    return sheet


def _written(text: str, height: int) -> Colour:
    """Return a white panel with a text in lines."""
    sheet = np.full((height, 520, 3), _WHITE, dtype=np.uint8)
    for number, line in enumerate(textwrap.wrap(_plain(text), 40)[: height // _LINE], start=1):
        cv2.putText(sheet, line, (4, _LINE * number), _FONT, 0.65, (160, 0, 0), 1, cv2.LINE_AA)
    return sheet


def _plain(text: str) -> str:
    """Return a text in the letters that the font has."""
    return text.encode("ascii", errors="replace").decode()


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


def write_sheet(pictures: Mapping[str, str | Path], out: Path) -> int:
    """Write a contact sheet of PNG files by image id, or of every n-th; return the number shown."""
    if not pictures:
        raise InputError("the contact sheet: expected at least one picture, found none")
    shown = list(pictures.items())[:: math.ceil(len(pictures) / MOST)]
    height = HEIGHT + CAPTION
    columns = math.ceil(math.sqrt(len(shown) * height / WIDTH))
    rows = math.ceil(len(shown) / columns)
    sheet = np.zeros((rows * height, columns * WIDTH), dtype=np.uint8)
    for number, (image_id, path) in enumerate(shown):
        row, column = divmod(number, columns)
        small = thumbnail(decode_png(read_bytes(str(path))), HEIGHT, WIDTH)
        cell = sheet[row * height : (row + 1) * height, column * WIDTH : (column + 1) * WIDTH]
        cell[:HEIGHT] = small
        cell[HEIGHT:] = _caption(image_id)
    write_file(out, encode_png(sheet))
    return len(shown)


def _caption(image_id: str) -> NDArray[np.uint8]:
    """Return the strip below a picture: its id, cut in the middle where it is too long."""
    strip = np.full((CAPTION, WIDTH), 40, dtype=np.uint8)
    text = _plain(image_id)
    for kept in range(len(text), 0, -1):
        short = text if kept == len(text) else f"{text[: kept // 2]}..{text[len(text) - (kept + 1) // 2 :]}"
        (needed, _), _ = cv2.getTextSize(short, _FONT, 0.45, 1)
        if needed <= WIDTH - 6:
            cv2.putText(strip, short, (3, CAPTION - 7), _FONT, 0.45, _WHITE, 1, cv2.LINE_AA)
            break
    return strip
