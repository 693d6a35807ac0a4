"""Measure lines of pixels: constant bands, equal lines, straight cuts and jumps of rows in a breast.

The functions look at rows; columns are the rows of the transposed image. Pixels are stored values.
"""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]

_JUMP = 0.1  # of the contrast, beside a block at the border: more than noise
_OTHER_GREY = 0.03  # of the contrast, beside a band inside: tissue's texture is more
_STEP = 0.2  # of the contrast, within one pixel: more than any anatomy
_STAYS = 0.01  # of the lines: so far apart the lines still differ; wires and dead lines are thinner
_AT_TOP, _ABOVE_BLACK = 0.9, 0.15  # of the contrast: a mark or metal on tissue
_LEAST_RUN = 0.003  # of the lines: a shorter band is a defect of single lines
_MARGIN = 0.1  # of the lines, at each border: white unexposed strips end there
_MIDDLE = 0.3  # of the lines, at each border: as far as collimators and labels reach
_OF_TISSUE = 0.6  # an edge between tissue and air counts less: a label beside the breast has some
_VARIED = 0.1  # of the breast's width
_APART = 8  # pixels, which are unlike even in an enlarged picture
_EVERY = 4  # lines across which cuts are looked for
_ENDS = (1, 99)
_ROWS, _COLUMNS = 2, 4  # pixels of a block; blocks have less noise than pixels
_MOVED = 3  # blocks: what fits as well moved by less is an oblique edge
_UNLIKE = 0.02  # of the contrast: rows that differ by less are alike anyway
_TIP = 50  # the first and the last of so many parts of the breast are left out: its ends are narrow


@dataclass(frozen=True)
class GreyScale:
    """The stored values of black and white as far as the breast and its air use them."""

    black: float
    white: float  # below black where large values are shown dark

    @property
    def contrast(self) -> float:
        """The difference of the two."""
        return abs(self.white - self.black)

    def share(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return values as shares of the way from black to white."""
        scale = np.float32(self.white - self.black)
        return np.asarray((values.astype(np.float32) - np.float32(self.black)) / scale)


def scale_of(values: NDArray[Any], shown: NDArray[np.uint16], mask: Mask) -> GreyScale:
    """Return the scale of the breast and the air beside it; white markers do not count."""
    tissue, air = values[mask], values[~mask]
    tissue = tissue if tissue.size else values
    low, high = (float(end) for end in np.percentile(tissue, _ENDS))
    if air.size:
        middle = float(np.median(air))
        low, high = min(low, middle), max(high, middle)
    upper = values > (low + high) / 2
    if upper.any() and not upper.all() and float(shown[upper].mean()) < float(shown[~upper].mean()):
        low, high = high, low
    return GreyScale(low, high)


@dataclass(frozen=True)
class BlockLimits:
    """The shares of the lines that may be constant at the first and last border, and the least edge."""

    first: float
    last: float
    edge: float  # of the breast's width


def constant_share(pixels: NDArray[Any], breast: Mask, scale: GreyScale, limits: BlockLimits) -> float | None:
    """Return the share of lines in a constant run that cuts something; None without one."""
    width = max(1, int(np.count_nonzero(breast.any(axis=0))))
    first = pixels[:, 0]
    constant = pixels.min(axis=1) == pixels.max(axis=1)
    same = constant[1:] & constant[:-1] & (first[1:] == first[:-1])
    edges = np.flatnonzero(np.diff(np.concatenate(([0], same.view(np.int8), [0]))))
    count = len(pixels)
    for start, end in edges.reshape(-1, 2):
        length = int(end - start) + 1
        value = float(first[start])
        before = _differences(pixels[max(start - 3, 0) : start], value, scale)
        after = _differences(pixels[end + 1 : end + 4], value, scale)
        if before is not None and after is not None:
            through = int(np.count_nonzero((before > _OTHER_GREY) & (after > _OTHER_GREY)))
            if length >= max(3, _LEAST_RUN * count) and through > limits.edge * width:
                return length / count
            continue
        beside, limit = (before, limits.last) if after is None else (after, limits.first)
        cuts = beside is not None and int(np.count_nonzero(beside > _JUMP)) > limits.edge * width
        if length > limit * count and cuts:
            return length / count
    return None


def _differences(lines: NDArray[Any], value: float, scale: GreyScale) -> NDArray[np.float32] | None:
    """Return by how much lines differ from a value, as shares of the contrast; None without lines."""
    if not len(lines):
        return None
    return np.asarray(np.abs(np.median(lines, axis=0) - value) / scale.contrast, dtype=np.float32)


def equal_share(pixels: NDArray[Any], breast: Mask) -> float:
    """Return the share of the breast's lines that equal another; enlarging makes neighbours equal.

    A line counts if its pixels vary over a tenth of the breast's width: air and labels do not.
    """
    columns, rows = np.flatnonzero(breast.any(axis=0)), np.count_nonzero(breast.any(axis=1))
    if not columns.size:
        return 0.0
    part = np.ascontiguousarray(pixels[:, int(columns[0]) : int(columns[-1]) + 1])
    unlike = part[:, _APART::_EVERY] != part[:, : max(part.shape[1] - _APART, 0) : _EVERY]
    varied = np.count_nonzero(unlike, axis=1) > _VARIED * unlike.shape[1]
    places: dict[int, int] = {}
    equal = 0
    for row in np.flatnonzero(varied).tolist():
        digest = hash(part[row].tobytes())
        equal += row - places.get(digest, row) > 1
        places[digest] = row
    return equal / rows if equal > 1 else 0.0


def cut_share(pixels: NDArray[Any], breast: Mask, scale: GreyScale) -> float:
    """Return the largest share of the breast's width in which neighbouring lines differ by a step.

    Beyond a cut the picture is another one: lines a little farther apart differ too. A bright mark or metal
    on tissue is no cut.
    """
    step = _steps(scale.share(pixels[:, ::_EVERY]))
    reach = max(3, min(pixels.shape) // 50)
    inner = cv2.erode(  # without the skin line, and without the image's border, which closing the mask fills
        np.ascontiguousarray(breast).view(np.uint8),
        np.ones((2 * reach + 1, 1), np.uint8),
        borderType=cv2.BORDER_CONSTANT,
        borderValue=0,
    ).view(np.bool_)[:, ::_EVERY]
    both = inner[1:] & inner[:-1]
    width = np.count_nonzero(both, axis=1)
    usable = width > _VARIED * both.shape[1]
    margin = max(1, int(_MARGIN * len(usable)))
    usable[:margin] = usable[-margin:] = False
    cut = (np.count_nonzero(step & both, axis=1)[usable] / width[usable]).max() if usable.any() else 0.0
    # Also where tissue ends at a line in the image's middle, farther from the border than collimators reach.
    columns = np.asarray(breast.any(axis=0))[::_EVERY]
    if np.count_nonzero(columns) > _VARIED * columns.size:
        middle = slice(int(_MIDDLE * len(step)), int((1 - _MIDDLE) * len(step)))
        across = np.count_nonzero(step[middle] & columns, axis=1) / np.count_nonzero(columns)
        cut = max(cut, float(across.max()) * _OF_TISSUE)
    return float(cut)


def _steps(share: NDArray[np.float32]) -> Mask:
    """Mark steps between a line and the next that stay, but for those from tissue to a white mark."""
    upper, lower = share[:-1], share[1:]
    step: Mask = np.abs(lower - upper) > _STEP
    apart = max(2, int(_STAYS * len(share)))
    away = np.minimum(np.arange(len(step)) + 1 + apart, len(share) - 1)
    back = np.maximum(np.arange(len(step)) - apart, 0)
    step &= np.abs(share[away] - share[back]) > _STEP
    bright, dark = np.maximum(upper, lower), np.minimum(upper, lower)
    return np.asarray(step & ~((bright > _AT_TOP) & (dark > _ABOVE_BLACK)))


def row_jump(pixels: NDArray[Any], mask: Mask, scale: GreyScale) -> tuple[int, float]:
    """Return by how many pixels the image jumps sideways between two rows, and the difference then left.

    Neighbouring rows fit each other best as they are. From a place on where pixels were lost, they fit best
    moved, and nearly nothing of their difference is left, here as a share of it: 1 where nothing jumps.
    """
    inside = np.flatnonzero(mask.any(axis=1))
    part = pixels[inside[0] : inside[-1] + 1]
    rows, columns = len(part) // _ROWS, part.shape[1] // _COLUMNS
    if rows < _TIP or columns <= 2 * _MOVED:
        return 0, 1.0
    part = part[: rows * _ROWS, : columns * _COLUMNS]
    wide = part.astype(np.int16) if part.itemsize == 1 else part  # OpenCV does not reduce int8
    blocks = cv2.resize(wide, (columns, rows), interpolation=cv2.INTER_AREA).astype(np.float32)
    blocks = blocks[rows // _TIP : rows - rows // _TIP] / np.float32(scale.contrast)
    blocks -= blocks.mean(axis=1, keepdims=True)
    upper, lower = blocks[:-2], blocks[2:]  # a row between them may have the jump inside
    spectrum = np.fft.rfft(lower, axis=1) * np.conj(np.fft.rfft(upper, axis=1))
    product = np.fft.irfft(spectrum, n=columns, axis=1)
    at = product.argmax(axis=1)
    both = np.square(upper).sum(axis=1) + np.square(lower).sum(axis=1)
    unmoved = np.sqrt(np.maximum(both - 2 * product[:, 0], 0) / columns)
    moved = np.sqrt(np.maximum(both - 2 * product.max(axis=1), 0) / columns)
    shifts = (at + columns // 2) % columns - columns // 2
    unlike = (np.abs(shifts) >= _MOVED) & (unmoved > _UNLIKE)
    if not unlike.any():
        return 0, 1.0
    left = np.where(unlike, moved / np.maximum(unmoved, _UNLIKE), 1.0)
    worst = int(left.argmin())
    return _COLUMNS * int(abs(shifts[worst])), float(left[worst])
