"""Conversion keeps every bit; a subset holds the chosen images in their order; an import what was given."""

from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.cache.material import FINGERPRINT, a_manifest, differing_fields, some_features, write_cache
from tests.cache.test_damage import flip, place_of
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import failed_warning, open_cache
from trust_cache.cache.cache_writer import create_cache
from trust_cache.cache.copy_cache import convert_cache, import_features, subset_cache
from trust_cache.cache.extract.view_features import stored_features
from trust_cache.cache.feature_rows import load_rows
from trust_cache.cache.fingerprint import require_same_encoder
from trust_cache.cache.verify_cache import verify_cache
from trust_cache.images.image_failures import Failure
from trust_cache.images.picture_folder import ImageSettings, claim_folder
from trust_cache.manifest.cases import CASE_LABEL, find_cases
from trust_cache.manifest.manifest_file import Manifest, read_manifest


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
    assert_frame_equal(pairs.manifest.drop(CASE_LABEL), a_manifest(23)[chosen])
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


def test_a_subset_keeps_failed_images_and_refuses_pending_ones(out: Path) -> None:
    features = some_features(10)
    with create_cache(out, a_manifest(10), 3, 8, FINGERPRINT, 4) as writer:
        writer.write_shard(0, features[:4], np.array([True, False, True, True]))
    with pytest.raises(InputError, match=r"6 of the chosen images are pending .* finish the cache first"):
        subset_cache(out, out.with_name("b.zarr"))
    tried = subset_cache(out, out.with_name("b.zarr"), pl.col("case_id") == "00000")
    np.testing.assert_array_equal(
        tried.features[:].view(np.uint16), open_cache(out).features[:4].view(np.uint16)
    )
    assert load_rows(tried).present.tolist() == [True, False, True, True]
    warning = failed_warning(tried)  # nobody wrote the reasons
    assert warning is not None
    assert warning.endswith(f"List: `trust-cache cache info {tried.source} --json`")


@settings(max_examples=25)
@given(data=st.data())
def test_whatever_fails_or_is_left_out_no_label_changes_and_no_case_is_lost(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any images fail in preprocess, any others in extract; then any images are left out, twice."""
    folder = tmp_path_factory.mktemp("lost")
    count = data.draw(st.integers(1, 9))
    flags = st.lists(st.booleans(), min_size=count, max_size=count)
    first = pl.DataFrame(
        {
            "image_id": [f"{n:03d}" for n in range(count)],
            "case_id": data.draw(st.lists(st.sampled_from("abc"), min_size=count, max_size=count)),
            "label": [int(flag) for flag in data.draw(flags)],
            "laterality": "L",
            "projection": "CC",
            "path": "x.dcm",
        }
    )
    lost, failed = np.array(data.draw(flags)), np.array(data.draw(flags))
    failures = [Failure(image, "read", "lost") for image in first["image_id"].filter(pl.Series(lost))]
    pictures = claim_folder(str(folder / "png"), ImageSettings())
    pictures.finish(Manifest(first, folder / "manifest.csv"), failures, {}, {})
    table = read_manifest(folder / "png" / "manifest.csv").table
    assert table["path"].is_null().to_list() == lost.tolist()
    present = ~(lost | failed)
    with create_cache(folder / "a.zarr", table, 1, 2, FINGERPRINT, 3) as writer:
        for shard in range(writer.layout.shards):
            images = slice(*writer.layout.bounds(shard))
            writer.write_shard(shard, some_features(count, 1, 2)[images], present[images])
    before, cache = find_cases(first), open_cache(folder / "a.zarr")
    labels = dict(zip(before.case_ids, before.labels, strict=True))
    after = find_cases(cache.manifest)
    assert dict(zip(after.case_ids, after.labels, strict=True)) == labels
    for name in ("b.h5", "c.zarr"):
        kept = data.draw(st.sets(st.sampled_from(cache.manifest["image_id"].to_list()), min_size=1))
        cache = subset_cache(cache.source, folder / name, pl.col("image_id").is_in(sorted(kept)))
        there = find_cases(cache.manifest)
        assert all(labels[case] == label for case, label in zip(there.case_ids, there.labels, strict=True))
        numbers = cache.manifest["image_id"].cast(pl.Int64).to_numpy()
        np.testing.assert_array_equal(cache.failed, ~present[numbers])


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


def test_minus_zero_changes_no_digest(tmp_path: Path) -> None:
    """From -0.0 itself, and from a negative number too small for float16; all else keeps its value."""
    zero = some_features(6)
    zero[2, 1, 3] = zero[4] = 0
    minus, tiny = zero.copy(), zero.astype(np.float32)
    minus[2, 1, 3] = minus[4] = -0.0
    tiny[2, 1, 3] = tiny[4] = -1e-12
    held = []
    for number, features in enumerate((zero, minus, tiny)):
        folder = tmp_path / str(number)
        folder.mkdir()
        cache = folder / "cache.zarr"
        import_features(*save(folder, features), cache, shard_images=4)
        held.append(np.asarray(open_cache(cache).features).tobytes())
        stored = stored_features(partial(np.array, features))
        np.testing.assert_array_equal(stored.view(np.uint16), zero.view(np.uint16))
    assert held[0] == held[1] == held[2]
