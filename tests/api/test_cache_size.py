"""The size of a cache before it exists equals the bytes of the cache."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.cache.material import FINGERPRINT, a_manifest, some_features
from trust_cache.api.cache_size import estimate_size
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_writer import create_cache
from trust_cache.encoders.probe import make_probe


@pytest.mark.parametrize(("images", "views", "dim", "shard"), [(1, 0, 8, 32), (64, 3, 16, 32), (13, 1, 5, 4)])
def test_the_estimate_is_the_size(tmp_path: Path, images: int, views: int, dim: int, shard: int) -> None:
    manifest = tmp_path / "manifest.csv"
    a_manifest(images).write_csv(manifest)
    found = estimate_size(manifest, views, dim=dim, shard_images=shard, fingerprint=FINGERPRINT)
    table = pl.read_csv(manifest, infer_schema=False)
    probe = make_probe(np.linspace(0, 1, dim))
    with create_cache(tmp_path / "c.zarr", table, views + 1, dim, FINGERPRINT, shard, probe) as writer:
        features = some_features(images, views + 1, dim)
        for number in range(writer.layout.shards):
            writer.write_shard(number, features[slice(*writer.layout.bounds(number))])
    real = sum(path.stat().st_size for path in (tmp_path / "c.zarr").rglob("*") if path.is_file())
    assert found.total == real
    assert found.features == images * (views + 1) * dim * 2


def test_what_cannot_be_estimated(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="views"):
        estimate_size(tmp_path / "none.csv", -1)
    with pytest.raises(InputError, match=r"none\.csv"):
        estimate_size(tmp_path / "none.csv", 1)
