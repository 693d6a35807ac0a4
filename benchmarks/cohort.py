"""Caches of the paper's sizes for the benchmarks, made once and kept in a scratch folder."""

import os
import shutil
import tempfile
from pathlib import Path

from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.synthetic.feature_cohort import simulate_cache


def scratch() -> Path:
    """Return the folder for large files: TRUST_CACHE_BENCH, or one in the system's temporary folder."""
    folder = Path(os.environ.get("TRUST_CACHE_BENCH", Path(tempfile.gettempdir()) / "trust-cache-bench"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def discard(cache: Cache) -> None:
    """Remove a cache that is too large to keep."""
    path = Path(cache.source)
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def rsna_cache(views: int = 8, ending: str = "zarr") -> Cache:
    """Return the RSNA-shaped cache with `views` augmented views, simulated if it is missing."""
    return simulated("rsna", views, ending)


def simulated(like: str, views: int = 8, ending: str = "zarr") -> Cache:
    """Return a cache like one of the data sets with `views` augmented views, simulated if it is missing."""
    path = scratch() / f"{like}-{views}.{ending}"
    if path.exists():
        return open_cache(path)
    print(f"  simulating {path} ...", flush=True)
    return simulate_cache(like, path, views=views)
