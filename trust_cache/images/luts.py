"""Look-up tables of a DICOM image, joined into one table from stored value to canonical grey.

Canonical grey is 16 bit, 0 the darkest and 65535 the brightest value that the image's last table can
give: it depends on the header alone, never on which pixels there are.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset

from trust_cache.images.decode import Stored
from trust_cache.images.errors import ImageError

BRIGHTEST = 65535
_PATTERNS = 1 << 16  # of two bytes; a table of all of them needs no checks when it is used
_ROWS_AT_ONCE = 256  # numpy widens indices to 8 bytes: in blocks that costs no memory to speak of
_VOI_DEPTHS = (8, *range(10, 17))  # PS3.3 C.11.2.1.1

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Modality:
    """What the modality LUT makes of every pattern, and the lowest and highest value it can give."""

    values: Values
    low: float
    high: float


@dataclass(frozen=True)
class GreyTable:
    """Canonical grey for each pattern of a stored value's two bytes, and which patterns are padding."""

    grey: NDArray[np.uint16]
    is_padding: NDArray[np.bool_]
    warnings: tuple[str, ...]

    def apply(self, stored: NDArray[Any]) -> NDArray[np.uint16]:
        """Look every stored value up."""
        patterns = as_patterns(stored)
        looked_up = np.empty(stored.shape, dtype=np.uint16)
        for start in range(0, len(patterns), _ROWS_AT_ONCE):
            block = slice(start, start + _ROWS_AT_ONCE)
            looked_up[block] = self.grey[patterns[block]]
        return looked_up

    def find_padding(self, stored: NDArray[Any]) -> NDArray[np.bool_]:
        """Mark the pixels that hold the header's padding value."""
        if not self.is_padding.any():
            return np.zeros(stored.shape, dtype=np.bool_)
        return self.is_padding[as_patterns(stored)]


def build_table(dataset: Dataset, stored: Stored) -> GreyTable:
    """Join modality LUT, VOI LUT and inversion; padding becomes background, whatever its value."""
    patterns = values_of_patterns(stored.pixels.dtype)
    modality = apply_modality(dataset, patterns, stored)
    shares, warnings = apply_voi(dataset, modality)
    if str(dataset.PhotometricInterpretation).strip().upper() == "MONOCHROME1":
        shares = 1 - shares  # PS3.3 C.7.6.3.1.2: the lowest value is white
    is_padding = find_padding_patterns(dataset, patterns, stored.pixels.dtype)
    grey = to_grey(shares)
    grey[is_padding] = 0
    return GreyTable(grey, is_padding, warnings)


def to_grey(shares: Values) -> NDArray[np.uint16]:
    """Round shares of the output range to 16 bits, alike from both ends of the range.

    An image and its inverted twin then agree exactly, also where a share lies between two values.
    """
    from_middle = np.clip(shares, 0, 1) * BRIGHTEST - BRIGHTEST / 2
    steps = np.floor(np.round(np.abs(from_middle), 6)) + 0.5
    return np.asarray(BRIGHTEST / 2 + np.where(from_middle < 0, -steps, steps), dtype=np.uint16)


def as_patterns(stored: NDArray[Any]) -> NDArray[np.uint16]:
    """View stored values as the patterns that index a table."""
    if stored.dtype.itemsize == 1:
        return stored.view(np.uint8).astype(np.uint16)
    return stored.view(np.uint16)


def values_of_patterns(dtype: np.dtype[Any]) -> NDArray[np.int64]:
    """Return the stored value that each pattern means."""
    patterns = np.arange(_PATTERNS, dtype=np.uint16)
    if dtype.itemsize == 1:
        patterns = patterns.astype(np.uint8)  # only the first 256 occur
    return patterns.view(dtype).astype(np.int64)


def apply_modality(dataset: Dataset, values: NDArray[np.int64], stored: Stored) -> Modality:
    """Apply the modality LUT or the rescale slope and intercept, PS3.3 C.11.1."""
    low, high = _stored_range(stored)
    items = dataset.get("ModalityLUTSequence")
    if items:
        table, first, depth = read_lut(dataset, items[0])
        looked_up = look_up(values, table, first)
        return Modality(looked_up, 0.0, max(2.0**depth - 1, float(table.max())))
    slope, intercept = _number(dataset, "RescaleSlope"), _number(dataset, "RescaleIntercept")
    if slope is None or intercept is None:
        return Modality(values.astype(np.float64), low, high)
    ends = sorted((low * slope + intercept, high * slope + intercept))
    if ends[0] == ends[1]:
        raise ImageError("intensity", "the rescale slope is 0: every pixel would have one value")
    return Modality(np.asarray(values * slope + intercept, dtype=np.float64), ends[0], ends[1])


def apply_voi(dataset: Dataset, modality: Modality) -> tuple[Values, tuple[str, ...]]:
    """Apply the first VOI LUT, else the first window, PS3.3 C.11.2; shares of the output range."""
    items = dataset.get("VOILUTSequence")
    if items and items[0].get("LUTDescriptor") is not None and items[0].get("LUTData") is not None:
        table, first, depth = read_lut(dataset, items[0])
        if depth not in _VOI_DEPTHS:
            raise ImageError("intensity", f"the VOI LUT has {depth} bits an entry: expected 8 or 10 to 16")
        # Some writers exceed the depth that they declare.
        top = max(2.0**depth - 1, float(table.max()))
        return look_up(modality.values, table, first) / top, ()
    whole_range = (modality.values - modality.low) / (modality.high - modality.low)
    center, width = _number(dataset, "WindowCenter"), _number(dataset, "WindowWidth")
    if center is None or width is None:
        return whole_range, ()
    function = str(dataset.get("VOILUTFunction") or "LINEAR").strip().upper()
    if width <= 0 or (function == "LINEAR" and width < 1):
        return whole_range, (f"window of width {width:g} ignored",)
    return apply_window(modality.values, center, width, function), ()


def apply_window(values: Values, center: float, width: float, function: str) -> Values:
    """Apply a window, as shares of the output range."""
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


def look_up(values: NDArray[Any], table: NDArray[np.uint16], first: int) -> Values:
    """Map values through a LUT whose first entry belongs to `first`; the ends hold beyond it."""
    at = np.clip(np.rint(values).astype(np.int64) - first, 0, table.size - 1)
    return np.asarray(table[at], dtype=np.float64)


def read_lut(dataset: Dataset, item: Dataset) -> tuple[NDArray[np.uint16], int, int]:
    """Read a LUT's entries, the value its first entry belongs to, and the bits of an entry."""
    try:
        count, first, depth = (int(number) for number in item.LUTDescriptor)
        data = item.LUTData
    except Exception:
        raise ImageError("intensity", "a LUT in the header is damaged") from None
    count = count or _PATTERNS  # PS3.3 C.11.1.1: 0 stands for 65536
    if isinstance(data, bytes):
        entry = np.dtype(np.uint8 if len(data) < 2 * count else np.uint16)
        whole = len(data) - len(data) % entry.itemsize
        ordered = entry.newbyteorder("<" if _is_little_endian(dataset) else ">")
        table = np.frombuffer(data[:whole], dtype=ordered).astype(np.uint16)
    else:
        table = np.atleast_1d(np.asarray(data, dtype=np.int64) & BRIGHTEST).astype(np.uint16)
    if table.size < count or not 1 <= depth <= 16:  # noqa: PLR2004 (bits of a word)
        raise ImageError("intensity", f"a LUT declares {count} entries of {depth} bits and has {table.size}")
    return table[:count], first, depth


def find_padding_patterns(
    dataset: Dataset, values: NDArray[np.int64], dtype: np.dtype[Any]
) -> NDArray[np.bool_]:
    """Mark the patterns from the padding value to its range limit, PS3.3 C.7.5.1.1.2."""
    padding = _padding(dataset, "PixelPaddingValue", dtype)
    if padding is None:
        return np.zeros(values.shape, dtype=np.bool_)
    limit = _padding(dataset, "PixelPaddingRangeLimit", dtype)
    low, high = sorted((padding, padding if limit is None else limit))
    return (values >= low) & (values <= high)


def _padding(dataset: Dataset, keyword: str, dtype: np.dtype[Any]) -> int | None:
    number = _number(dataset, keyword)
    if number is None:
        return None
    # Written as unsigned in some signed images, and the reverse: the bits are what counts.
    bits = 8 * dtype.itemsize
    if not -(1 << (bits - 1)) <= number < (1 << bits):
        return int(number)
    return int(np.array(int(number) & ((1 << bits) - 1), dtype=f"u{dtype.itemsize}").view(dtype))


def _stored_range(stored: Stored) -> tuple[float, float]:
    if stored.pixels.dtype.kind == "i":
        return -(2.0 ** (stored.bits - 1)), 2.0 ** (stored.bits - 1) - 1
    return 0.0, 2.0**stored.bits - 1


def _number(dataset: Dataset, keyword: str) -> float | None:
    """Return the first of a number's values, or None where it is absent, empty or no number."""
    try:
        value = dataset.get(keyword)
        first = value if isinstance(value, (int, float, str)) or value is None else value[0]
        number = None if first is None or first == "" else float(first)
    except Exception:
        raise ImageError("intensity", f"{keyword} in the header is not a number") from None
    if number is not None and not np.isfinite(number):
        raise ImageError("intensity", f"{keyword} in the header is not finite")
    return number


def _is_little_endian(dataset: Dataset) -> bool:
    syntax = dataset.file_meta.TransferSyntaxUID
    return bool(syntax.is_little_endian)
