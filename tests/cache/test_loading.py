"""Loaded, mapped, copied to scratch or indexed: the same features; and maps cost no memory of one's own."""

import ctypes
import gc
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

from tests.cache.material import FINGERPRINT, a_manifest, some_features, write_cache
from trust_cache.base.errors import InputError
from trust_cache.cache import feature_rows
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.cache_writer import create_cache, resume_cache
from trust_cache.cache.feature_rows import FeatureRows, load_rows, map_rows
from trust_cache.cache.layout import finite_images
from trust_cache.cache.verify_cache import verify_cache


def array_of(rows: FeatureRows) -> NDArray[np.float16]:
    """Read the rows by their addresses, as the kernels do."""
    count = rows.views * rows.dim
    blocks = [
        np.frombuffer(ctypes.string_at(int(address), 2 * count), dtype=np.float16)
        for address in rows.addresses
    ]
    return np.stack(blocks).reshape(rows.images, rows.views, rows.dim)


def compress(out: Path, features: NDArray[np.float16]) -> None:
    """Replace the features by compressed ones, as another program may write them."""
    group = zarr.open_group(str(out), mode="r+")
    shutil.rmtree(out / "features")
    array = group.create_array(
        "features",
        shape=features.shape,
        dtype="float16",
        chunks=(2, *features.shape[1:]),
        fill_value=float("nan"),
    )
    array[:] = features


@pytest.mark.parametrize("threads", [None, 1, 3])
@pytest.mark.parametrize("check", [True, False])
def test_loaded_and_mapped_are_what_was_written(out: Path, threads: int | None, check: bool) -> None:
    features = some_features(11)
    cache = write_cache(out, features)
    loaded = load_rows(cache, threads, check=check)
    mapped = map_rows(cache, threads=threads, check=check)
    assert (mapped.images, mapped.views, mapped.dim) == (11, 3, 8)
    np.testing.assert_array_equal(array_of(loaded), features)
    np.testing.assert_array_equal(array_of(mapped), features)
    np.testing.assert_array_equal(cache.features[:], features)
    assert sorted(path.name for path in out.parent.iterdir()) == [out.name]


def test_a_map_outlives_the_cache_and_the_file(out: Path) -> None:
    features = some_features(11)
    rows = map_rows(write_cache(out, features))
    shutil.rmtree(out) if out.is_dir() else out.unlink()
    gc.collect()
    np.testing.assert_array_equal(array_of(rows), features)


def test_compressed_features_are_copied_to_scratch_with_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out, features = tmp_path / "cache.zarr", some_features(11)
    write_cache(out, features)
    compress(out, features)
    cache = open_cache(out)
    np.testing.assert_array_equal(array_of(load_rows(cache)), features)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with caplog.at_level(logging.WARNING):
        rows = map_rows(cache, scratch)
    assert f"to {scratch} first" in caplog.text
    np.testing.assert_array_equal(array_of(rows), features)
    assert list(scratch.iterdir()) == []  # it goes with the map
    assert verify_cache(out) == []
    np.testing.assert_array_equal(array_of(map_rows(cache)), features)
    with pytest.raises(InputError, match="cannot write there"):
        map_rows(cache, tmp_path / "none")


def test_chunked_hdf5_is_copied_to_scratch(tmp_path: Path) -> None:
    out, features = tmp_path / "cache.h5", some_features(11)
    write_cache(out, features)
    with h5py.File(out, "r+") as file:
        del file["features"]
        file.create_dataset("features", data=features, chunks=(2, 3, 8), compression="gzip")
    cache = open_cache(out)
    np.testing.assert_array_equal(array_of(map_rows(cache)), features)
    np.testing.assert_array_equal(array_of(load_rows(cache)), features)


def test_very_many_files_are_copied_to_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = some_features(11)
    cache = write_cache(tmp_path / "cache.zarr", features)
    monkeypatch.setattr(feature_rows, "_MOST_MAPS", 2)
    np.testing.assert_array_equal(array_of(map_rows(cache)), features)


def test_shards_written_by_zarr_python_are_found_through_their_index(tmp_path: Path) -> None:
    out, features = tmp_path / "cache.zarr", some_features(11)
    write_cache(out, some_features(11, seed=1))
    array = zarr.open_group(str(out), mode="r+")["features"]
    for image in (2, 0, 1, 3, 7, 5, 4, 6, 8, 9, 10):  # one by one: zarr-python rewrites the shard each time
        array[image] = features[image]  # type: ignore[index]
    np.testing.assert_array_equal(array_of(load_rows(open_cache(out), check=False)), features)
    np.testing.assert_array_equal(array_of(map_rows(open_cache(out), check=False)), features)


def test_a_cache_behind_a_url(tmp_path: Path) -> None:
    url, features = f"memory://{tmp_path.name}/cache.zarr", some_features(11)
    with create_cache(url, a_manifest(11), 3, 8, FINGERPRINT, 4) as writer:
        for shard in (2, 0):
            writer.write_shard(shard, features[slice(*writer.layout.bounds(shard))])
    assert open_cache(url).done.sum() == 7
    with resume_cache(url, a_manifest(11), FINGERPRINT) as writer:
        assert writer.pending == [1]
        writer.write_shard(1, features[4:8])
    cache = open_cache(url)
    np.testing.assert_array_equal(array_of(load_rows(cache)), features)
    np.testing.assert_array_equal(array_of(map_rows(cache, tmp_path)), features)
    np.testing.assert_array_equal(cache.features[3:6, 0], features[3:6, 0])
    assert verify_cache(url) == []
    with pytest.raises(InputError, match="cannot make a cache there"):
        create_cache(url, a_manifest(11), 3, 8, FINGERPRINT, 4)
    with pytest.raises(InputError, match="not a feature cache"):
        open_cache(f"memory://{tmp_path.name}/none.zarr")
    with pytest.raises(InputError, match="nosuch://a/b"):
        open_cache("nosuch://a/b")


MEASURE = """
import sys
from trust_cache.cache.feature_rows import map_rows
from trust_cache.cache.cache_reader import open_cache
def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
cache = open_cache(sys.argv[1])
cache.manifest
before = anonymous()
rows = map_rows(cache, threads=2)
print(anonymous() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's account of memory")
def test_a_map_takes_no_anonymous_memory(out: Path) -> None:
    features = some_features(1024, 8, 2048)
    write_cache(out, features, shard_images=32)
    limited = ["sh", "-c", 'ulimit -n 20; exec "$@"', "sh"]  # 32 shards, fewer files
    command = [*limited, sys.executable, "-W", "ignore", "-c", MEASURE, str(out)]
    taken = int(subprocess.run(command, check=True, capture_output=True, env=dict(os.environ)).stdout)
    assert taken < features.nbytes / 2  # 33 MB; the check holds a shard per thread


def test_finite_images_knows_every_number() -> None:
    """Each of the 65,536 patterns of a float16: in a shard with the others, and alone."""
    numbers = np.arange(2**16, dtype=np.uint16).view(np.float16)
    shard = np.stack([numbers, np.ones_like(numbers)], axis=1)[:, np.newaxis]
    expected = np.isfinite(numbers)
    np.testing.assert_array_equal(finite_images(shard), expected)
    alone = [bool(finite_images(image[np.newaxis])[0]) for image in shard]
    np.testing.assert_array_equal(alone, expected)
