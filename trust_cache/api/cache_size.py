"""Estimate the size of a cache before it exists; needs no torch."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.cache.cached_manifest import array_names, canonical_manifest, manifest_sha256
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.cache.known_stores import create_store
from trust_cache.cache.layout import SHARD_IMAGES, CacheDescription, Layout
from trust_cache.cache.zarr_shards import index_bytes
from trust_cache.encoders.probe import make_probe
from trust_cache.manifest.manifest_file import read_manifest

DIM = 2048  # of Mammo-CLIP's encoder
# Texts as long as those of an extraction: each byte here is one byte of the total.
_TYPICAL = Fingerprint(
    encoder="tf_efficientnet_b5", weights_sha256="0" * 64, recipe="-" * 283, preprocessing="-" * 100,
    runtime="openvino 2026.4.1", precision="float32", view_settings="-" * 200, seed=0, decoder="",
)  # fmt: skip


@dataclass(frozen=True)
class CacheSize:
    """The bytes of a Zarr cache by purpose."""

    images: int
    views: int  # augmented ones; one more is stored
    dim: int
    features: int
    indices: int  # of the shards
    marks: int
    description: int  # the manifest's columns and all metadata

    @property
    def total(self) -> int:
        """The bytes of all files."""
        return self.features + self.indices + self.marks + self.description


def estimate_size(
    manifest: Path,
    views: int,
    *,
    dim: int = DIM,
    shard_images: int = SHARD_IMAGES,
    fingerprint: Fingerprint = _TYPICAL,
) -> CacheSize:
    """Return the size of the cache that `extract` makes of a manifest with `views` augmented views."""
    if views < 0:
        raise InputError(f"views: expected 0 or more augmented views, found {views}")
    table = canonical_manifest(read_manifest(manifest).table, str(manifest))
    layout = Layout(table.height, views + 1, dim, shard_images)
    return CacheSize(
        images=layout.images,
        views=views,
        dim=dim,
        features=layout.images * layout.image_bytes,
        indices=layout.shards * index_bytes(layout),
        marks=layout.shards * layout.mark_bytes,
        description=_described_bytes(layout, table, fingerprint),
    )


def _described_bytes(layout: Layout, table: pl.DataFrame, fingerprint: Fingerprint) -> int:
    """Create the cache without features and count the bytes that the store writes."""
    description = CacheDescription(
        shard_images=layout.shard_images,
        fingerprint=fingerprint,
        columns=array_names(table.columns),
        manifest_sha256=manifest_sha256(table),
        probe=make_probe(np.zeros(layout.dim)),  # any numbers take as many bytes
    )
    with tempfile.TemporaryDirectory(prefix="trust-cache-") as folder:
        cache = Path(folder) / "empty.zarr"
        create_store(cache, layout, description, table)
        return sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
