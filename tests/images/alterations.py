"""Nineteen ways in which a mammogram's file goes wrong without becoming unreadable."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset

Pixels = NDArray[np.uint16]
Alteration = Callable[[Dataset], None]


def pixels_of(dataset: Dataset) -> Pixels:
    return np.frombuffer(dataset.PixelData, dtype="<u2").reshape(dataset.Rows, dataset.Columns).copy()


def _put(dataset: Dataset, pixels: Pixels) -> None:
    dataset.Rows, dataset.Columns = pixels.shape
    dataset.PixelData = np.ascontiguousarray(pixels.astype("<u2")).tobytes()


def _on_pixels(change: Callable[[Pixels], Pixels]) -> Alteration:
    return lambda dataset: _put(dataset, change(pixels_of(dataset)))


def _inverted(dataset: Dataset) -> None:
    other = {"MONOCHROME1": "MONOCHROME2", "MONOCHROME2": "MONOCHROME1"}
    dataset.PhotometricInterpretation = other[dataset.PhotometricInterpretation]


def _negative_slope(dataset: Dataset) -> None:
    _without_windows(dataset)
    dataset.RescaleSlope, dataset.RescaleIntercept = -1, int(pixels_of(dataset).max())


def _without_windows(dataset: Dataset) -> None:
    for keyword in ("WindowCenter", "WindowWidth", "VOILUTFunction", "VOILUTSequence"):
        if keyword in dataset:
            delattr(dataset, keyword)


def _window(width: float) -> Alteration:
    def alter(dataset: Dataset) -> None:
        _without_windows(dataset)
        values = pixels_of(dataset)
        inner = values[(values > values.min()) & (values < values.max())]
        upper = inner[inner > np.median(values)]  # none where the air has the largest value
        dataset.WindowCenter, dataset.WindowWidth = float((upper if upper.size else inner).mean()), width

    return alter


def _lost_byte(dataset: Dataset) -> None:
    data, at = dataset.PixelData, len(dataset.PixelData) // 3
    dataset.PixelData = data[:at] + data[at + 1 :] + b"\0"


def _bright_padding(dataset: Dataset) -> None:
    """Padding from the brightest 2 % of the breast on, at the end of the scale where tissue is."""
    values = pixels_of(dataset)
    tissue = values[(values > 0.1 * values.max()) & (values < 0.9 * values.max())]  # no air, no marks
    low, high = (int(value) for value in np.percentile(tissue, (2, 98)))
    inverted = dataset.PhotometricInterpretation == "MONOCHROME1"
    ends = (low, int(values.min())) if inverted else (high, int(values.max()))
    dataset.add_new("PixelPaddingValue", "US", ends[0])
    dataset.add_new("PixelPaddingRangeLimit", "US", ends[1])


def _half_black(dataset: Dataset) -> None:
    values = pixels_of(dataset)
    black = values.max() if dataset.PhotometricInterpretation == "MONOCHROME1" else values.min()
    near = slice(None, values.shape[1] // 3)
    far = slice(values.shape[1] * 2 // 3, None)
    values[:, near if dataset.ImageLaterality == "L" else far] = black
    _put(dataset, values)


def _excess(dataset: Dataset) -> None:
    dataset.PixelData += bytes(64)


def _too_few_bits(dataset: Dataset) -> None:
    dataset.BitsStored -= 2
    dataset.HighBit = dataset.BitsStored - 1


def _constant_rows(values: Pixels) -> Pixels:
    values[len(values) // 2 : len(values) // 2 + len(values) // 20] = values.min()
    return values


def _rest_constant(values: Pixels) -> Pixels:
    values[len(values) * 11 // 20 :] = values.max() // 2
    return values


def _noise(values: Pixels) -> Pixels:
    generator = np.random.default_rng(0)
    return generator.integers(0, int(values.max()) + 1, values.shape).astype(np.uint16)


def _repeated_rows(values: Pixels) -> Pixels:
    start, count = len(values) // 2, len(values) // 10
    values[start : start + count] = values[start - count : start]
    return values


def _sheared(values: Pixels) -> Pixels:
    """Read with 7 columns too many."""
    columns = values.shape[1] + 7
    rows = values.size // columns
    return values.ravel()[: rows * columns].reshape(rows, columns)


def _clipped(dataset: Dataset) -> None:
    values = pixels_of(dataset)
    tissue = values[_tissue(dataset, values)]
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        _put(dataset, np.maximum(values, np.percentile(tissue, 65).astype(np.uint16)))
    else:
        _put(dataset, np.minimum(values, np.percentile(tissue, 35).astype(np.uint16)))


def _tissue(dataset: Dataset, values: Pixels) -> NDArray[np.bool_]:
    """The half of the range away from air's end."""
    low, high = np.percentile(values, (1, 99))
    level = low + 0.2 * (high - low)
    return (
        values < high - (level - low)
        if dataset.PhotometricInterpretation == "MONOCHROME1"
        else values > level
    )


def _posterised(values: Pixels) -> Pixels:
    step = max(int(values.max()) // 8, 1)
    return (values // step * step).astype(np.uint16)


def _zero_half(values: Pixels) -> Pixels:
    values[len(values) // 2 :] = 0
    return values


ALTERATIONS: dict[str, Alteration] = {
    "inverted interpretation": _inverted,
    "negative slope": _negative_slope,
    "window width 1": _window(1),
    "window width 1e9": _window(1e9),
    "swapped bytes": _on_pixels(lambda values: values.byteswap()),
    "one byte lost": _lost_byte,
    "last half zero": _on_pixels(_zero_half),
    "padding over the brightest": _bright_padding,
    "chest wall third black": _half_black,
    "excess pixel data": _excess,
    "too few bits stored": _too_few_bits,
    "constant rows": _on_pixels(_constant_rows),
    "rest constant": _on_pixels(_rest_constant),
    "noise": _on_pixels(_noise),
    "repeated rows": _on_pixels(_repeated_rows),
    "sheared": _on_pixels(_sheared),
    "clipped highlights": _clipped,
    "mirrored": _on_pixels(lambda values: values[:, ::-1]),
    "posterised": _on_pixels(_posterised),
}
