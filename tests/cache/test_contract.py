"""The contract of FORMAT.md, the same for every store, and for one that a test adds."""

import json
from pathlib import Path

import h5py
import numpy as np
import polars as pl
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from polars.testing import assert_frame_equal

from tests.cache.material import FINGERPRINT, a_manifest, some_features, write_cache
from tests.cache.toy_store import DOCUMENT, NPY
from trust_cache.base.errors import InputError
from trust_cache.cache import known_stores
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.cache_writer import create_cache, resume_cache
from trust_cache.cache.feature_rows import load_rows, map_rows
from trust_cache.cache.layout import FORMAT, SCHEMA
from trust_cache.cache.verify_cache import cache_info, verify_cache


@pytest.fixture(params=["zarr", "h5", "npy"])
def suffix(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(known_stores, "BACKENDS", (*known_stores.BACKENDS, NPY))
    return str(request.param)


def edit_document(path: Path, **changes: object) -> None:
    if path.suffix == ".h5":
        with h5py.File(path, "r+") as file:
            document = json.loads(file.attrs[FORMAT])
            file.attrs[FORMAT] = json.dumps({**document, **changes})
    elif path.suffix == ".npy":
        whole = json.loads((path / DOCUMENT).read_text())
        (path / DOCUMENT).write_text(json.dumps({**whole, "cache": {**whole["cache"], **changes}}))
    else:
        group = zarr.open_group(str(path), mode="r+")
        group.attrs[FORMAT] = {**group.attrs[FORMAT], **changes}


def test_round_trip(out: Path) -> None:
    features = some_features(10)
    write_cache(out, features)
    cache = open_cache(out)
    assert cache.features.dtype == np.float16
    assert cache.features.shape == (10, 3, 8)
    assert (cache.images, cache.views, cache.dim, len(cache.features)) == (10, 3, 8, 10)
    np.testing.assert_array_equal(np.asarray(cache.features), features)
    assert cache.fingerprint == FINGERPRINT
    assert cache.source == str(out)
    assert cache.done.all()
    assert not (cache.pending | cache.failed).any()


def test_the_manifest_comes_back_as_it_was(out: Path) -> None:
    cache = write_cache(out, some_features(10))
    expected = a_manifest(10)
    assert_frame_equal(cache.manifest, expected)
    assert cache.manifest["image_id"][0] == "000"
    assert cache.manifest["image_id"][2] == "ünï-2-漢字"


@pytest.mark.parametrize(
    "key",
    [
        3, -1, np.int64(4), slice(2, 9), slice(None, None, -3), [9, 0, 0, 5], np.arange(10) % 2 == 0,
        (slice(None), 0), (2, 1), (2, 1, 3), (Ellipsis, 0), (Ellipsis, slice(1, 3), 0),
        ([1, 8], slice(1, None)),
        np.array([[1, 2], [8, 9]]), (), Ellipsis, slice(5, 5),
    ],
)  # fmt: skip
def test_features_read_like_an_array(out: Path, key: object) -> None:
    features = some_features(10)
    cache = write_cache(out, features)
    np.testing.assert_array_equal(cache.features[key], features[key])  # type: ignore[index]


def test_indices_outside_are_refused(out: Path) -> None:
    cache = write_cache(out, some_features(10))
    for key in (10, (0, 3), (0, 0, 0, 0), (0, [1, 2])):
        with pytest.raises(IndexError):
            cache.features[key]


def test_only_marked_shards_count(out: Path) -> None:
    features = some_features(10)
    cache = write_cache(out, features, shards=[0, 2])
    assert cache.done.tolist() == [True] * 4 + [False] * 4 + [True] * 2
    assert cache.image_ids(cache.pending) == a_manifest(10)["image_id"][4:8].to_list()
    assert not cache.failed.any()
    assert np.isnan(cache.features[4:8]).all()
    np.testing.assert_array_equal(cache.features[8:], features[8:])


def test_resuming_writes_what_is_pending(out: Path) -> None:
    features = some_features(10)
    write_cache(out, features, shards=[1])
    with resume_cache(out, a_manifest(10), FINGERPRINT) as writer:
        assert writer.pending == [0, 2]
        for shard in writer.pending:
            writer.write_shard(shard, features[slice(*writer.layout.bounds(shard))])
        assert writer.pending == []
    np.testing.assert_array_equal(open_cache(out).features[:], features)


def test_resuming_under_another_fingerprint_names_the_field(out: Path) -> None:
    write_cache(out, some_features(10), shards=[1])
    other = structs.replace(FINGERPRINT, recipe=FINGERPRINT.recipe.replace("1520,912", "760,456"))
    with pytest.raises(InputError, match=r"recipe image_size: expected \(760, 456\), found \(1520, 912\)"):
        resume_cache(out, a_manifest(10), other)
    with pytest.raises(InputError, match="another manifest"):
        resume_cache(out, a_manifest(9), FINGERPRINT)
    resume_cache(out, a_manifest(10), FINGERPRINT).close()  # neither refusal kept the lock


def test_failed_images_are_rows_without_features(out: Path) -> None:
    """A shard may lack some or all of its images: they were tried, and the cache is finished."""
    features, failed = some_features(10), np.isin(np.arange(10), [1, 4, 5, 6, 7])
    with create_cache(out, a_manifest(10), 3, 8, FINGERPRINT, 4) as writer:
        for shard in range(3):
            images = slice(*writer.layout.bounds(shard))
            writer.write_shard(shard, features[images], ~failed[images])
    cache = open_cache(out)
    np.testing.assert_array_equal(cache.failed, failed)
    assert not cache.pending.any()
    assert np.isnan(cache.features[failed]).all()
    np.testing.assert_array_equal(cache.features[~failed], features[~failed])
    assert_frame_equal(cache.manifest, a_manifest(10))
    for rows in (load_rows(cache), map_rows(cache), load_rows(cache, views=1)):
        np.testing.assert_array_equal(rows.present, ~failed)
        for image in range(10):
            clean = np.full(8, np.nan) if failed[image] else features[image, 0]
            np.testing.assert_array_equal(rows.clean(image), clean)
    info = cache_info(cache)
    assert (info.images, info.images_done, info.images_failed, info.images_pending) == (10, 5, 5, 0)
    assert (info.shards_done, info.cases, info.incomplete, info.incomplete_positives) == (3, 3, 2, 2)
    assert list(info.failed) == a_manifest(10)["image_id"].filter(pl.Series(failed)).to_list()
    assert verify_cache(out) == []


def test_a_shard_can_be_written_again(out: Path) -> None:
    features = some_features(10)
    write_cache(out, some_features(10, seed=1))
    with resume_cache(out) as writer:
        writer.write_shard(1, features[4:8])
    np.testing.assert_array_equal(open_cache(out).features[4:8], features[4:8])
    load_rows(open_cache(out))


def test_wrong_shards_are_refused(out: Path) -> None:
    with create_cache(out, a_manifest(6), 3, 8, FINGERPRINT, 4) as writer:
        with pytest.raises(InputError, match=r"expected float16 features of shape \(2, 3, 8\)"):
            writer.write_shard(1, some_features(4))
        with pytest.raises(InputError, match="found float32"):
            writer.write_shard(0, some_features(4).astype(np.float32))  # type: ignore[arg-type]
        with pytest.raises(IndexError):
            writer.write_shard(2, some_features(4))


def test_an_unfinished_cache_is_not_loaded(out: Path) -> None:
    cache = write_cache(out, some_features(10), shards=[0, 2])
    with pytest.raises(InputError, match="4 of 10 images are pending") as caught:
        load_rows(cache)
    assert f"trust-cache extract ... --out {out}" in str(caught.value)
    assert a_manifest(10)["image_id"][5] in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_not_loaded(out: Path, value: float) -> None:
    features = some_features(20)
    features[[1, 9], 2, 5] = value
    cache = write_cache(out, features)
    names = a_manifest(20)["image_id"]
    with pytest.raises(InputError, match=f"2 images are NaN or infinite \\({names[1]}, {names[9]}\\)"):
        load_rows(cache)
    features[:7] = value
    out.rename(out.with_name("old"))
    with pytest.raises(InputError, match=r"8 images are NaN or infinite .*, \.\.\.\)"):
        load_rows(write_cache(out, features))


def test_a_newer_schema_is_refused(out: Path) -> None:
    write_cache(out, some_features(5))
    edit_document(out, schema=SCHEMA + 1)
    with pytest.raises(
        InputError, match=f"with schema {SCHEMA}, found schema {SCHEMA + 1}; a newer file needs a newer"
    ):
        open_cache(out)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "other"},
        {"schema": "one"},
        {"fingerprint": {}},
        {"columns": 3},
        {"shard_images": None},
        {"more": 1},
    ],
)
def test_a_damaged_document_is_refused(out: Path, changes: dict[str, object]) -> None:
    write_cache(out, some_features(5))
    edit_document(out, **changes)
    with pytest.raises(InputError, match=str(out)):
        open_cache(out)


def test_what_is_not_a_cache_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such cache"):
        open_cache(tmp_path / "absent.zarr")
    with pytest.raises(InputError, match="not a feature cache"):
        open_cache(tmp_path)
    text = tmp_path / "text.h5"
    text.write_text("hello")
    with pytest.raises(InputError, match="not a readable HDF5 file"):
        open_cache(text)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["features"] = np.zeros(3)
    with pytest.raises(InputError, match="not a feature cache"):
        open_cache(tmp_path / "other.h5")
    group = zarr.create_group(str(tmp_path / "other.zarr"))
    with pytest.raises(InputError, match="half-made"):
        open_cache(tmp_path / "other.zarr")
    group.create_array("features", shape=(2, 1, 3), dtype="float16")
    with pytest.raises(InputError, match="not a feature cache"):
        open_cache(tmp_path / "other.zarr")


def test_a_new_cache_needs_a_free_name_that_says_its_backend(out: Path) -> None:
    write_cache(out, some_features(5))
    with pytest.raises(InputError, match="is already there"):
        write_cache(out, some_features(5))
    with pytest.raises(InputError, match=r"ends in \.zarr or \.h5"):
        write_cache(out.with_suffix(".npz"), some_features(5))
    with pytest.raises(InputError, match="there is no folder"):
        write_cache(out.parent / "none" / out.name, some_features(5))
    assert [path.name for path in out.parent.iterdir()] == [out.name]  # neither lock nor scratch is left


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (pl.lit("same").alias("image_id"), "occurs more than once"),
        (pl.lit(None).alias("case_id"), "an empty case_id"),
        (pl.lit("2").alias("label"), "expected a label of 0 or 1"),
        (pl.lit("a\0b").alias("site"), "NUL"),
    ],
)
def test_a_manifest_that_is_not_one_is_refused(out: Path, change: pl.Expr, message: str) -> None:
    with pytest.raises(InputError, match=message):
        create_cache(out, a_manifest(5).with_columns(change), 3, 8, FINGERPRINT)
    assert not out.exists()


def test_labels_may_be_text_and_columns_typed(out: Path) -> None:
    table = a_manifest(5).with_columns(pl.col("label").cast(pl.String), pl.lit(1.5).alias("age"))
    with create_cache(out, table.drop("path", "laterality"), 3, 8, FINGERPRINT):
        pass
    stored = open_cache(out).manifest
    assert stored["label"].to_list() == a_manifest(5)["label"].to_list()
    assert stored["age"].to_list() == ["1.5"] * 5
    assert stored["path"].to_list() == [None] * 5


def test_info(out: Path) -> None:
    info = cache_info(write_cache(out, some_features(10), shards=[0]))
    assert (info.images, info.cases, info.positive_images, info.positive_cases) == (10, 3, 2, 2)
    assert (info.shards, info.shards_done, info.images_done, info.images_pending) == (3, 1, 4, 6)
    assert (info.images_failed, info.incomplete) == (0, 0)  # pending is not failed
    assert info.feature_bytes == 10 * 3 * 8 * 2
    assert info.backend == {".h5": "hdf5", ".zarr": "zarr", ".npy": "npy"}[out.suffix]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    images=st.integers(1, 12), views=st.integers(1, 3), dim=st.integers(1, 5), shard=st.integers(1, 13),
    text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=6),
)  # fmt: skip
def test_any_shape_and_text_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    suffix: str,
    images: int,
    views: int,
    dim: int,
    shard: int,
    text: str,
) -> None:
    out = tmp_path_factory.mktemp("any") / f"cache.{suffix}"
    features = some_features(images, views, dim)
    table = pl.DataFrame(
        {"image_id": [f"{text}{n}" for n in range(images)], "case_id": text, "label": 0, "x": text}
    )
    with create_cache(out, table, views, dim, FINGERPRINT, shard) as writer:
        for number in range(writer.layout.shards):
            writer.write_shard(number, features[slice(*writer.layout.bounds(number))])
    cache = open_cache(out)
    np.testing.assert_array_equal(cache.features[:], features)
    assert cache.manifest["image_id"].to_list() == table["image_id"].to_list()
    assert cache.manifest["x"].to_list() == table["x"].to_list()


def test_other_libraries_read_the_arrays(out: Path) -> None:
    features = some_features(10)
    write_cache(out, features)
    if out.suffix == ".h5":
        with h5py.File(out) as file:
            np.testing.assert_array_equal(file["features"][:], features)
            assert file["features"].chunks is None
            assert file["manifest/image_id"].asstr()[1] == a_manifest(10)["image_id"][1]
    elif out.suffix == ".npy":
        np.testing.assert_array_equal(np.load(out / "shard-1.npy"), features[4:8])
    else:
        group = zarr.open_group(str(out), mode="r")
        np.testing.assert_array_equal(group["features"][:], features)  # type: ignore[index]
        assert group["manifest/image_id"][1] == a_manifest(10)["image_id"][1]  # type: ignore[index]
        assert sorted(name for name, _ in group.members()) == ["features", "manifest", "marks"]
