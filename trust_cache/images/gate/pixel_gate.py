"""The pixel gate: whether the pixels of an image are plausible for a mammogram.

Each check measures one number and compares it with a limit; a value beyond the limit is a warning with the
check's name, the value and the limit. The limits follow from how mammograms are made, not from a sample:
air is the smooth part and darker than tissue, quantum noise makes neighbouring rows alike but never equal,
and a breast has no straight edge inside. They are wide, so that implants, collimators, labels, padding and
vendors' look-up tables stay inside.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from trust_cache.images.gate.pixel_limits import LIMITS, PixelLimits
from trust_cache.images.gate.pixel_lines import (
    BlockLimits,
    constant_share,
    cut_share,
    equal_share,
    row_jump,
    scale_of,
)
from trust_cache.images.image_failures import ImageError
from trust_cache.images.mask import find_breast, inside_plain_frame, reduce_padding
from trust_cache.manifest.picture_checks import check_of, finding

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

_GRID = 24  # cells along each side, in which polarity is measured
_IN_CELL = 4  # pixels along each side of a cell
_CALM = 0.02  # of the image's range: deviation within a cell of air, whose noise is averaged
_STRIPS, _STRIP = 40, 32  # at most so many strips of so many rows
_STEP = 0.2  # of the image's range, within one pixel: more than any anatomy
_MANY_VALUES = 16  # padding is one value, rarely a few; fewer are many in an image of few grey levels
_FEW_VALUES, _OF_VALUES = 3, 0.01  # of the image's different values
_LEAST_PADDED = 0.05  # of the image without the quarter at the chest wall
_BESIDE = 2  # pixels of the reduced image
_INSIDE = 0.03  # of the longer side: 7 mm, deeper than skin
_SHARP = 150  # of the longer side: 2 mm
_EDGE = 0.03  # of the breast's size
_TIP = 0.97  # of the largest width
_ENDS = (1, 99)
_WITHOUT_MASK = {"polarity", "grey-levels", "padding", "constant-band", "neighbours", "row-shift"}


@dataclass(frozen=True)
class PixelEvidence:
    """What the gate looks at: stored pixels as they are in the file, and how they are shown."""

    pixels: NDArray[Any]
    shown: NDArray[np.uint16]  # grey by pattern of the stored value, before padding is blacked
    is_padding: Mask  # by pattern
    mask: Mask  # of the breast, chest wall on the left
    mirrored: bool  # the file has the chest wall on the right
    projection: str | None

    def patterns(self, pixels: NDArray[Any]) -> NDArray[Any]:
        """Return stored values as patterns of their bytes."""
        return pixels.view(f"u{pixels.dtype.itemsize}")


def pixel_findings(evidence: PixelEvidence, limits: PixelLimits = LIMITS) -> tuple[str, ...]:
    """Return what is implausible about an image, one sentence each."""
    found = [*_grey_findings(evidence, limits), *_line_findings(evidence, limits)]
    found += [*_noise_findings(evidence, limits), *_place_findings(evidence, limits)]
    return tuple(dict.fromkeys(found))


def findings_without_mask(evidence: PixelEvidence, limits: PixelLimits = LIMITS) -> tuple[str, ...]:
    """Return what is implausible about an image in which no breast is found: why there is none."""
    found = pixel_findings(evidence, limits)
    return tuple(text for text in found if check_of(text) in _WITHOUT_MASK)


def _grey_findings(evidence: PixelEvidence, limits: PixelLimits) -> Iterator[str]:
    """Check polarity, grey levels, saturation and padding, on a sample of the pixels."""
    small = reduce_padding(evidence.pixels)
    patterns = evidence.patterns(small)
    shown, padding = evidence.shown[patterns], evidence.is_padding[patterns]
    mask = reduce_padding(evidence.mask[:, ::-1] if evidence.mirrored else evidence.mask)
    flip = slice(None, None, -1 if evidence.mirrored else 1)
    darker = polarity(shown[:, flip], padding[:, flip])
    if darker is not None and darker < limits.polarity:
        words = f"the air is brighter than the tissue, balance {darker:.2f}, limit {limits.polarity:g}"
        yield finding("polarity", words)
    brighter = edge_brightness(shown[:, flip], padding[:, flip])
    if brighter is not None and brighter > limits.edge:
        words = f"beside the padding the breast is {brighter:.0%} of the range brighter than inside, limit"
        yield finding("polarity", f"{words} {limits.edge:.0%}")
    tissue = shown[mask & ~padding]
    if tissue.size:
        levels = effective_levels(tissue)
        if levels < limits.grey_levels:
            words = f"the breast has {levels:.1f} effective grey levels, limit {limits.grey_levels:g}"
            yield finding("grey-levels", words)
        bright = float(np.mean(tissue == tissue.max()))
        limit = limits.bright_saturation
        if bright > limit and _bright_edge(shown, mask & ~padding, padding) > limits.implant_edge:
            limit = limits.implant_saturation
        if bright > limit:
            words = f"{bright:.0%} of the breast has the brightest grey, limit {limit:.0%}"
            yield finding("bright-saturation", words)
    dark = _dark_share(small, shown, padding)
    if dark > limits.dark_saturation:
        words = f"{dark:.0%} of the breast has the darkest grey, limit {limits.dark_saturation:.0%}"
        yield finding("dark-saturation", words)
    blacked = _blacked_share(small, shown, padding)
    if blacked > limits.padding:
        words = f"padding blacks out {blacked:.1%} of the image's bright part, limit {limits.padding:.1%}"
        yield finding("padding", words)


def _bright_edge(shown: NDArray[np.uint16], tissue: Mask, padding: Mask) -> float:
    """Return by how much the breast is darker just beside its brightest grey, as a share of the range."""
    top, low = float(shown[tissue].max()), float(shown[~padding].min())
    white = (tissue & (shown == top)).view(np.uint8)
    reach = max(2, max(shown.shape) // _SHARP)
    near, far = (cv2.dilate(white, np.ones((2 * size + 1,) * 2, np.uint8)) for size in (1, reach))
    beside = (far > near) & tissue
    if top <= low or not beside.any():
        return 0.0
    return (top - float(np.median(shown[beside]))) / (top - low)


def polarity(shown: NDArray[np.uint16], padding: Mask) -> float | None:
    """Return how much of the air is darker than the tissue, from 1 (all of it) to -1; None without air.

    Nor can it be told where most of the air is padding: what is left may be a marker.

    Air is the smooth region that reaches the image's border away from the chest wall, which is on the left;
    tissue is what is not smooth. A bright strip along the border is smooth too, and smaller than the air.
    The frame of a scanned film is left out.
    """
    framed = np.ones_like(padding)
    framed[inside_plain_frame(shown)] = False
    padding = padding | framed
    if padding.all():
        return None
    low, high = (float(end) for end in np.percentile(shown[~padding], _ENDS))
    if high <= low:
        return None
    side = (_GRID * _IN_CELL,) * 2
    known = cv2.resize((~padding).astype(np.float32), side, interpolation=cv2.INTER_AREA)
    grey = cv2.resize(np.where(padding, 0, shown).astype(np.float32), side, interpolation=cv2.INTER_AREA)
    grey = np.divide(grey, known, out=np.zeros_like(grey), where=known > 0)
    cells = grey.reshape(_GRID, _IN_CELL, _GRID, _IN_CELL).transpose(0, 2, 1, 3).reshape(_GRID, _GRID, -1)
    seen = known.reshape(_GRID, _IN_CELL, _GRID, _IN_CELL).min(axis=(1, 3)) > 0
    activity, mean = cells.std(axis=2), cells.mean(axis=2)
    busy = seen & (activity > _CALM * (high - low))
    if not busy.any():
        return None
    tissue = np.median(mean[busy])
    areas = [_reaching_border(seen & ~busy & part, ~seen) for part in (mean < tissue, mean > tissue)]
    enough = sum(areas) > np.count_nonzero(~seen)
    return (areas[0] - areas[1]) / sum(areas) if enough else None


def edge_brightness(shown: NDArray[np.uint16], padding: Mask) -> float | None:
    """Return by how much the image is brighter beside its padding than inside, as a share of the range.

    Beside the padding is air or the thin edge of the breast; both are dark. None without enough padding.
    The quarter at the chest wall, which is on the left, is left out: there padding cuts the tissue.
    """
    far = slice(padding.shape[1] // 4, None)
    if np.count_nonzero(padding[:, far]) < _LEAST_PADDED * padding[:, far].size or padding.all():
        return None
    _, pieces, boxes, _ = cv2.connectedComponentsWithStats((~padding).view(np.uint8), connectivity=8)
    largest = pieces == 1 + int(boxes[1:, cv2.CC_STAT_AREA].argmax())  # letters in the padding are others
    distance = cv2.distanceTransform(largest.view(np.uint8), cv2.DIST_L2, 3)
    beside = shown[:, far][(distance[:, far] > 0) & (distance[:, far] <= _BESIDE)]
    inside = shown[distance > _INSIDE * max(padding.shape)]
    low, high = (float(end) for end in np.percentile(shown[~padding], _ENDS))
    if not beside.size or not inside.size or high <= low:
        return None
    return float(np.median(beside) - np.median(inside)) / (high - low)


def _reaching_border(cells: Mask, padded: Mask) -> int:
    """Return the number of cells connected with the border away from the chest wall or with its padding.

    The upper and lower border count only near their far ends: muscle is smooth and bright along much of them.
    What reaches the chest wall but not the border opposite to it is muscle too.
    """
    far = _GRID * 3 // 4
    with_padding = cells.copy()
    with_padding[:, far:] |= padded[:, far:]
    _, labels = cv2.connectedComponents(with_padding.view(np.uint8), connectivity=4)
    border = (labels[0, far:], labels[-1, far:], labels[:, -1])
    muscle = np.setdiff1d(labels[:, 0], labels[:, -1])
    reached = np.setdiff1d(np.concatenate(border), muscle)
    return int(np.count_nonzero(cells & np.isin(labels, reached[reached > 0])))


def effective_levels(tissue: NDArray[np.uint16]) -> float:
    """Return the inverse Simpson index of grey levels, without the two ends, which may be saturated."""
    counts = np.bincount(tissue)
    used = np.flatnonzero(counts)
    inner = counts[used[1:-1]].astype(np.float64)
    total = inner.sum()
    return float(total**2 / np.square(inner).sum()) if total else 0.0


def _dark_share(small: NDArray[Any], shown: NDArray[np.uint16], padding: Mask) -> float:
    """Return the share of the breast, found in stored values, that the look-up tables make black."""
    values = small.astype(np.float32)
    low, high = float(values.min()), float(values.max())
    if low == high:
        return 0.0
    linear = (values - low) / (high - low)
    dark, bright = linear[shown <= np.median(shown)], linear[shown > np.median(shown)]
    if bright.size and bright.mean() < dark.mean():
        linear = 1 - linear
    try:
        tissue = find_breast((linear * 65535).astype(np.uint16), padding, 1) & ~padding
    except ImageError:  # the breast cannot be told from stored values
        return 0.0
    return float(np.mean(shown[tissue] == shown.min())) if tissue.any() else 0.0


def _blacked_share(small: NDArray[Any], shown: NDArray[np.uint16], padding: Mask) -> float:
    """Return the share of the image's brighter half that is padding of many different values.

    A single padding value may be the brightest of the image: vendors fill unexposed parts with it.
    """
    many = min(_MANY_VALUES, max(_FEW_VALUES, round(_OF_VALUES * np.unique(small).size)))
    if padding.all() or np.unique(small[padding]).size < many:
        return 0.0
    low, high = np.percentile(shown, _ENDS)
    bright = shown > (float(low) + float(high)) / 2
    return int(np.count_nonzero(padding & bright)) / max(int(np.count_nonzero(bright)), 1)


def _line_findings(evidence: PixelEvidence, limits: PixelLimits) -> Iterator[str]:
    """Check rows for a jump; rows, then columns, for constant blocks, equal lines and straight cuts."""
    mask = evidence.mask[:, ::-1] if evidence.mirrored else evidence.mask
    small = reduce_padding(evidence.pixels)
    scale = scale_of(small, evidence.shown[evidence.patterns(small)], reduce_padding(mask))
    if not scale.contrast:
        return
    moved, left = row_jump(evidence.pixels, mask, scale)
    if left < limits.row_jump:
        words = (
            f"between two rows the image jumps sideways by {moved} pixels: moved back, {left:.0%} of their"
        )
        yield finding("row-shift", f"{words} difference is left, limit {limits.row_jump:.0%}")
    block, wall, edge = limits.constant_block, limits.chest_wall_block, limits.block_edge
    beside_wall = BlockLimits(block, wall, edge) if evidence.mirrored else BlockLimits(wall, block, edge)
    for pixels, breast, lines, block_limits in (
        (evidence.pixels, mask, "rows", BlockLimits(block, block, edge)),
        (evidence.pixels.T, mask.T, "columns", beside_wall),
    ):
        share = constant_share(pixels, breast, scale, block_limits)
        if share is not None:
            words = f"a constant band of {share:.0%} of the {lines} cuts the breast, limit"
            where = f"at the chest wall, {block:.0%} at another border, 0 inside"
            yield finding("constant-band", f"{words} {wall:.0%} {where}")
        equal = equal_share(pixels, breast)
        if equal > limits.equal_lines:
            words = f"{equal:.1%} of the breast's {lines} equal another one, limit {limits.equal_lines:.1%}"
            yield finding("constant-band", words)
        cut = cut_share(pixels, breast, scale)
        if cut > limits.straight_cut:
            words = f"a straight edge crosses {cut:.0%} of the breast between two {lines}, limit"
            yield finding("straight-cut", f"{words} {limits.straight_cut:.0%}")


def _noise_findings(evidence: PixelEvidence, limits: PixelLimits) -> Iterator[str]:
    """Check steps between neighbouring pixels, and whether rows are shifted against each other."""
    pixels = evidence.pixels
    low, high = np.percentile(reduce_padding(pixels), (0.5, 99.5))
    contrast = float(high) - float(low)
    inside = np.flatnonzero(evidence.mask.any(axis=1))  # rows of noisy air fit each other at any shift
    if contrast <= 0 or inside.size < 2 * _STRIP:
        return
    last = int(inside[-1]) - _STRIP
    starts = np.linspace(int(inside[0]), last, min(_STRIPS, inside.size // _STRIP)).astype(int)
    steps, ratios, shifts = [], [], []
    for start in starts.tolist():
        strip = pixels[start : start + _STRIP + 1].astype(np.float32)
        strip = strip[:, : strip.shape[1] // _STRIP * _STRIP]
        across, down = (
            np.abs(np.diff(strip[:-1], axis=1, append=strip[:-1, -1:])),
            np.abs(np.diff(strip, axis=0)),
        )
        blocks = [part.reshape(_STRIP, -1, _STRIP).mean(axis=(0, 2)) for part in (across, down)]
        steps.append(np.percentile(blocks[0], 75) / contrast)
        busy = blocks[0] + blocks[1] > 0.002 * contrast
        if np.count_nonzero(busy) > 1:
            ratios.append(float(np.median((blocks[1][busy] + 1e-9) / (blocks[0][busy] + 1e-9))))
            shifts += _best_shifts(strip)
    worst = float(max(steps))
    if worst > limits.neighbours:
        words = f"neighbouring pixels differ by {worst:.0%} of the range, limit {limits.neighbours:.0%}"
        yield finding("neighbours", words)
    specks = _speck_share(evidence, contrast)
    if specks > limits.specks:
        words = f"{specks:.1%} of the breast's pixels are unlike all around them, limit {limits.specks:.0%}"
        yield finding("neighbours", words)
    ratio = float(np.median(ratios)) if ratios else 1.0
    if max(ratio, 1 / max(ratio, 1e-9)) > limits.row_ratio:
        words = f"steps between rows are {ratio:.1f} times those between columns, limit {limits.row_ratio:g}"
        yield finding("row-shift", words)
    shift = float(np.median(np.abs(shifts))) if shifts else 0.0
    if shift > limits.row_shift:
        words = f"a typical row is shifted by {shift:.0f} pixels against the next, limit {limits.row_shift:g}"
        yield finding("row-shift", words)


def _speck_share(evidence: PixelEvidence, contrast: float) -> float:
    """Return the share of the breast's pixels that differ from the median around them by a step."""
    mask = evidence.mask[:, ::-1] if evidence.mirrored else evidence.mask
    part = np.s_[len(mask) * 3 // 8 : max(len(mask) * 5 // 8, 1)]
    grey = np.ascontiguousarray(evidence.pixels[part]).astype(np.float32)
    unlike = np.asarray(np.abs(grey - cv2.medianBlur(grey, 3)) > _STEP * contrast)
    inside = mask[part]
    return float(np.mean(unlike[inside])) if inside.any() else 0.0


def _best_shifts(strip: Floats) -> list[int]:
    """Return the circular shifts at which some rows of a strip fit the next row best."""
    upper, lower = strip[:-1:4], strip[1::4][: len(strip[:-1:4])]
    upper, lower = upper - upper.mean(axis=1, keepdims=True), lower - lower.mean(axis=1, keepdims=True)
    product = np.fft.rfft(lower, axis=1) * np.conj(np.fft.rfft(upper, axis=1))
    at = np.fft.irfft(product, n=strip.shape[1], axis=1).argmax(axis=1)
    half = strip.shape[1] // 2
    return [int((place + half) % strip.shape[1] - half) for place in at]


def _place_findings(evidence: PixelEvidence, limits: PixelLimits) -> Iterator[str]:
    """Check where the breast is: the chest wall is on the left by now."""
    rows, columns = (np.flatnonzero(evidence.mask.any(axis=axis)) for axis in (1, 0))
    mask = evidence.mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    quarter = max(1, mask.shape[1] // 4)
    beside, away = (np.count_nonzero(part) / quarter for part in (mask[:, :quarter], mask[:, -quarter:]))
    near, far, above, below = _edge_lengths(mask)
    if far > near and away > limits.breast_side * beside:
        words = (
            f"away from the chest wall the breast is {away / beside:.1f} times as high as beside it, limit"
        )
        yield finding("breast-side", f"{words} {limits.breast_side:g}")
    turned = max(above, below) / max(near, 1)
    if turned > limits.turned:
        words = f"the breast is {turned:.1f} times as long above or below as at the chest wall, limit"
        yield finding("breast-side", f"{words} {limits.turned:g}")
    if evidence.projection != "MLO":
        return
    depth, wide = max(1, len(mask) // 20), 0.25 * mask.shape[1]
    band, beside_wall = np.arange(depth), columns[0] + np.arange(quarter)
    top, bottom = (_light(evidence, lines, beside_wall) for lines in (rows[0] + band, rows[-1] - band))
    extents = np.count_nonzero(mask, axis=1)
    nipple = float(np.flatnonzero(extents >= _TIP * extents.max()).mean()) / len(mask)
    limit = limits.upside_down if nipple > limits.nipple_above else limits.upside_down_above
    if (
        nipple < limits.nipple_below
        and np.count_nonzero(mask[-depth:]) > wide * depth
        and bottom > limit * top
    ):
        times = f"{bottom / max(top, 1):.1f} times the light that it has at the top"
        words = f"beside the chest wall the breast has at the bottom {times}, limit {limits.upside_down:g}"
        yield finding("upside-down", words)


def _edge_lengths(mask: Mask) -> tuple[int, int, int, int]:
    """Return how long the breast is at the left, right, upper and lower end of its bounding box."""
    rows, columns = (max(1, round(_EDGE * size)) for size in mask.shape)
    bands = (mask[:, :columns], mask[:, -columns:], mask[:rows].T, mask[-rows:].T)
    left, right, upper, lower = (int(np.count_nonzero(band.any(axis=1))) for band in bands)
    return left, right, upper, lower


def _light(evidence: PixelEvidence, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> float:
    """Return the sum of the breast's greys in a part of the image, counted from the image's darkest grey."""
    part = np.ix_(rows, evidence.pixels.shape[1] - 1 - columns if evidence.mirrored else columns)
    grey, everywhere = (
        evidence.shown[evidence.patterns(pixels)]
        for pixels in (evidence.pixels[part], reduce_padding(evidence.pixels))
    )
    above = np.maximum(grey - float(np.percentile(everywhere, _ENDS[0])), 0)
    return float(above[evidence.mask[np.ix_(rows, columns)]].sum())
