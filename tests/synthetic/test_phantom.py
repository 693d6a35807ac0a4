"""Phantoms: the outline is where the breast ends, sides and marks are where they should be, lesions shine."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

from trust_cache.base.errors import InputError
from trust_cache.synthetic.phantom import (
    AIR,
    AIR_NOISE,
    FAT,
    PhantomSettings,
    draw_anatomy,
    draw_phantom,
)

VIEWS = list(product("LR", ("CC", "MLO")))
SIZES = [(200, 160), (280, 219), (300, 275)]


def overlap(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    return float((one & other).sum() / (one | other).sum())


@pytest.mark.parametrize(("laterality", "projection"), VIEWS)
@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_the_outline_is_where_the_breast_ends(
    laterality: str, projection: str, rows: int, columns: int
) -> None:
    for seed in range(5):
        phantom = draw_phantom(PhantomSettings(rows, columns, laterality, projection), seed)
        bright = phantom.intensity > (AIR + FAT) / 2
        assert overlap(bright, phantom.breast) > 0.999
        # One piece without holes.
        assert ndimage.label(phantom.breast)[1] == 1
        assert np.array_equal(ndimage.binary_fill_holes(phantom.breast), phantom.breast)
        assert 0.2 < phantom.breast.mean() < 0.7


@given(seed=st.integers(0, 2**32), view=st.sampled_from(VIEWS))
def test_the_chest_wall_is_left_for_left_breasts_and_right_for_right_ones(
    seed: int, view: tuple[str, str]
) -> None:
    breast = draw_phantom(PhantomSettings(200, 160, *view), seed).breast
    near, far = (0, -1) if view[0] == "L" else (-1, 0)
    assert breast[:, near].mean() > 0.5
    assert not breast[:, far].any()
    assert not breast[-1].any()
    assert breast[0].any() == (view[1] == "MLO")  # only an oblique view runs out of the image


def test_the_other_breast_is_the_mirror_image() -> None:
    settings = PhantomSettings(projection="MLO", lesion_contrast=0.3, unexposed=True, strip="far")
    left, right = draw_phantom(settings, 3), draw_phantom(replace(settings, laterality="R"), 3)
    for name in ("intensity", "breast", "lesion", "unexposed"):
        assert np.array_equal(getattr(left, name)[:, ::-1], getattr(right, name)), name


def test_an_oblique_view_shows_the_muscle() -> None:
    phantom = draw_phantom(PhantomSettings(projection="MLO"), 1)
    assert phantom.intensity[5:20, 2:15].mean() > phantom.intensity[phantom.breast].mean()


def test_air_is_dark_noise() -> None:
    phantom = draw_phantom(PhantomSettings())
    air = phantom.intensity[~phantom.breast]
    assert air.mean() == pytest.approx(AIR, abs=0.001)
    assert air.std() == pytest.approx(AIR_NOISE, rel=0.05)
    assert phantom.intensity.min() >= 0
    assert phantom.intensity.max() <= 1


@pytest.mark.parametrize(("laterality", "projection"), VIEWS)
@pytest.mark.parametrize("contrast", [0.1, 0.35])
def test_a_lesion_raises_the_intensity_only_there(laterality: str, projection: str, contrast: float) -> None:
    settings = PhantomSettings(laterality=laterality, projection=projection)
    for seed in range(5):
        without = draw_phantom(settings, seed)
        phantom = draw_phantom(replace(settings, lesion_contrast=contrast), seed)
        assert not without.lesion.any()
        assert phantom.lesion.sum() > 100
        assert not (phantom.lesion & ~phantom.breast).any()
        assert np.array_equal(phantom.breast, without.breast)
        difference = phantom.intensity - without.intensity
        assert 0.6 * contrast < difference[phantom.lesion].mean() < 1.5 * contrast
        far = ndimage.distance_transform_edt(~phantom.lesion) > 2.5 * 0.07 * 280  # radii of the largest
        assert np.abs(difference[far]).max() < 0.01 * contrast


def test_text_and_strip_lie_away_from_the_breast() -> None:
    for seed, (laterality, projection) in product(range(5), VIEWS):
        plain = PhantomSettings(200, 160, laterality, projection)
        marked = replace(plain, text=f"{laterality} {projection}", strip="far")
        before, after = draw_phantom(plain, seed), draw_phantom(marked, seed)
        changed = before.intensity != after.intensity
        assert changed.sum() > 200 * 2 + 30
        assert not (changed & ndimage.binary_dilation(before.breast, iterations=3)).any()
        assert np.array_equal(before.breast, after.breast)
        edge = -1 if laterality == "L" else 0
        assert changed[:, edge].all()
        bottom = draw_phantom(replace(plain, strip="bottom"), seed).intensity
        assert (bottom[-1] > 0.9).all()


def test_a_woman_keeps_her_anatomy_and_a_seed_its_image() -> None:
    settings = PhantomSettings(anatomy=draw_anatomy(5))
    again = draw_phantom(settings, (1, 2))
    assert np.array_equal(draw_phantom(settings, (1, 2)).intensity, again.intensity)
    assert not np.array_equal(draw_phantom(settings, (1, 3)).intensity, again.intensity)
    areas = [draw_phantom(settings, seed).breast.mean() for seed in range(10)]
    others = [draw_phantom(PhantomSettings(), seed).breast.mean() for seed in range(10)]
    assert np.std(areas) < np.std(others)


def test_the_same_phantom_at_another_resolution() -> None:
    small, large = (draw_phantom(PhantomSettings(200 * k, 160 * k), 2) for k in (1, 3))
    assert overlap(small.breast, large.breast[1::3, 1::3]) > 0.98


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rows": 20}, "size: expected at least 100"),
        ({"laterality": "B"}, "laterality: expected one of L, R, found 'B'"),
        ({"projection": "ML"}, "projection: expected one of CC, MLO"),
        ({"strip": "top"}, "strip: expected one of far, bottom"),
        ({"lesion_contrast": 2.0}, "lesion contrast: expected 0 to 1"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PhantomSettings(**wrong)  # type: ignore[arg-type]
