"""What a cache holds, as one record for people and programs."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from trust_cache.cache.layout import SCHEMA
from trust_cache.cache.reading import Cache, lacking_images


@dataclass(frozen=True)
class CacheInfo:
    """The essentials of a cache."""

    source: str
    backend: str
    schema: int
    images: int
    cases: int
    positive_images: int
    positive_cases: int
    views: int  # stored views, the clean one included
    dim: int
    shard_images: int
    shards: int
    shards_done: int
    images_done: int
    lacking: tuple[str, ...]  # images of finished shards that have no features: they failed
    feature_bytes: int
    columns: tuple[str, ...]
    fingerprint: dict[str, Any]


def cache_info(cache: Cache) -> CacheInfo:
    """Return what a cache holds."""
    table, layout = cache.manifest, cache.layout
    labels = table.group_by("case_id").agg(pl.col("label").max())["label"]
    return CacheInfo(
        source=cache.source,
        backend=cache.store.backend,
        schema=SCHEMA,
        images=layout.images,
        cases=labels.len(),
        positive_images=int(table["label"].sum()),
        positive_cases=int(labels.sum()),
        views=layout.views,
        dim=layout.dim,
        shard_images=layout.shard_images,
        shards=layout.shards,
        shards_done=int(cache.shards_done.sum()),
        images_done=int(cache.done.sum()),
        lacking=tuple(table["image_id"][lacking_images(cache)].to_list()),
        feature_bytes=layout.images * layout.image_bytes,
        columns=tuple(table.columns),
        fingerprint=cache.fingerprint.as_document(),
    )
