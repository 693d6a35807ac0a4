"""Open a DICOM file, or say in one sentence why it is none that can be used.

Only the elements named here are read: who is on the picture never enters the program.
"""

import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from pydicom import Dataset, dcmread
from pydicom.errors import InvalidDicomError

from trust_cache.base.places import is_url, read_bytes
from trust_cache.images.errors import ImageError

TECHNICAL_ELEMENTS = (
    # PS3.3 C.7.6.3: the Image Pixel module
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "NumberOfFrames",
    "Rows",
    "Columns",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
    "PlanarConfiguration",
    "PixelPaddingValue",
    "PixelPaddingRangeLimit",
    "ExtendedOffsetTable",
    "ExtendedOffsetTableLengths",
    "PixelData",
    # PS3.3 C.11.1 and C.11.2: the Modality LUT and VOI LUT modules
    "ModalityLUTSequence",
    "RescaleIntercept",
    "RescaleSlope",
    "VOILUTSequence",
    "WindowCenter",
    "WindowWidth",
    "VOILUTFunction",
    # PS3.3 C.8.11.7: which breast
    "ImageLaterality",
    "Laterality",
)
_PREAMBLE = 132  # bytes up to and with the prefix DICM, PS3.10 section 7.1
# A data set without its header usually begins with group 0002 or 0008, in either byte order.
_FIRST_GROUPS = (b"\x02\x00", b"\x08\x00", b"\x00\x02", b"\x00\x08")


def read_dataset(place: Path | str) -> Dataset:
    """Read the technical elements and the encoded pixels of a DICOM file, of the file system or a URL."""
    return _read(place, TECHNICAL_ELEMENTS, pixels=True)


def read_header(place: Path | str, elements: Sequence[str]) -> Dataset:
    """Read these elements of a DICOM file and no pixels."""
    return _read(place, elements, pixels=False)


def _read(place: Path | str, elements: Sequence[str], *, pixels: bool) -> Dataset:
    source = _fetched(str(place)) if is_url(str(place)) else Path(place)
    start = _first_bytes(source)
    try:
        with warnings.catch_warnings():
            # pydicom's warnings quote header values, which must not reach a log.
            warnings.simplefilter("ignore")
            return dcmread(source, specific_tags=list(elements), stop_before_pixels=not pixels)
    except InvalidDicomError:
        raise ImageError("read", _why_not_dicom(start)) from None
    except OSError as error:
        raise ImageError("read", f"the file cannot be read ({error.strerror or 'input error'})") from None
    except MemoryError:
        raise
    except Exception as error:
        # A damaged header can raise nearly anything; its text may quote the header, so it is left out.
        raise ImageError("read", f"the header is damaged ({type(error).__name__})") from None


def _fetched(url: str) -> BytesIO:
    try:
        return BytesIO(read_bytes(url))
    except FileNotFoundError:
        raise ImageError("read", "no such file") from None


def _first_bytes(source: Path | BytesIO) -> bytes:
    try:
        if isinstance(source, BytesIO):
            start = source.getvalue()[:_PREAMBLE]
        else:
            with source.open("rb") as file:
                start = file.read(_PREAMBLE)
    except FileNotFoundError:
        raise ImageError("read", "no such file") from None
    except OSError as error:
        raise ImageError("read", f"the file cannot be read ({error.strerror or 'input error'})") from None
    if not start:
        raise ImageError("read", "the file is empty")
    return start


def _why_not_dicom(start: bytes) -> str:
    if start.startswith(_FIRST_GROUPS):
        return (
            "the file meta information is missing: a DICOM data set without its header (PS3.10 section 7.1)"
        )
    if len(start) < _PREAMBLE and not start.strip(b"\x00"):
        return "truncated: the file ends within its preamble"
    return "not a DICOM file: the prefix DICM is missing"
