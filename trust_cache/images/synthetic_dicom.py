"""Phantoms as DICOM files: stored values, windows, look-up tables, padding and transfer syntaxes."""

import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import gdcm
import numpy as np
from numpy.typing import NDArray
from pydicom import dcmwrite
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.sequence import Sequence
from pydicom.uid import (
    MPEG2MPML,
    UID,
    DigitalMammographyXRayImageStorageForPresentation,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGLossless,
    JPEGLosslessSV1,
    generate_uid,
)

from trust_cache.base.errors import InputError
from trust_cache.images.phantom import Phantom

Pixels = NDArray[np.uint16]

SYNTAXES: dict[str, UID] = {
    "implicit": ImplicitVRLittleEndian,
    "explicit": ExplicitVRLittleEndian,
    "jpeg-2000": JPEG2000Lossless,
    "jpeg-lossless": JPEGLosslessSV1,  # .70, first-order prediction
    "jpeg-lossless-any": JPEGLossless,  # .57, any prediction
}
BITS = (10, 12, 16)
PADDINGS = ("none", "dark", "bright")
WINDOW_FUNCTIONS = ("LINEAR", "LINEAR_EXACT", "SIGMOID")
WINDOW_NAMES = ("NORMAL", "HARDER", "SOFTER", "SOFTEST")
# Centre and width of each named window, as shares of the pixel maximum.
_WINDOWS = ((0.42, 0.62), (0.44, 0.46), (0.40, 0.80), (0.40, 1.0))
# The shares of the pixel maximum at either end that no exposed pixel takes: padding stands clear of tissue.
_CLEARANCE = 0.02
_LEAST_MAXIMUM = 0.5  # below, the image would need a bit less
_ROOT = "1.2.826.0.1.3680043.8.498."  # pydicom's root, under which anyone may make identifiers


@dataclass(frozen=True)
class Encoding:
    """How an image becomes stored values, and what the header says about showing them."""

    bits: int = 12
    photometric: str = "MONOCHROME2"
    syntax: str = "explicit"
    window_function: str = "LINEAR"
    windows: int = 1  # how many of the named windows the header offers
    voi_luts: int = 0  # how many of them also as entries of a VOI LUT sequence
    padding: str = "none"  # PixelPaddingValue at the air's end of the scale, or at the tissue's
    maximum: float = 1.0  # the largest stored value as a share of what the bits hold
    rescale: tuple[float, float] | None = None  # slope and intercept

    def __post_init__(self) -> None:
        """Refuse what no file could be."""
        _require("bits", self.bits, BITS)
        _require("photometric", self.photometric, ("MONOCHROME1", "MONOCHROME2"))
        _require("syntax", self.syntax, tuple(SYNTAXES))
        _require("window function", self.window_function, WINDOW_FUNCTIONS)
        _require("padding", self.padding, PADDINGS)
        _require("windows", self.windows, tuple(range(len(_WINDOWS) + 1)))
        _require("VOI LUTs", self.voi_luts, tuple(range(len(_WINDOWS) + 1)))
        if not _LEAST_MAXIMUM <= self.maximum <= 1:
            raise InputError(f"maximum: expected {_LEAST_MAXIMUM} to 1, found {self.maximum}")

    @property
    def largest(self) -> int:
        """The largest value that a pixel takes."""
        return round(self.maximum * ((1 << self.bits) - 1))

    @property
    def padding_value(self) -> int | None:
        """What PixelPaddingValue says."""
        if self.padding == "none":
            return None
        return self.largest if (self.padding == "dark") == self._inverted else 0

    @property
    def window_values(self) -> tuple[tuple[float, float], ...]:
        """Centre and width of each window, in stored values after any rescaling."""
        return tuple(self._window(*_WINDOWS[number]) for number in range(self.windows))

    @property
    def _inverted(self) -> bool:
        return self.photometric == "MONOCHROME1"

    def _window(self, centre_share: float, width_share: float) -> tuple[float, float]:
        slope, intercept = self.rescale or (1, 0)
        centre, width = round(centre_share * self.largest), round(width_share * self.largest)
        if self._inverted:
            centre = self.largest - centre
        # LINEAR maps about centre - 0.5 (PS3.3 C.11.2.1.2.1): its mirror image lies one further.
        further = int(self._inverted and self.window_function == "LINEAR")
        return slope * centre + intercept + further, slope * width


@dataclass(frozen=True)
class Identity:
    """Tags that would name a person: only ever written when a caller asks for them."""

    patient_name: str
    birth_date: str  # YYYYMMDD
    further: tuple[tuple[str, str], ...] = ()  # keyword and value of any other tags


@dataclass(frozen=True)
class Tags:
    """What the header says about the examination. None: the tag is absent, as after stripping."""

    patient_id: str = "Synthetic"
    laterality: str | None = None
    view_position: str | None = None
    modality: str | None = "MG"
    age: int | None = None
    manufacturer: str = "Synthetic"
    model: str = "Phantom"
    unique: tuple[str, ...] = ("synthetic",)  # what the identifiers are made of
    identity: Identity | None = None
    further: tuple[tuple[str, object], ...] = field(default=())


def stored_pixels(phantom: Phantom, encoding: Encoding) -> Pixels:
    """Return the values that a file stores. MONOCHROME1 is MONOCHROME2 taken from the largest value."""
    largest = encoding.largest
    low = round(_CLEARANCE * largest)
    scaled = phantom.intensity * np.float32(largest - 2 * low)
    pixels: Pixels = (np.rint(scaled, out=scaled) + np.float32(low)).astype(np.uint16)
    if encoding.padding != "none":
        pixels[phantom.unexposed] = 0 if encoding.padding == "dark" else largest
    if encoding.photometric == "MONOCHROME1":
        np.subtract(np.uint16(largest), pixels, out=pixels)
    return pixels


def twin_of(encoding: Encoding) -> Encoding:
    """Return the encoding with the other photometric interpretation that shows the same image."""
    other = "MONOCHROME2" if encoding.photometric == "MONOCHROME1" else "MONOCHROME1"
    return replace(encoding, photometric=other)


def make_dataset(pixels: Pixels, encoding: Encoding, tags: Tags) -> Dataset:
    """Return an uncompressed data set of these stored values, without pixel compression or file meta."""
    dataset = Dataset()
    _describe_examination(dataset, tags)
    dataset.Rows, dataset.Columns = pixels.shape
    dataset.SamplesPerPixel = 1
    dataset.PhotometricInterpretation = encoding.photometric
    dataset.BitsAllocated = 16
    dataset.BitsStored = encoding.bits
    dataset.HighBit = encoding.bits - 1
    dataset.PixelRepresentation = 0
    if encoding.padding_value is not None:
        dataset.add_new("PixelPaddingValue", "US", encoding.padding_value)
    _describe_grey_scale(dataset, encoding)
    dataset.add_new("PixelData", "OW", pixels.astype("<u2", copy=False).tobytes())
    return dataset


def file_bytes(dataset: Dataset, syntax: str) -> bytes:
    """Return a data set as a file in a transfer syntax, its pixels compressed where that says so."""
    uid = SYNTAXES[syntax]
    dataset.file_meta = _file_meta(dataset, uid)
    if uid == JPEG2000Lossless:
        dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        dataset.compress(uid, encoding_plugin="pylibjpeg", generate_instance_uid=False)
    elif uid.is_compressed:
        dataset.PixelData = encapsulate([_jpeg_lossless(dataset, uid)])
        dataset["PixelData"].VR = "OB"
        dataset["PixelData"].is_undefined_length = True
    return _written(dataset)


def mammogram_bytes(phantom: Phantom, encoding: Encoding, tags: Tags | None = None) -> bytes:
    """Return a phantom as a DICOM file."""
    pixels = stored_pixels(phantom, encoding)
    return file_bytes(make_dataset(pixels, encoding, tags or Tags()), encoding.syntax)


def broken_bytes(kind: str, phantom: Phantom, encoding: Encoding, tags: Tags) -> bytes | None:
    """Return a file that is broken in a named way; None for a file that is not there."""
    if kind not in _BREAKERS:
        raise InputError(f"broken kind: expected one of {', '.join(BROKEN_KINDS)}, found {kind!r}")
    return _BREAKERS[kind](phantom, encoding, tags)


def _require(name: str, found: object, expected: tuple[object, ...]) -> None:
    if found not in expected:
        raise InputError(f"{name}: expected one of {', '.join(map(str, expected))}, found {found!r}")


def _describe_examination(dataset: Dataset, tags: Tags) -> None:
    dataset.SOPClassUID = DigitalMammographyXRayImageStorageForPresentation
    for keyword, part in (("StudyInstanceUID", 1), ("SeriesInstanceUID", 2), ("SOPInstanceUID", 3)):
        entropy = [*(tags.unique[:1] if part == 1 else tags.unique), str(part)]
        setattr(dataset, keyword, generate_uid(_ROOT, entropy_srcs=entropy))
    dataset.PatientID = tags.patient_id
    dataset.PatientName = "Synthetic"
    dataset.Manufacturer = tags.manufacturer
    dataset.ManufacturerModelName = tags.model
    dataset.ImageComments = "Synthetic: a drawing of no person"
    if tags.modality is not None:
        dataset.Modality = tags.modality
    if tags.laterality is not None:
        dataset.ImageLaterality = tags.laterality
    if tags.view_position is not None:
        dataset.ViewPosition = tags.view_position
    if tags.age is not None:
        dataset.PatientAge = f"{tags.age:03d}Y"
    for keyword, value in tags.further:
        setattr(dataset, keyword, value)
    if tags.identity is not None:
        dataset.PatientName = tags.identity.patient_name
        dataset.PatientBirthDate = tags.identity.birth_date
        for keyword, text in tags.identity.further:
            setattr(dataset, keyword, text)


def _describe_grey_scale(dataset: Dataset, encoding: Encoding) -> None:
    if encoding.rescale is not None:
        dataset.RescaleSlope, dataset.RescaleIntercept = encoding.rescale
        dataset.RescaleType = "US"
    windows = encoding.window_values
    if windows:
        dataset.WindowCenter = [centre for centre, _ in windows]
        dataset.WindowWidth = [width for _, width in windows]
        dataset.VOILUTFunction = encoding.window_function
        dataset.WindowCenterWidthExplanation = list(WINDOW_NAMES[: len(windows)])
    if encoding.voi_luts:
        if encoding.rescale not in {None, (1, 0)}:
            raise InputError("VOI LUTs: their first value is a stored one; expected no rescaling beside them")
        dataset.VOILUTSequence = Sequence([_voi_lut(encoding, number) for number in range(encoding.voi_luts)])


def _voi_lut(encoding: Encoding, number: int) -> Dataset:
    """Return a window as a table over all stored values; what the table holds is the window's output."""
    entries = 1 << encoding.bits
    sigmoid = replace(encoding, window_function="SIGMOID", windows=number + 1)
    centre, width = sigmoid.window_values[number]
    table = (entries - 1) / (1 + np.exp(-4 * (np.arange(entries) - centre) / width))
    item = Dataset()
    # The first number of the descriptor is 16 bits wide; 0 stands for 65536 (PS3.3 C.11.2.1.1).
    item.add_new("LUTDescriptor", "US", [entries % 65536, 0, encoding.bits])
    item.LUTExplanation = WINDOW_NAMES[number]
    item.add_new("LUTData", "OW", np.rint(table).astype("<u2").tobytes())
    return item


def _file_meta(dataset: Dataset, uid: UID) -> FileMetaDataset:
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    meta.TransferSyntaxUID = uid
    return meta


def _written(dataset: Dataset) -> bytes:
    file = io.BytesIO()
    dcmwrite(file, dataset, enforce_file_format=True)
    return file.getvalue()


def _jpeg_lossless(dataset: Dataset, uid: UID) -> bytes:
    """Return the pixels as one JPEG lossless frame by gdcm, the only free encoder of 16 bits we know."""
    # An image of a writer, not gdcm.Image(): only that one keeps its pixels alive.
    writer = gdcm.ImageWriter()
    image = writer.GetImage()
    image.SetNumberOfDimensions(2)
    image.SetDimensions((dataset.Columns, dataset.Rows, 1))
    interpretation = gdcm.PhotometricInterpretation.GetPIType(dataset.PhotometricInterpretation)
    image.SetPhotometricInterpretation(gdcm.PhotometricInterpretation(interpretation))
    image.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.ImplicitVRLittleEndian))
    image.SetPixelFormat(gdcm.PixelFormat(1, 16, dataset.BitsStored, dataset.HighBit, 0))
    element = gdcm.DataElement(gdcm.Tag(0x7FE0, 0x0010))
    element.SetByteStringValue(dataset.PixelData)
    image.SetDataElement(element)
    change = gdcm.ImageChangeTransferSyntax()
    change.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.GetTSType(str(uid))))
    change.SetInput(image)
    if not change.Change():
        raise InputError(f"gdcm cannot write {uid.name} of {dataset.BitsStored} bits")
    fragment = change.GetOutput().GetDataElement().GetSequenceOfFragments().GetFragment(0)
    # gdcm hands bytes over as text in which undecodable ones are escaped.
    return bytes(fragment.GetByteValue().GetBuffer().encode("utf-8", "surrogateescape"))


def _whole(phantom: Phantom, encoding: Encoding, tags: Tags) -> Dataset:
    return make_dataset(stored_pixels(phantom, encoding), encoding, tags)


def _truncated(phantom: Phantom, encoding: Encoding, tags: Tags) -> bytes:
    dataset = _whole(phantom, encoding, tags)
    content = file_bytes(dataset, encoding.syntax)
    return content[: -int(0.4 * len(dataset.PixelData))]


def _not_a_dicom(phantom: Phantom, _encoding: Encoding, _tags: Tags) -> bytes:
    return b"This is a text that somebody renamed.\n" * int(phantom.breast.shape[0])


def _no_pixel_data(phantom: Phantom, encoding: Encoding, tags: Tags) -> bytes:
    dataset = _whole(phantom, encoding, tags)
    del dataset.PixelData
    return file_bytes(dataset, "explicit")


def _multi_frame(phantom: Phantom, encoding: Encoding, tags: Tags) -> bytes:
    dataset = _whole(phantom, encoding, tags)
    dataset.NumberOfFrames = 3
    dataset.PixelData *= 3
    return file_bytes(dataset, "explicit")


def _rgb(phantom: Phantom, encoding: Encoding, tags: Tags) -> bytes:
    dataset = _whole(phantom, replace(encoding, padding="none", windows=0, voi_luts=0), tags)
    colours = np.repeat((phantom.intensity * 255).astype(np.uint8)[..., None], 3, axis=-1)
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 3, "RGB"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 8, 8, 7
    dataset.PlanarConfiguration = 0
    dataset.PixelData = colours.tobytes() + b"\0" * (colours.size % 2)
    return file_bytes(dataset, "explicit")


def _constant(phantom: Phantom, encoding: Encoding, tags: Tags) -> bytes:
    pixels = np.full(phantom.breast.shape, encoding.largest // 3, dtype=np.uint16)
    return file_bytes(make_dataset(pixels, encoding, tags), encoding.syntax)


def _unsupported_syntax(phantom: Phantom, encoding: Encoding, tags: Tags) -> bytes:
    dataset = _whole(phantom, encoding, tags)
    dataset.file_meta = _file_meta(dataset, MPEG2MPML)
    dataset.PixelData = encapsulate([b"\0\0\1\xb3" * 64])
    dataset["PixelData"].VR = "OB"
    return _written(dataset)


def _oversized(phantom: Phantom, encoding: Encoding, tags: Tags) -> bytes:
    dataset = _whole(phantom, encoding, tags)
    dataset.Rows = dataset.Columns = 65_535  # the most that the 16 bits of these tags can declare: 8.6 GB
    return file_bytes(dataset, "explicit")


_BREAKERS: dict[str, Callable[[Phantom, Encoding, Tags], bytes | None]] = {
    "truncated": _truncated,
    "not a DICOM": _not_a_dicom,
    "no pixel data": _no_pixel_data,
    "multi-frame": _multi_frame,
    "RGB": _rgb,
    "constant": _constant,
    "zero bytes": lambda *_: b"",
    "missing": lambda *_: None,
    "unsupported syntax": _unsupported_syntax,
    "oversized": _oversized,
}
BROKEN_KINDS = tuple(_BREAKERS)
