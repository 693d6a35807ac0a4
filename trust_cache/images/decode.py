"""Decode the stored pixel values of a DICOM image, with one fixed decoder per transfer syntax."""

import struct
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset
from pydicom import uid as uids
from pydicom.encaps import get_frame
from pydicom.pixels.decoders.base import get_decoder

from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture_folder import ImageSettings
from trust_cache.manifest.picture_checks import finding

_J2K_START = b"\xff\x4f\xff\x51"  # SOC and SIZ, ISO/IEC 15444-1 A.4.1 and A.5.1
_JP2_BOXES = 4096  # bytes in which the codestream of a wrapped file begins
_SIZ_BYTES = 42
_JPEG_START = b"\xff\xd8"
_JPEG_FRAMES = frozenset({*range(0xC0, 0xD0), 0xF7}) - {0xC4, 0xC8, 0xCC}  # ITU-T T.81 table B.1; T.87
_END = b"\xff\xd9"  # EOI of JPEG and EOC of JPEG 2000: never inside their entropy-coded data
_TAIL = 64  # bytes after the end marker that encoders were seen to add
_GREY = ("MONOCHROME1", "MONOCHROME2")
# PS3.3 C.7.6.3.1.2; the words of a header are not repeated unless they are known.
_COLOURS = ("PALETTE COLOR", "RGB", "YBR_FULL", "YBR_FULL_422", "YBR_PARTIAL_420", "YBR_ICT", "YBR_RCT")
_BITS_ALLOCATED = (8, 16)
_REASON_LENGTH = 200  # of a decoder's own message


@dataclass(frozen=True)
class Frame:
    """The size of a compressed frame."""

    rows: int
    columns: int
    components: int


def read_j2k_frame(stream: bytes) -> Frame | None:
    """Read the size from the SIZ segment of a JPEG 2000 codestream; None without one."""
    start = stream[:_JP2_BOXES].find(_J2K_START)
    if start < 0 or len(stream) < start + _SIZ_BYTES:
        return None
    right, bottom, left, top = struct.unpack_from(">4I", stream, start + 8)
    (components,) = struct.unpack_from(">H", stream, start + 40)
    return Frame(max(bottom - top, 0), max(right - left, 0), components)


def read_jpeg_frame(stream: bytes) -> Frame | None:
    """Read the size from the frame header of a JPEG or JPEG-LS stream; None without one."""
    if not stream.startswith(_JPEG_START):
        return None
    at = 2
    while at + 10 <= len(stream) and stream[at] == 0xFF:  # noqa: PLR2004 (every marker starts with it)
        marker = stream[at + 1]
        if marker in _JPEG_FRAMES:
            return Frame(*struct.unpack_from(">HHB", stream, at + 5))
        at += 2 + int.from_bytes(stream[at + 2 : at + 4])
    return None


@dataclass(frozen=True)
class Decoder:
    """A decoder: pydicom's name for the plugin, its package, and how to read a frame's size."""

    plugin: str
    package: str
    frame: Callable[[bytes], Frame | None] | None = None


_PYDICOM = Decoder("", "pydicom")
_RLE = Decoder("pydicom", "pydicom")
_GDCM = Decoder("gdcm", "python-gdcm", read_jpeg_frame)
_OPENJPEG = Decoder("pylibjpeg", "pylibjpeg-openjpeg", read_j2k_frame)
# Without a named plugin pydicom tries what it finds: two machines could decode differently.
DECODERS: dict[str, Decoder] = {
    **dict.fromkeys((uids.ImplicitVRLittleEndian, uids.ExplicitVRLittleEndian), _PYDICOM),
    **dict.fromkeys((uids.DeflatedExplicitVRLittleEndian, uids.ExplicitVRBigEndian), _PYDICOM),
    uids.RLELossless: _RLE,
    **dict.fromkeys((uids.JPEGBaseline8Bit, uids.JPEGLossless, uids.JPEGLosslessSV1), _GDCM),
    **dict.fromkeys((uids.JPEGLSLossless, uids.JPEGLSNearLossless), _GDCM),
    **dict.fromkeys((uids.JPEG2000Lossless, uids.JPEG2000), _OPENJPEG),
}


@dataclass(frozen=True)
class Stored:
    """Pixel values as they were stored, before any look-up table."""

    pixels: NDArray[Any]  # uint8, int8, uint16 or int16
    bits: int  # that the values take: as declared, or more if some values in the file need more
    decoder: str  # package and version
    transfer_syntax: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class DecoderState:
    """Whether files of a transfer syntax can be decoded on this machine, and by which package."""

    syntax: str  # its name and UID
    package: str
    version: str | None  # None: not installed
    works: bool


def decoder_states() -> tuple[DecoderState, ...]:
    """Return the state of the decoder of every supported transfer syntax."""
    states = []
    for syntax, decoder in DECODERS.items():
        found = _installed(decoder)
        works = found is not None and _works(decoder, syntax)
        states.append(DecoderState(_named(uids.UID(syntax)), decoder.package, found, works))
    return tuple(states)


def decode(dataset: Dataset, settings: ImageSettings) -> Stored:
    """Decode a single grey frame; any fault of the file is an ImageError."""
    meta = getattr(dataset, "file_meta", None)
    found = None if meta is None else meta.get("TransferSyntaxUID")
    if not found:
        _refuse("the file meta information has no transfer syntax: it is damaged or truncated")
    syntax = uids.UID(found)
    if not dataset.get("PixelData"):
        _refuse(_why_no_pixels(dataset, syntax))
    decoder = _decoder_of(syntax)
    _check_kind(dataset)
    _check_size(_integer(dataset, "Rows"), _integer(dataset, "Columns"), settings)
    _check_bits(dataset, syntax)
    if decoder.frame is not None:
        _check_frame(dataset, decoder.frame, settings)
    pixels = _run(dataset, syntax, decoder)
    declared = int(dataset.BitsStored)
    bits = max(declared, _bits_needed(pixels), _bits_written(dataset, syntax))
    found = [finding("bits", f"pixel values take {bits} bits, limit {declared}")] if bits > declared else []
    excess = 0 if syntax.is_encapsulated else len(dataset.PixelData) - _expected_bytes(dataset)
    if excess > 1:  # one byte makes the length even, PS3.5 section 8.1.1
        found.append(finding("pixel-data", f"{excess:,} bytes of pixel data too many, limit 1"))
    name = f"{decoder.package} {version(decoder.package)}"
    return Stored(pixels, bits, name, str(syntax), tuple(found))


def _refuse(reason: str) -> NoReturn:
    raise ImageError("decode", reason) from None


def _why_no_pixels(dataset: Dataset, syntax: uids.UID) -> str:
    # pydicom drops an encapsulated element whose end is missing, often with all that came before.
    if not syntax.is_private and syntax.is_transfer_syntax and syntax.is_encapsulated:
        return "truncated: the file ends before its pixel data"
    if "Rows" in dataset:
        return "no pixel data, though the header declares an image: the file may be truncated"
    return "no pixel data: the file has no image, or is truncated"


def _decoder_of(syntax: uids.UID) -> Decoder:
    decoder = DECODERS.get(syntax)
    if decoder is None:
        _refuse(
            f"transfer syntax {_named(syntax)} is not supported; install the package dcmtk and convert the"
            " file with its dcmconv or dcmdjpeg"
        )
    if not _works(decoder, syntax):
        found = _installed(decoder)
        state = "not installed" if found is None else f"{found} does not work here"
        _refuse(
            f"transfer syntax {_named(syntax)} needs the package {decoder.package} ({state}):"
            f" pip install {decoder.package}"
        )
    return decoder


def _works(decoder: Decoder, syntax: str) -> bool:
    return not decoder.plugin or decoder.plugin in get_decoder(syntax).available_plugins


def _named(syntax: uids.UID) -> str:
    return str(syntax) if syntax.name == syntax else f"{syntax.name} ({syntax})"


def _installed(decoder: Decoder) -> str | None:
    try:
        return version(decoder.package)
    except PackageNotFoundError:
        return None


def _check_kind(dataset: Dataset) -> None:
    frames = _integer(dataset, "NumberOfFrames", 1)
    if frames > 1:
        _refuse(f"multi-frame image ({frames} frames, as in tomosynthesis); expected one")
    photometric = str(dataset.get("PhotometricInterpretation", "")).strip().upper()
    samples = _integer(dataset, "SamplesPerPixel", 1)
    if samples != 1 or photometric not in _GREY:
        kind = photometric if photometric in (*_GREY, *_COLOURS) else "unknown"
        _refuse(f"not a grey image: photometric interpretation {kind}, {samples} samples a pixel")


def _check_size(rows: int, columns: int, settings: ImageSettings) -> None:
    if rows < 1 or columns < 1:
        _refuse(f"declared size of {rows} x {columns} pixels: there is no image")
    if rows * columns > settings.max_pixels:
        most = f"{settings.max_pixels / 1e6:g} million"
        _refuse(f"declared size of {rows} x {columns} pixels is above the limit of {most}")


def _check_bits(dataset: Dataset, syntax: uids.UID) -> None:
    allocated, stored = _integer(dataset, "BitsAllocated"), _integer(dataset, "BitsStored")
    if allocated not in _BITS_ALLOCATED or not 1 < stored <= allocated:
        _refuse(f"{stored} bits stored in {allocated}: expected 2 to 16 bits, stored in 8 or 16")
    if _integer(dataset, "PixelRepresentation", 0) not in (0, 1):
        _refuse("pixel representation is neither 0 (unsigned) nor 1 (signed)")
    # Compressed values have their own precision; only native ones can be shifted in their words.
    high = _integer(dataset, "HighBit", stored - 1)
    if not syntax.is_encapsulated and high != stored - 1:
        _refuse(f"high bit {high} of {stored} bits stored: expected {stored - 1}")


def _integer(dataset: Dataset, keyword: str, default: int | None = None) -> int:
    value = None
    with suppress(Exception):  # pydicom converts on access, and a damaged value can raise anything
        value = dataset.get(keyword)
        return default if value in (None, "") and default is not None else int(value)
    _refuse(f"{keyword} {'is missing' if value in (None, '') else 'is not a number'} in the header")


def _check_frame(
    dataset: Dataset, read_frame: Callable[[bytes], Frame | None], settings: ImageSettings
) -> None:
    """Compare the compressed frame's own size with the header's before memory is allocated."""
    try:
        stream = bytes(get_frame(dataset.PixelData, 0, number_of_frames=1))
    except Exception:
        _refuse("truncated or damaged: pixel data items are incomplete")
    frame = read_frame(stream)
    if frame is None:
        _refuse("the pixel data do not begin as their transfer syntax says")
    _check_size(frame.rows, frame.columns, settings)
    if frame.components != 1:
        _refuse(f"not a grey image: the compressed frame has {frame.components} components")
    rows, columns = int(dataset.Rows), int(dataset.Columns)
    if (frame.rows, frame.columns) != (rows, columns):
        found = f"{frame.rows} x {frame.columns} pixels"
        _refuse(f"the compressed frame has {found}, the header declares {rows} x {columns}")
    # Decoders fill in missing data without an error: require the end marker.
    if _END not in stream[-_TAIL:]:
        _refuse("truncated: the compressed frame lacks its end marker")


def _expected_bytes(dataset: Dataset) -> int:
    return int(dataset.Rows) * int(dataset.Columns) * (int(dataset.BitsAllocated) // 8)


def _run(dataset: Dataset, syntax: uids.UID, decoder: Decoder) -> NDArray[Any]:
    expected = _expected_bytes(dataset)
    found = len(dataset.PixelData)
    if not syntax.is_encapsulated and found < expected:
        _refuse(f"truncated: {found} bytes of pixel data, expected {expected}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # excess padding and the like; the rest was checked
            # `raw` keeps the stored values: no colour conversion, no look-up table.
            pixels, _ = get_decoder(syntax).as_array(
                dataset, raw=True, index=0, decoding_plugin=decoder.plugin
            )
    except MemoryError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = (lines[-1] if lines else type(error).__name__)[:_REASON_LENGTH]
        raise ImageError("decode", f"{decoder.package} cannot decode {_named(syntax)}: {reason}") from error
    return np.ascontiguousarray(pixels, dtype=pixels.dtype.newbyteorder("="))


def _bits_written(dataset: Dataset, syntax: uids.UID) -> int:
    """Return the bits that uncompressed unsigned words take: pydicom cuts off those beyond BitsStored."""
    if syntax.is_encapsulated or _integer(dataset, "PixelRepresentation", 0):
        return 0
    order = "<" if syntax.is_little_endian else ">"
    words = np.frombuffer(dataset.PixelData, dtype=f"{order}u{int(dataset.BitsAllocated) // 8}",
                          count=int(dataset.Rows) * int(dataset.Columns))  # fmt: skip
    return int(words.max()).bit_length()


def _bits_needed(pixels: NDArray[Any]) -> int:
    low, high = int(pixels.min()), int(pixels.max())
    below = (-low - 1).bit_length() if low < 0 else 0
    return max(high.bit_length(), below) + int(pixels.dtype.kind == "i")
