"""Read the header of a compressed frame, and check that its coded data are those of its pixels.

Decoders of JPEG fill in what is missing without an error. Every Huffman-coded frame is counted here: the
symbols of all its pixels must take the bits that the frame has, up to the padding of its last byte. Damage
that leaves the number of bits as it was cannot be seen: these formats have no checksum.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_J2K_START = b"\xff\x4f\xff\x51"  # SOC and SIZ, ISO/IEC 15444-1 A.4.1 and A.5.1
_JP2_BOXES = 4096  # bytes in which the codestream of a wrapped file begins
_SIZ_BYTES = 42
_JPEG_START = b"\xff\xd8"
_JPEG_FRAMES = frozenset({*range(0xC0, 0xD0), 0xF7}) - {0xC4, 0xC8, 0xCC}  # ITU-T T.81 table B.1; T.87
_TABLES, _SCAN, _RESTARTS = 0xC4, 0xDA, 0xDD  # DHT, SOS, DRI
SEQUENTIAL, LOSSLESS, JPEG_LS = (0xC0, 0xC1), 0xC3, 0xF7  # SOF0 and SOF1, SOF3, SOF55
_END = b"\xff\xd9"  # EOI of JPEG and EOC of JPEG 2000: never inside their entropy-coded data
_TAIL = 64  # bytes after the end marker that encoders were seen to add
_SIDE = 8  # pixels of a block
_LOOK = 16  # bits of the longest code

Pixels = NDArray[Any]


@dataclass(frozen=True)
class Frame:
    """What a compressed frame says of itself."""

    rows: int
    columns: int
    components: int
    bits: int  # of a value
    signed: bool = False
    process: int = 0  # the marker of a JPEG frame, which names the process


def read_j2k_frame(stream: bytes) -> Frame | None:
    """Read the SIZ segment of a JPEG 2000 codestream; None without one."""
    start = stream[:_JP2_BOXES].find(_J2K_START)
    if start < 0 or len(stream) <= start + _SIZ_BYTES:
        return None
    right, bottom, left, top = struct.unpack_from(">4I", stream, start + 8)
    (components,) = struct.unpack_from(">H", stream, start + 40)
    depth = stream[start + _SIZ_BYTES]
    return Frame(max(bottom - top, 0), max(right - left, 0), components, (depth & 0x7F) + 1, depth > 0x7F)  # noqa: PLR2004 (bit 7 is the sign)


def read_jpeg_frame(stream: bytes) -> Frame | None:
    """Read the frame header of a JPEG or JPEG-LS stream; None without one."""
    for marker, body in _segments(stream):
        if marker in _JPEG_FRAMES and len(body) > 5:  # noqa: PLR2004 (bytes up to the number of components)
            bits, rows, columns, components = struct.unpack_from(">BHHB", body)
            return Frame(rows, columns, components, bits, process=marker)
    return None


def has_end(stream: bytes) -> bool:
    """Tell whether a compressed frame ends with its end marker, or nearly so."""
    return _END in stream[-_TAIL:]


def _segments(stream: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the marker and the content of each segment up to the first scan's header."""
    at = 2 if stream.startswith(_JPEG_START) else len(stream)
    while at + 4 <= len(stream) and stream[at] == 0xFF:  # noqa: PLR2004 (every marker starts with it)
        marker = stream[at + 1]
        if marker == 0xFF:  # noqa: PLR2004 (a fill byte, T.81 B.1.1.2)
            at += 1
            continue
        length = int.from_bytes(stream[at + 2 : at + 4])
        yield marker, stream[at + 4 : at + 2 + length]
        at += 2 + max(length, 2)
        if marker == _SCAN:
            yield 0, stream[at:]  # what follows is not in segments


@dataclass(frozen=True)
class _Scan:
    """The only scan of a grey frame: tables by class and number, its header, and its coded bytes."""

    tables: dict[int, bytes]
    restart_interval: int
    header: bytes
    coded: bytes

    def codes(self, table: int) -> list[tuple[int, int]]:
        """Return the symbols of a table in the order of their codes, with the codes' lengths."""
        content = self.tables.get(table, bytes(16))  # T.81 B.2.4.2
        lengths = [length for length, count in enumerate(content[:16], start=1) for _ in range(count)]
        return list(zip(content[16:], lengths, strict=False))

    def parts(self) -> list[bytes]:
        """Return the coded bytes between restart markers, with stuffed zeros (T.81 B.1.1.5)."""
        coded, restart = self.coded[: self.coded.rfind(_END)].rstrip(b"\xff"), b"\xff\xd0"
        for number in range(1, 8 if self.restart_interval else 0):  # T.81 B.1.1.3: RST0 to RST7
            coded = coded.replace(bytes((0xFF, 0xD0 + number)), restart)
        return coded.split(restart) if self.restart_interval else [coded]


def _read_scan(stream: bytes) -> _Scan | None:
    tables: dict[int, bytes] = {}
    interval, header = 0, b""
    for marker, body in _segments(stream):
        if marker == _TABLES:
            at = 0
            while at + 17 <= len(body):  # the table's number and the counts of 16 lengths
                size = 17 + sum(body[at + 1 : at + 17])
                tables[body[at]] = body[at + 1 : at + size]
                at += size
        elif marker == _RESTARTS:
            interval = int.from_bytes(body[:2])
        elif marker == _SCAN:
            header = body
        elif marker == 0 and len(header) > 5:  # noqa: PLR2004 (a header of one component has 6 bytes)
            return _Scan(tables, interval, header, body)
    return None


def jpeg_problem(stream: bytes, frame: Frame, pixels: Pixels) -> str | None:
    """Return why the coded data of a Huffman-coded grey frame are not those of its decoded pixels, if so."""
    scan = _read_scan(stream)
    if scan is None:
        return "the compressed frame has no scan"
    if frame.process == LOSSLESS:
        excess, most = _lossless_excess(scan, frame, pixels)
    else:
        excess, most = _sequential_excess(scan, frame)
    if excess is None:
        return "truncated or damaged: the compressed frame has codes that cannot be"
    if excess < 0:
        return f"truncated or damaged: the compressed frame lacks {-excess:,} bits of its pixels"
    if excess > most:
        return f"damaged: the compressed frame has {excess:,} bits that are in none of its pixels"
    return None


def _lossless_excess(scan: _Scan, frame: Frame, pixels: Pixels) -> tuple[int | None, int]:
    """Return the bits that the pixels leave, and how many of them may be padding (T.81 annex H)."""
    selection, shift = scan.header[3], scan.header[5] & 15
    lengths = np.zeros(256, dtype=np.int64)
    for symbol, length in scan.codes(scan.header[2] >> 4):
        lengths[symbol] = length
    sizes = np.concatenate((np.arange(32768), np.arange(32768, 0, -1)))  # by difference, modulo 2^16
    categories = np.ceil(np.log2(sizes + 1)).astype(np.int64)
    codes = lengths[categories]
    # The greatest difference needs no further bits, T.81 H.1.2.2.
    taken = np.where(codes == 0, 0, codes + np.where(categories == _LOOK, 0, categories)).astype(np.uint8)
    rows = scan.restart_interval // frame.columns if scan.restart_interval else frame.rows
    values: Pixels = pixels.view(f"u{pixels.dtype.itemsize}").astype(np.uint16, copy=False)
    values = values >> shift if shift else values
    first = 1 << (frame.bits - shift - 1)
    bits = taken[_differences(values, selection, max(rows, 1), first)]
    parts = scan.parts()
    excess = 8 * sum(map(_unstuffed, parts)) - int(bits.sum(dtype=np.int64))
    return (None if not bits.all() else excess), 7 * len(parts)


def _unstuffed(part: bytes) -> int:
    """Return the number of coded bytes without stuffed zeros; removing them takes ten times as long."""
    coded = np.frombuffer(part, dtype=np.uint8)
    return len(part) - int(np.count_nonzero((coded[:-1] == 0xFF) & (coded[1:] == 0)))  # noqa: PLR2004


def _differences(values: Pixels, selection: int, rows: int, first: int) -> Pixels:
    """Return each value less its prediction, modulo 2^16; `rows` is the number between restarts."""
    predicted = np.empty_like(values)
    left, above, corner = values[1:, :-1], values[:-1, 1:], values[:-1, :-1]
    inner = predicted[1:, 1:]
    if selection in (1, 2, 3):
        inner[:] = (left, above, corner)[selection - 1]
    elif selection == 4:  # noqa: PLR2004 (T.81 table H.1)
        inner[:] = left + above - corner
    else:
        wide = [part.astype(np.int32) for part in (left, above, corner)]
        one, two = (wide[0], wide[1]) if selection == 5 else (wide[1], wide[0])  # noqa: PLR2004
        half = (wide[0] + wide[1]) >> 1 if selection == 7 else one + ((two - wide[2]) >> 1)  # noqa: PLR2004
        inner[:] = half.astype(np.uint16)
    predicted[1:, 0] = values[:-1, 0]
    predicted[::rows, 1:] = values[::rows, :-1]
    predicted[::rows, 0] = first
    return values - predicted


def _sequential_excess(scan: _Scan, frame: Frame) -> tuple[int | None, int]:
    """Return the bits that the blocks leave, and how many of them may be padding (T.81 annex F)."""
    tables = scan.header[2]
    direct, further = _prefixes(scan.codes(tables >> 4)), _prefixes(scan.codes(0x10 | tables & 15))
    blocks = -(-frame.rows // _SIDE) * -(-frame.columns // _SIDE)
    parts = [part.replace(b"\xff\x00", b"\xff") for part in scan.parts()]
    left, excess, count = blocks, 0, scan.restart_interval or blocks
    for part in parts:
        coded = np.frombuffer(part + bytes(8), dtype=np.uint8)
        used = _block_walker()(coded, 8 * len(part), min(left, count), direct, further)
        if used < 0:
            return None, 0
        left, excess = left - min(left, count), excess + 8 * len(part) - used
        if used > 8 * len(part):
            return 8 * len(part) - used, 0
    return (-left if left else excess), 7 * len(parts)


def _prefixes(codes: list[tuple[int, int]]) -> NDArray[np.int32]:
    """Return the symbol and 256 times the length of the code that begins each 16 bits; 0 if none does."""
    found, at = np.zeros(1 << _LOOK, dtype=np.int32), 0
    for symbol, length in codes:
        count = 1 << (_LOOK - length)
        found[at : at + count] = symbol | length << 8
        at += count
    return found


@cache
def _block_walker() -> Callable[..., int]:
    """Return the compiled counter of the bits that some blocks take; -1 for a code that cannot be.

    Lossy mammograms are rare: it is compiled, in half a second, where one occurs.
    """
    import numba  # noqa: PLC0415 - takes long to import

    def walk(coded: Any, bits: int, blocks: int, direct: Any, further: Any) -> int:
        at = 0
        for _ in range(blocks):
            place = 0
            while place < 64:  # noqa: PLR2004 (coefficients of a block)
                if at > bits:
                    return at
                byte = at >> 3
                window = (coded[byte] << 16 | coded[byte + 1] << 8 | coded[byte + 2]) >> (8 - (at & 7))
                found = (direct if place == 0 else further)[window & 0xFFFF]
                if found == 0:
                    return -1
                size, run = found & 15, (found >> 4) & 15
                if place == 0:
                    size, run = found & 255, 0
                elif size == 0 and run < 15:  # noqa: PLR2004 (the end of the block)
                    run = 63 - place
                at += (found >> 8) + size
                place += run + 1
            if place > 64:  # noqa: PLR2004
                return -1
        return at

    return numba.njit(walk)  # type: ignore[no-any-return]
