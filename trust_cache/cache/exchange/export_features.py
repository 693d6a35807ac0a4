"""Write the features of a cache to one file for other programs: Parquet, Arrow, .npy or .npz."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trust_cache.base.errors import InputError, check_least
from trust_cache.base.files import replacing, write_file
from trust_cache.cache.cache_reader import Cache, open_cache, read_checked_shard, refuse_unfinished
from trust_cache.cache.exchange.feature_arrays import write_npy, write_npz
from trust_cache.cache.exchange.feature_tables import ARROW_SUFFIXES, PARQUET_SUFFIXES, Part, write_table
from trust_cache.cache.known_stores import Source
from trust_cache.manifest.data_terms import export_warnings, terms_of

_ARRAYS = (".npy", ".npz")
SUFFIXES = (*PARQUET_SUFFIXES, *ARROW_SUFFIXES, *_ARRAYS)


@dataclass(frozen=True)
class ExportedFeatures:
    """A file of features, and the manifest beside it where the file has none."""

    path: Path
    manifest: Path | None
    images: int
    views: int  # the clean one included
    dim: int
    failed: int  # images without features
    warnings: tuple[str, ...] = ()  # what the terms of the data say about passing the file on


def export_features(cache: Cache | Source, out: Path, *, views: int | None = None) -> ExportedFeatures:
    """Write the features of a cache shard by shard, by the suffix of `out`; an earlier file is replaced.

    A table (.parquet, .arrow) has a row for each image and view, with the columns of the manifest, `view` and
    `features`, which are empty for a failed image. An array (.npy, .npz) is float16 [image, view, dim], NaN
    for a failed image; the manifest is beside it. `views` is the number of augmented views, by default all.
    """
    suffix = out.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{out}: expected a file name that ends in {', '.join(SUFFIXES)}, found {out.name}")
    opened = cache if isinstance(cache, Cache) else open_cache(cache)
    refuse_unfinished(opened)
    kept = opened.views if views is None else views + 1
    check_least("views", kept - 1)
    if kept > opened.views:
        raise InputError(
            f"{opened.source}: expected at least {views} augmented views, found {opened.views - 1}"
        )
    shape = (opened.images, kept, opened.dim)
    manifest = out.with_suffix(".manifest.csv") if suffix in _ARRAYS else None
    if manifest is not None:
        write_file(manifest, opened.manifest.write_csv().encode())
    features = (part[1] for part in _parts(opened, kept))
    with replacing(out) as scratch:
        if suffix == ".npy":
            write_npy(scratch, shape, features)
        elif suffix == ".npz":
            write_npz(scratch, shape, features, opened.manifest["image_id"].to_list())
        else:
            columns = opened.manifest.columns
            write_table(scratch, suffix, lambda: _parts(opened, kept), columns, opened.dim)
    failed = int(np.count_nonzero(opened.failed))
    return ExportedFeatures(out, manifest, *shape, failed, export_warnings(terms_of(opened.manifest)))


def _parts(cache: Cache, views: int) -> Iterator[Part]:
    """Yield the manifest's rows of each shard, its features, and which images have some."""
    for shard in range(cache.layout.shards):
        first, last = cache.layout.bounds(shard)
        yield cache.manifest[first:last], read_checked_shard(cache, shard)[:, :views], cache.done[first:last]
