"""Join the look-up tables of a DICOM image into one table from stored value to canonical grey.

Canonical grey has 16 bits: 0 is the darkest and 65535 the brightest value that the image's last table can
give. It depends on the header alone, never on the pixels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset

from trust_cache.images.decoding.decode import Stored
from trust_cache.images.image_failures import ImageError, refuse_if
from trust_cache.manifest.picture_checks import finding

BRIGHTEST = 65535
_PATTERNS = 1 << 16  # of two bytes; a table of all of them needs no bounds checks
_ROWS_AT_ONCE = 256  # numpy widens indices to 8 bytes: blocks keep that small
_UNLIKE = 200  # between a window and the table beside it; those of real units are within 10
_VOI_DEPTHS = (8, *range(10, 17))  # PS3.3 C.11.2.1.1

Values = NDArray[np.float64]


@dataclass(frozen=True)
class GreyTable:
    """Canonical grey for each pattern of a stored value's two bytes, and which patterns are padding."""

    grey: NDArray[np.uint16]
    shown: NDArray[np.uint16]  # before padding is blacked
    is_padding: NDArray[np.bool_]
    warnings: tuple[str, ...]

    def apply(self, stored: NDArray[Any]) -> NDArray[np.uint16]:
        """Look up every stored value."""
        patterns = stored.view(f"u{stored.dtype.itemsize}")
        looked_up = np.empty(stored.shape, dtype=np.uint16)
        for start in range(0, len(patterns), _ROWS_AT_ONCE):
            block = slice(start, start + _ROWS_AT_ONCE)
            looked_up[block] = self.grey[patterns[block]]
        return looked_up

    def find_padding(self, stored: NDArray[Any]) -> NDArray[np.bool_]:
        """Mark the pixels that hold the header's padding value."""
        return np.take(self.is_padding, stored.view(f"u{stored.dtype.itemsize}"))


def build_table(dataset: Dataset, stored: Stored) -> GreyTable:
    """Join modality LUT, VOI LUT and inversion; padding becomes background."""
    dtype = stored.pixels.dtype
    patterns = np.arange(_PATTERNS, dtype=np.uint16).astype(f"u{dtype.itemsize}")
    values = patterns.view(dtype).astype(np.int64)  # that each pattern means; of one byte only 256 occur
    shares, warnings = _apply_voi(dataset, *_rescaled(dataset, values, stored))
    if str(dataset.PhotometricInterpretation).strip().upper() == "MONOCHROME1":
        shares = 1 - shares  # PS3.3 C.7.6.3.1.2: the lowest value is white
    is_padding = _padding_patterns(dataset, values, dtype)
    shown = _to_grey(shares)
    grey = np.where(is_padding, 0, shown).astype(np.uint16)
    return GreyTable(grey, shown, is_padding, warnings)


def _to_grey(shares: Values) -> NDArray[np.uint16]:
    """Round shares of the output range to 16 bits, symmetrically from both ends of the range.

    An image and its inverted twin then agree exactly, also halfway between two values.
    """
    from_middle = np.clip(shares, 0, 1) * BRIGHTEST - BRIGHTEST / 2
    steps = np.floor(np.round(np.abs(from_middle), 6)) + 0.5
    return np.asarray(BRIGHTEST / 2 + np.where(from_middle < 0, -steps, steps), dtype=np.uint16)


def _rescaled(dataset: Dataset, values: NDArray[np.int64], stored: Stored) -> tuple[Values, float, float]:
    """Apply the modality LUT or the rescale slope, PS3.3 C.11.1; return values and their possible range."""
    low = -(2.0 ** (stored.bits - 1)) if stored.pixels.dtype.kind == "i" else 0.0
    high = low + 2.0**stored.bits - 1
    items = dataset.get("ModalityLUTSequence")
    if items:
        looked_up, top, _ = _look_up(dataset, items[0], values)
        return looked_up, 0.0, top
    slope, intercept = _number(dataset, "RescaleSlope"), _number(dataset, "RescaleIntercept")
    if slope is None or intercept is None:
        return values.astype(np.float64), low, high
    low, high = sorted((low * slope + intercept, high * slope + intercept))
    refuse_if(low == high, "intensity", "the rescale slope is 0: all pixels would have the same value")
    return np.asarray(values * slope + intercept, dtype=np.float64), low, high


def _apply_voi(dataset: Dataset, values: Values, low: float, high: float) -> tuple[Values, tuple[str, ...]]:
    """Apply the first VOI LUT, else the first window, PS3.3 C.11.2; shares of the output range."""
    items = dataset.get("VOILUTSequence")
    if items and items[0].get("LUTDescriptor") is not None and items[0].get("LUTData") is not None:
        looked_up, top, depth = _look_up(dataset, items[0], values)
        if depth not in _VOI_DEPTHS:
            raise ImageError("intensity", f"the VOI LUT has {depth} bits an entry: expected 8 or 10 to 16")
        return looked_up / top, _unlikely_window(dataset, items[0])
    whole_range = (values - low) / (high - low)
    center, width = _number(dataset, "WindowCenter"), _number(dataset, "WindowWidth")
    if center is None or width is None:
        return whole_range, ()
    function = str(dataset.get("VOILUTFunction") or "LINEAR").strip().upper()
    if width <= 0 or (function == "LINEAR" and width < 1):
        return whole_range, (finding("window", f"window of width {width:g} ignored, limit 1"),)
    return _apply_window(values, center, width, function), ()


def _unlikely_window(dataset: Dataset, item: Dataset) -> tuple[str, ...]:
    """Return a finding about a window that shows hardly any of the values that the table beside it covers.

    The table is used. A header whose parts disagree so much was damaged or edited.
    """
    width, entries = _number(dataset, "WindowWidth"), int(item.LUTDescriptor[0]) or _PATTERNS
    if width is None or entries / _UNLIKE <= width <= entries * _UNLIKE:
        return ()
    words = f"a window of width {width:g} beside a VOI LUT of {entries} entries, limit a factor of {_UNLIKE}"
    return (finding("window", words),)


def _apply_window(values: Values, center: float, width: float, function: str) -> Values:
    if function == "SIGMOID":  # PS3.3 C.11.2.1.3.1
        exponent = np.clip(-4 * (values - center) / width, -700, 700)
        return np.asarray(1 / (1 + np.exp(exponent)), dtype=np.float64)
    if function == "LINEAR":  # PS3.3 C.11.2.1.2.1
        center, width = center - 0.5, width - 1
    elif function != "LINEAR_EXACT":  # PS3.3 C.11.2.1.3.2
        raise ImageError("intensity", "the VOI LUT function is not LINEAR, LINEAR_EXACT or SIGMOID")
    if width == 0:
        return np.asarray(values > center, dtype=np.float64)
    return np.asarray(np.clip((values - center) / width + 0.5, 0, 1), dtype=np.float64)


def _look_up(dataset: Dataset, item: Dataset, values: NDArray[Any]) -> tuple[Values, float, int]:
    """Map values through a LUT, whose ends hold beyond it; return its top and the bits of an entry too."""
    try:
        count, first, depth = (int(number) for number in item.LUTDescriptor)
        data = item.LUTData
    except Exception:
        raise ImageError("intensity", "a LUT in the header is damaged") from None
    count = count or _PATTERNS  # PS3.3 C.11.1.1: 0 means 65536
    if isinstance(data, bytes):
        entry = np.dtype(np.uint8 if len(data) < 2 * count else np.uint16)
        whole = len(data) - len(data) % entry.itemsize
        ordered = entry.newbyteorder("<" if dataset.file_meta.TransferSyntaxUID.is_little_endian else ">")
        table = np.frombuffer(data[:whole], dtype=ordered).astype(np.uint16)
    else:
        table = np.atleast_1d(np.asarray(data, dtype=np.int64) & BRIGHTEST).astype(np.uint16)
    if table.size < count or not 1 <= depth <= 16:  # noqa: PLR2004 (bits of a word)
        raise ImageError("intensity", f"a LUT declares {count} entries of {depth} bits and has {table.size}")
    table = table[:count]
    at = np.clip(np.rint(values).astype(np.int64) - first, 0, count - 1)
    # Some writers exceed the depth that they declare.
    return np.asarray(table[at], dtype=np.float64), max(2.0**depth - 1, float(table.max())), depth


def _padding_patterns(dataset: Dataset, values: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    """Mark the patterns from the padding value to its range limit, PS3.3 C.7.5.1.1.2."""
    bits, ends = 8 * dtype.itemsize, []
    for keyword in ("PixelPaddingValue", "PixelPaddingRangeLimit"):
        number = _number(dataset, keyword)
        if number is None:
            break
        end = int(number)
        # Some signed images have it as unsigned, and the reverse: compare the bits.
        if -(1 << (bits - 1)) <= number < (1 << bits):
            end = int(np.array(end & ((1 << bits) - 1), dtype=f"u{dtype.itemsize}").view(dtype))
        ends.append(end)
    if not ends:
        return np.zeros(values.shape, dtype=np.bool_)
    return (values >= min(ends)) & (values <= max(ends))


def _number(dataset: Dataset, keyword: str) -> float | None:
    """Return the first value of an element, or None if it is absent or empty."""
    try:
        value = dataset.get(keyword)
        first = value if isinstance(value, (int, float, str)) or value is None else value[0]
        number = None if first is None or first == "" else float(first)
    except Exception:
        raise ImageError("intensity", f"{keyword} in the header is not a number") from None
    if number is not None and not np.isfinite(number):
        raise ImageError("intensity", f"{keyword} in the header is not finite")
    return number
