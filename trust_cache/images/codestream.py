"""What a compressed frame says about itself, read before a decoder allocates memory for it."""

import struct
from dataclasses import dataclass

_J2K_START = b"\xff\x4f\xff\x51"  # SOC and SIZ, ISO/IEC 15444-1 A.4.1 and A.5.1
_JP2_BOXES = 4096  # bytes in which the codestream of a wrapped file begins
_SIZ_BYTES = 42
_JPEG_START = b"\xff\xd8"
_JPEG_FRAMES = frozenset({*range(0xC0, 0xD0), 0xF7}) - {0xC4, 0xC8, 0xCC}  # ITU-T T.81 table B.1; T.87
_END = b"\xff\xd9"  # EOI of JPEG and EOC of JPEG 2000: never inside their entropy-coded data
_TAIL = 64  # bytes after the end marker that encoders were seen to add


@dataclass(frozen=True)
class Frame:
    """The size of a compressed frame."""

    rows: int
    columns: int
    components: int


def read_j2k_frame(stream: bytes) -> Frame | None:
    """Read the SIZ segment of a JPEG 2000 codestream; None if there is none."""
    start = stream[:_JP2_BOXES].find(_J2K_START)
    if start < 0 or len(stream) < start + _SIZ_BYTES:
        return None
    right, bottom, left, top = struct.unpack_from(">4I", stream, start + 8)
    (components,) = struct.unpack_from(">H", stream, start + 40)
    return Frame(max(bottom - top, 0), max(right - left, 0), components)


def read_jpeg_frame(stream: bytes) -> Frame | None:
    """Read the frame header of a JPEG or JPEG-LS stream; None if there is none."""
    if not stream.startswith(_JPEG_START):
        return None
    at = 2
    while at + 10 <= len(stream) and stream[at] == 0xFF:  # noqa: PLR2004 (every marker begins so)
        marker = stream[at + 1]
        if marker in _JPEG_FRAMES:
            rows, columns, components = struct.unpack_from(">HHB", stream, at + 5)
            return Frame(rows, columns, components)
        (length,) = struct.unpack_from(">H", stream, at + 2)
        at += 2 + length
    return None


def is_complete(stream: bytes) -> bool:
    """Tell whether a JPEG or JPEG 2000 stream has its end marker."""
    return _END in stream[-_TAIL:]
