"""Look-up tables against pydicom's own functions."""

import warnings
from pathlib import Path

import numpy as np
import pydicom
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom import Dataset, dcmread
from pydicom.pixels import apply_modality_lut, apply_voi_lut

from tests.images import made
from trust_cache.images.decoding.decode import decode
from trust_cache.images.image_failures import ImageError
from trust_cache.images.luts import BRIGHTEST, build_table
from trust_cache.images.picture_folder import ImageSettings

FILES = Path(pydicom.__file__).parent / "data" / "test_files"


def grey_of(ds: Dataset) -> np.ndarray:
    stored = decode(ds, ImageSettings())
    return build_table(ds, stored).apply(stored.pixels)


def expected_grey(ds: Dataset, low: float, high: float) -> np.ndarray:
    """What pydicom gives, from its lowest to its highest possible value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a LUT after a rescale works on floats
        voi = apply_voi_lut(apply_modality_lut(ds.pixel_array, ds), ds)
    share = (voi.astype(np.float64) - low) / (high - low)
    if ds.PhotometricInterpretation == "MONOCHROME1":
        share = 1 - share
    return np.clip(share, 0, 1) * BRIGHTEST


def agrees(ds: Dataset, low: float, high: float) -> None:
    np.testing.assert_allclose(grey_of(ds), expected_grey(ds, low, high), atol=0.5 + 1e-6)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("MR_small.dcm", -32768, 32767),  # a window
        ("examples_overlay.dcm", 0, 4095),  # two windows
        ("693_J2KI.dcm", -8192, 8191),  # rescale and window; padding -2000
        ("J2K_pixelrep_mismatch.dcm", -4096, 4095),  # rescale and three windows
        ("CT_small.dcm", -32768, 32767),  # rescale, no window; padding -2000
    ],
)
def test_real_files_as_pydicom(name: str, low: float, high: float) -> None:
    ds = dcmread(FILES / name)
    slope, intercept = float(ds.get("RescaleSlope", 1)), float(ds.get("RescaleIntercept", 0))
    expected = expected_grey(ds, low * slope + intercept, high * slope + intercept)
    if "PixelPaddingValue" in ds:
        expected[ds.pixel_array == ds.PixelPaddingValue] = 0
    np.testing.assert_allclose(grey_of(ds), expected, atol=0.5 + 1e-6)


@settings(deadline=None, max_examples=60)
@given(
    function=st.sampled_from(["LINEAR", "LINEAR_EXACT", "SIGMOID", None]),
    center=st.floats(-500, 5000),
    width=st.floats(2, 6000),
    slope=st.sampled_from([None, 1.0, 0.5, 3.25]),
    inverted=st.booleans(),
)
def test_windows_as_pydicom(
    function: str | None, center: float, width: float, slope: float | None, inverted: bool
) -> None:
    pixels = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    ds = made.dataset(pixels, WindowCenter=[round(center, 3), 7, 9], WindowWidth=[round(width, 3), 7, 9])
    if function is not None:
        ds.VOILUTFunction = function
    low, high = 0.0, 4095.0
    if slope is not None:
        ds.RescaleSlope, ds.RescaleIntercept = slope, -100
        low, high = low * slope - 100, high * slope - 100
    if inverted:
        ds.PhotometricInterpretation = "MONOCHROME1"
    agrees(ds, low, high)


@pytest.mark.parametrize("depth", [8, 10, 12, 16])
@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
def test_first_voi_lut_before_any_window(depth: int, photometric: str) -> None:
    top = 2**depth - 1
    tables = [np.linspace(0, top, 1000) ** 2 / top, np.zeros(1000)]
    ds = made.dataset(
        np.arange(4096, dtype=np.uint16).reshape(64, 64),
        PhotometricInterpretation=photometric,
        WindowCenter=2000,
        WindowWidth=1000,
        VOILUTSequence=[made.lut_item(table.astype(np.uint16), 500, depth) for table in tables],
    )
    entries = np.clip(np.arange(4096) - 500, 0, 999)
    share = tables[0].astype(np.uint16)[entries] / top
    expected = (1 - share if photometric == "MONOCHROME1" else share) * BRIGHTEST
    np.testing.assert_allclose(grey_of(ds).ravel(), expected, atol=0.5 + 1e-6)
    if depth > 8:  # pydicom indexes an 8-bit LUT with 8 bits
        agrees(ds, 0, top)


def test_modality_lut_then_window() -> None:
    table = (np.arange(4096)[::-1] * 10).astype(np.uint16)
    ds = made.dataset(
        np.arange(4096, dtype=np.uint16).reshape(64, 64),
        ModalityLUTSequence=[made.lut_item(table)],
        WindowCenter=20000,
        WindowWidth=30000,
    )
    agrees(ds, 0, 65535)


def test_lut_of_numbers_is_read_like_one_of_bytes() -> None:
    table = np.arange(0, 65536, 16).astype(np.uint16)
    item = Dataset()
    item.LUTDescriptor, item.LUTData = [4096, 0, 16], table.tolist()
    item["LUTData"].VR = "US"
    pixels = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    of_numbers = grey_of(made.dataset(pixels, VOILUTSequence=[item]))
    of_bytes = grey_of(made.dataset(pixels, VOILUTSequence=[made.lut_item(table)]))
    np.testing.assert_array_equal(of_numbers, of_bytes)


def test_signed_values() -> None:
    pixels = (np.arange(4096) - 2048).astype(np.int16).reshape(64, 64)
    ds = made.dataset(pixels.view(np.uint16), PixelRepresentation=1, WindowCenter=10, WindowWidth=500)
    agrees(ds, -2048, 2047)


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize("padding", [0, 3000, 4095])
def test_padding_is_background_and_changes_nothing_else(photometric: str, padding: int) -> None:
    pixels = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    plain = made.dataset(pixels, PhotometricInterpretation=photometric)
    padded = made.dataset(pixels, PhotometricInterpretation=photometric, PixelPaddingValue=padding)
    padded["PixelPaddingValue"].VR = "US"
    expected = grey_of(plain)
    expected[pixels == padding] = 0
    np.testing.assert_array_equal(grey_of(padded), expected)


def test_padding_range_and_padding_of_the_other_sign() -> None:
    pixels = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    ds = made.dataset(pixels, PixelPaddingValue=4000, PixelPaddingRangeLimit=4010)
    grey = grey_of(ds).ravel()
    assert not grey[4000:4011].any()
    assert grey[[3999, 4011]].all()
    signed = (np.arange(4096) - 2048).astype(np.int16).reshape(64, 64)
    ds = made.dataset(signed.view(np.uint16), PixelRepresentation=1, PixelPaddingValue=65536 - 2000)
    grey = grey_of(ds).ravel()
    assert grey[2048 - 2000] == 0
    assert grey[2048 - 1999] > 0


def test_window_without_width_is_ignored_with_a_warning() -> None:
    ds = made.dataset(made.mammogram(), WindowCenter=100, WindowWidth=0)
    stored = decode(ds, ImageSettings())
    table = build_table(ds, stored)
    (warning,) = table.warnings
    assert warning.startswith("window: window of width 0 ignored, limit 1.")
    np.testing.assert_array_equal(table.grey[:4096], np.rint(np.arange(4096) * 65535 / 4095))


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ({"RescaleSlope": 0, "RescaleIntercept": 1}, "slope is 0"),
        ({"WindowCenter": 1, "WindowWidth": 9, "VOILUTFunction": "CUBIC"}, "LINEAR_EXACT"),
        ({"VOILUTSequence": [made.lut_item(np.arange(9, dtype=np.uint16), 0, 5)]}, "5 bits"),
    ],
)
def test_tables_that_cannot_be_applied(elements: dict[str, object], reason: str) -> None:
    ds = made.dataset(made.mammogram(), **elements)
    with pytest.raises(ImageError, match=reason) as caught:
        grey_of(ds)
    assert caught.value.stage == "intensity"


def test_lut_shorter_than_declared() -> None:
    item = made.lut_item(np.arange(100, dtype=np.uint16))
    item.LUTDescriptor = [4096, 0, 16]
    with pytest.raises(ImageError, match="declares 4096 entries"):
        grey_of(made.dataset(made.mammogram(), VOILUTSequence=[item]))
