"""Grey PNGs: the pixels of every sound one, and a reason for every other, without noise on stderr."""

import os
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trust_cache.images.image_failures import ImageError
from trust_cache.images.png_files import SIGNATURE, encode_png, read_grey_png

PICTURE = np.random.default_rng(0).integers(0, 65_536, (40, 30)).astype(np.uint16)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def a_png(width: int, height: int, bits: int, colour: int, pixels: bytes = b"") -> bytes:
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def encoded(picture: np.ndarray) -> bytes:
    return bytes(cv2.imencode(".png", picture)[1])


WHOLE = encode_png(PICTURE)
COLOUR = np.random.default_rng(0).integers(0, 256, (9, 9, 4)).astype(np.uint8)
WRONG = {
    "empty": (b"", "read", "the file is empty"),
    "text": (b"no PNG at all", "read", "not a PNG file"),
    "dicom": (bytes(128) + b"DICM" + bytes(50), "read", "make a manifest of each kind"),
    "header cut": (WHOLE[:20], "read", "truncated: the file ends within its header"),
    "cut": (WHOLE[:-500], "read", "truncated"),
    "end cut": (WHOLE[:-12], "read", "truncated: the file ends before its last chunk"),
    "no header": (SIGNATURE + chunk(b"IDAT", bytes(60)), "read", "does not begin with its header"),
    "no width": (a_png(0, 5, 16, 0), "read", r"has no pixels \(5 x 0\)"),
    "bomb": (a_png(60_000, 60_000, 16, 0), "read", "60,000 x 60,000 pixels are more than"),
    "rgb": (encoded(COLOUR[..., :3]), "read", "expected a grey picture, found RGB$"),
    "alpha": (encoded(COLOUR), "read", "found RGB with alpha"),
    "palette": (a_png(2, 2, 8, 3, bytes(6)), "read", "found palette"),
    "four bits": (a_png(2, 2, 4, 0, bytes(4)), "read", "expected 8 or 16 bits a pixel, found 4"),
    "constant": (encode_png(np.full((9, 9), 7, dtype=np.uint16)), "intensity", "every pixel is 7"),
    "no pixels": (a_png(9, 9, 16, 0, bytes(10)), "decode", "cannot be decompressed"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_reason_for_each(kind: str, tmp_path: Path) -> None:
    data, stage, reason = WRONG[kind]
    path = tmp_path / "picture.png"
    path.write_bytes(data)
    with pytest.raises(ImageError, match=reason) as caught:
        read_grey_png(str(path))
    assert caught.value.stage == stage


def test_files_that_are_not_there_or_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("none.png", "no such file"), (".", "not a file"), ("pipe", "not a file")):
        with pytest.raises(ImageError, match=reason):
            read_grey_png(str(tmp_path / name))
    with pytest.raises(ImageError, match="cannot be read"):
        read_grey_png("a\0b")
    vast = tmp_path / "vast.png"
    vast.write_bytes(WHOLE)
    os.truncate(vast, 10**9)
    with pytest.raises(ImageError, match="1,000,000,000 bytes are more"):
        read_grey_png(str(vast))


@pytest.mark.parametrize("picture", [PICTURE, (PICTURE >> 8).astype(np.uint8)])
def test_every_value_comes_back(picture: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    for data in (encode_png(picture), encoded(picture)):
        path.write_bytes(data)
        found = read_grey_png(str(path))
        assert found.dtype == picture.dtype
        np.testing.assert_array_equal(found, picture)


@given(at=st.integers(0, len(WHOLE) - 1), bit=st.integers(0, 7))
def test_no_flipped_bit_gives_other_pixels(
    at: int, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(WHOLE)
    content[at] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / "flipped.png"
    path.write_bytes(content)
    with pytest.raises(ImageError):
        read_grey_png(str(path))


def test_libpng_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "picture.png"
    for damaged in (WHOLE[:-500], WHOLE[:900] + b"x" + WHOLE[901:]):
        path.write_bytes(damaged)
        with pytest.raises(ImageError):
            read_grey_png(str(path))
    assert capfd.readouterr().err == ""


def test_by_url(tmp_path: Path) -> None:
    place = (tmp_path / "picture.png").as_uri()
    with pytest.raises(ImageError, match="no such file"):
        read_grey_png(place)
    (tmp_path / "picture.png").write_bytes(WHOLE)
    np.testing.assert_array_equal(read_grey_png(place), PICTURE)
    (tmp_path / "picture.png").write_bytes(WRONG["rgb"][0])
    with pytest.raises(ImageError, match="found RGB"):
        read_grey_png(place)
