"""Cropping: the box with its margin, black outside of the mask."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trust_cache.images.mask import Box, box_of, cut_out, mirror


def test_margin_on_each_side_clipped_to_the_image() -> None:
    mask = np.zeros((200, 100), dtype=np.bool_)
    mask[50:150, :40] = True
    assert box_of(mask, 0.10) == Box(40, 160, 0, 44)
    assert box_of(mask, 0.0) == Box(50, 150, 0, 40)


@given(
    rows=st.tuples(st.integers(0, 30), st.integers(1, 30)),
    columns=st.tuples(st.integers(0, 30), st.integers(1, 30)),
    margin=st.floats(0, 1),
)
def test_box_holds_the_mask_and_stays_inside(
    rows: tuple[int, int], columns: tuple[int, int], margin: float
) -> None:
    mask = np.zeros((60, 60), dtype=np.bool_)
    mask[rows[0] : sum(rows), columns[0] : sum(columns)] = True
    box = box_of(mask, margin)
    assert 0 <= box.top < box.bottom <= 60
    assert 0 <= box.left < box.right <= 60
    assert np.count_nonzero(mask[box.slices]) == np.count_nonzero(mask)


def test_outside_of_the_mask_is_zero() -> None:
    image = np.arange(1, 10001, dtype=np.uint16).reshape(100, 100)
    mask = np.zeros((100, 100), dtype=np.bool_)
    mask[30:60, 10:50] = True
    mask[30, 10] = False
    cut = cut_out(image, mask, box_of(mask, 0.1))
    assert cut.dtype == np.uint16
    assert np.count_nonzero(cut) == np.count_nonzero(mask)
    assert cut[4, 4] == image[31, 10]


def test_mirror() -> None:
    image = np.arange(12, dtype=np.uint16).reshape(3, 4)
    np.testing.assert_array_equal(mirror(image), image[:, ::-1])
