"""Pictures that other software made are examined by `extract` as `preprocess` examines DICOM files."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.cache.extract.material import SETTINGS
from trust_cache.api.verify_folder import verify
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.copy_cache import convert_cache, subset_cache
from trust_cache.cache.extract.external_pictures import examine_picture
from trust_cache.cache.extract.extract import extract
from trust_cache.cache.verify_cache import verify_cache
from trust_cache.images.examined_table import EXAMINED
from trust_cache.images.gate.pixel_limits import LIMITS
from trust_cache.images.mask import box_of, cut_out
from trust_cache.images.png_files import encode_png
from trust_cache.manifest.picture_checks import SEPARATOR, check_of
from trust_cache.synthetic.phantom import PhantomSettings, draw_phantom
from trust_cache.synthetic.synthetic_dicom import Encoding, stored_pixels

Picture = NDArray[np.uint16]


def whole_picture(number: int, rows: int = 500) -> tuple[Picture, NDArray[np.bool_]]:
    side, projection = "LR"[number % 2], ("CC", "MLO")[number // 2 % 2]
    phantom = draw_phantom(PhantomSettings(rows, rows * 4 // 5, side, projection), number)
    return stored_pixels(phantom, Encoding(16)), phantom.breast


def cropped(picture: Picture, breast: NDArray[np.bool_], margin: float) -> Picture:
    return cut_out(picture, breast, box_of(breast, margin))


# How software exports mammograms: as they are, in 8 bits, cut out with or without a margin, with black air,
# padded to a square, in one format for all.
EXPORTS: dict[str, Callable[[Picture, NDArray[np.bool_]], NDArray[np.uint16] | NDArray[np.uint8]]] = {
    "16 bits": lambda picture, _: picture,
    "8 bits": lambda picture, _: (picture >> 8).astype(np.uint8),
    "cut out": lambda picture, breast: cropped(picture, breast, 0.1),
    "cut out tightly": lambda picture, breast: cropped(picture, breast, 0.0),
    "cut out tightly in 8 bits": lambda picture, breast: (cropped(picture, breast, 0.0) >> 8).astype(
        np.uint8
    ),
    "padded to a square": lambda picture, breast: np.pad(
        cropped(picture, breast, 0.05), ((0, 0), (0, 100 if breast[:, 0].any() else 0))
    ),
}


@pytest.mark.parametrize("export", EXPORTS)
def test_whole_pictures_pass_and_broken_ones_are_named(export: str) -> None:
    for number in range(4):
        picture, breast = whole_picture(number)
        made = EXPORTS[export](picture, breast)
        projection = ("CC", "MLO")[number // 2 % 2]
        assert examine_picture("a", "0", made, projection).warnings == ()
        middle, tenth = len(made) // 2, len(made) // 10
        for broken in (
            np.where(np.arange(len(made))[:, None] // tenth == middle // tenth, 0, made),
            np.random.default_rng(0).permuted(made, axis=1),
            made // (int(made.max()) // 6) * (int(made.max()) // 6),
        ):
            assert examine_picture("a", "0", broken.astype(made.dtype), projection).warnings


def test_an_inverted_picture_is_named() -> None:
    picture, _ = whole_picture(0)
    (text, *_) = examine_picture("a", "0", 65_535 - picture).warnings
    assert check_of(text) in ("polarity", "breast")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cases of four pictures: in the second one is half black and one is a copy from the first."""
    folder = tmp_path_factory.mktemp("external")
    pictures = [whole_picture(number, 300)[0] for number in range(8)]
    pictures[5][150:] = 0
    pictures[6] = pictures[2] + np.uint16(1)
    for number, picture in enumerate(pictures):
        (folder / f"{number}.png").write_bytes(encode_png(picture))
    names = [f"{side}-{projection}" for projection in ("CC", "MLO") for side in "LR"] * 2
    table = {
        "image_id": [str(number) for number in range(8)],
        "case_id": ["first"] * 4 + ["second"] * 4,
        "label": [0] * 8,
        "laterality": [name[0] for name in names],
        "projection": [name[2:] for name in names],
        "path": [f"{number}.png" for number in range(8)],
    }
    pl.DataFrame(table).write_csv(folder / "manifest.csv")
    return folder / "manifest.csv"


def warned(cache: Path) -> dict[str, list[str | None]]:
    rows = open_cache(cache).manifest.select("image_id", "warning").iter_rows()
    return {image: [check_of(part) for part in text.split(SEPARATOR)] for image, text in rows if text}


def test_a_changed_or_lost_row_is_named(manifest: Path, tmp_path: Path) -> None:
    """Without the warning of image 5, or its row, or the table: `verify` says so, and 5 is not accepted."""
    cache = tmp_path / "cache.zarr"
    extract(manifest, cache, SETTINGS)
    assert verify(cache).holds
    assert json.loads((cache / "extraction.json").read_text())["limits"] == LIMITS.as_document()
    table = cache / EXAMINED
    whole = table.read_bytes()
    header, *lines = whole.decode().splitlines(keepends=True)
    (row,) = [line for line in lines if line.startswith("5,")]
    cells = row.split(",")
    cleared = next(csv.reader([row]))
    cleared[3] = ""
    changed = {
        "no warning": ",".join(cleared) + "\n",
        "another picture": row.replace(cells[1], "0" * 64),
        "no row": "",
    }
    for way, text in changed.items():
        table.write_text(header + "".join(text if line == row else line for line in lines))
        (problem,) = verify_cache(cache)
        assert (problem.kind, "for 1 images (5)" in problem.sentence) == ("examined", True), way
        assert not verify(cache).holds
        assert warned(cache)["5"] == ["unexamined"]
    table.unlink()
    (text,) = verify(cache).links[0].mismatches
    assert "examined.csv is lost" in text
    extract(manifest, cache, SETTINGS)
    assert table.read_bytes() == whole
    assert verify(cache).holds


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_the_cache_says_what_was_found(manifest: Path, tmp_path: Path, suffix: str) -> None:
    cache = tmp_path / f"cache.{suffix}"
    extract(manifest, cache, SETTINGS)
    expected = {"2": ["same-picture"], "5": ["constant-band", "straight-cut"], "6": ["same-picture"]}
    assert warned(cache) == expected
    # The table is lost, as by a kill before it is written: another start examines the pictures again.
    table = cache / EXAMINED if suffix == "zarr" else tmp_path / f"cache.h5.{EXAMINED}"
    first = table.read_bytes()
    table.write_bytes(b"\n".join(first.split(b"\n")[:3]))
    assert sum(names == ["unexamined"] for names in warned(cache).values()) == 6
    features = np.asarray(open_cache(cache).features)
    assert extract(manifest, cache, SETTINGS).images_before == 8
    assert table.read_bytes() == first
    assert np.array_equal(np.asarray(open_cache(cache).features), features)
    # Copies keep it.
    convert_cache(cache, tmp_path / "copy.zarr")
    assert warned(tmp_path / "copy.zarr") == expected
    subset_cache(cache, tmp_path / "half.zarr", {"case_id": "second"})
    assert warned(tmp_path / "half.zarr") == {"5": ["constant-band", "straight-cut"], "6": ["same-picture"]}


def test_a_picture_that_is_repaired_loses_its_warning(manifest: Path, tmp_path: Path) -> None:
    for path in manifest.parent.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    extract(tmp_path / "manifest.csv", tmp_path / "cache.zarr", SETTINGS)
    (tmp_path / "5.png").write_bytes(encode_png(whole_picture(5, 300)[0]))
    again = extract(tmp_path / "manifest.csv", tmp_path / "cache.zarr", SETTINGS)
    assert again.stale.pictures == 1
    assert warned(tmp_path / "cache.zarr") == {"2": ["same-picture"], "6": ["same-picture"]}
