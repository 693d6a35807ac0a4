"""Conversion keeps every bit; a subset holds the chosen images in their order; an import what was given."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.cache.material import FINGERPRINT, a_manifest, differing_fields, some_features, write_cache
from tests.cache.test_damage import flip, place_of
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.cache_writer import create_cache
from trust_cache.cache.copy_cache import convert_cache, import_features, subset_cache
from trust_cache.cache.feature_rows import load_rows
from trust_cache.cache.fingerprint import require_same_encoder
from trust_cache.cache.verify_cache import verify_cache


@pytest.mark.parametrize("shards", [None, [0, 2]])
def test_there_and_back_is_bitwise_equal(tmp_path: Path, suffix: str, shards: list[int] | None) -> None:
    other = {"zarr": "h5", "h5": "zarr"}[suffix]
    first = write_cache(tmp_path / f"a.{suffix}", some_features(10), shards=shards)
    second = convert_cache(tmp_path / f"a.{suffix}", tmp_path / f"b.{other}")
    third = convert_cache(tmp_path / f"b.{other}", tmp_path / f"c.{suffix}")
    for cache in (second, third):
        bits = cache.features[:].view(np.uint16)
        np.testing.assert_array_equal(bits, first.features[:].view(np.uint16))
        np.testing.assert_array_equal(cache.marks, first.marks)
        assert_frame_equal(cache.manifest, first.manifest)
        assert cache.fingerprint == first.fingerprint
    if suffix == "zarr":
        for path in (tmp_path / "a.zarr").rglob("c.*"):
            assert (
                path.read_bytes()
                == (tmp_path / "c.zarr" / path.relative_to(tmp_path / "a.zarr")).read_bytes()
            )


def test_damage_is_not_copied_under_a_new_checksum(out: Path) -> None:
    write_cache(out, some_features(10))
    file, offset = place_of(out, 6)
    flip(file, offset)
    with pytest.raises(InputError, match=r"shard 1 .* does not fit its checksum"):
        convert_cache(out, out.with_name("b.zarr"))
    with pytest.raises(InputError, match="does not fit its checksum"):
        subset_cache(out, out.with_name("c.zarr"))


def test_a_subset_by_pairs_and_by_expression(out: Path) -> None:
    features = some_features(23)
    write_cache(out, features)
    pairs = subset_cache(out, out.with_name("b.zarr"), {"laterality": "L", "projection": "CC"})
    chosen = [n for n in range(23) if n % 2 and n % 3]
    np.testing.assert_array_equal(pairs.features[:], features[chosen])
    assert_frame_equal(pairs.manifest, a_manifest(23)[chosen])
    expression = subset_cache(out, out.with_name("c.h5"), pl.col("case_id") >= "00003")
    np.testing.assert_array_equal(expression.features[:], features[12:])
    assert verify_cache(out.with_name("b.zarr")) == verify_cache(out.with_name("c.h5")) == []
    by_label = subset_cache(out, out.with_name("d.zarr"), {"label": "1"})
    assert by_label.images == a_manifest(23)["label"].sum()


def test_filters_that_fit_nothing(out: Path) -> None:
    write_cache(out, some_features(10))
    new = out.with_name("b.zarr")
    with pytest.raises(InputError, match="has no column side; it has image_id, case_id"):
        subset_cache(out, new, {"side": "L"})
    with pytest.raises(InputError, match="no image passes the filter"):
        subset_cache(out, new, {"laterality": "X"})
    with pytest.raises(InputError, match="the filter does not fit"):
        subset_cache(out, new, pl.col("side") == "L")
    with pytest.raises(InputError, match="true or false"):
        subset_cache(out, new, pl.col("label").max() == 1)
    assert not new.exists()


def test_a_subset_of_an_unfinished_cache(out: Path) -> None:
    features = some_features(10)
    with create_cache(out, a_manifest(10), 3, 8, FINGERPRINT, 4) as writer:
        writer.write_shard(0, features[:4], np.array([True, False, True, True]))
    with pytest.raises(InputError, match="7 of the chosen images have no features"):
        subset_cache(out, out.with_name("b.zarr"))
    finished = subset_cache(out, out.with_name("b.zarr"), present_only=True)
    np.testing.assert_array_equal(finished.features[:], features[[0, 2, 3]])
    load_rows(finished)


def save(folder: Path, features: np.ndarray, name: str = "f.npy", rows: int = 6) -> tuple[Path, Path]:
    path, manifest = folder / name, folder / "manifest.csv"
    if name.endswith(".npy"):
        np.save(path, features)
    else:
        np.savez(path, features=features)
    a_manifest(rows).drop("path").write_csv(manifest)
    return path, manifest


@pytest.mark.parametrize("name", ["f.npy", "f.npz"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(6, 8), (6, 3, 8)])
def test_import(out: Path, name: str, dtype: type, shape: tuple[int, ...]) -> None:
    features = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    cache = import_features(*save(out.parent, features, name), out, shard_images=4)
    np.testing.assert_array_equal(cache.features[:], features.astype(np.float16).reshape(6, -1, 8))
    assert cache.manifest["image_id"].to_list() == a_manifest(6)["image_id"].to_list()
    assert cache.manifest["Label"][0] == "007"
    assert cache.fingerprint.encoder == "imported"
    load_rows(cache)


def test_imported_caches_share_an_encoder_only_if_told_so(tmp_path: Path) -> None:
    one, two = (np.full((6, 8), value, dtype=np.float32) for value in (1, 2))
    caches = [
        import_features(*save(tmp_path, array), tmp_path / f"{number}.zarr", encoder=encoder)
        for number, (array, encoder) in enumerate([(one, None), (two, None), (one, "dino"), (two, "dino")])
    ]
    assert differing_fields(caches[0].fingerprint, caches[1].fingerprint) == (
        "weights_sha256",
        "view_settings",
    )
    require_same_encoder(caches[2].fingerprint, caches[3].fingerprint, "x")
    with pytest.raises(InputError, match="encoder"):
        require_same_encoder(caches[0].fingerprint, caches[2].fingerprint, "x")


@pytest.mark.parametrize("value", [np.nan, np.inf, 7e4])
def test_import_refuses_what_float16_cannot_hold(tmp_path: Path, value: float) -> None:
    features = np.zeros((6, 8))
    features[2, 3] = value
    with pytest.raises(InputError, match=r"1 images are NaN, infinite or beyond .* \(ünï-2-漢字\)"):
        import_features(*save(tmp_path, features), tmp_path / "c.zarr")
    assert not (tmp_path / "c.zarr").exists()


def test_import_refuses_other_files(tmp_path: Path) -> None:
    out = tmp_path / "c.zarr"
    with pytest.raises(InputError, match=r"expected features of 5 images, one for each row .* found 6"):
        import_features(*save(tmp_path, np.zeros((6, 8)), rows=5), out)
    with pytest.raises(InputError, match=r"found \(6,\)"):
        import_features(*save(tmp_path, np.zeros(6)), out)
    with pytest.raises(InputError, match="expected floating-point features, found int64"):
        import_features(*save(tmp_path, np.zeros((6, 8), dtype=np.int64)), out)
    path, manifest = save(tmp_path, np.zeros((6, 8)))
    np.save(path, np.array([{"a": 1}] * 6, dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="not a readable"):  # a pickle is never opened
        import_features(path, manifest, out)
    np.savez(tmp_path / "x.npz", other=np.zeros((6, 8)))
    with pytest.raises(InputError, match="expected an array 'features', found other"):
        import_features(tmp_path / "x.npz", manifest, out)
    (tmp_path / "y.npz").write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(InputError, match="not a readable"):
        import_features(tmp_path / "y.npz", manifest, out)
    with pytest.raises(InputError, match="no such file"):
        import_features(tmp_path / "z.npy", manifest, out)
    assert open_cache(import_features(*save(tmp_path, np.zeros((6, 8))), out).source).images == 6
