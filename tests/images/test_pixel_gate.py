"""The pixel gate stops every alteration of every kind of mammogram, and next to none that is whole."""

import copy
import io
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from pydicom import Dataset

from tests.images.alterations import ALTERATIONS, pixels_of
from trust_cache.images.gate.pixel_gate import effective_levels, polarity
from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture import process_image, sketch_of_picture
from trust_cache.manifest.picture_checks import CHECKS, SEPARATOR, check_of, same_pictures
from trust_cache.synthetic.phantom import PhantomSettings, draw_phantom
from trust_cache.synthetic.synthetic_dicom import Encoding, Tags, file_bytes, make_dataset, stored_pixels

# Every kind that can be written: bits, interpretation, padding, windows or a table, shape of the window.
KINDS = tuple(
    Encoding(bits, photometric, windows=windows, voi_luts=luts, padding=padding, window_function=function)
    for bits, photometric, padding, (windows, luts, function) in product(
        (12, 16),
        ("MONOCHROME1", "MONOCHROME2"),
        ("none", "dark", "bright"),
        ((0, 0, "LINEAR"), (2, 0, "LINEAR"), (1, 0, "SIGMOID"), (2, 2, "LINEAR")),
    )
)


def mammogram(number: int, kind: Encoding, rows: int = 600) -> tuple[Dataset, str, str]:
    """A whole mammogram with everything that may be beside the breast, its side and its projection."""
    side, projection = "LR"[number % 2], ("CC", "MLO")[number // 2 % 2]
    settings = PhantomSettings(
        rows,
        rows * 4 // 5,
        side,
        projection,
        lesion_contrast=0.2 * (number % 3 == 0),
        text=(None, f"{side} {projection}")[number // 4 % 2],
        strip=(None, None, "far", "bottom")[number // 8 % 4],
        unexposed=kind.padding != "none" and number % 5 < 3,
    )
    pixels = stored_pixels(draw_phantom(settings, number), kind)
    dataset = make_dataset(pixels, kind, Tags(laterality=side, view_position=projection))
    return dataset, side, projection


def findings(dataset: Dataset, side: str, projection: str) -> list[str]:
    """The names of the checks that stop an image; of one without a mask `mask` and those that say why."""
    try:
        made = process_image(io.BytesIO(file_bytes(dataset, "explicit")), side, None, projection)
    except ImageError as error:
        return [error.stage, *(check for part in error.reason.split("; ") if (check := check_of(part)))]
    for text in made.warnings:
        assert check_of(text) in CHECKS
        assert SEPARATOR not in text
        assert check_of(text) in ("pixel-data", "bits") or "limit" in text
    return [str(check_of(text)) for text in made.warnings]


@pytest.mark.parametrize("name", ALTERATIONS)
def test_every_alteration_is_stopped(name: str) -> None:
    """On a few kinds here; on all of them below."""
    for number in (0, 3, 5, 6):
        dataset, side, projection = mammogram(number, KINDS[number * 7 % len(KINDS)])
        assert findings(copy.deepcopy(dataset), side, projection) == []
        ALTERATIONS[name](dataset)
        assert set(findings(dataset, side, projection)) & set(CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_alteration_of_every_kind_is_stopped(kind: Encoding) -> None:
    dataset, side, projection = mammogram(KINDS.index(kind), kind, 420)
    for name, alter in ALTERATIONS.items():
        other = copy.deepcopy(dataset)
        alter(other)
        assert set(findings(other, side, projection)) & set(CHECKS), name


@pytest.mark.slow
def test_whole_mammograms_pass() -> None:
    """At most 0.2 % of 2,000 pictures are stopped."""
    stopped = [
        number
        for number in range(2000)
        if findings(*mammogram(number, KINDS[number % len(KINDS)], (420, 600)[number % 2]))
    ]
    assert len(stopped) <= 4, stopped


def variants(pixels: NDArray[np.float64], breast: NDArray[np.bool_]) -> dict[str, NDArray[np.float64]]:
    """What real mammograms have and phantoms lack."""
    rows, columns = pixels.shape
    generator, top = np.random.default_rng(0), 4095.0
    place = np.hypot(np.arange(rows)[:, None] - 0.55 * rows, np.arange(columns)[None, :] - 0.25 * columns)
    collimated, margin, strip = pixels.copy(), pixels.copy(), pixels.copy()
    collimated[: int(0.22 * rows)] = 0
    margin[:, : int(0.05 * columns)] = 0
    strip[:, -int(0.08 * columns) :] = top
    return {
        "air of exactly zero": np.where(breast, pixels, 0),
        "air that is not black": np.where(breast, pixels, 500 + generator.normal(0, 60, pixels.shape)),
        "collimator": collimated,
        "black margin at the chest wall": margin,
        "white strip": strip,
        "implant": np.where(breast & (place < 0.22 * rows), top, pixels),
        "strong noise": pixels + generator.normal(0, 0.03 * top, pixels.shape),
        "soft table": top * (pixels / top) ** 0.5,
        "8 bits": np.round(pixels / 16) * 16,
        "enlarged": np.repeat(np.repeat(pixels, 2, axis=0), 2, axis=1),
        "large breast": pixels[int(0.12 * rows) : int(0.9 * rows), : int(0.72 * columns)],
    }


@pytest.mark.parametrize("projection", ["CC", "MLO"])
def test_what_real_mammograms_have_is_plausible(projection: str) -> None:
    kind = Encoding(12, windows=1)
    phantom = draw_phantom(PhantomSettings(600, 480, projection=projection, text="L"), 5)
    pixels = stored_pixels(phantom, kind)
    for name, changed in variants(pixels.astype(np.float64), phantom.breast).items():
        stored = np.clip(np.rint(changed), 0, 4095).astype(np.uint16)
        dataset = make_dataset(stored, kind, Tags(laterality="L", view_position=projection))
        assert findings(dataset, "L", projection) == [], name
        none = np.zeros(stored.shape, dtype=np.bool_)
        upright, inverted = polarity(stored, none), polarity(4095 - stored, none)
        assert upright is not None
        assert upright > 0.5, name
        assert inverted is not None
        assert inverted < -0.5, name


def test_an_upside_down_mlo_is_named() -> None:
    """At least three quarters of whole mammograms of all kinds; a CC cannot be told."""
    found = []
    for number in range(0, 96, 2):
        dataset, side, projection = mammogram(number, KINDS[number % len(KINDS)], 300)
        dataset.PixelData = pixels_of(dataset)[::-1].tobytes()
        found += [findings(dataset, side, projection)] if projection == "MLO" else []
    assert np.mean(["upside-down" in names for names in found]) >= 0.75


def specked(pixels: NDArray[np.uint16]) -> NDArray[np.uint16]:
    where = np.random.default_rng(0).random(pixels.shape)
    return np.where(where < 0.02, 0, np.where(where > 0.98, pixels.max(), pixels)).astype(np.uint16)


def with_a_hole(pixels: NDArray[np.uint16]) -> NDArray[np.uint16]:
    rows, columns = pixels.shape
    made = pixels.copy()
    made[rows * 2 // 5 : rows * 3 // 5, columns // 20 : columns * 19 // 20] = pixels.min()
    return made


FURTHER = {
    "turned": (np.rot90, "breast-side"),
    "transposed": (np.transpose, "breast-side"),
    "wrapped": (lambda pixels: np.roll(pixels, pixels.shape[1] // 3, axis=1), "straight-cut"),
    "halves alike": (lambda pixels: np.concatenate([pixels[: len(pixels) // 2]] * 2), "constant-band"),
    "specks": (specked, "neighbours"),
    "hole": (with_a_hole, "straight-cut"),
}


@pytest.mark.parametrize("name", FURTHER)
def test_further_alterations_are_stopped(name: str) -> None:
    change, check = FURTHER[name]
    dataset, side, projection = mammogram(4, KINDS[17], 400)
    pixels = np.ascontiguousarray(change(pixels_of(dataset)))
    dataset.Rows, dataset.Columns = pixels.shape
    dataset.PixelData = pixels.tobytes()
    assert check in findings(dataset, side, projection)


@pytest.mark.parametrize("width", [1, 1e9])
def test_a_window_that_contradicts_the_table_beside_it_is_named(width: float) -> None:
    dataset, side, projection = mammogram(0, Encoding(12, windows=2, voi_luts=2), 300)
    assert findings(copy.deepcopy(dataset), side, projection) == []
    dataset.WindowWidth = width
    assert findings(dataset, side, projection) == ["window"]


def test_padding_of_few_values_is_seen_where_there_are_few_grey_levels() -> None:
    """Eight bits, whose brightest values are padding."""
    kind = Encoding(12)
    dataset, side, projection = mammogram(0, kind)
    values = (pixels_of(dataset) >> 5) << 5
    brightest = np.unique(values)[-10:]
    assert findings(copy.deepcopy(dataset), side, projection) == []
    dataset.PixelData = values.tobytes()
    first = next(value for value in brightest if np.mean(values[values > 1000] >= value) < 0.04)
    dataset.add_new("PixelPaddingValue", "US", int(first))
    dataset.add_new("PixelPaddingRangeLimit", "US", int(brightest[-1]))
    assert np.count_nonzero(brightest >= first) < 16
    assert "padding" in findings(dataset, side, projection)


@pytest.mark.parametrize("pixels", [16, 100])
@pytest.mark.parametrize("number", range(4))
def test_lost_and_displaced_pixels_are_a_jump_between_rows(number: int, pixels: int) -> None:
    """Whole pixels, so that no byte is read in the wrong place; the jump is in the middle of the breast."""
    dataset, side, projection = mammogram(number, KINDS[number * 7 % len(KINDS)])
    values, lost = pixels_of(dataset), copy.deepcopy(dataset)
    middle = len(values) // 2
    at = 2 * (middle * values.shape[1] + 37)
    lost.PixelData = dataset.PixelData[:at] + dataset.PixelData[at + 2 * pixels :] + bytes(2 * pixels)
    values[middle:] = np.roll(values[middle:], pixels, axis=1)
    displaced = copy.deepcopy(dataset)
    displaced.PixelData = values.tobytes()
    for other in (lost, displaced):
        assert "row-shift" in findings(other, side, projection)


def test_levels_are_counted_without_the_ends() -> None:
    assert effective_levels(np.array([0, 9], dtype=np.uint16)) == 0
    even = np.repeat(np.arange(102, dtype=np.uint16), 10)
    assert effective_levels(even) == pytest.approx(100)
    saturated = np.concatenate([even, np.full(5000, 200, dtype=np.uint16)])
    assert effective_levels(saturated) == pytest.approx(101)


def test_pictures_of_different_exposures_differ_and_a_copy_does_not() -> None:
    """Left and right breast of one woman are different; a copy with other noise is the same."""
    sketches = {}
    for number in range(60):
        dataset, side, projection = mammogram(number, KINDS[0], 300)
        made = process_image(io.BytesIO(file_bytes(dataset, "explicit")), side, None, projection)
        sketches[str(number)] = (str(number // 4), made.sketch)
        if number == 7:
            noisy = made.png_pixels + np.random.default_rng(0).integers(0, 600, made.png_pixels.shape)
            sketches["copy"] = ("15", sketch_of_picture(noisy.astype(np.uint16)))
    found = same_pictures(sketches)
    assert set(found) == {"7", "copy"}
    assert "the same picture as image copy of another case" in found["7"]


def test_equal_stored_values_are_one_picture_with_any_window() -> None:
    """Also where one is mirrored, as for the other side."""
    dataset, _, projection = mammogram(4, KINDS[0], 300)
    other = copy.deepcopy(dataset)
    values = pixels_of(other)
    other.PixelData = np.ascontiguousarray(values[:, ::-1]).tobytes()
    other.WindowCenter, other.WindowWidth = float(values.mean()), float(values.max()) / 2
    other.VOILUTFunction = "SIGMOID"
    sketches = {
        side: ("1", process_image(io.BytesIO(file_bytes(part, "explicit")), side, None, projection).sketch)
        for side, part in (("L", dataset), ("R", other))
    }
    assert len({sketch[:64] for _, sketch in sketches.values()}) == 2
    assert set(same_pictures(sketches)) == {"L", "R"}
