"""Make a cache from another one: convert, subset."""

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.errors import InputError, shown
from trust_cache.base.places import read_bytes, write_bytes
from trust_cache.cache.cache_reader import Cache, open_cache, read_checked_shard, read_failures
from trust_cache.cache.cache_writer import CacheWriter, create_cache, write_failures
from trust_cache.cache.known_stores import EXTRACTION, Source, companion
from trust_cache.cache.layout import Features
from trust_cache.images.examined_table import EXAMINED
from trust_cache.images.image_failures import FAILURES
from trust_cache.manifest.cases import CASE_LABEL, find_cases

Filter = pl.Expr | Mapping[str, str]


def convert_cache(source: Source, out: Source) -> Cache:
    """Copy a cache to another name and backend, bit for bit, with the files that go with it.

    Failed images stay failed and pending ones pending.
    """
    cache = open_cache(source)
    layout = cache.layout
    with _create_like(cache, out, cache.stored_manifest) as writer:
        for name in (FAILURES, EXAMINED, EXTRACTION):
            with suppress(FileNotFoundError):
                write_bytes(companion(out, name), read_bytes(companion(source, name)))
        for shard in np.flatnonzero(cache.shards_done).tolist():
            first, last = layout.bounds(shard)
            features = read_checked_shard(cache, shard)
            writer.write_shard(shard, features, cache.done[first:last], cache.pictures[first:last])
    return open_cache(out)


def subset_cache(source: Source, out: Source, where: Filter | None = None) -> Cache:
    """Make a cache of the images whose manifest rows pass `where`: an expression, or column=value pairs.

    The column case_label of the new manifest has the label of each image's whole case, so that leaving out
    images changes no label. Failed images stay rows without features; pending ones are refused.
    """
    cache = open_cache(source)
    kept = _kept(cache, where)
    if not kept.size:
        raise InputError(f"{cache.source}: no image passes the filter; nothing was written")
    pending = cache.manifest["image_id"][kept[cache.pending[kept]]].to_list()
    if pending:
        raise InputError(
            f"{cache.source}: {len(pending)} of the chosen images are pending ({shown(pending)});"
            f" finish the cache first by `trust-cache extract ... --out {cache.source}`"
        )
    layout = cache.layout

    @lru_cache(maxsize=2)  # images come in order: each shard is read once
    def read(shard: int) -> Features:
        return read_checked_shard(cache, shard)

    chosen = _with_case_labels(cache.manifest)[kept]
    with _create_like(cache, out, chosen) as writer:
        ids = set(chosen["image_id"])
        reasons = [row for row in read_failures(source) if row.image_id in ids]
        if reasons:
            write_failures(out, reasons)
        for shard in range(writer.layout.shards):
            first, last = writer.layout.bounds(shard)
            images = kept[first:last]
            origin, place = np.divmod(images, layout.shard_images)
            blocks = [read(int(old))[at] for old, at in zip(origin, place, strict=True)]
            writer.write_shard(shard, np.stack(blocks), cache.done[images], cache.pictures[images])
    return open_cache(out)


def _with_case_labels(manifest: pl.DataFrame) -> pl.DataFrame:
    cases = find_cases(manifest)
    return manifest.with_columns(pl.Series(CASE_LABEL, cases.labels[cases.of_image]).cast(pl.String))


def _create_like(cache: Cache, out: Source, manifest: pl.DataFrame) -> CacheWriter:
    layout = cache.layout
    return create_cache(
        out, manifest, layout.views, layout.dim, cache.fingerprint, layout.shard_images, cache.probe
    )


def _kept(cache: Cache, where: Filter | None) -> NDArray[np.int64]:
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
