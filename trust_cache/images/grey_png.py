"""The pixels of a grey PNG file of 8 or 16 bit, or one sentence why it gives none.

The file's structure is checked before libpng sees it: libpng answers damage with lines on stderr.
"""

import os
import stat
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from trust_cache.base.places import is_url, read_bytes
from trust_cache.images.errors import ImageError
from trust_cache.images.settings import ImageSettings

Pixels = NDArray[np.uint16] | NDArray[np.uint8]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = struct.Struct(">IIBBBBB")  # PNG 11.2.1: width, height, bit depth, colour type and three methods
_CHUNK = struct.Struct(">I4s")  # length, type; the data and a CRC follow
_CRC_BYTES = 4
_COLOURS = {0: "grey", 2: "RGB", 3: "palette", 4: "grey with alpha", 6: "RGB with alpha"}
_GREY = 0
_BITS = (8, 16)
_DICOM, _DICOM_PREFIX = b"DICM", slice(128, 132)  # PS3.10 section 7.1
_OTHER_BYTES = 2**24  # more than a PNG carries besides its pixels


def read_grey_png(place: str, max_pixels: int = ImageSettings.max_pixels) -> Pixels:
    """Return the pixels of a PNG file as they are stored, [height, width]; never a constant image.

    The place is a path or a URL; a store behind a URL that does not answer is no failure of the image.
    """
    data = _url_bytes(place, max_pixels) if is_url(place) else _file_bytes(Path(place), max_pixels)
    _check_chunks(data)
    try:
        pixels = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error:
        pixels = None
    if pixels is None:
        raise ImageError("decode", "damaged: the pixels cannot be decompressed")
    if pixels.ndim != 2 or pixels.dtype not in (np.uint8, np.uint16):  # noqa: PLR2004 (rows and columns)
        raise ImageError("decode", f"expected grey pixels, found {pixels.dtype} of shape {pixels.shape}")
    if pixels.min() == pixels.max():
        raise ImageError("intensity", f"the image is constant: every pixel is {pixels.flat[0]}")
    return pixels  # type: ignore[return-value]  # of one of the two types, as was just checked


def is_dicom(path: Path) -> bool:
    """Tell whether a file begins as a DICOM file does."""
    try:
        with path.open("rb") as file:
            return file.read(_DICOM_PREFIX.stop)[_DICOM_PREFIX] == _DICOM
    except OSError:
        return False


def _url_bytes(place: str, max_pixels: int) -> bytes:
    try:
        data = read_bytes(place)
    except FileNotFoundError:
        raise ImageError("read", "no such file") from None
    _check_start(data, max_pixels)
    return data


def _file_bytes(path: Path, max_pixels: int) -> bytes:
    """Read a file whose header promises a picture that we take."""
    try:
        # Not a pipe or a device, which opening would wait for.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ImageError("read", "not a file")
        with path.open("rb") as file:
            start = file.read(_DICOM_PREFIX.stop)
            raw = _check_start(start, max_pixels)
            size = os.fstat(file.fileno()).st_size
            if size > 2 * raw + _OTHER_BYTES:
                raise ImageError("read", f"{size:,} bytes are more than a picture of that size can fill")
            return start + file.read()
    except FileNotFoundError:
        raise ImageError("read", "no such file") from None
    except (OSError, ValueError) as error:  # no permission; a NUL in the name
        if isinstance(error, ImageError):
            raise
        words = getattr(error, "strerror", None) or "input error"
        raise ImageError("read", f"the file cannot be read ({words})") from None


def _check_start(start: bytes, max_pixels: int) -> int:
    """Refuse a file that is no grey PNG of a usual size; return the bytes of its pixels."""
    if not start:
        raise ImageError("read", "the file is empty")
    if start[_DICOM_PREFIX] == _DICOM:
        raise ImageError("read", "a DICOM file, not a PNG: run `trust-cache preprocess` first")
    if not start.startswith(SIGNATURE):
        raise ImageError("read", "not a PNG file")
    at = len(SIGNATURE) + _CHUNK.size
    if len(start) < at + _HEADER.size + _CRC_BYTES:
        raise ImageError("read", "truncated: the file ends within its header")
    if _CHUNK.unpack_from(start, len(SIGNATURE)) != (_HEADER.size, b"IHDR"):
        raise ImageError("read", "damaged: the file does not begin with its header")
    width, height, bits, colour, *_ = _HEADER.unpack_from(start, at)
    if width == 0 or height == 0:
        raise ImageError("read", f"the picture has no pixels ({height} x {width})")
    if width * height > max_pixels:
        raise ImageError("read", f"{height:,} x {width:,} pixels are more than {max_pixels:,}")
    if colour != _GREY:
        kind = _COLOURS.get(colour, f"colour type {colour}")
        raise ImageError("read", f"expected a grey picture, found {kind}")
    if bits not in _BITS:
        raise ImageError("read", f"expected 8 or 16 bits a pixel, found {bits}")
    return int(width * height * bits // 8)


def _check_chunks(data: bytes) -> None:
    """Refuse a file whose chunks do not follow each other to the last, each with its checksum."""
    at, view = len(SIGNATURE), memoryview(data)
    kind = b""
    while kind != b"IEND":
        if at + _CHUNK.size + _CRC_BYTES > len(data):
            raise ImageError("read", "truncated: the file ends before its last chunk")
        length, kind = _CHUNK.unpack_from(data, at)
        end = at + _CHUNK.size + length
        if end + _CRC_BYTES > len(data):
            raise ImageError("read", "truncated: the file ends within a chunk")
        # PNG 5.5: the checksum covers type and data.
        if zlib.crc32(view[at + 4 : end]) != int.from_bytes(data[end : end + _CRC_BYTES]):
            name = kind.decode("ascii", "replace")
            raise ImageError("read", f"damaged: the chunk {name} does not fit its checksum")
        at = end + _CRC_BYTES
