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

from trust_cache.base.documents import Document
from trust_cache.images.image_failures import ImageError
from trust_cache.images.mask import find_breast, reduce_padding
from trust_cache.manifest.picture_checks import finding

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

_GRID = 24  # cells along each side, in which polarity is measured
_IN_CELL = 4  # pixels along each side of a cell
_CALM = 0.02  # of the image's range: deviation within a cell of air, whose noise is averaged
_STRIPS, _STRIP = 40, 32  # at most so many strips of so many rows
_JUMP = 0.1  # of the image's range: more than noise
_STEP = 0.2  # of the image's range, within one pixel: more than any anatomy
_LEAST_RUN = 0.003  # of the lines: a shorter band is a defect of single lines
_EVERY = 4  # lines across which cuts are looked for
_MANY_VALUES = 16  # padding is one value, rarely a few
_ENDS = (1, 99)


class PixelLimits(Document, frozen=True):
    """The limits of the pixel gate, each with its reason."""

    # Tissue absorbs: in a presentation image it is brighter than air (PS3.3 C.8.11.7.1.2). Balance of areas.
    polarity: float = 0.0
    # 8-bit images have 60 to 200 levels in the breast without the two ends of the scale. Effective number.
    grey_levels: float = 16.0
    # Windows clip fat near the skin; implants and muscle saturate. Shares of the breast.
    dark_saturation: float = 0.5
    bright_saturation: float = 0.5
    # Padding marks what is outside of the image (PS3.3 C.7.5.1.1.2). Share of the brighter half of the image.
    padding: float = 0.002
    # Collimators blacken up to a quarter of the image, seldom more. Share of the lines.
    constant_block: float = 0.3
    # Of a line at the edge of a constant block: a breast's outline is round, and ends narrow.
    block_edge: float = 0.2
    # Share of the breast's lines that equal another one: noise makes every line different.
    equal_lines: float = 0.005
    # Share of the breast's width in which all pixels jump between two lines.
    straight_cut: float = 0.3
    # Mean step between neighbouring pixels as a share of the range: quantum noise is 0.5 to 3 %.
    neighbours: float = 0.1
    # Steps between rows in units of those between columns: detectors have 0.5 to 2.
    row_ratio: float = 4.0
    # Pixels by which a typical row must be moved to fit the next: the skin line is oblique, up to 1 or 2.
    row_shift: float = 2.0
    # Width of an MLO breast at the bottom in units of that at the top: the armpit is at the top.
    upside_down: float = 4.0


LIMITS = PixelLimits()


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
    tissue = shown[mask & ~padding]
    if tissue.size:
        levels = effective_levels(tissue)
        if levels < limits.grey_levels:
            words = f"the breast has {levels:.1f} effective grey levels, limit {limits.grey_levels:g}"
            yield finding("grey-levels", words)
        bright = float(np.mean(tissue == tissue.max()))
        if bright > limits.bright_saturation:
            words = f"{bright:.0%} of the breast has the brightest grey, limit {limits.bright_saturation:.0%}"
            yield finding("bright-saturation", words)
    dark = _dark_share(small, shown, padding)
    if dark > limits.dark_saturation:
        words = f"{dark:.0%} of the breast has the darkest grey, limit {limits.dark_saturation:.0%}"
        yield finding("dark-saturation", words)
    blacked = _blacked_share(small, shown, padding)
    if blacked > limits.padding:
        words = f"padding blacks out {blacked:.1%} of the image's bright part, limit {limits.padding:.1%}"
        yield finding("padding", words)


def polarity(shown: NDArray[np.uint16], padding: Mask) -> float | None:
    """Return how much of the air is darker than the tissue, from 1 (all of it) to -1; None without air.

    Air is the smooth region that reaches the image's border away from the chest wall, which is on the left;
    tissue is what is not smooth. A bright strip along the border is smooth too, and smaller than the air.
    """
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
    areas = [_reaching_border(seen & ~busy & part) for part in (mean < tissue, mean > tissue)]
    return (areas[0] - areas[1]) / sum(areas) if sum(areas) else None


def _reaching_border(cells: Mask) -> int:
    """Return the number of cells connected with the border away from the chest wall."""
    _, labels = cv2.connectedComponents(cells.view(np.uint8), connectivity=4)
    border = (labels[0, _GRID // 2 :], labels[-1, _GRID // 4 :], labels[:, -1])
    reached = np.unique(np.concatenate(border))
    return int(np.count_nonzero(np.isin(labels, reached[reached > 0])))


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
    if padding.all() or np.unique(small[padding]).size < _MANY_VALUES:
        return 0.0
    low, high = np.percentile(shown, _ENDS)
    bright = shown > (float(low) + float(high)) / 2
    return int(np.count_nonzero(padding & bright)) / max(int(np.count_nonzero(bright)), 1)


def _line_findings(evidence: PixelEvidence, limits: PixelLimits) -> Iterator[str]:
    """Check rows, then columns, for constant blocks and bands, equal lines and straight cuts."""
    mask = evidence.mask[:, ::-1] if evidence.mirrored else evidence.mask
    low, high = np.percentile(reduce_padding(evidence.pixels), (0.5, 99.5))
    contrast = float(high) - float(low)
    if contrast <= 0:
        return
    for pixels, breast, lines in (
        (evidence.pixels, mask, "rows"),
        (evidence.pixels.T, mask.T, "columns"),
    ):
        share = _constant_share(pixels, contrast, limits)
        if share is not None:
            words = f"a constant band of {share:.0%} of the {lines} cuts the breast, limit"
            yield finding("constant-band", f"{words} {limits.constant_block:.0%} at the border, 0 inside")
        equal = _equal_share(pixels, breast)
        if equal > limits.equal_lines:
            words = f"{equal:.1%} of the breast's {lines} equal another one, limit {limits.equal_lines:.1%}"
            yield finding("constant-band", words)
        cut = _cut_share(pixels, breast, contrast)
        if cut > limits.straight_cut:
            words = f"a straight edge crosses {cut:.0%} of the breast between two {lines}, limit"
            yield finding("straight-cut", f"{words} {limits.straight_cut:.0%}")


def _constant_share(pixels: NDArray[Any], contrast: float, limits: PixelLimits) -> float | None:
    """Return the share of lines in a constant run that cuts something; None without one."""
    first = pixels[:, 0]
    constant = pixels.min(axis=1) == pixels.max(axis=1)
    same = constant[1:] & constant[:-1] & (first[1:] == first[:-1])
    edges = np.flatnonzero(np.diff(np.concatenate(([0], same.view(np.int8), [0]))))
    count = len(pixels)
    for start, end in edges.reshape(-1, 2):
        length = int(end - start) + 1
        before = _jumps(pixels[max(start - 3, 0) : start], first[start], contrast)
        after = _jumps(pixels[end + 1 : end + 4], first[start], contrast)
        if before is not None and after is not None:
            through = float(np.mean(before & after))
            if length >= max(3, _LEAST_RUN * count) and through > _JUMP:
                return length / count
        elif length > limits.constant_block * count:
            beside = before if after is None else after
            if beside is not None and float(np.mean(beside)) > limits.block_edge:
                return length / count
    return None


def _jumps(lines: NDArray[Any], value: Any, contrast: float) -> Mask | None:
    """Mark where lines differ from a value by more than noise; None without lines."""
    if not len(lines):
        return None
    return np.asarray(np.abs(np.median(lines, axis=0) - float(value)) > _JUMP * contrast)


def _equal_share(pixels: NDArray[Any], breast: Mask) -> float:
    """Return the share of the breast's lines that equal another, not only a neighbour as after enlarging."""
    columns = np.flatnonzero(breast.any(axis=0))
    if not columns.size:
        return 0.0
    part = slice(int(columns[0]), int(columns[-1]) + 1)
    wide = np.count_nonzero(breast[:, part], axis=1) > _JUMP * (part.stop - part.start)
    places: dict[int, int] = {}
    equal = 0
    rows = np.flatnonzero(wide)
    for row in rows.tolist():
        digest = hash(pixels[row, part].tobytes())
        before = places.setdefault(digest, row)
        equal += row - before > 1
    return equal / max(rows.size, 1) if equal > 1 else 0.0


def _cut_share(pixels: NDArray[Any], breast: Mask, contrast: float) -> float:
    """Return the largest share of the breast's width in which neighbouring lines differ by a step."""
    sample = pixels[:, ::_EVERY].astype(np.int32)
    reach = max(3, min(pixels.shape) // 50)
    inner = cv2.erode(  # without the skin line, and without the image's border, which closing the mask fills
        np.ascontiguousarray(breast).view(np.uint8),
        np.ones((2 * reach + 1, 1), np.uint8),
        borderType=cv2.BORDER_CONSTANT,
        borderValue=0,
    ).view(np.bool_)[:, ::_EVERY]
    both = inner[1:] & inner[:-1]
    step = np.abs(np.diff(sample, axis=0)) > _STEP * contrast
    width = np.count_nonzero(both, axis=1)
    usable = width > _JUMP * sample.shape[1]
    if not usable.any():
        return 0.0
    return float((np.count_nonzero(step & both, axis=1)[usable] / width[usable]).max())


def _noise_findings(evidence: PixelEvidence, limits: PixelLimits) -> Iterator[str]:
    """Check steps between neighbouring pixels, and whether rows are shifted against each other."""
    pixels = evidence.pixels
    low, high = np.percentile(reduce_padding(pixels), (0.5, 99.5))
    contrast = float(high) - float(low)
    rows = pixels.shape[0]
    if contrast <= 0 or rows < 2 * _STRIP:
        return
    starts = np.linspace(0, rows - _STRIP - 1, min(_STRIPS, rows // _STRIP)).astype(int)
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
    ratio = float(np.median(ratios)) if ratios else 1.0
    if max(ratio, 1 / max(ratio, 1e-9)) > limits.row_ratio:
        words = f"steps between rows are {ratio:.1f} times those between columns, limit {limits.row_ratio:g}"
        yield finding("row-shift", words)
    shift = float(np.median(np.abs(shifts))) if shifts else 0.0
    if shift > limits.row_shift:
        words = f"a typical row is shifted by {shift:.0f} pixels against the next, limit {limits.row_shift:g}"
        yield finding("row-shift", words)


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
    mask = evidence.mask
    away, beside = np.count_nonzero(mask[:, -1]), np.count_nonzero(mask[:, 0])
    if away > beside:
        words = f"the breast takes {away:,} pixels of the edge away from the chest wall, limit {beside:,}"
        yield finding("breast-side", words)
    if evidence.projection != "MLO":
        return
    depth = max(1, len(mask) // 20)
    top, bottom = (float(np.count_nonzero(part, axis=1).mean()) for part in (mask[:depth], mask[-depth:]))
    wide = 0.25 * mask.shape[1]
    if bottom > wide and bottom > limits.upside_down * top:
        words = f"at the bottom the breast is {bottom / max(top, 1):.1f} times as wide as at the top, limit"
        yield finding("upside-down", f"{words} {limits.upside_down:g}")
