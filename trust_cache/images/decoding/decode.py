"""Decode the stored pixel values of a DICOM image, with one fixed decoder per transfer syntax."""

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset
from pydicom import uid as uids
from pydicom.encaps import get_frame
from pydicom.pixels.decoders.base import get_decoder

from trust_cache.base.errors import InputError, TrustCacheError
from trust_cache.images.decoding.compressed_frame import (
    JPEG_LS,
    LOSSLESS,
    SEQUENTIAL,
    Frame,
    has_end,
    jpeg_problem,
    read_j2k_frame,
    read_jpeg_frame,
)
from trust_cache.images.decoding.nvimagecodec import NVIMAGECODEC, gpu_decoder, installed_package
from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture_folder import ImageSettings
from trust_cache.manifest.picture_checks import finding

_GREY = ("MONOCHROME1", "MONOCHROME2")
# PS3.3 C.7.6.3.1.2; the words of a header are not repeated unless they are known.
_COLOURS = ("PALETTE COLOR", "RGB", "YBR_FULL", "YBR_FULL_422", "YBR_PARTIAL_420", "YBR_ICT", "YBR_RCT")
_BITS_ALLOCATED = (8, 16)
_REASON_LENGTH = 200  # of a decoder's own message
IMAGECODECS, PYDICOM = "imagecodecs", "pydicom"
NAMED_DECODERS = (IMAGECODECS, NVIMAGECODEC)


@dataclass(frozen=True)
class Decoder:
    """A decoder: its package, the name of its codec, and how to read a compressed frame's header."""

    package: str
    codec: str = ""
    frame: Callable[[bytes], Frame | None] | None = None
    processes: tuple[int, ...] = (0,)  # that a frame may have


_NATIVE = Decoder(PYDICOM)
_JPEG = Decoder(IMAGECODECS, "jpeg8", read_jpeg_frame, (*SEQUENTIAL, LOSSLESS))  # libjpeg-turbo
_CHARLS = Decoder(IMAGECODECS, "jpegls", read_jpeg_frame, (JPEG_LS,))
# OpenJPEG decodes HTJ2K too; unlike OpenJPH it refuses truncated frames.
_OPENJPEG = Decoder(IMAGECODECS, "jpeg2k", read_j2k_frame)
# One decoder for each: without a name pydicom tries what it finds, and two machines could decode differently.
DECODERS: dict[str, Decoder] = {
    **dict.fromkeys((uids.ImplicitVRLittleEndian, uids.ExplicitVRLittleEndian), _NATIVE),
    **dict.fromkeys((uids.DeflatedExplicitVRLittleEndian, uids.ExplicitVRBigEndian), _NATIVE),
    uids.RLELossless: Decoder(PYDICOM, "pydicom"),
    **dict.fromkeys((uids.JPEGBaseline8Bit, uids.JPEGExtended12Bit), _JPEG),
    **dict.fromkeys((uids.JPEGLossless, uids.JPEGLosslessSV1), _JPEG),
    **dict.fromkeys((uids.JPEGLSLossless, uids.JPEGLSNearLossless), _CHARLS),
    **dict.fromkeys((uids.JPEG2000Lossless, uids.JPEG2000), _OPENJPEG),
    **dict.fromkeys((uids.HTJ2KLossless, uids.HTJ2KLosslessRPCL, uids.HTJ2K), _OPENJPEG),
}
# Only these are left to a GPU: a lossy frame has other pixels from every decoder.
_ON_GPU = frozenset(
    {
        uids.JPEGLossless,
        uids.JPEGLosslessSV1,
        uids.JPEG2000Lossless,
        uids.HTJ2KLossless,
        uids.HTJ2KLosslessRPCL,
    }
)


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


def decode(dataset: Dataset, settings: ImageSettings, named: str = IMAGECODECS) -> Stored:
    """Decode a single grey frame with a named decoder; any fault of the file is an ImageError.

    `named` is `imagecodecs`, or `nvimagecodec`, which decodes frames of lossless syntaxes on a GPU.
    """
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
    package = decoder.package
    if decoder.frame is None:
        pixels = _run_pydicom(dataset, syntax, decoder)
    else:
        stream, frame = _read_frame(dataset, decoder, decoder.frame, settings)
        on_gpu = named == NVIMAGECODEC and syntax in _ON_GPU
        package = gpu_decoder().package if on_gpu else package
        values = _run_codec(stream, frame, syntax, decoder, on_gpu=on_gpu)
        pixels = _as_declared(values, frame, dataset)
        if decoder is _JPEG and (problem := jpeg_problem(stream, frame, values)) is not None:
            _refuse(problem)
    declared = int(dataset.BitsStored)
    bits = max(declared, _bits_needed(pixels), _bits_written(dataset, syntax))
    found = [finding("bits", f"pixel values take {bits} bits, limit {declared}")] if bits > declared else []
    excess = 0 if syntax.is_encapsulated else len(dataset.PixelData) - _expected_bytes(dataset)
    if excess > 1:  # one byte makes the length even, PS3.5 section 8.1.1
        found.append(finding("pixel-data", f"{excess:,} bytes of pixel data too many, limit 1"))
    return Stored(pixels, bits, f"{package} {version(package)}", str(syntax), tuple(found))


def require_decoder(named: str) -> None:
    """Refuse a decoder that is unknown, or missing on this machine."""
    if named not in NAMED_DECODERS:
        raise InputError(f"decoder: expected {' or '.join(NAMED_DECODERS)}, found {named!r}")
    if named == NVIMAGECODEC:
        installed_package()


def describe_decoder(named: str) -> str:
    """Return the packages and versions that decode files when this decoder is named."""
    packages = [*([installed_package()] if named == NVIMAGECODEC else []), IMAGECODECS, PYDICOM]
    return "; ".join(f"{package} {version(package)}" for package in packages)


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
    if decoder.package == PYDICOM:
        return not decoder.codec or decoder.codec in get_decoder(syntax).available_plugins
    with suppress(ImportError):
        return bool(getattr(importlib.import_module(decoder.package), decoder.codec.upper()).available)
    return False


def _named(syntax: uids.UID) -> str:
    if not syntax.is_valid:
        return "with an invalid UID"  # any text, which is not repeated
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


def _read_frame(
    dataset: Dataset, decoder: Decoder, read: Callable[[bytes], Frame | None], settings: ImageSettings
) -> tuple[bytes, Frame]:
    """Return the compressed frame; compare its own size with the header's before memory is allocated."""
    try:
        stream = bytes(get_frame(dataset.PixelData, 0, number_of_frames=1))
    except Exception:
        _refuse("truncated or damaged: pixel data items are incomplete")
    frame = read(stream)
    if frame is None:
        _refuse("the pixel data do not begin as their transfer syntax says")
    _check_size(frame.rows, frame.columns, settings)
    if frame.components != 1:
        _refuse(f"not a grey image: the compressed frame has {frame.components} components")
    rows, columns = int(dataset.Rows), int(dataset.Columns)
    if (frame.rows, frame.columns) != (rows, columns):
        found = f"{frame.rows} x {frame.columns} pixels"
        _refuse(f"the compressed frame has {found}, the header declares {rows} x {columns}")
    allocated = int(dataset.BitsAllocated)
    if not 1 < frame.bits <= allocated:
        _refuse(f"the compressed frame has {frame.bits} bits a pixel, the header allocates {allocated}")
    if frame.process not in decoder.processes:
        _refuse(f"the compressed frame is of JPEG process 0x{frame.process:02X}, not of its transfer syntax")
    # Decoders fill in missing data without an error: require the end marker.
    if not has_end(stream):
        _refuse("truncated: the compressed frame lacks its end marker")
    return stream, frame


def _expected_bytes(dataset: Dataset) -> int:
    return int(dataset.Rows) * int(dataset.Columns) * (int(dataset.BitsAllocated) // 8)


def _run_pydicom(dataset: Dataset, syntax: uids.UID, decoder: Decoder) -> NDArray[Any]:
    expected = _expected_bytes(dataset)
    found = len(dataset.PixelData)
    if not syntax.is_encapsulated and found < expected:
        _refuse(f"truncated: {found} bytes of pixel data, expected {expected}")
    with _undecodable(decoder, syntax), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # excess padding and the like; the rest was checked
        # `raw` keeps the stored values: no colour conversion, no look-up table.
        pixels, _ = get_decoder(syntax).as_array(dataset, raw=True, index=0, decoding_plugin=decoder.codec)
    return np.ascontiguousarray(pixels, dtype=pixels.dtype.newbyteorder("="))


def _run_codec(
    stream: bytes, frame: Frame, syntax: uids.UID, decoder: Decoder, *, on_gpu: bool
) -> NDArray[Any]:
    def on_cpu() -> NDArray[Any]:
        values: NDArray[Any] = getattr(importlib.import_module(decoder.package), f"{decoder.codec}_decode")(
            stream
        )
        return values

    with _undecodable(decoder, syntax):
        values = gpu_decoder().decode(stream, (syntax.name, frame.bits), on_cpu) if on_gpu else on_cpu()
    if values.shape != (frame.rows, frame.columns) or values.dtype.itemsize > 2:  # noqa: PLR2004 (bytes)
        _refuse(f"{decoder.package} decoded {values.dtype} of shape {values.shape}")
    return values


@contextmanager
def _undecodable(decoder: Decoder, syntax: uids.UID) -> Iterator[None]:
    try:
        yield
    except (MemoryError, TrustCacheError):
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = (lines[-1] if lines else type(error).__name__)[:_REASON_LENGTH]
        raise ImageError("decode", f"{decoder.package} cannot decode {_named(syntax)}: {reason}") from error


def _as_declared(values: NDArray[Any], frame: Frame, dataset: Dataset) -> NDArray[Any]:
    """Return decoded values in the words that the header declares, with or without a sign."""
    size = int(dataset.BitsAllocated) // 8
    if _integer(dataset, "PixelRepresentation", 0):
        spare = 8 * size - frame.bits  # the sign is the highest of the frame's bits, not of the word's
        return np.ascontiguousarray((values.astype(f"i{size}") << spare) >> spare)
    if values.dtype.kind == "i":
        values = values.astype(f"u{size}") & ((1 << frame.bits) - 1)
    return np.ascontiguousarray(values, dtype=f"u{size}")


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
