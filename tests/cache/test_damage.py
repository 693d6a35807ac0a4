"""Every damage is named by verify and refused by loading."""

from copy import copy
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cache.material import a_manifest, some_features, write_cache
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.feature_rows import load_rows, map_rows
from trust_cache.cache.store import DamagedError
from trust_cache.cache.verify_cache import verify_cache

SHARD_FILE = "features/c.1.0.0"


def kinds(path: Path) -> list[tuple[str, int | None]]:
    return [(problem.kind, problem.shard) for problem in verify_cache(path)]


def refused(path: Path) -> None:
    with pytest.raises(InputError):
        load_rows(open_cache(path))
    with pytest.raises(InputError):
        map_rows(open_cache(path))


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def place_of(path: Path, image: int) -> tuple[Path, int]:
    cache = open_cache(path)
    place = cache.store.locate_shard(image // cache.layout.shard_images)
    assert place is not None
    return place.path, int(place.offsets[image % cache.layout.shard_images])


def test_a_sound_cache_has_no_problems(out: Path) -> None:
    write_cache(out, some_features(10))
    assert verify_cache(out) == []
    assert verify_cache(open_cache(out), threads=1) == []


def test_a_flipped_byte(out: Path) -> None:
    write_cache(out, some_features(10))
    file, offset = place_of(out, 6)
    flip(file, offset + 3)
    assert kinds(out) == [("checksum", 1)]
    assert "shard 1 (images 4 to 7)" in verify_cache(out)[0].sentence
    refused(out)
    load_rows(open_cache(out), check=False)  # what check=False leaves aside


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("flip") / "cache.zarr"
    write_cache(out, some_features(6, 1, 3))
    return out


@settings(max_examples=10, deadline=None)
@given(at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_in_a_shard_or_mark(small: Path, at: int, bit: int) -> None:
    out = small
    for name in (SHARD_FILE, "marks/c.1.0"):
        content = bytearray((out / name).read_bytes())
        whole = bytes(content)
        content[at % len(content)] ^= 1 << bit
        (out / name).write_bytes(content)
        assert verify_cache(out, threads=1), (name, at % len(content))
        with pytest.raises(InputError):
            load_rows(open_cache(out), threads=1)
        (out / name).write_bytes(whole)
    assert verify_cache(out) == []


@pytest.mark.parametrize("left", [0, 1, 70, 195, 263])  # of 4 images of 48 bytes and an index of 68
def test_a_truncated_shard(tmp_path: Path, left: int) -> None:
    out = tmp_path / "cache.zarr"
    write_cache(out, some_features(10))
    file = out / SHARD_FILE
    assert file.stat().st_size == 4 * 48 + 68
    file.write_bytes(file.read_bytes()[: min(left, 259)])
    assert kinds(out) == [("truncated", 1)]
    refused(out)


def test_a_deleted_shard(tmp_path: Path) -> None:
    out = tmp_path / "cache.zarr"
    write_cache(out, some_features(10))
    (out / SHARD_FILE).unlink()
    assert kinds(out) == [("deleted", 1)]
    refused(out)


def test_a_damaged_index(tmp_path: Path) -> None:
    out = tmp_path / "cache.zarr"
    write_cache(out, some_features(10))
    flip(out / SHARD_FILE, -20)
    assert kinds(out) == [("index", 1)]
    refused(out)


def test_a_truncated_file(tmp_path: Path) -> None:
    out = tmp_path / "cache.h5"
    write_cache(out, some_features(2000), shard_images=1000)
    out.write_bytes(out.read_bytes()[:60_000])
    assert kinds(out) == [("truncated", None)]
    with pytest.raises(InputError, match="the file is truncated"):
        open_cache(out)


@pytest.mark.parametrize("column", ["label", "case_id"])
def test_an_edited_manifest(out: Path, column: str) -> None:
    write_cache(out, some_features(10))
    if out.suffix == ".h5":
        with h5py.File(out, "r+") as file:
            file[f"manifest/{column}"][3] = 1 if column == "label" else "other"
    else:
        group = zarr.open_group(str(out), mode="r+")
        group[f"manifest/{column}"][3] = 1 if column == "label" else "other"  # type: ignore[index]
    assert kinds(out) == [("manifest", None)]
    refused(out)
    with pytest.raises(InputError, match="the manifest inside was changed"):
        _ = open_cache(out).manifest


def test_a_manifest_without_a_column_or_rows(out: Path) -> None:
    write_cache(out, some_features(10))
    if out.suffix == ".h5":
        with h5py.File(out, "r+") as file:
            del file["manifest/projection"]
    else:
        (out / "manifest" / "projection" / "zarr.json").unlink()
    assert len(kinds(out)) == 1
    refused(out)


def test_features_that_are_not_finite(out: Path) -> None:
    features = some_features(10)
    features[5, 1, 2] = np.nan
    write_cache(out, features)
    assert kinds(out) == [("not-finite", 1)]
    assert a_manifest(10)["image_id"][5] in verify_cache(out)[0].sentence


def test_unfinished(out: Path) -> None:
    write_cache(out, some_features(10), shards=[0])
    assert kinds(out) == [("unfinished", None)]
    assert "2 of 3 shards are not marked done; 6 images" in verify_cache(out)[0].sentence


def test_a_mark_that_was_cut_short_vouches_for_nothing(tmp_path: Path) -> None:
    out = tmp_path / "cache.zarr"
    write_cache(out, some_features(10))
    mark = out / "marks" / "c.1.0"
    mark.write_bytes(mark.read_bytes()[:10])
    assert kinds(out) == [("unfinished", None)]


def test_what_cannot_be_opened_is_a_problem(tmp_path: Path) -> None:
    assert kinds(tmp_path) == [("unreadable", None)]


def test_damage_survives_the_way_from_a_worker() -> None:
    found = copy(DamagedError("shard 3 is truncated", "truncated"))  # by the way that pickling goes
    assert (type(found), str(found), found.kind) == (DamagedError, "shard 3 is truncated", "truncated")
