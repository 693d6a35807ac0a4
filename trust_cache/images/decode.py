"""From a data set to the pixel values as they were stored, by a decoder with a name."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset
from pydicom import uid as uids
from pydicom.encaps import get_frame
from pydicom.pixels.decoders.base import get_decoder

from trust_cache.images.codestream import Frame, is_complete, read_j2k_frame, read_jpeg_frame
from trust_cache.images.errors import ImageError
from trust_cache.images.settings import ImageSettings

_GREY = ("MONOCHROME1", "MONOCHROME2")
_BITS_ALLOCATED = (8, 16)
_REASON_LENGTH = 200  # of a decoder's own message


@dataclass(frozen=True)
class Decoder:
    """A decoder: pydicom's name for the plugin, the package it comes in, how to read a frame's size."""

    plugin: str
    package: str
    frame: Callable[[bytes], Frame | None] | None = None


_PYDICOM = Decoder("", "pydicom")
_RLE = Decoder("pydicom", "pydicom")
_GDCM = Decoder("gdcm", "python-gdcm", read_jpeg_frame)
_OPENJPEG = Decoder("pylibjpeg", "pylibjpeg-openjpeg", read_j2k_frame)
# With no plugin named pydicom tries what it finds: two machines could then decode differently.
DECODERS: dict[str, Decoder] = {
    uids.ImplicitVRLittleEndian: _PYDICOM,
    uids.ExplicitVRLittleEndian: _PYDICOM,
    uids.DeflatedExplicitVRLittleEndian: _PYDICOM,
    uids.ExplicitVRBigEndian: _PYDICOM,
    uids.RLELossless: _RLE,
    uids.JPEGBaseline8Bit: _GDCM,
    uids.JPEGLossless: _GDCM,
    uids.JPEGLosslessSV1: _GDCM,
    uids.JPEGLSLossless: _GDCM,
    uids.JPEGLSNearLossless: _GDCM,
    uids.JPEG2000Lossless: _OPENJPEG,
    uids.JPEG2000: _OPENJPEG,
}


@dataclass(frozen=True)
class Stored:
    """Pixel values as they were stored, before any look-up table."""

    pixels: NDArray[Any]  # uint8, int8, uint16 or int16
    bits: int  # how many the values take: as declared, or more where they go beyond
    decoder: str  # package and version
    transfer_syntax: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class DecoderState:
    """Whether files of a transfer syntax can be decoded here, and by what."""

    syntax: str  # its name and UID
    package: str
    version: str | None  # None: not installed
    works: bool


def decoder_states() -> tuple[DecoderState, ...]:
    """Return the state of the decoder of every supported transfer syntax."""
    states = []
    for syntax, decoder in DECODERS.items():
        try:
            found = version(decoder.package)
        except PackageNotFoundError:
            found = None
        name = _named(uids.UID(syntax))
        states.append(
            DecoderState(name, decoder.package, found, found is not None and _works(decoder, syntax))
        )
    return tuple(states)


def decode(dataset: Dataset, settings: ImageSettings) -> Stored:
    """Decode a single grey frame; whatever is wrong with it is an ImageError."""
    syntax = _transfer_syntax(dataset)
    _check_there_are_pixels(dataset, syntax)
    decoder = _decoder_of(syntax)
    _check_kind(dataset)
    _check_size(dataset, settings)
    _check_bits(dataset, syntax)
    if decoder.frame is not None:
        _check_frame(dataset, decoder.frame, settings)
    pixels = _run(dataset, syntax, decoder)
    declared = int(dataset.BitsStored)
    bits = max(declared, _bits_needed(pixels))
    beyond = (f"pixel values take {bits} bits, {declared} are declared",) if bits > declared else ()
    name = f"{decoder.package} {version(decoder.package)}"
    return Stored(pixels, bits, name, str(syntax), beyond)


def _transfer_syntax(dataset: Dataset) -> uids.UID:
    meta = getattr(dataset, "file_meta", None)
    syntax = None if meta is None else meta.get("TransferSyntaxUID")
    if not syntax:
        raise ImageError(
            "decode", "the file meta information has no transfer syntax: it is damaged or truncated"
        )
    return uids.UID(syntax)


def _check_there_are_pixels(dataset: Dataset, syntax: uids.UID) -> None:
    if dataset.get("PixelData"):
        return
    # pydicom drops an encapsulated element whose end is missing, often with all that came before.
    if not syntax.is_private and syntax.is_transfer_syntax and syntax.is_encapsulated:
        raise ImageError("decode", "truncated: the file ends before its pixel data do")
    if "Rows" in dataset:
        raise ImageError(
            "decode", "no pixel data, though the header declares an image: the file may be truncated"
        )
    raise ImageError("decode", "no pixel data: the file holds no image, or is truncated")


def _decoder_of(syntax: uids.UID) -> Decoder:
    decoder = DECODERS.get(syntax)
    if decoder is None:
        raise ImageError("decode", _unsupported(syntax))
    if not _works(decoder, syntax):
        raise ImageError("decode", f"transfer syntax {_named(syntax)} needs {_installing(decoder)}")
    return decoder


def _works(decoder: Decoder, syntax: str) -> bool:
    return not decoder.plugin or decoder.plugin in get_decoder(syntax).available_plugins


def _named(syntax: uids.UID) -> str:
    return str(syntax) if syntax.name == syntax else f"{syntax.name} ({syntax})"


def _unsupported(syntax: uids.UID) -> str:
    return (
        f"transfer syntax {_named(syntax)} is not supported; install the package dcmtk and convert the"
        " file with its dcmconv or dcmdjpeg"
    )


def _installing(decoder: Decoder) -> str:
    try:
        found = f"{version(decoder.package)} does not work here"
    except PackageNotFoundError:
        found = "not installed"
    return f"the package {decoder.package} ({found}): pip install {decoder.package}"


def _check_kind(dataset: Dataset) -> None:
    frames = _integer(dataset, "NumberOfFrames", 1)
    if frames > 1:
        raise ImageError("decode", f"multi-frame image ({frames} frames, as in tomosynthesis); expected one")
    photometric = str(dataset.get("PhotometricInterpretation", "")).strip().upper()
    samples = _integer(dataset, "SamplesPerPixel", 1)
    if samples != 1 or photometric not in _GREY:
        kind = photometric if photometric.replace("_", "").replace(" ", "").isalnum() else "unknown"
        raise ImageError(
            "decode", f"not a grey image: photometric interpretation {kind}, {samples} samples a pixel"
        )


def _check_size(dataset: Dataset, settings: ImageSettings) -> None:
    rows, columns = _integer(dataset, "Rows"), _integer(dataset, "Columns")
    if rows < 1 or columns < 1:
        raise ImageError("decode", f"declared size of {rows} x {columns} pixels: there is no image")
    _check_pixels(rows, columns, settings)


def _check_pixels(rows: int, columns: int, settings: ImageSettings) -> None:
    if rows * columns > settings.max_pixels:
        raise ImageError(
            "decode",
            f"declared size of {rows} x {columns} pixels is beyond the limit of"
            f" {settings.max_pixels / 1e6:g} million",
        )


def _check_bits(dataset: Dataset, syntax: uids.UID) -> None:
    allocated, stored = _integer(dataset, "BitsAllocated"), _integer(dataset, "BitsStored")
    if allocated not in _BITS_ALLOCATED or not 1 < stored <= allocated:
        raise ImageError(
            "decode", f"{stored} bits stored in {allocated}: expected 2 to 16 bits, stored in 8 or 16"
        )
    if _integer(dataset, "PixelRepresentation", 0) not in (0, 1):
        raise ImageError("decode", "pixel representation is neither 0 (unsigned) nor 1 (signed)")
    # Compressed values carry their own precision; only native ones can lie higher in their words.
    high = _integer(dataset, "HighBit", stored - 1)
    if not syntax.is_encapsulated and high != stored - 1:
        raise ImageError("decode", f"high bit {high} of {stored} bits stored: expected {stored - 1}")


def _integer(dataset: Dataset, keyword: str, default: int | None = None) -> int:
    value = None
    try:
        value = dataset.get(keyword)
        if value is None or value == "":
            if default is not None:
                return default
        else:
            return int(value)
    except Exception:  # noqa: S110 (pydicom converts on access; a damaged value can raise anything)
        pass
    state = "is missing" if value is None or value == "" else "is not a number"
    raise ImageError("decode", f"{keyword} {state} in the header")


def _check_frame(
    dataset: Dataset, read_frame: Callable[[bytes], Frame | None], settings: ImageSettings
) -> None:
    """Compare the compressed frame's own size with the header's, before anything is allocated."""
    try:
        stream = bytes(get_frame(dataset.PixelData, 0, number_of_frames=1))
    except Exception:
        raise ImageError("decode", "truncated or damaged: the pixel data's items are not whole") from None
    frame = read_frame(stream)
    if frame is None:
        raise ImageError("decode", "the pixel data do not begin as their transfer syntax says")
    _check_pixels(frame.rows, frame.columns, settings)
    if frame.components != 1:
        raise ImageError(
            "decode", f"not a grey image: the compressed frame has {frame.components} components"
        )
    declared = (int(dataset.Rows), int(dataset.Columns))
    if (frame.rows, frame.columns) != declared:
        raise ImageError(
            "decode",
            f"the compressed frame has {frame.rows} x {frame.columns} pixels,"
            f" the header declares {declared[0]} x {declared[1]}",
        )
    # Decoders fill what is missing with anything; a stream without its end is not whole.
    if not is_complete(stream):
        raise ImageError("decode", "truncated: the compressed frame lacks its end marker")


def _run(dataset: Dataset, syntax: uids.UID, decoder: Decoder) -> NDArray[Any]:
    if not syntax.is_encapsulated:
        _check_length(dataset)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # excess padding and the like; what matters was checked
            # `raw` keeps the stored values: no colour conversion, no look-up table.
            pixels, _ = get_decoder(syntax).as_array(
                dataset, raw=True, index=0, decoding_plugin=decoder.plugin
            )
    except MemoryError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = (lines[-1] if lines else type(error).__name__)[:_REASON_LENGTH]
        raise ImageError("decode", f"{decoder.package} cannot decode {_named(syntax)}: {said}") from error
    return np.ascontiguousarray(pixels, dtype=pixels.dtype.newbyteorder("="))


def _check_length(dataset: Dataset) -> None:
    expected = int(dataset.Rows) * int(dataset.Columns) * (int(dataset.BitsAllocated) // 8)
    found = len(dataset.PixelData)
    if found < expected:
        raise ImageError("decode", f"truncated: {found} bytes of pixel data, expected {expected}")


def _bits_needed(pixels: NDArray[Any]) -> int:
    low, high = int(pixels.min()), int(pixels.max())
    if pixels.dtype.kind == "i":
        return max(high.bit_length(), (-low - 1).bit_length() if low < 0 else 0) + 1
    return high.bit_length()
