"""Views as tensors: the warp against OpenCV and scipy, a batch equal to its items, all 16 bits kept."""

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from numpy.typing import NDArray
from scipy import ndimage
from torch.nn.functional import interpolate

from trust_cache.cache.views import (
    UNTOUCHED,
    ViewParameters,
    adjust,
    decide_views,
    make_views,
    rescale,
    resize,
    warp,
)
from trust_cache.encoders.mammo_clip import RECIPE as MAMMO_CLIP
from trust_cache.encoders.recipe import Recipe

SIZE = (76, 46)


def recipe_at(size: tuple[int, int]) -> Recipe:
    return structs.replace(MAMMO_CLIP, image_size=size)


RECIPE = recipe_at(SIZE)
MEAN, STD = 0.3089279, 0.25053555408335154  # as METHOD.md has them
ranges = st.builds(
    ViewParameters,
    rotation=st.floats(-180, 180),
    scale=st.floats(0.5, 2),
    shift_x=st.floats(-0.4, 0.4),
    shift_y=st.floats(-0.4, 0.4),
)


def smooth(height: int = SIZE[0], width: int = SIZE[1], seed: int = 0) -> NDArray[np.float32]:
    """A picture without steps: interpolations that differ by little in place differ by little in value."""
    noise = np.random.default_rng(seed).standard_normal((height, width))
    picture = ndimage.gaussian_filter(noise, 3)
    return ((picture - picture.min()) / np.ptp(picture)).astype(np.float32)


def pixels16(height: int, width: int, seed: int = 0) -> torch.Tensor:
    values = np.random.default_rng(seed).integers(100, 60_000, (height, width))
    return torch.from_numpy(values.astype(np.uint16))


def forward_matrix(view: ViewParameters, height: int, width: int) -> NDArray[np.float64]:
    """OpenCV's own matrix of a rotation (counter-clockwise) and scaling about the centre, then the shift."""
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), view.rotation, view.scale)
    matrix[:, 2] += (view.shift_x * width, view.shift_y * height)
    return np.asarray(matrix)


@settings(max_examples=40)
@given(ranges)
def test_the_warp_is_scipys(view: ViewParameters) -> None:
    picture = smooth()
    ours = warp(torch.from_numpy(picture), [view])[0].numpy()
    x_y = np.vstack((forward_matrix(view, *SIZE), [0, 0, 1]))
    inverse = np.linalg.inv(x_y)[:2]
    rows_columns = inverse[::-1][:, [1, 0]]  # scipy counts rows first
    theirs = ndimage.affine_transform(
        picture.astype(np.float64), rows_columns, offset=inverse[::-1, 2], order=1, mode="grid-constant"
    )
    # Places are rounded to float32, about 1e-5 of a pixel; at the border the picture drops from 1 to 0.
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("size", [(152, 92), (61, 120)])
@pytest.mark.parametrize("seed", range(3))
def test_the_warp_is_opencvs(size: tuple[int, int], seed: int) -> None:
    picture = smooth(*size, seed)
    for number, view in enumerate(decide_views(seed, "x", 4)):
        ours = warp(torch.from_numpy(picture), [view])[0].numpy()
        height, width = size
        theirs = cv2.warpAffine(
            picture, forward_matrix(view, *size), (width, height), flags=cv2.INTER_LINEAR, borderValue=0
        )
        inside = np.s_[12:-12, 12:-12]
        # OpenCV may round places to 1/32 of a pixel.
        np.testing.assert_allclose(ours[inside], theirs[inside], atol=0.02, err_msg=str(number))


def test_directions() -> None:
    """A point right of the centre goes up by a positive rotation; shifts go right and down, in pixels."""
    picture = torch.zeros(41, 81)
    picture[20, 60] = 1.0  # 20 to the right of the centre

    def place(**view: float) -> tuple[int, int]:
        moved = warp(picture, [ViewParameters(**view)])[0]
        return divmod(int(moved.argmax()), 81)

    assert place(rotation=90) == (
        0,
        40,
    )  # as far above it, though the sides differ
    assert place(shift_x=10 / 81) == (20, 70)
    assert place(shift_y=-5 / 41) == (15, 60)
    assert place(scale=0.5) == (20, 50)


def test_a_batch_equals_its_items() -> None:
    picture = torch.from_numpy(smooth(152, 91))
    views = decide_views(0, "an image", 8)
    together = warp(picture, views)
    for number, view in enumerate(views):
        assert torch.equal(together[number], warp(picture, [view])[0]), number
    pixels = pixels16(200, 130)
    whole = make_views(pixels, RECIPE, views).views
    for number, view in enumerate(views):
        assert torch.equal(whole[[0, number + 1]], make_views(pixels, RECIPE, [view]).views)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_change_nothing(threads: int) -> None:
    views, pixels, before = decide_views(0, "an image", 3), pixels16(400, 300), torch.get_num_threads()
    expected = make_views(pixels, recipe_at((304, 184)), views).views
    torch.set_num_threads(threads)
    try:
        # The image's mean is a sum over many pixels, which threads divide in their own way.
        torch.testing.assert_close(
            make_views(pixels, recipe_at((304, 184)), views).views, expected, rtol=0, atol=1e-6
        )
    finally:
        torch.set_num_threads(before)


def test_view_0_is_the_resized_standardised_image() -> None:
    pixels = pixels16(200, 130)
    resized = cv2.resize(pixels.numpy().astype(np.float32), SIZE[::-1], interpolation=cv2.INTER_LINEAR)
    expected = ((resized - resized.min()) / np.ptp(resized) - MEAN) / STD
    for views in ((), decide_views(0, "x", 2)):
        made = make_views(pixels, RECIPE, views)
        assert made.views.shape == (1 + len(views), 1, *SIZE)
        assert made.varied
        # float32 interpolates values up to 60,000 to within 1e-6 of them; antialiasing would differ by 1.
        np.testing.assert_allclose(made.views[0, 0].numpy(), expected, atol=1e-4)


def test_mammo_clips_views_are_byte_identical_to_the_plain_formula() -> None:
    """Written out once more with torch alone: resize, min-max, augment, one mean and std for all channels."""
    pixels, parameters = pixels16(211, 130), decide_views(0, "x", 3)
    resized = interpolate(pixels.to(torch.float32)[None, None], SIZE, mode="bilinear")[0, 0]
    low, high = resized.min(), resized.max()
    clean = (resized - low) / (high - low)
    views = torch.stack((clean, *adjust(warp(clean, parameters), clean.mean(), parameters)))
    made = make_views(pixels, RECIPE, parameters).views
    assert made.shape == (4, 1, *SIZE)
    assert torch.equal(made[:, 0], (views - MEAN) / STD)


@pytest.mark.parametrize("size", [(211, 130), (90, 200), (1, 300), (76, 46)])
def test_proportions_are_kept_on_black(size: tuple[int, int]) -> None:
    recipe = structs.replace(
        RECIPE, keep_proportions=True, intensity="min-max", mean=(0.0,) * 3, std=(1.0,) * 3
    )
    shown = make_views((torch.arange(size[1]) > 0).expand(size), recipe, []).views[0, 0] > 0.5
    rows, columns = (np.flatnonzero(shown.any(dim=axis).numpy()) for axis in (1, 0))
    height = min(SIZE[0], max(1, round(size[0] * min(SIZE[0] / size[0], SIZE[1] / size[1]))))
    assert rows.size == height
    assert abs((rows[0] + rows[-1] + 1) / 2 - SIZE[0] / 2) <= 0.5  # in the middle
    assert SIZE[0] == height or columns[-1] == SIZE[1] - 1  # as large as it can be


def test_an_untouched_augmented_view_is_the_clean_one() -> None:
    views = make_views(pixels16(200, 130), RECIPE, [UNTOUCHED]).views
    torch.testing.assert_close(views[1], views[0], rtol=0, atol=1e-4)


def test_intensities() -> None:
    """Contrast about the mean of the clean image, then brightness, then the limits 0 and 1."""
    warped = torch.tensor([[[0.0, 0.3, 0.5, 1.0]]]).expand(2, 1, 4).clone()
    views = [ViewParameters(contrast=1.1, brightness=0.05), ViewParameters(contrast=0.9, brightness=-0.05)]
    done = adjust(warped, torch.tensor(0.4), views)
    expected = [[0.01, 0.34, 0.56, 1.0], [0.0, 0.26, 0.44, 0.89]]
    np.testing.assert_allclose(done[:, 0].numpy(), expected, atol=1e-6)


def test_all_16_bits_are_kept() -> None:
    """Neighbouring values of 65,536 stay apart: 8 bits on the way would make 256 steps of them."""
    pixels = torch.arange(65_536).reshape(256, 256).to(torch.uint16)
    image, _ = rescale(resize(pixels, recipe_at((256, 256))))
    assert image.unique().numel() == 65_536
    byte = make_views((pixels.to(torch.int32) // 256).to(torch.uint8), recipe_at((256, 256)), []).views
    assert byte.unique().numel() == 256


@pytest.mark.parametrize("value", [0, 7, 54_321, 65_535])
def test_a_constant_image_is_told_and_never_nan(value: int) -> None:
    made = make_views(torch.full((50, 40), value, dtype=torch.uint16), RECIPE, decide_views(0, "x", 2))
    assert not made.varied
    assert torch.isfinite(made.views).all()


def test_one_grey_level_is_enough_to_vary() -> None:
    pixels = torch.full((SIZE[0], SIZE[1]), 65_534, dtype=torch.int32)
    pixels[10:20] += 1
    made = make_views(pixels.to(torch.uint16), RECIPE, [])
    assert made.varied
    assert made.views.unique().numel() == 2
