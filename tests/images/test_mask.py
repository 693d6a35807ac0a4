"""The mask: close to the known outline whatever else is on the image, or a reason."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.images import made
from trust_cache.images.image_failures import ImageError
from trust_cache.images.mask import Level, find_breast, reduce_image, reduce_padding, threshold_above

Grey = NDArray[np.uint16]


def mask_of(image: Grey, padding: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
    marked = np.zeros(image.shape, dtype=np.bool_) if padding is None else padding
    return find_breast(image, reduce_padding(marked), 9)


def overlap(mask: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    return float(np.count_nonzero(mask & truth) / np.count_nonzero(mask | truth))


def grey(**keywords: object) -> Grey:
    return made.mammogram(bits=16, **keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize("air", [0.0, 0.002, 0.02, 0.1])
@pytest.mark.parametrize(("rows", "columns"), [(210, 160), (420, 330), (1500, 1400), (3062, 2394)])
def test_mask_is_the_breast(rows: int, columns: int, air: float) -> None:
    mask = mask_of(grey(rows=rows, columns=columns, air=air))
    assert overlap(mask, made.breast(rows, columns)) >= 0.985


def labelled() -> Grey:
    image = grey()
    for column in range(250, 310, 12):
        image[20:40, column : column + 7] = 65535
    return image


def stripped(edge: object) -> Grey:
    image = grey()
    image[edge] = 60000
    return image


@pytest.mark.parametrize(
    "image",
    [
        labelled(),
        stripped(np.s_[:, -8:]),
        stripped(np.s_[:, -40:]),
        stripped(np.s_[:12]),
        stripped(np.s_[-12:]),
    ],
    ids=["label", "strip", "broad strip", "strip above", "strip below"],
)
def test_labels_and_strips_change_nothing(image: Grey) -> None:
    np.testing.assert_array_equal(mask_of(image), mask_of(grey()))


def test_strip_larger_than_the_breast_is_no_breast() -> None:
    small = np.zeros((400, 400), dtype=np.uint16)
    small[150:250, :80] = np.where(made.breast(100, 80), 30000, 0)
    alone = mask_of(small)
    small[:, -50:] = 65535
    np.testing.assert_array_equal(mask_of(small), alone)


def test_holes_are_filled() -> None:
    image = grey()
    image[180:220, 60:100] = 0
    assert overlap(mask_of(image), made.breast()) >= 0.99


def test_quantisation_hardly_matters() -> None:
    fine = grey()
    coarse = np.rint(np.rint(fine / 16.0037) * 16.0037).clip(0, 65535).astype(np.uint16)
    assert overlap(mask_of(coarse), mask_of(fine)) >= 0.999


def test_bright_strip_and_a_breast_that_reaches_two_sides() -> None:
    image, truth = grey(), np.roll(made.breast(), -150, axis=0)
    truth[-150:] = False
    image = np.where(truth, 25000, 300).astype(np.uint16)
    image[:, -20:] = 60000
    assert overlap(mask_of(image), truth) >= 0.99


def test_padding_brighter_than_the_field_is_not_air() -> None:
    image, padding = grey(air=0.1), np.zeros((made.ROWS, made.COLUMNS), dtype=np.bool_)
    padding[:, -60:] = True
    padding[:25] = True
    image[padding] = 0  # what the table makes of padding
    truth = made.breast()
    truth[padding] = False
    assert overlap(mask_of(image, padding), truth) >= 0.985


def test_unexposed_band_that_no_header_names() -> None:
    image = grey(air=0.1)
    image[:, -40:] = 0
    assert overlap(mask_of(image), made.breast()) >= 0.985


def test_padding_in_the_place_of_all_air() -> None:
    image = grey()
    image[~made.breast()] = 0
    assert overlap(mask_of(image, ~made.breast()), made.breast()) >= 0.985


def noise(seed: int) -> Grey:
    return np.random.default_rng(seed).integers(0, 65536, (420, 330)).astype(np.uint16)


def spot_view() -> Grey:
    generator = np.random.default_rng(3)
    texture = np.sin(np.arange(420) / 40)[:, None] + np.cos(np.arange(330) / 31)[None, :]
    return (30000 + 6000 * texture + 500 * generator.standard_normal((420, 330))).astype(np.uint16)


def smooth_spot_view() -> Grey:
    generator = np.random.default_rng(4)
    inside = made.breast(420, 330) * 6000.0
    return (20000 + inside + 200 * generator.standard_normal((420, 330))).astype(np.uint16)


def framed(width: int) -> Grey:
    image = grey()
    for edge in (np.s_[:width], np.s_[-width:], np.s_[:, :width], np.s_[:, -width:]):
        image[edge] = 65000
    return image


def test_the_frame_of_a_scanned_film_is_left_out() -> None:
    truth = made.breast()
    truth[:, :15] = False
    assert overlap(mask_of(framed(15)), truth) >= 0.985


def half_framed() -> Grey:
    image = np.full((420, 330), 200, dtype=np.uint16)
    image[10:-10, 10:-10] = 60000
    image[40:-40, 40:-40] = 200
    return image


def speckled() -> Grey:
    generator = np.random.default_rng(5)
    coarse = generator.random((42, 33)) < 0.45
    coarse[[0, -1]] = coarse[:, [0, -1]] = False
    return np.where(np.kron(coarse, np.ones((10, 10))) > 0, 30000, 300).astype(np.uint16)


def tiny() -> Grey:
    image = np.zeros((420, 330), dtype=np.uint16)
    image[200:220, :30] = 30000
    return image


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (np.full((100, 90), 7, dtype=np.uint16), "constant"),
        (noise(0), "border is inside the tissue|too small"),
        (spot_view(), "spot compression"),
        (smooth_spot_view(), "spot compression"),
        (framed(60), "white frame"),
        (half_framed(), "hollow"),
        (speckled(), "ragged"),
        (tiny(), "too small for a breast"),
    ],
    ids=[
        "constant",
        "noise",
        "spot view",
        "smooth spot view",
        "white frame",
        "inner frame",
        "ragged",
        "tiny",
    ],
)
def test_what_cannot_be_a_breast(image: Grey, reason: str) -> None:
    with pytest.raises(ImageError, match=reason) as caught:
        mask_of(image)
    assert caught.value.stage == "mask"


def test_whole_image_padding() -> None:
    with pytest.raises(ImageError, match="padding"):
        mask_of(grey(), np.ones((made.ROWS, made.COLUMNS), dtype=np.bool_))


def test_threshold_is_low_and_rises_with_the_air_and_its_noise() -> None:
    assert threshold_above(Level(0, 0), 20000) == pytest.approx(1000, rel=0.13)
    assert threshold_above(Level(500, 0), 20000) > threshold_above(Level(0, 0), 20000)
    assert threshold_above(Level(0, 500), 20000) > threshold_above(Level(0, 0), 20000)
    assert threshold_above(Level(0, 10**6), 20000) < 0.3 * 20000


def test_reduced_image_is_the_mean_of_blocks() -> None:
    image = grey(rows=3001, columns=2401)
    blocks = image[:3000, :2400].reshape(1000, 3, 800, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(reduce_image(image), blocks, atol=0.51)
    assert reduce_padding(image).shape == (1000, 800)
