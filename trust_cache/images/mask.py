"""Find the breast: the largest piece brighter than the air, with the shape of a breast; cut it out.

Levels and pieces are found on a reduced image, whose averaging also reduces the noise; the mask is enlarged
to full size and closed there. Stretching the image to [0, 1] first would change nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from trust_cache.images.image_failures import ImageError, refuse_if

Grey = NDArray[np.uint16]
Mask = NDArray[np.bool_]

REDUCED_SIDE = 1400  # the longer side of the reduced image: 5355 rows become 1339
_RING_SHARE = 0.01  # how much of the shorter side counts as its border
_NOISE = 6  # standard deviations of the air that are still air
_TISSUE_SHARE = 0.05  # of the way from air to typical tissue: a low threshold, the skin line counts
_NOISE_CEILING = 0.25  # of that way: an uneven border must not raise the threshold into the tissue
_FLOOR = 0.01  # of the way to the brightest value: below, compression noise in the air
_SIGNIFICANT_BITS = 4  # of a threshold
_LEAST_SHARE = 0.02  # of the image
_MOST_OF_BOX = 0.95  # of its bounding box: half an ellipse fills 0.79, a rectangle 1
_LEAST_SOLID = 0.7  # of its convex hull
_LONGEST_OUTLINE = 2.0  # convex hulls' outlines
_LEAST_FILLED = 0.4  # of the outline's inside, before holes are filled
_DARKER_SHARE = 0.15  # of the image may be darker than the air: an unexposed band
_DARKER_BY = 0.1  # of the image's range: darker than by noise
_FRAME_SHARE = 0.99  # of a line: the rest are dots of noise or of a label
_FRAME_GREY = 0.05  # of the image's range: a plain frame varies less
_PLAIN_SHARE = 0.95  # of a line
_FRAME_WIDTH = 0.12  # of the image's side
_FRAME_STEP = 3  # lines in which a frame's edge ends
_STRIP_THICKNESS = 0.15  # of the image's side
_STRIP_LENGTH = 0.6
_STRIP_OF_BOX = 0.9
_TEXTURE = 0.01  # of the contrast: air is smoother, tissue along a border is not
_HALF = 0.5
_BORDER_IN_TISSUE = "the border is inside the tissue: a spot compression view?"


@dataclass(frozen=True)
class Level:
    """The grey of the air along one side of the image, and how much it varies."""

    grey: float
    noise: float


def find_breast(image: Grey, padding: Mask, closing: int) -> Mask:
    """Return the breast's mask; an ImageError says why there is none.

    `padding` marks the header's padding pixels at the size that `reduce_padding` gives.
    """
    reduced = reduce_image(image)
    refuse_if(reduced.min() == reduced.max(), "mask", "the image is constant")
    # Removes single pixels and keeps edges in place.
    quiet = np.asarray(cv2.medianBlur(reduced, 3), dtype=np.uint16)
    try:
        small = _breast_in(quiet, padding)
    except ImageError as error:
        found = _breast_inside(quiet, padding, _inside_black_frame(quiet, padding))
        if found is None:
            found = _breast_inside(quiet, padding, inside_plain_frame(quiet))
        if found is None:
            raise error from None
        small = found
    return _at_full_size(small, image.shape, closing)


def _breast_in(image: Grey, padding: Mask) -> NDArray[np.uint8]:
    """Find the breast above the level of one of the sides, the darkest that serves."""
    failures = []
    for level in air_levels(image, padding):
        try:
            _check_air(image, padding, level)
            return _breast_above(image, level)
        except ImageError as error:
            # A side can be unexposed and darker than the air of the others: try the next side's level.
            failures.append(error)
    raise failures[0]


def _breast_inside(image: Grey, padding: Mask, inside: tuple[slice, slice]) -> NDArray[np.uint8] | None:
    """Return the breast of a part of the image, None if there is none."""
    found = np.zeros(image.shape, dtype=np.uint8)
    try:
        found[inside] = _breast_in(image[inside], padding[inside])
    except ImageError:
        return None
    return found


def inside_plain_frame(image: Grey) -> tuple[slice, slice]:
    """Return the part without the frame of a scanned film, which has one grey and ends with a step."""
    low, high = np.percentile(image, (1, 99))
    near, parts = _FRAME_GREY * (float(high) - float(low)), []
    for lines in (image, image.T):
        middles = np.median(lines, axis=1)
        plain = np.mean(np.abs(lines - middles[:, None].astype(np.float32)) <= near, axis=1) >= _PLAIN_SHARE
        widths = [_frame_width(middles[::step], plain[::step], near) for step in (1, -1)]
        parts.append(slice(widths[0], len(lines) - widths[1]))
    return parts[0], parts[1]


def _frame_width(middles: NDArray[np.floating[Any]], plain: Mask, near: float) -> int:
    """Return how many lines from the border on have one grey that then changes; 0 where there is no frame."""
    alike = plain & (np.abs(middles - middles[0]) <= near)
    width = int(np.argmin(alike))  # 0 as well if all are alike
    ends = abs(middles[min(width + _FRAME_STEP, len(middles) - 1)] - middles[0]) > 2 * near
    return width if ends and width <= _FRAME_WIDTH * len(middles) else 0


def _inside_black_frame(image: Grey, padding: Mask) -> tuple[slice, slice]:
    """Return the part without the black lines along the sides: collimators and padding frame the air."""
    black, parts = padding | (image == image.min()), []
    for axis in (1, 0):
        used = np.flatnonzero(black.mean(axis=axis) < _FRAME_SHARE)
        whole = slice(0, black.shape[1 - axis])
        parts.append(slice(int(used[0]), int(used[-1]) + 1) if used.size else whole)
    return parts[0], parts[1]


def reduction(shape: Sequence[int]) -> int:
    """Return the factor by which an image of this shape is reduced."""
    return -(-max(shape) // REDUCED_SIDE)


def reduce_image(image: Grey) -> Grey:
    """Average blocks of pixels; incomplete blocks at the end are left out."""
    factor = reduction(image.shape)
    if factor == 1:
        return image
    rows, columns = (max(side // factor, 1) for side in image.shape)
    whole = image[: rows * factor, : columns * factor]
    return np.asarray(cv2.resize(whole, (columns, rows), interpolation=cv2.INTER_AREA), dtype=np.uint16)


def reduce_padding(stored: NDArray[Any]) -> NDArray[Any]:
    """Take one pixel of each block: enough to find padding."""
    factor = reduction(stored.shape)
    rows, columns = (max(side // factor, 1) for side in stored.shape)
    taken = stored[factor // 2 :: factor, factor // 2 :: factor][:rows, :columns]
    return np.ascontiguousarray(taken)


def air_levels(image: Grey, padding: Mask) -> list[Level]:
    """Return the levels that air may have, darkest first: the median along each side of the image.

    One median over the whole border would be tissue as soon as a strip along one side joins a large
    breast on another. Padding is left out; a side that is mostly padding has level 0.
    """
    depth = max(1, round(_RING_SHARE * min(image.shape)))
    sides = (np.s_[:depth], np.s_[-depth:], np.s_[:, :depth], np.s_[:, -depth:])
    levels = []
    for side in sides:
        grey = image[side][~padding[side]]
        if grey.size < _HALF * padding[side].size:
            levels.append(Level(0.0, 0.0))
            continue
        # The lower half only: labels and tissue are in the upper.
        lower, middle = np.percentile(grey, (16, 50))
        levels.append(Level(float(middle), float(middle - lower)))
    return sorted(set(levels), key=lambda level: (level.grey, level.noise))


def threshold_above(level: Level, typical: float) -> float:
    """Return the threshold of the breast, between the air's level and that of typical tissue."""
    contrast = max(typical - level.grey, 0.0)
    step = min(max(_NOISE * level.noise, _TISSUE_SHARE * contrast), _NOISE_CEILING * contrast)
    grey = level.grey + step
    if grey <= 0:
        return 0.0
    # A label or a strip moves the air's median slightly; rounding up keeps the mask the same.
    unit = 2.0 ** (np.floor(np.log2(grey)) + 1 - _SIGNIFICANT_BITS)
    return float(np.ceil(grey / unit) * unit)


def _check_air(image: Grey, padding: Mask, level: Level) -> None:
    """Refuse a level that is not the dark end of the image: a frame, or tissue up to the border."""
    seen = image[~padding]
    refuse_if(seen.size == 0, "mask", "the whole image is padding")
    low, high = np.percentile(seen, (1, 99))  # a label is brighter than all tissue
    darker = np.count_nonzero(seen < level.grey - _DARKER_BY * (high - low))
    if darker <= _DARKER_SHARE * seen.size and level.noise <= _DARKER_BY * (high - low):
        return
    frame = np.count_nonzero(seen > level.grey) < _DARKER_SHARE * seen.size
    refuse_if(frame, "mask", "the border is brighter than the inside: a scanned film's white frame?")
    raise ImageError("mask", _BORDER_IN_TISSUE)


def _breast_above(image: Grey, level: Level) -> NDArray[np.uint8]:
    above = float(image.max()) - level.grey
    step = max(min(_NOISE * level.noise, _DARKER_BY * above), _FLOOR * above)
    piece = _largest_piece(image > level.grey + step)
    # Twice: the first piece can contain air, which lowers the typical level.
    for _ in range(2):
        typical = float(np.median(image[piece]))
        # Tissue along the darkest side, nearly as bright as the rest and textured.
        textured = level.noise > _TEXTURE * (typical - level.grey)
        refuse_if(level.grey > _HALF * typical and textured, "mask", _BORDER_IN_TISSUE)
        piece = _largest_piece(image > threshold_above(level, typical))
    return _whole_breast(piece)


def _largest_piece(bright: Mask) -> Mask:
    count, labels, boxes, _ = cv2.connectedComponentsWithStats(bright.view(np.uint8), connectivity=8)
    areas = boxes[:, cv2.CC_STAT_AREA].astype(np.int64)
    areas[0] = 0  # the background
    for label in np.argsort(areas)[::-1][: min(count, 5)]:
        if areas[label] < _LEAST_SHARE * bright.size:
            break
        if not _is_strip(boxes[label], bright.shape):
            return np.asarray(labels == label)
    share = areas.max() / bright.size
    raise ImageError("mask", f"the piece brighter than the air is too small for a breast ({share:.1%})")


def _is_strip(box: NDArray[np.int32], shape: tuple[int, ...]) -> bool:
    """Tell whether a piece is a bar along an edge of the image."""
    left, top, width, height, area = (int(number) for number in box)
    rows, columns = shape
    if area < _STRIP_OF_BOX * width * height:
        return False
    upright = left == 0 or left + width == columns
    lying = top == 0 or top + height == rows
    return (upright and width <= _STRIP_THICKNESS * columns and height >= _STRIP_LENGTH * rows) or (
        lying and height <= _STRIP_THICKNESS * rows and width >= _STRIP_LENGTH * columns
    )


def _whole_breast(piece: Mask) -> NDArray[np.uint8]:
    """Fill the piece's holes and check that the result can be a breast."""
    outlines, _ = cv2.findContours(piece.view(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    outline = max(outlines, key=len)
    filled = np.zeros(piece.shape, dtype=np.uint8)
    cv2.drawContours(filled, [outline], -1, 1, cv2.FILLED)
    area = int(np.count_nonzero(filled))
    hollow = np.count_nonzero(piece) < _LEAST_FILLED * area
    refuse_if(hollow, "mask", "the mask is hollow: a frame around the image?")
    _, _, width, height = cv2.boundingRect(outline)
    box = _MOST_OF_BOX * width * height
    refuse_if(area > box, "mask", f"the mask is a rectangle: {_BORDER_IN_TISSUE}")
    hull = cv2.convexHull(outline)
    solid = area / max(cv2.contourArea(hull), 1.0)
    length = cv2.arcLength(outline, closed=True) / max(cv2.arcLength(hull, closed=True), 1.0)
    shape = f"it fills {solid:.0%} of its convex hull, and its outline is {length:.1f} times as long"
    ragged = solid < _LEAST_SOLID or length > _LONGEST_OUTLINE
    refuse_if(ragged, "mask", f"the mask is ragged: {shape}")
    return filled


def _at_full_size(small: NDArray[np.uint8], shape: tuple[int, ...], closing: int) -> Mask:
    rows, columns = shape
    factor = reduction(shape)
    if factor > 1:
        whole = (small.shape[1] * factor, small.shape[0] * factor)
        grown = cv2.resize(255 * small, whole, interpolation=cv2.INTER_LINEAR)
        # The last, incomplete blocks continue their neighbours.
        below, beside = rows - grown.shape[0], columns - grown.shape[1]
        grown = cv2.copyMakeBorder(grown, 0, below, 0, beside, cv2.BORDER_REPLICATE)
        small = (grown > 127).view(np.uint8)  # noqa: PLR2004 (half of 255)
    closed = cv2.morphologyEx(small, cv2.MORPH_CLOSE, np.ones((closing, closing), dtype=np.uint8))
    return np.asarray(closed, dtype=np.uint8).view(np.bool_)


@dataclass(frozen=True)
class Box:
    """Rows `top` to `bottom` and columns `left` to `right`, the ends excluded."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def slices(self) -> tuple[slice, slice]:
        """The slices that cut the box out of an array."""
        return slice(self.top, self.bottom), slice(self.left, self.right)


def box_of(mask: NDArray[np.bool_], margin: float) -> Box:
    """Return the mask's bounding box with `margin` of its size on each side, clipped to the image."""
    ends = []
    for axis, size in enumerate(mask.shape):
        occupied = np.flatnonzero(mask.any(axis=1 - axis))
        first, last = int(occupied[0]), int(occupied[-1]) + 1
        extra = round(margin * (last - first))
        ends += [max(first - extra, 0), min(last + extra, size)]
    return Box(*ends)


def cut_out(image: NDArray[np.uint16], mask: NDArray[np.bool_], box: Box) -> NDArray[np.uint16]:
    """Return the box's pixels, zero outside of the mask."""
    return image[box.slices] * mask[box.slices]


def mirror(image: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Mirror left and right."""
    return np.asarray(cv2.flip(image, 1), dtype=np.uint16)  # a tenth of the time of a reversed copy
