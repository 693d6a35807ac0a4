"""New caches from old ones: in the other backend, or with some of the images."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.cache.backends import Source
from trust_cache.cache.layout import Features
from trust_cache.cache.reading import Cache, open_cache, read_checked_shard, shown
from trust_cache.cache.writer import create_cache

Filter = pl.Expr | Mapping[str, str]


def convert_cache(source: Source, out: Source) -> Cache:
    """Copy a cache to another name and backend, bit for bit; what is unfinished stays so."""
    cache = open_cache(source)
    layout = cache.layout
    with create_cache(
        out, cache.manifest, layout.views, layout.dim, cache.fingerprint, layout.shard_images
    ) as writer:
        for shard in np.flatnonzero(cache.shards_done).tolist():
            first, last = layout.bounds(shard)
            writer.write_shard(shard, read_checked_shard(cache, shard), cache.done[first:last])
    return open_cache(out)


def subset_cache(
    source: Source, out: Source, where: Filter | None = None, *, present_only: bool = False
) -> Cache:
    """Make a cache of the images whose manifest rows pass `where`: an expression, or column=value pairs.

    Images without features are refused, or left out with `present_only`.
    """
    cache = open_cache(source)
    kept = _kept(cache, where)
    lacking = kept[~cache.done[kept]]
    if lacking.size and not present_only:
        names = cache.manifest["image_id"][lacking].to_list()
        raise InputError(
            f"{cache.source}: {lacking.size} of the chosen images have no features ({shown(names)});"
            " finish the cache first or ask for the finished images only"
        )
    kept = kept[cache.done[kept]]
    if not kept.size:
        raise InputError(f"{cache.source}: no image passes the filter; nothing was written")
    layout = cache.layout

    @lru_cache(maxsize=2)  # images come in order: each shard is read once
    def read(shard: int) -> Features:
        return read_checked_shard(cache, shard)

    with create_cache(
        out, cache.manifest[kept], layout.views, layout.dim, cache.fingerprint, layout.shard_images
    ) as writer:
        for shard in range(writer.layout.shards):
            first, last = writer.layout.bounds(shard)
            origin, place = np.divmod(kept[first:last], layout.shard_images)
            blocks = [read(int(old))[at] for old, at in zip(origin, place, strict=True)]
            writer.write_shard(shard, np.stack(blocks))
    return open_cache(out)


def _kept(cache: Cache, where: Filter | None) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    table = cache.manifest
    if where is None:
        return np.arange(cache.images)
    if isinstance(where, Mapping):
        unknown = [name for name in where if name not in table.columns]
        if unknown:
            raise InputError(
                f"{cache.source}: the manifest has no column {', '.join(unknown)};"
                f" it has {', '.join(table.columns)}"
            )
        where = pl.all_horizontal(pl.col(name).cast(pl.String) == value for name, value in where.items())
    try:
        mask = table.select(where.fill_null(value=False).alias("kept"))["kept"]
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{cache.source}: the filter does not fit the manifest ({error})") from error
    if mask.dtype != pl.Boolean or mask.len() != table.height:
        raise InputError(f"{cache.source}: expected a filter that is true or false for each image")
    return np.flatnonzero(mask.to_numpy())
