"""The whole way of one image, and its picture for people."""

from pathlib import Path

import numpy as np
import pytest

from tests.images import made
from trust_cache.base.errors import InputError
from trust_cache.images.contact_sheet import _TITLE as TITLE
from trust_cache.images.contact_sheet import draw_steps, thumbnail
from trust_cache.images.picture import cut_breast, prepare_image, process_image
from trust_cache.images.picture_folder import ImageSettings
from trust_cache.images.png_files import decode_png, encode_png


def overlap(mask: np.ndarray, truth: np.ndarray) -> float:
    return float(np.count_nonzero(mask & truth) / np.count_nonzero(mask | truth))


def test_crop_holds_the_breast_and_a_margin(tmp_path: Path) -> None:
    truth = made.breast()
    path = made.save(made.as_jpeg_2000(made.dataset(made.mammogram())), tmp_path / "a.dcm")
    done = process_image(path, "L")
    rows, columns = np.flatnonzero(truth.any(axis=1)), np.flatnonzero(truth.any(axis=0))
    margin = 0.09 * rows.size
    assert done.box.top <= rows[0] - margin
    assert done.box.bottom >= rows[-1] + margin
    assert done.box.left == 0
    assert done.box.right >= columns[-1] + 0.09 * columns.size
    assert overlap(done.mask, truth) >= 0.985
    assert done.png_pixels.dtype == np.uint16
    assert not done.png_pixels[~done.mask[done.box.slices]].any()
    inside = made.mammogram()[done.box.slices] * done.mask[done.box.slices]
    np.testing.assert_array_equal(done.png_pixels, np.rint(inside * (65535 / 4095)))
    assert done.decoder.startswith("imagecodecs ")
    assert done.warnings == ()


def test_right_breast_is_the_left_one_mirrored() -> None:
    pixels = made.mammogram()
    left = process_image(made.dataset(pixels, ImageLaterality="L"), "L")
    right = process_image(made.dataset(pixels[:, ::-1], ImageLaterality="R"), "R")
    np.testing.assert_array_equal(left.png_pixels, right.png_pixels)
    assert right.warnings == ()


def test_laterality_that_disagrees_is_a_warning() -> None:
    ds = made.dataset(made.mammogram(), ImageLaterality="R")
    (warning,) = process_image(ds, "L").warnings
    assert "header's laterality is R" in warning
    (warning,) = process_image(made.dataset(made.mammogram()), "R").warnings
    assert "away from the chest wall" in warning
    with pytest.raises(InputError, match="expected L or R"):
        process_image(ds, "left")


@pytest.mark.parametrize("function", [None, "LINEAR", "LINEAR_EXACT", "SIGMOID"])
def test_monochrome_twins_are_identical(function: str | None) -> None:
    pixels = made.mammogram()
    twins = [made.dataset(pixels), made.dataset(4095 - pixels, PhotometricInterpretation="MONOCHROME1")]
    if function is not None:
        # PS3.3 C.11.2.1.2.1: a LINEAR window's centre is half a value lower than its number.
        centers = (1500, 4095 - 1500 + (function == "LINEAR"))
        for ds, center in zip(twins, centers, strict=True):
            ds.WindowCenter, ds.WindowWidth, ds.VOILUTFunction = center, 2600, function
    first, second = (process_image(ds, "L") for ds in twins)
    np.testing.assert_array_equal(first.png_pixels, second.png_pixels)


def test_12_and_16_bits_agree_up_to_quantisation() -> None:
    fine = made.mammogram(bits=16)
    coarse = np.rint(fine * (4095 / 65535)).astype(np.uint16)
    first = process_image(made.dataset(fine, bits=16), "L")
    second = process_image(made.dataset(coarse), "L")
    assert overlap(first.mask, second.mask) >= 0.999
    both = first.mask & second.mask
    whole = [np.zeros(both.shape, dtype=np.int64) for _ in range(2)]
    for image, done in zip(whole, (first, second), strict=True):
        image[done.box.slices] = done.png_pixels
    assert np.abs(whole[0] - whole[1])[both].max() <= 9


@pytest.mark.parametrize("padding", [0, 4095])
@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
def test_padding_never_decides_the_contrast(padding: int, photometric: str) -> None:
    pixels = made.mammogram().clip(1, 4094)
    pixels = 4095 - pixels if photometric == "MONOCHROME1" else pixels
    plain = process_image(made.dataset(pixels, PhotometricInterpretation=photometric), "L")
    pixels = pixels.copy()
    pixels[:, -25:] = padding
    ds = made.dataset(pixels, PhotometricInterpretation=photometric, PixelPaddingValue=padding)
    ds["PixelPaddingValue"].VR = "US"
    np.testing.assert_array_equal(process_image(ds, "L").png_pixels, plain.png_pixels)


def test_the_dataset_is_left_as_it_was() -> None:
    ds = made.as_jpeg_2000(made.dataset(made.mammogram(), WindowCenter=1500, WindowWidth=3000))
    before = made.as_bytes(ds)
    process_image(ds, "R")
    assert made.as_bytes(ds) == before


def test_nothing_of_the_person_in_any_output() -> None:
    ds = made.dataset(made.mammogram(), PatientName="Planted^Name", ImageLaterality="R")
    done = process_image(ds, "L")
    written = encode_png(done.png_pixels) + repr((done.decoder, done.transfer_syntax, done.warnings)).encode()
    assert b"Planted" not in written
    assert b"19610203" not in written
    np.testing.assert_array_equal(decode_png(encode_png(done.png_pixels)), done.png_pixels)


def test_steps_side_by_side() -> None:
    settings = ImageSettings()
    ds = made.dataset(made.mammogram())
    prepared = prepare_image(ds, "L", settings)
    done = cut_breast(prepared, settings)
    picture = draw_steps(prepared, done, height=300)
    assert picture.dtype == np.uint8
    assert picture.shape[0] == 300 + TITLE
    titles, steps = picture[:TITLE], picture[TITLE:]
    gaps = np.flatnonzero((steps == 255).all(axis=(0, 2)))
    starts = [0, *(gaps[np.flatnonzero(np.diff(gaps) > 1) + 0] + 1).tolist(), int(gaps[-1]) + 1]
    panels = [part for part in np.split(steps, starts[1:], axis=1) if not (part == 255).all()]
    coloured = [bool((part[..., 0] != part[..., 2]).any()) for part in panels]
    assert coloured == [False, True, False], "the outline is in the second step alone"
    for start in starts[:3]:
        assert (titles[:, start : start + 150] < 128).any(), "every step has a title"


def test_a_failed_image_shows_how_far_it_came_and_why() -> None:
    prepared = prepare_image(made.dataset(made.mammogram()), "L", ImageSettings())
    width = round(made.COLUMNS * 300 / made.ROWS)
    for first, reason in ((prepared, "no breast found"), (None, "the file is damaged: ünï")):
        picture = draw_steps(first, None, reason, height=300)
        assert picture.shape[0] == 300 + TITLE
        written = picture[TITLE:, -400:]
        assert ((written[..., 0] > 120) & (written[..., 1] < 80)).any(), "the reason, in red"
        assert (picture.shape[1] > width + 500) == (first is not None)


def test_thumbnail_keeps_proportions() -> None:
    crop = np.full((400, 100), 30000, dtype=np.uint16)
    crop[:200] = 0
    small = thumbnail(crop, 80, 60)
    assert small.shape == (80, 60)
    assert small[41:, :20].all()
    assert not small[:, 20:].any()


@pytest.mark.parametrize("keywords", [{"margin": -0.1}, {"closing": 8}, {"max_pixels": 0}])
def test_settings_are_checked(keywords: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(keywords))):
        ImageSettings(**keywords)  # type: ignore[arg-type]
