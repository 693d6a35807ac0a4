"""Open a DICOM file, or say in one sentence why it cannot be used.

Only the elements named here are read. The patient's identity is read by `read_header` alone, which returns
digests of it.
"""

import logging
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from pydicom import Dataset, dcmread
from pydicom.errors import InvalidDicomError
from pydicom.filereader import _read_file_meta_info, read_preamble
from pydicom.uid import DeflatedExplicitVRLittleEndian

from trust_cache.base.errors import TrustCacheError
from trust_cache.images.image_bytes import open_image
from trust_cache.images.image_failures import ImageError, refuse_if
from trust_cache.manifest.dicom_headers import (
    HEADER_ELEMENTS,
    IDENTITY,
    SEQUENCES,
    TEXTS,
    HeaderValues,
    ImageHeader,
    classify,
)

TECHNICAL_ELEMENTS = (
    # PS3.3 C.7.6.3: the Image Pixel module
    *("SamplesPerPixel", "PhotometricInterpretation", "NumberOfFrames", "Rows", "Columns", "BitsAllocated"),
    *("BitsStored", "HighBit", "PixelRepresentation", "PlanarConfiguration", "PixelPaddingValue"),
    *("PixelPaddingRangeLimit", "ExtendedOffsetTable", "ExtendedOffsetTableLengths", "PixelData"),
    # PS3.3 C.11.1 and C.11.2: the Modality LUT and VOI LUT modules
    *("ModalityLUTSequence", "RescaleIntercept", "RescaleSlope"),
    *("VOILUTSequence", "WindowCenter", "WindowWidth", "VOILUTFunction"),
    # What kind of image it is, and which breast
    *(name for name in TEXTS if name not in ("NumberOfFrames", "Rows")),
    *SEQUENCES,
)
MOST_INFLATED = 2**28  # bytes; the largest images have 128 million
_PIECE = 2**20
_PREAMBLE = 132  # bytes up to and with the prefix DICM, PS3.10 section 7.1
# A file without its header usually begins with group 0002 or 0008, in either byte order.
_FIRST_GROUPS = (b"\x02\x00", b"\x08\x00", b"\x00\x02", b"\x00\x08")


@contextmanager
def quiet_pydicom() -> Iterator[None]:
    """Silence pydicom: its warnings quote header values, which must not reach a person or a log.

    It warns when it reads, and again when an element's value is first used.
    """
    logger = logging.getLogger("pydicom")
    before, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = before


def read_dataset(
    source: Path | str | BinaryIO, elements: Sequence[str] = TECHNICAL_ELEMENTS, *, pixels: bool = True
) -> Dataset:
    """Read these elements of a DICOM file (a path, a URL or an open file), with or without the pixels."""
    try:
        with open_image(source) if isinstance(source, Path | str) else nullcontext(source) as file:
            start = file.read(_PREAMBLE)
            refuse_if(not start, "read", "the file is empty")
            file.seek(0)
            with quiet_pydicom():
                _refuse_bomb(file)
                return dcmread(file, specific_tags=list(elements), stop_before_pixels=not pixels)
    except InvalidDicomError:
        raise ImageError("read", _why_not_dicom(start)) from None
    except OSError as error:
        raise ImageError("read", f"the file cannot be read ({error.strerror or 'input error'})") from None
    except (TrustCacheError, MemoryError):
        raise
    except Exception as error:
        # A damaged header can raise nearly anything; its text may quote the header, so it is left out.
        raise ImageError("read", f"the header is damaged ({type(error).__name__})") from None


def read_header(source: Path | str | BinaryIO) -> ImageHeader:
    """Read the header of one file (a path, a URL or an open file) and return what it is."""
    dataset = read_dataset(source, HEADER_ELEMENTS, pixels=False)
    try:
        with quiet_pydicom():
            return header_of(dataset)
    except MemoryError:
        raise
    except Exception as error:  # pydicom converts an element when it is first used
        raise ImageError("read", f"the header is damaged ({type(error).__name__})") from None


def header_of(dataset: Dataset) -> ImageHeader:
    """Return what a data set is; elements that were not read count as absent."""
    meta = getattr(dataset, "file_meta", None)
    file_class = str((meta.get("MediaStorageSOPClassUID") if meta is not None else None) or "").strip()
    texts = {name: _texts_of(dataset, name) for name in (*IDENTITY, *TEXTS)}
    codes: dict[str, list[str]] = {name: [] for name in SEQUENCES}
    _collect_codes(dataset, codes)
    values = HeaderValues(texts, {name: tuple(found) for name, found in codes.items()})
    return classify(values, file_class)


def _texts_of(dataset: Dataset, keyword: str) -> tuple[str, ...]:
    value = dataset.get(keyword)
    if value is None or value == "":
        return ()
    several = not isinstance(value, str) and isinstance(value, Iterable) and keyword != "PatientName"
    return tuple(str(part) for part in value) if several else (str(value),)


def _collect_codes(dataset: Dataset, codes: dict[str, list[str]]) -> None:
    """Add the code values of the sequences; modifiers are inside of the view's items, PS3.3 C.8.11.7."""
    for name in SEQUENCES:
        for item in dataset.get(name) or ():
            codes[name].append(str(item.get("CodeValue") or item.get("LongCodeValue") or "").strip())
            if name == "ViewCodeSequence":
                _collect_codes(item, codes)


def _refuse_bomb(file: BinaryIO) -> None:
    """Refuse a deflated data set (PS3.5 A.5) larger than any image: pydicom inflates it as a whole."""
    read_preamble(file, force=False)
    deflated = _read_file_meta_info(file).get("TransferSyntaxUID") == DeflatedExplicitVRLittleEndian
    inflating, inflated = zlib.decompressobj(-zlib.MAX_WBITS), 0
    while deflated and not inflating.eof:
        piece = inflating.unconsumed_tail or file.read(_PIECE)
        found = inflating.decompress(piece, _PIECE)
        if not piece and not found:
            break  # truncated
        inflated += len(found)
        too_large = inflated > MOST_INFLATED
        refuse_if(too_large, "read", f"the deflated data set has more than {MOST_INFLATED:,} bytes")
    file.seek(0)


def _why_not_dicom(start: bytes) -> str:
    if start.startswith(_FIRST_GROUPS):
        missing = "the file meta information is missing"
        return f"{missing}: a DICOM data set without its header (PS3.10 section 7.1)"
    if len(start) < _PREAMBLE and not start.strip(b"\x00"):
        return "truncated: the file ends within its preamble"
    return "not a DICOM file: the prefix DICM is missing"
