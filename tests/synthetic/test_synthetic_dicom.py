"""Synthetic DICOM files: what went in comes out, headers describe it, twins are twins, broken is broken."""

import io
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from pydicom import dcmread
from pydicom.dataset import FileDataset
from pydicom.errors import InvalidDicomError
from pydicom.pixels import apply_modality_lut, apply_voi_lut

from trust_cache.base.errors import InputError
from trust_cache.synthetic.phantom import Phantom, PhantomSettings, draw_phantom
from trust_cache.synthetic.synthetic_dicom import (
    BITS,
    BROKEN_KINDS,
    SYNTAXES,
    Encoding,
    Identity,
    Tags,
    broken_bytes,
    mammogram_bytes,
    stored_pixels,
)

PHOTOMETRIC = ("MONOCHROME1", "MONOCHROME2")
READERS = {"jpeg-2000": "pylibjpeg", "jpeg-lossless": "gdcm", "jpeg-lossless-any": "gdcm"}


@pytest.fixture(scope="module")
def phantom() -> Phantom:
    # Odd sides: 16-bit words and padding to even lengths both matter.
    return draw_phantom(PhantomSettings(201, 161, text="L CC", unexposed=True, lesion_contrast=0.3), 1)


def read(content: bytes | None) -> FileDataset:
    assert content is not None
    return dcmread(io.BytesIO(content))


def shown(dataset: FileDataset, index: int = 0, *, prefer_lut: bool = True) -> NDArray[np.float64]:
    """The picture on a screen by pydicom: window or table applied, MONOCHROME1 inverted."""
    rescaled = apply_modality_lut(dataset.pixel_array, dataset)
    values = apply_voi_lut(rescaled, dataset, index=index, prefer_lut=prefer_lut).astype(float)
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        slope, intercept = dataset.get("RescaleSlope", 1), dataset.get("RescaleIntercept", 0)
        values = slope * ((1 << dataset.BitsStored) - 1) + 2 * intercept - values
    return values


@pytest.mark.parametrize(("bits", "photometric", "syntax"), list(product(BITS, PHOTOMETRIC, SYNTAXES)))
def test_pixels_come_back(phantom: Phantom, bits: int, photometric: str, syntax: str) -> None:
    encoding = Encoding(bits, photometric, syntax)
    dataset = read(mammogram_bytes(phantom, encoding))
    assert dataset.file_meta.TransferSyntaxUID == SYNTAXES[syntax]
    dataset.pixel_array_options(decoding_plugin=READERS.get(syntax, ""))
    assert np.array_equal(dataset.pixel_array, stored_pixels(phantom, encoding))
    assert (dataset.Rows, dataset.Columns) == (201, 161)
    assert (dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit) == (16, bits, bits - 1)
    assert dataset.PhotometricInterpretation == photometric


def test_tags_are_as_asked_and_nobodys(phantom: Phantom) -> None:
    dataset = read(mammogram_bytes(phantom, Encoding()))
    assert dataset.PatientName == "Synthetic"
    assert dataset.PatientID == "Synthetic"
    assert dataset.Modality == "MG"
    assert "PatientBirthDate" not in dataset
    assert "ImageLaterality" not in dataset
    tags = Tags("123", "R", "MLO", None, 61, further=(("BodyPartExamined", "BREAST"),))
    dataset = read(mammogram_bytes(phantom, Encoding(), tags))
    assert "Modality" not in dataset
    assert (dataset.PatientID, dataset.ImageLaterality, dataset.ViewPosition) == ("123", "R", "MLO")
    assert dataset.PatientAge == "061Y"
    assert dataset.BodyPartExamined == "BREAST"


def test_an_identity_is_planted_only_when_asked(phantom: Phantom) -> None:
    identity = Identity("Synthetic^Isolde", "19010203", (("PatientAddress", "Nowhere 1"),))
    content = mammogram_bytes(phantom, Encoding(), Tags(identity=identity))
    dataset = read(content)
    assert dataset.PatientName == "Synthetic^Isolde"
    assert dataset.PatientBirthDate == "19010203"
    assert dataset.PatientAddress == "Nowhere 1"
    assert b"Isolde" not in mammogram_bytes(phantom, Encoding())


def test_files_are_the_same_every_time_and_identifiers_follow_what_is_unique(phantom: Phantom) -> None:
    for syntax in SYNTAXES:
        encoding = Encoding(syntax=syntax)
        assert mammogram_bytes(phantom, encoding) == mammogram_bytes(phantom, encoding)
    one, two = (read(mammogram_bytes(phantom, Encoding(), Tags(unique=("case", name)))) for name in "ab")
    assert one.StudyInstanceUID == two.StudyInstanceUID
    assert one.SOPInstanceUID != two.SOPInstanceUID


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize("windows", [1, 2, 4])
@pytest.mark.parametrize("padding", ["none", "dark", "bright"])
@pytest.mark.parametrize("rescale", [None, (2.0, -100.0)])
def test_twins_show_the_same(
    phantom: Phantom, function: str, windows: int, padding: str, rescale: tuple[float, float] | None
) -> None:
    encoding = Encoding(12, "MONOCHROME2", "explicit", function, windows, 0, padding, 0.9, rescale)
    one, two = (
        read(mammogram_bytes(phantom, e)) for e in (encoding, replace(encoding, photometric="MONOCHROME1"))
    )
    assert np.array_equal(encoding.largest - one.pixel_array, two.pixel_array)
    assert one.VOILUTFunction == two.VOILUTFunction == function
    for index in range(windows):
        assert np.abs(shown(one, index) - shown(two, index)).max() < 1e-6


@pytest.mark.parametrize(("bits", "photometric"), list(product(BITS, PHOTOMETRIC)))
def test_look_up_tables_agree_with_the_windows_beside_them(
    phantom: Phantom, bits: int, photometric: str
) -> None:
    encoding = Encoding(bits, photometric, window_function="SIGMOID", windows=3, voi_luts=3)
    dataset = read(mammogram_bytes(phantom, encoding))
    assert [item.LUTExplanation for item in dataset.VOILUTSequence] == ["NORMAL", "HARDER", "SOFTER"]
    assert list(dataset.WindowCenter) == [centre for centre, _ in encoding.window_values]
    for index in range(3):
        # A table holds whole numbers.
        by_table, by_window = shown(dataset, index), shown(dataset, index, prefer_lut=False)
        assert np.abs(by_table - by_window).max() <= 0.5 + 1e-6


def test_a_window_keeps_the_breast_above_the_air(phantom: Phantom) -> None:
    for function, photometric in product(("LINEAR", "SIGMOID"), PHOTOMETRIC):
        encoding = Encoding(photometric=photometric, window_function=function)
        values = shown(read(mammogram_bytes(phantom, encoding)))
        marks = phantom.intensity > 0.9
        assert values[phantom.breast].min() > values[~phantom.breast & ~marks].max()


def test_bits_differ_only_by_rounding(phantom: Phantom) -> None:
    coarse, fine = (stored_pixels(phantom, Encoding(bits)) / ((1 << bits) - 1) for bits in (12, 16))
    assert np.abs(coarse - fine).max() < 1.5 / 4095


@pytest.mark.parametrize(
    ("photometric", "padding", "expected"),
    [
        ("MONOCHROME1", "dark", "largest"),  # as in RSNA
        ("MONOCHROME2", "dark", "smallest"),
        ("MONOCHROME1", "bright", "smallest"),
        ("MONOCHROME2", "bright", "largest"),
    ],
)
def test_padding_is_at_the_end_of_the_scale_and_only_there(
    phantom: Phantom, photometric: str, padding: str, expected: str
) -> None:
    encoding = Encoding(16, photometric, padding=padding, maximum=0.7)
    dataset = read(mammogram_bytes(phantom, encoding))
    pixels = dataset.pixel_array
    assert dataset.PixelPaddingValue == (pixels.max() if expected == "largest" else pixels.min())
    assert np.array_equal(pixels == dataset.PixelPaddingValue, phantom.unexposed)
    assert encoding.largest == round(0.7 * 65535)
    assert "PixelPaddingValue" not in read(mammogram_bytes(phantom, replace(encoding, padding="none")))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bits": 14}, "bits: expected one of 10, 12, 16, found 14"),
        ({"photometric": "RGB"}, "photometric"),
        ({"syntax": "rle"}, "syntax: expected one of implicit, explicit"),
        ({"window_function": "CUBIC"}, "window function"),
        ({"padding": "yes"}, "padding"),
        ({"windows": 5}, "windows"),
        ({"maximum": 0.1}, "maximum: expected 0.5 to 1"),
    ],
)
def test_wrong_encodings_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Encoding(**wrong)  # type: ignore[arg-type]


def test_tables_with_rescaling_are_refused(phantom: Phantom) -> None:
    with pytest.raises(InputError, match="VOI LUTs"):
        mammogram_bytes(phantom, Encoding(voi_luts=1, rescale=(2.0, 0.0)))


@pytest.mark.parametrize("syntax", SYNTAXES)
class TestBroken:
    def broken(self, kind: str, phantom: Phantom, syntax: str) -> bytes:
        encoding = Encoding(syntax=syntax, windows=3, voi_luts=3, padding="dark")
        content = broken_bytes(kind, phantom, encoding, Tags())
        assert content is not None
        return content

    @pytest.mark.filterwarnings("ignore:.*End of file.*|.*unexpected EOF.*|.*delimiter.*:UserWarning")
    def test_truncated(self, phantom: Phantom, syntax: str) -> None:
        content = self.broken("truncated", phantom, syntax)
        whole = self.broken("constant", phantom, "explicit")
        assert 0 < len(content) < len(whole)
        with pytest.raises(Exception, match=r".+"):  # which one depends on the decoder
            _ = read(content).pixel_array

    def test_no_dicom(self, phantom: Phantom, syntax: str) -> None:
        with pytest.raises(InvalidDicomError):
            read(self.broken("not a DICOM", phantom, syntax))
        assert self.broken("zero bytes", phantom, syntax) == b""
        assert broken_bytes("missing", phantom, Encoding(syntax=syntax), Tags()) is None

    def test_no_pixel_data(self, phantom: Phantom, syntax: str) -> None:
        dataset = read(self.broken("no pixel data", phantom, syntax))
        assert "PixelData" not in dataset
        assert dataset.Rows == 201

    def test_other_kinds_of_image(self, phantom: Phantom, syntax: str) -> None:
        tomosynthesis = read(self.broken("multi-frame", phantom, syntax))
        assert tomosynthesis.pixel_array.shape == (3, 201, 161)
        colour = read(self.broken("RGB", phantom, syntax))
        assert colour.PhotometricInterpretation == "RGB"
        assert colour.pixel_array.shape == (201, 161, 3)
        assert np.ptp(read(self.broken("constant", phantom, syntax)).pixel_array) == 0

    def test_what_cannot_be_decoded(self, phantom: Phantom, syntax: str) -> None:
        film = read(self.broken("unsupported syntax", phantom, syntax))
        with pytest.raises(NotImplementedError):
            _ = film.pixel_array
        huge = read(self.broken("oversized", phantom, syntax))
        assert huge.Rows == huge.Columns == 65_535
        assert len(huge.PixelData) < 200_000


def test_an_unknown_kind_is_refused(phantom: Phantom) -> None:
    assert len(BROKEN_KINDS) == 10
    with pytest.raises(InputError, match=r"broken kind: expected one of truncated, .* found 'burnt'"):
        broken_bytes("burnt", phantom, Encoding(), Tags())
