"""Conversion keeps every bit; a subset holds the chosen images in their order."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.cache.material import FINGERPRINT, a_manifest, some_features, write_cache
from tests.cache.test_damage import flip, place_of
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import failed_warning, open_cache
from trust_cache.cache.cache_writer import create_cache
from trust_cache.cache.copy_cache import convert_cache, subset_cache
from trust_cache.cache.feature_rows import load_rows
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
