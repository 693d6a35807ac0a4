"""Our shard bytes are zarr-python's, and its index is understood here."""

from pathlib import Path

import google_crc32c
import numpy as np
import zarr
from hypothesis import given
from hypothesis import strategies as st

from tests.cache.material import FINGERPRINT, a_manifest, some_features, write_cache
from trust_cache.cache.cache_writer import CacheWriter, create_cache
from trust_cache.cache.layout import Layout
from trust_cache.cache.verify_cache import verify_cache
from trust_cache.cache.zarr_shards import crc32c, index_bytes, ordered_index, read_index
from trust_cache.cache.zarr_store import ZarrStore, open_zarr


@given(st.binary(max_size=300))
def test_crc32c_against_googles(content: bytes) -> None:
    assert crc32c(content) == google_crc32c.value(content)


def test_zarr_python_writes_the_same_bytes(tmp_path: Path) -> None:
    features = some_features(10)
    write_cache(tmp_path / "cache.zarr", features)
    ours = {path.name: path.read_bytes() for path in (tmp_path / "cache.zarr/features").glob("c.*")}
    array = zarr.open_group(str(tmp_path / "cache.zarr"), mode="r+")["features"]
    for path in (tmp_path / "cache.zarr/features").glob("c.*"):
        path.unlink()
    array[:] = features  # type: ignore[index]
    theirs = {path.name: path.read_bytes() for path in (tmp_path / "cache.zarr/features").glob("c.*")}
    assert theirs == ours


def test_failed_images_are_the_same_bytes_behind_a_url_and_in_a_folder(tmp_path: Path) -> None:
    """NaN is the fill value, which zarr-python leaves out by default: a copied cache would lack a file."""
    features, shards = some_features(8), {}
    for name in ("local", "remote"):
        out = tmp_path / f"{name}.zarr"
        create_cache(out, a_manifest(8), 3, 8, FINGERPRINT, 4).close()
        with CacheWriter(
            open_zarr(str(out), True) if name == "local" else ZarrStore(str(out), True), None
        ) as writer:
            writer.write_shard(0, features[:4], np.array([True, False, True, True]))
            writer.write_shard(1, features[4:], np.zeros(4, dtype=np.bool_))
        shards[name] = {path.name: path.read_bytes() for path in (out / "features").glob("c.*")}
        assert verify_cache(out) == []
    assert shards["remote"] == shards["local"]
    assert len(shards["local"]) == 2


def test_an_index_in_any_order_with_gaps() -> None:
    layout = Layout(images=4, views=1, dim=3, shard_images=4)
    entries = np.array([[12, 6], [0, 6], [2**64 - 1, 2**64 - 1], [6, 6]], dtype="<u8").tobytes()
    index = entries + crc32c(entries).to_bytes(4, "little")
    assert len(index) == index_bytes(layout)
    offsets = read_index(layout, 4, index)
    assert offsets is not None
    assert offsets.tolist() == [12, 0, -1, 6]
    assert read_index(layout, 4, index[:-1] + b"x") is None
    assert read_index(layout, 3, ordered_index(layout, 3)).tolist() == [0, 6, 12]  # type: ignore[union-attr]
