"""Write phantoms as DICOM files, in many encodings and transfer syntaxes, intact or broken."""

import io
from dataclasses import dataclass, replace

import numpy as np
from imagecodecs import jpeg2k_encode, jpeg8_encode
from numpy.typing import NDArray
from pydicom import dcmwrite
from pydicom import uid as uids
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.sequence import Sequence

from trust_cache.base.errors import InputError
from trust_cache.synthetic.phantom import Phantom, require_one_of

Pixels = NDArray[np.uint16]

SYNTAXES: dict[str, uids.UID] = {
    "implicit": uids.ImplicitVRLittleEndian,
    "explicit": uids.ExplicitVRLittleEndian,
    "jpeg-2000": uids.JPEG2000Lossless,
    "jpeg-lossless": uids.JPEGLosslessSV1,  # .70, first-order prediction
    "jpeg-lossless-any": uids.JPEGLossless,  # .57, any prediction
}
BITS = (10, 12, 16)
PADDINGS = ("none", "dark", "bright")
BROKEN_KINDS = (
    *("truncated", "not a DICOM", "no pixel data", "multi-frame", "RGB", "constant", "zero bytes", "missing"),
    *("unsupported syntax", "oversized"),
)
WINDOW_FUNCTIONS = ("LINEAR", "LINEAR_EXACT", "SIGMOID")
WINDOW_NAMES = ("NORMAL", "HARDER", "SOFTER", "SOFTEST")
# Centre and width of each named window, as shares of the pixel maximum.
_WINDOWS = ((0.42, 0.62), (0.44, 0.46), (0.40, 0.80), (0.40, 1.0))
# The share of the pixel maximum at either end that no exposed pixel takes: padding differs from tissue.
_CLEARANCE = 0.02
_LEAST_MAXIMUM = 0.5  # below, fewer bits would do
_ROOT = "1.2.826.0.1.3680043.8.498."  # pydicom's root, free for anyone's identifiers


@dataclass(frozen=True)
class Encoding:
    """How an image becomes stored values, and what the header says about displaying them."""

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
        require_one_of("bits", self.bits, BITS)
        require_one_of("photometric", self.photometric, ("MONOCHROME1", "MONOCHROME2"))
        require_one_of("syntax", self.syntax, tuple(SYNTAXES))
        require_one_of("window function", self.window_function, WINDOW_FUNCTIONS)
        require_one_of("padding", self.padding, PADDINGS)
        require_one_of("windows", self.windows, tuple(range(len(_WINDOWS) + 1)))
        require_one_of("VOI LUTs", self.voi_luts, tuple(range(len(_WINDOWS) + 1)))
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
        slope, intercept = self.rescale or (1, 0)
        # LINEAR maps about centre - 0.5 (PS3.3 C.11.2.1.2.1): its mirror image is one further.
        further = int(self._inverted and self.window_function == "LINEAR")
        values = []
        for shares in _WINDOWS[: self.windows]:
            centre, width = (round(share * self.largest) for share in shares)
            centre = self.largest - centre if self._inverted else centre
            values.append((slope * centre + intercept + further, slope * width))
        return tuple(values)

    @property
    def _inverted(self) -> bool:
        return self.photometric == "MONOCHROME1"


@dataclass(frozen=True)
class Identity:
    """Tags that would identify a person; written only if a caller asks for them."""

    patient_name: str
    birth_date: str  # YYYYMMDD
    further: tuple[tuple[str, str], ...] = ()  # keyword and value of any other tags


@dataclass(frozen=True)
class Tags:
    """What the header says about the examination; a tag that is None is absent."""

    patient_id: str = "Synthetic"
    laterality: str | None = None
    view_position: str | None = None
    modality: str | None = "MG"
    age: int | None = None
    manufacturer: str = "Synthetic"
    model: str = "Phantom"
    unique: tuple[str, ...] = ("synthetic",)  # the source of the identifiers
    identity: Identity | None = None
    further: tuple[tuple[str, object], ...] = ()


def stored_pixels(phantom: Phantom, encoding: Encoding) -> Pixels:
    """Return the stored values; MONOCHROME1 is the largest value minus MONOCHROME2."""
    largest = encoding.largest
    low = round(_CLEARANCE * largest)
    scaled = phantom.intensity * np.float32(largest - 2 * low)
    pixels: Pixels = (np.rint(scaled, out=scaled) + np.float32(low)).astype(np.uint16)
    if encoding.padding != "none":
        pixels[phantom.unexposed] = 0 if encoding.padding == "dark" else largest
    if encoding.photometric == "MONOCHROME1":
        np.subtract(np.uint16(largest), pixels, out=pixels)
    return pixels


def make_dataset(pixels: Pixels, encoding: Encoding, tags: Tags) -> Dataset:
    """Return an uncompressed data set of these stored values, without file meta information."""
    dataset = Dataset()
    _describe_examination(dataset, tags)
    dataset.Rows, dataset.Columns = pixels.shape
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, encoding.photometric
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 16, encoding.bits, encoding.bits - 1
    dataset.PixelRepresentation = 0
    if encoding.padding_value is not None:
        dataset.add_new("PixelPaddingValue", "US", encoding.padding_value)
    _describe_grey_scale(dataset, encoding)
    dataset.add_new("PixelData", "OW", pixels.astype("<u2", copy=False).tobytes())
    return dataset


def file_bytes(dataset: Dataset, syntax: str) -> bytes:
    """Return a data set as a file in a transfer syntax, with its pixels compressed accordingly."""
    uid = SYNTAXES[syntax]
    if uid.is_compressed:
        _set_frame(dataset, _compressed(dataset, uid))
        dataset["PixelData"].is_undefined_length = True
    return _written(dataset, uid)


def _set_frame(dataset: Dataset, frame: bytes) -> None:
    dataset.PixelData = encapsulate([frame])
    dataset["PixelData"].VR = "OB"


def _written(dataset: Dataset, uid: uids.UID) -> bytes:
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    dataset.file_meta.TransferSyntaxUID = uid
    file = io.BytesIO()
    dcmwrite(file, dataset, enforce_file_format=True)
    return file.getvalue()


def mammogram_bytes(phantom: Phantom, encoding: Encoding, tags: Tags | None = None) -> bytes:
    """Return a phantom as a DICOM file."""
    return file_bytes(_whole(phantom, encoding, tags or Tags()), encoding.syntax)


def broken_bytes(kind: str, phantom: Phantom, encoding: Encoding, tags: Tags) -> bytes | None:
    """Return a file that is broken in a named way; None for a missing file."""
    require_one_of("broken kind", kind, BROKEN_KINDS)
    text = b"This is a text that somebody renamed.\n" * int(phantom.breast.shape[0])
    if kind in (no_dicom := {"missing": None, "zero bytes": b"", "not a DICOM": text}):
        return no_dicom[kind]
    if kind == "constant":
        pixels = np.full(phantom.breast.shape, encoding.largest // 3, dtype=np.uint16)
        return file_bytes(make_dataset(pixels, encoding, tags), encoding.syntax)
    dataset = (_rgb if kind == "RGB" else _whole)(phantom, encoding, tags)
    match kind:
        case "truncated":
            content = file_bytes(dataset, encoding.syntax)
            return content[: -int(0.4 * len(dataset.PixelData))]
        case "unsupported syntax":
            _set_frame(dataset, b"\0\0\1\xb3" * 64)
            return _written(dataset, uids.MPEG2MPML)
        case "no pixel data":
            del dataset.PixelData
        case "multi-frame":
            dataset.NumberOfFrames = 3
            dataset.PixelData *= 3
        case "oversized":  # the most that the 16 bits of these tags can declare: 8.6 GB
            dataset.Rows = dataset.Columns = 65_535
    return file_bytes(dataset, "explicit")


def _describe_examination(dataset: Dataset, tags: Tags) -> None:
    dataset.SOPClassUID = uids.DigitalMammographyXRayImageStorageForPresentation
    for keyword, part in (("StudyInstanceUID", 1), ("SeriesInstanceUID", 2), ("SOPInstanceUID", 3)):
        entropy = [*(tags.unique[:1] if part == 1 else tags.unique), str(part)]
        setattr(dataset, keyword, uids.generate_uid(_ROOT, entropy_srcs=entropy))
    elements: dict[str, object] = {
        "PatientID": tags.patient_id,
        "PatientName": "Synthetic",
        "Manufacturer": tags.manufacturer,
        "ManufacturerModelName": tags.model,
        "ImageComments": "Synthetic: a drawing of no person",
        "Modality": tags.modality,
        "ImageLaterality": tags.laterality,
        "ViewPosition": tags.view_position,
        "PatientAge": None if tags.age is None else f"{tags.age:03d}Y",
    }
    elements = {name: value for name, value in elements.items() if value is not None} | dict(tags.further)
    if (identity := tags.identity) is not None:
        elements |= {"PatientName": identity.patient_name, "PatientBirthDate": identity.birth_date}
        elements |= dict(identity.further)
    for keyword, value in elements.items():
        setattr(dataset, keyword, value)


def _describe_grey_scale(dataset: Dataset, encoding: Encoding) -> None:
    if encoding.rescale is not None:
        dataset.RescaleSlope, dataset.RescaleIntercept = encoding.rescale
        dataset.RescaleType = "US"
    windows = encoding.window_values
    if windows:
        dataset.WindowCenter, dataset.WindowWidth = map(list, zip(*windows, strict=True))
        dataset.VOILUTFunction = encoding.window_function
        dataset.WindowCenterWidthExplanation = list(WINDOW_NAMES[: len(windows)])
    if encoding.voi_luts:
        if encoding.rescale not in {None, (1, 0)}:
            raise InputError("VOI LUTs: their first value is a stored value; expected no rescaling with them")
        dataset.VOILUTSequence = Sequence([_voi_lut(encoding, number) for number in range(encoding.voi_luts)])


def _voi_lut(encoding: Encoding, number: int) -> Dataset:
    """Return a window as a table over all stored values; its entries are the window's output."""
    entries = 1 << encoding.bits
    sigmoid = replace(encoding, window_function="SIGMOID", windows=number + 1)
    centre, width = sigmoid.window_values[number]
    table = (entries - 1) / (1 + np.exp(-4 * (np.arange(entries) - centre) / width))
    item = Dataset()
    # The first number of the descriptor is 16 bits wide; 0 means 65536 (PS3.3 C.11.2.1.1).
    item.add_new("LUTDescriptor", "US", [entries % 65536, 0, encoding.bits])
    item.LUTExplanation = WINDOW_NAMES[number]
    item.add_new("LUTData", "OW", np.rint(table).astype("<u2").tobytes())
    return item


def _compressed(dataset: Dataset, uid: uids.UID) -> bytes:
    """Return the pixels as one lossless frame."""
    shape, bits = (dataset.Rows, dataset.Columns), int(dataset.BitsStored)
    pixels = np.frombuffer(dataset.PixelData, dtype="<u2").reshape(shape)
    if uid == uids.JPEG2000Lossless:
        return bytes(jpeg2k_encode(pixels, codecformat="j2k", reversible=True, bitspersample=bits))
    selection = 1 if uid == uids.JPEGLosslessSV1 else 4
    return bytes(jpeg8_encode(pixels, lossless=True, predictor=selection, bitspersample=bits))


def _whole(phantom: Phantom, encoding: Encoding, tags: Tags) -> Dataset:
    return make_dataset(stored_pixels(phantom, encoding), encoding, tags)


def _rgb(phantom: Phantom, encoding: Encoding, tags: Tags) -> Dataset:
    dataset = _whole(phantom, replace(encoding, padding="none", windows=0, voi_luts=0), tags)
    colours = np.repeat((phantom.intensity * 255).astype(np.uint8)[..., None], 3, axis=-1)
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 3, "RGB"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 8, 8, 7
    dataset.PlanarConfiguration = 0
    dataset.PixelData = colours.tobytes() + b"\0" * (colours.size % 2)
    return dataset
