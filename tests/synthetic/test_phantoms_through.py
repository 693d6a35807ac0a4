"""Phantoms through preprocessing: the mask, the crop, and what must not change them."""

import io
from dataclasses import replace

import numpy as np
import pytest
from pydicom import dcmread

from trust_cache.images.picture import Processed, process_image
from trust_cache.synthetic.phantom import PhantomSettings, draw_phantom
from trust_cache.synthetic.synthetic_dicom import Encoding, mammogram_bytes

PLAIN = Encoding(bits=12, photometric="MONOCHROME2", syntax="explicit")
SIZE = (420, 330)


def through(settings: PhantomSettings, encoding: Encoding = PLAIN, seed: int = 0) -> Processed:
    content = mammogram_bytes(draw_phantom(settings, seed), encoding)
    return process_image(dcmread(io.BytesIO(content)), settings.laterality)


def outline(settings: PhantomSettings, seed: int = 0) -> np.ndarray:
    breast = draw_phantom(settings, seed).breast
    return breast if settings.laterality == "L" else breast[:, ::-1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("projection", ["CC", "MLO"])
@pytest.mark.parametrize("laterality", ["L", "R"])
@pytest.mark.parametrize(
    "extra", [{}, {"text": "R MLO"}, {"strip": "far"}, {"strip": "bottom"}, {"lesion_contrast": 0.4}]
)
def test_mask_and_crop(seed: int, projection: str, laterality: str, extra: dict[str, object]) -> None:
    settings = PhantomSettings(*SIZE, laterality, projection, **extra)  # type: ignore[arg-type]
    found, truth = through(settings, seed=seed), outline(settings, seed)
    union = np.count_nonzero(found.mask | truth)
    assert np.count_nonzero(found.mask & truth) / union >= 0.97
    rows, columns = np.flatnonzero(truth.any(axis=1)), np.flatnonzero(truth.any(axis=0))
    box = found.box
    assert (box.top, box.left) <= (rows[0], columns[0])
    assert box.bottom > rows[-1]
    assert box.right > columns[-1]
    inside = found.mask[box.top : box.bottom, box.left : box.right]
    assert not found.png_pixels[~inside].any()
    assert np.count_nonzero(found.png_pixels[:, 0]) > np.count_nonzero(found.png_pixels[:, -1])


@pytest.mark.parametrize(
    "encoding",
    [
        PLAIN,
        Encoding(
            bits=16, photometric="MONOCHROME2", syntax="jpeg-2000", windows=3, window_function="SIGMOID"
        ),
    ],
)
def test_monochrome_twins_are_identical(encoding: Encoding) -> None:
    settings = PhantomSettings(*SIZE, "L", "MLO")
    one, other = through(settings, encoding), through(settings, replace(encoding, photometric="MONOCHROME1"))
    assert np.array_equal(one.mask, other.mask)
    assert np.array_equal(one.png_pixels, other.png_pixels)


def test_bits_matter_only_by_quantisation() -> None:
    settings = PhantomSettings(*SIZE, "R", "CC")
    few, many = (
        through(settings),
        through(settings, Encoding(bits=16, photometric="MONOCHROME2", syntax="explicit")),
    )
    assert np.count_nonzero(few.mask ^ many.mask) <= 0.002 * few.mask.sum()
    if few.png_pixels.shape == many.png_pixels.shape:
        both = (few.png_pixels > 0) & (many.png_pixels > 0)
        difference = np.abs(few.png_pixels[both].astype(int) - many.png_pixels[both].astype(int))
        assert difference.max() <= 2 * 65_535 / 4_095


@pytest.mark.parametrize("extra", [{"text": "L CC"}, {"strip": "far"}])
def test_labels_and_strips_change_nothing(extra: dict[str, object]) -> None:
    bare = through(PhantomSettings(*SIZE, "L", "CC"))
    with_it = through(PhantomSettings(*SIZE, "L", "CC", **extra))  # type: ignore[arg-type]
    assert np.array_equal(bare.png_pixels, with_it.png_pixels)
