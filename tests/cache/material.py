"""Small caches to test with: their manifest, their features, and a way to write them."""

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.cache_writer import create_cache
from trust_cache.cache.fingerprint import Fingerprint

FINGERPRINT = Fingerprint(
    encoder="efficientnet-b5",
    weights_sha256="ab" * 32,
    recipe=(
        '{"antialias":false,"channels":3,"image_size":[1520,912],"intensity":"min-max after resize",'
        '"keep_proportions":false,"mean":[0.3,0.3,0.3],"pooling":"avg","resize":"bilinear","std":[0.2,0.2,0.2]}'
    ),
    preprocessing="breast crop 10 %",
    runtime="torch 2.13.0",
    precision="float16 autocast",
    view_settings="rotation 10",
    seed=7,
    decoder="gdcm",
)


def a_manifest(images: int) -> pl.DataFrame:
    """Ids with leading zeros, slashes and letters from elsewhere; further columns with odd names."""
    kinds = ("00{}", "normal/p_{}/left/CC", "ünï-{}-漢字", "{}")
    return pl.DataFrame(
        {
            "image_id": [kinds[n % 4].format(n) for n in range(images)],
            "case_id": [f"{n // 4:05d}" for n in range(images)],
            "label": [int(n % 7 == 0) for n in range(images)],
            "laterality": ["L" if n % 2 else "R" for n in range(images)],
            "projection": ["CC" if n % 3 else "MLO" for n in range(images)],
            "path": [None if n % 5 == 0 else f"a/{n}.png" for n in range(images)],
            "File Path": [f"x\\{n}" for n in range(images)],
            "a/b": ["0" if n % 2 else None for n in range(images)],
            "__private": [str(n) for n in range(images)],
            "Label": ["007"] * images,
        },
        schema_overrides={"label": pl.Int8},
    )


def some_features(images: int, views: int = 3, dim: int = 8, seed: int = 0) -> NDArray[np.float16]:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((images, views, dim)).astype(np.float16)


def write_cache(
    out: Path, features: NDArray[np.float16], shard_images: int = 4, shards: list[int] | None = None
) -> Cache:
    """Write a cache whole, or only some of its shards."""
    images, views, dim = features.shape
    with create_cache(out, a_manifest(images), views, dim, FINGERPRINT, shard_images) as writer:
        for shard in range(writer.layout.shards) if shards is None else shards:
            writer.write_shard(shard, features[slice(*writer.layout.bounds(shard))])
    return open_cache(out)


def differing_fields(one: Fingerprint, other: Fingerprint) -> tuple[str, ...]:
    names = Fingerprint.__struct_fields__
    return tuple(name for name in names if getattr(one, name) != getattr(other, name))
