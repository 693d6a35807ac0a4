"""Small caches to fit on: a learnable direction, as separable as wanted."""

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tests.cache.material import FINGERPRINT
from trust_cache.cache.cache_writer import create_cache


def a_cohort(
    cases: int = 200, positives: int = 60, dim: int = 48, views: int = 3, distance: float = 1.0, seed: int = 0
) -> tuple[pl.DataFrame, NDArray[np.float16]]:
    """Cases of three images, one of them positive in a positive case; shuffled rows, ids with zeros."""
    generator = np.random.default_rng(seed)
    case = generator.permutation(np.repeat(np.arange(cases), 3))
    first = np.zeros(case.size, dtype=bool)
    first[np.unique(case, return_index=True)[1]] = True
    label = ((case % cases < positives) & first).astype(np.int64)
    direction = generator.standard_normal(dim) / np.sqrt(dim)
    clean = generator.standard_normal((case.size, dim)) + distance * np.sqrt(dim) * label[:, None] * direction
    features = clean[:, None] + 0.1 * generator.standard_normal((case.size, views, dim))
    features[:, 0] = clean
    manifest = pl.DataFrame(
        {
            "image_id": [f"{n:05d}" for n in range(case.size)],
            "case_id": [f"{n:04d}" for n in case],
            "label": label,
            "laterality": "L",
            "projection": "CC",
            "path": "",
            "site": [f"site {n % 2}" for n in case],
        }
    )
    return manifest, features.astype(np.float16)


def write_cohort(
    out: Path,
    manifest: pl.DataFrame,
    features: NDArray[np.float16],
    shards: int | None = None,
    present: NDArray[np.bool_] | None = None,
) -> Path:
    """Write the cohort as a cache, complete or only its first shards; images not `present` have failed."""
    present = np.ones(manifest.height, dtype=np.bool_) if present is None else present
    _, views, dim = features.shape
    with create_cache(out, manifest, views, dim, FINGERPRINT) as writer:
        for shard in range(writer.layout.shards if shards is None else shards):
            images = slice(*writer.layout.bounds(shard))
            writer.write_shard(shard, features[images], present[images])
    return out


def lose_images(manifest: pl.DataFrame, share: float = 0.1, seed: int = 0) -> NDArray[np.bool_]:
    """Return which images are left: a random share is lost, all of the first case, a positive of the last."""
    present = np.random.default_rng(seed).random(manifest.height) >= share
    case, label = manifest["case_id"].to_numpy(), manifest["label"].to_numpy()
    positives = np.unique(case[label == 1])
    present[case == positives[0]] = False
    present[case == positives[-1]] = label[case == positives[-1]] == 0
    return present


def without_images(manifest: pl.DataFrame, present: NDArray[np.bool_]) -> pl.DataFrame:
    """Return the rows that are left, each with the label that its whole case had."""
    of_cases = manifest.with_columns(case_label=pl.col("label").max().over("case_id"))
    return of_cases.filter(pl.Series(present))
