"""Decoding: pixels of files that others made, and a reason for everything that is no mammogram."""

import pickle
import struct
import sys
import warnings
from pathlib import Path

import numpy as np
import pydicom
import pytest
from pydicom import Dataset, dcmread
from pydicom.encaps import encapsulate, get_frame
from pydicom.uid import MPEG2MPML, UID, JPEG2000Lossless

from tests.images import made
from trust_cache.images.decoding.decode import Stored, decode
from trust_cache.images.dicom_file import TECHNICAL_ELEMENTS, read_dataset
from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture import process_image
from trust_cache.images.picture_folder import ImageSettings

FILES = Path(pydicom.__file__).parent / "data" / "test_files"
SETTINGS = ImageSettings()


def decode_file(path: Path) -> Stored:
    return decode(read_dataset(path), SETTINGS)


def reason_of(source: Dataset | Path, stage: str) -> str:
    with pytest.raises(ImageError) as caught:
        process_image(source, "L")
    assert caught.value.stage == stage
    assert "\n" not in caught.value.reason
    return caught.value.reason


@pytest.mark.parametrize(
    ("name", "decoder"),
    [
        ("MR_small.dcm", "pydicom"),
        ("MR_small_implicit.dcm", "pydicom"),
        ("MR_small_bigendian.dcm", "pydicom"),
        ("MR_small_padded.dcm", "pydicom"),
        ("MR_small_RLE.dcm", "pydicom"),
        ("MR_small_jpeg_ls_lossless.dcm", "imagecodecs"),
        ("MR_small_jp2klossless.dcm", "imagecodecs"),
    ],
)
def test_one_image_in_seven_encodings(name: str, decoder: str) -> None:
    stored = decode_file(FILES / name)
    # From pydicom's tests/pixels/pixels_reference.py.
    assert stored.pixels.shape == (64, 64)
    assert stored.pixels.dtype == np.dtype("int16")
    assert stored.pixels[0, 31:34].tolist() == [422, 319, 361]
    assert stored.pixels[31, :3].tolist() == [366, 363, 322]
    assert stored.pixels[-1, -3:].tolist() == [1369, 1129, 862]
    assert stored.decoder.split()[0] == decoder


# What pydicom's own tests expect at a few places, tests/pixels/pixels_reference.py.
@pytest.mark.parametrize(
    ("name", "place", "values"),
    [
        (
            "J2K_pixelrep_mismatch.dcm",
            np.s_[47:57, 279],
            [621, 412, 138, -193, -520, -767, -907, -966, -988, -995],
        ),
        ("JPEGLSNearLossless_16.dcm", np.s_[:41:5, 0], [65535, 32765, 16385, 4095, 1025, 255, 65, 15, 5]),
        ("CT_small.dcm", np.s_[40:45, 40], [1138, 1165, 1113, 1088, 1072]),
    ],
)
def test_known_pixels(name: str, place: object, values: list[int]) -> None:
    assert decode_file(FILES / name).pixels[place].tolist() == values


@pytest.mark.parametrize("name", ["693_J2KI.dcm", "JPEG2000.dcm", "examples_overlay.dcm", "image_dfl.dcm"])
def test_pixels_as_pydicom_decodes_them(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = dcmread(FILES / name).pixel_array
    np.testing.assert_array_equal(decode_file(FILES / name).pixels, theirs)


def test_values_beyond_the_declared_bits_are_kept_and_named() -> None:
    ds = made.as_jpeg_2000(made.dataset(made.mammogram(bits=14), bits=14))
    ds.BitsStored, ds.HighBit = 12, 11
    stored = decode(ds, SETTINGS)
    assert stored.bits == 14
    (warning,) = stored.warnings
    assert warning.startswith("bits: pixel values take 14 bits, limit 12.")


def test_reading_leaves_the_person_out(tmp_path: Path) -> None:
    ds = read_dataset(made.save(made.dataset(made.mammogram()), tmp_path / "a.dcm"))
    assert {element.keyword for element in ds} <= set(TECHNICAL_ELEMENTS)
    assert "Planted" not in str(ds)


def test_files_that_are_none(tmp_path: Path) -> None:
    assert reason_of(tmp_path / "absent.dcm", "read") == "no such file"
    assert "cannot be read" in reason_of(tmp_path, "read")
    empty = tmp_path / "empty.dcm"
    empty.touch()
    assert reason_of(empty, "read") == "the file is empty"
    text = tmp_path / "text.dcm"
    text.write_text("image_id,stage,reason\n" * 20)
    assert "not a DICOM" in reason_of(text, "read")
    assert "file meta information is missing" in reason_of(FILES / "ExplVR_LitEndNoMeta.dcm", "read")
    assert "no transfer syntax" in reason_of(FILES / "meta_missing_tsyntax.dcm", "decode")


def test_a_transfer_syntax_that_is_a_text_is_not_repeated() -> None:
    ds = made.dataset(made.mammogram())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom names invalid values
        ds.file_meta.TransferSyntaxUID = UID("Planted^Name")
        reason = reason_of(ds, "decode")
    assert "transfer syntax with an invalid UID is not supported" in reason
    assert "Planted" not in reason


def test_no_pixel_data() -> None:
    assert "no pixel data" in reason_of(FILES / "test-SR.dcm", "decode")
    ds = made.dataset(made.mammogram())
    del ds.PixelData
    assert "no pixel data" in reason_of(ds, "decode")


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.999])
def test_truncated_encapsulated_file(share: float, tmp_path: Path) -> None:
    whole = made.as_bytes(made.as_jpeg_2000(made.dataset(made.mammogram())))
    start = whole.index(b"\xe0\x7f\x10\x00OB")
    path = tmp_path / "cut.dcm"
    path.write_bytes(whole[: start + int(share * (len(whole) - start))])
    assert reason_of(path, "decode").startswith("truncated")


def test_truncated_native_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.dcm"
    path.write_bytes(made.as_bytes(made.dataset(made.mammogram()))[:-1000])
    assert reason_of(path, "decode").startswith("truncated")
    assert reason_of(FILES / "MR_truncated.dcm", "decode").startswith("truncated")


def test_truncated_frame_in_whole_items(tmp_path: Path) -> None:
    j2k = made.as_jpeg_2000(made.dataset(made.mammogram()))
    lossless = made.as_jpeg_lossless(made.dataset(made.mammogram()), tmp_path)
    for ds in (j2k, lossless):
        stream = get_frame(ds.PixelData, 0, number_of_frames=1)
        ds.PixelData = encapsulate([stream[: len(stream) // 2]])
        assert reason_of(ds, "decode").startswith("truncated")


def test_damaged_frame_is_a_reason() -> None:
    ds = made.as_jpeg_2000(made.dataset(made.mammogram()))
    stream = bytearray(get_frame(ds.PixelData, 0, number_of_frames=1))
    stream[60:-2] = bytes(len(stream) - 62)
    ds.PixelData = encapsulate([bytes(stream)])
    assert "imagecodecs cannot decode JPEG 2000" in reason_of(ds, "decode")


def test_multi_frame_and_colour() -> None:
    assert "15 frames" in reason_of(FILES / "rtdose.dcm", "decode")
    assert "RGB" in reason_of(FILES / "examples_rgb_color.dcm", "decode")
    assert "PALETTE COLOR" in reason_of(FILES / "examples_palette.dcm", "decode")
    assert "YBR_RCT" in reason_of(FILES / "examples_jpeg2k.dcm", "decode")


def test_bits_that_are_not_supported() -> None:
    assert "32 bits" in reason_of(FILES / "rtdose_1frame.dcm", "decode")
    assert "1 bits stored" in reason_of(FILES / "liver_1frame.dcm", "decode")
    ds = made.dataset(made.mammogram(), HighBit=15)
    assert "high bit 15" in reason_of(ds, "decode")
    ds = made.dataset(made.mammogram())
    del ds.BitsStored
    assert "BitsStored is missing" in reason_of(ds, "decode")


def test_unsupported_transfer_syntax_names_what_to_install() -> None:
    ds = made.with_frame(made.dataset(made.mammogram()), MPEG2MPML, bytes(64))
    reason = reason_of(ds, "decode")
    assert MPEG2MPML in reason
    assert "install the package dcmtk" in reason
    ds = made.dataset(made.mammogram())
    ds.file_meta.TransferSyntaxUID = UID("1.2.3.4.5")
    assert "1.2.3.4.5 is not supported" in reason_of(ds, "decode")


def test_missing_decoder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ds = made.as_jpeg_2000(made.dataset(made.mammogram()))
    monkeypatch.setitem(sys.modules, "imagecodecs", None)  # an import of it fails
    reason = reason_of(ds, "decode")
    assert JPEG2000Lossless in reason
    assert "pip install imagecodecs" in reason


def test_declared_size_is_refused_before_allocation(tmp_path: Path) -> None:
    ds = made.dataset(made.mammogram(), Rows=65535, Columns=65535)
    assert "65535 x 65535" in reason_of(ds, "decode")
    # 100,000 does not fit the header's two bytes: another program wrote it with four.
    for keyword in ("Rows", "Columns"):
        ds[keyword].VR = "UL"
        ds[keyword].value = 100_000
    assert "100000 x 100000" in reason_of(made.save(ds, tmp_path / "large.dcm"), "decode")


def test_size_declared_in_the_compressed_frame_is_refused(tmp_path: Path) -> None:
    ds = made.as_jpeg_2000(made.dataset(made.mammogram()))
    stream = bytearray(get_frame(ds.PixelData, 0, number_of_frames=1))
    stream[8:16] = struct.pack(">II", 100_000, 100_000)
    ds.PixelData = encapsulate([bytes(stream)])
    assert "100000 x 100000" in reason_of(ds, "decode")
    lossless = made.as_jpeg_lossless(made.dataset(made.mammogram()), tmp_path)
    lossless.Rows -= 1
    assert "the header declares 419 x 330" in reason_of(lossless, "decode")


def test_error_survives_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(ImageError("decode", "truncated")))  # noqa: S301 (made here)
    assert (error.stage, error.reason, str(error)) == ("decode", "truncated", "decode: truncated")
    assert error.exit_code == 2
