"""PNG files: every value comes back."""

import struct

import cv2
import numpy as np
import pytest

from trust_cache.base.errors import InputError
from trust_cache.images.png_files import decode_png, encode_png


def test_all_values_come_back() -> None:
    picture = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    data = encode_png(picture)
    np.testing.assert_array_equal(decode_png(data), picture)
    width, height, bits, colour = struct.unpack_from(">IIBB", data, 16)
    assert (width, height, bits, colour) == (256, 256, 16, 0)
    assert encode_png(picture) == data


def test_colours_are_red_first() -> None:
    picture = np.zeros((4, 5, 3), dtype=np.uint8)
    picture[..., 0] = 200
    back = cv2.imdecode(np.frombuffer(encode_png(picture), dtype=np.uint8), cv2.IMREAD_COLOR)
    assert back is not None
    assert back[0, 0].tolist() == [0, 0, 200]  # OpenCV has blue first


@pytest.mark.parametrize("data", [b"", b"no PNG", encode_png(np.ones((9, 9), dtype=np.uint16))[:40]])
def test_damaged_files_are_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="damaged"):
        decode_png(data)


def test_other_pictures_are_refused() -> None:
    with pytest.raises(InputError, match="16 bit"):
        decode_png(encode_png(np.ones((9, 9), dtype=np.uint8)))
    with pytest.raises(InputError, match="float64"):
        encode_png(np.ones((9, 9)))  # type: ignore[arg-type]
