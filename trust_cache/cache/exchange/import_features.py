"""Make a cache of features that another program made: an array (.npy, .npz) or a table (Parquet, Arrow)."""

import hashlib
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.csv_tables import read_text_table
from trust_cache.base.digests import file_sha256
from trust_cache.base.errors import InputError, shown
from trust_cache.base.files import refusals_in_words
from trust_cache.base.places import is_url
from trust_cache.base.table_files import as_ids
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.cache_writer import create_cache, write_failures
from trust_cache.cache.cached_manifest import canonical_manifest
from trust_cache.cache.exchange.feature_arrays import FEATURES, read_array, read_ids
from trust_cache.cache.exchange.feature_tables import IMAGE_ID, VIEW, FeatureTable, open_table
from trust_cache.cache.fingerprint import IMPORTED, Fingerprint
from trust_cache.cache.known_stores import Source, refuse_existing
from trust_cache.cache.layout import SHARD_IMAGES, Features, as_half, finite_images
from trust_cache.images.image_failures import Failure
from trust_cache.manifest.manifest_file import REQUIRED_COLUMNS

_LOG = logging.getLogger(__name__)
Table = Path | pl.DataFrame


@dataclass(frozen=True)
class Given:
    """Imported features [image, view, dim] in the order of a manifest, and which images have some."""

    manifest: pl.DataFrame
    numbers: NDArray[Any]
    present: NDArray[np.bool_]
    sha256: str


def import_features(
    features: Table,
    manifest: Table | None,
    out: Source,
    *,
    encoder: str | None = None,
    array: str = FEATURES,
    shard_images: int = SHARD_IMAGES,
) -> Cache:
    """Make a cache of an array or a table of features and a manifest.

    An array [image, dim] or [image, view, dim] has its images in the order of the manifest's rows; in a .npz
    file with an array `image_id`, in the order of these ids. `array` is its name in a .npz file. A table has
    a row for each image and view, joined by image_id; `array` is the column of its features. Without a
    manifest the table has the manifest's columns too. An image whose features are empty (in an array: all
    NaN) has failed: a row without features.

    Two imported caches count as made by one encoder only if the caller gives both the same `encoder`: the
    files do not record it. Values outside float16's range are refused.
    """
    refuse_existing(out)
    table = open_table(features, array)
    read = (
        _from_array(features, manifest, array)
        if table is None
        else _from_table(table, features, manifest, out)
    )
    with read as given:
        return _write(given, out, encoder, shard_images)


def _write(given: Given, out: Source, encoder: str | None, shard_images: int) -> Cache:
    fingerprint = Fingerprint(
        encoder=IMPORTED if encoder is None else f"{IMPORTED} {encoder}",
        weights_sha256=f"features {given.sha256}" if encoder is None else "",
        preprocessing="external",
        recipe="external",
        runtime="external",
        precision="float16",
        view_settings=f"imported from a file with sha256 {given.sha256}",
        seed=0,
        decoder="external",
    )
    _, views, dim = given.numbers.shape
    with create_cache(out, given.manifest, views, dim, fingerprint, shard_images) as writer:
        lost = given.manifest[IMAGE_ID].filter(pl.Series(~given.present))
        if lost.len():
            reason = "imported without features"
            write_failures(out, [Failure(image_id, "encode", reason) for image_id in sorted(lost)])
        for shard in range(writer.layout.shards):
            images = slice(*writer.layout.bounds(shard))
            writer.write_shard(shard, as_half(given.numbers[images]), given.present[images])
    return open_cache(out)


def _read_manifest(manifest: Table) -> tuple[pl.DataFrame, str]:
    if isinstance(manifest, pl.DataFrame):
        return canonical_manifest(manifest, "manifest"), "the manifest"
    return canonical_manifest(read_text_table(manifest, REQUIRED_COLUMNS), str(manifest)), str(manifest)


@contextmanager
def _from_array(features: Table, manifest: Table | None, array: str) -> Iterator[Given]:
    path = Path(str(features))
    if manifest is None:
        raise InputError(
            f"{path}: expected a manifest with the features of an array; name it with --manifest"
        )
    table, source = _read_manifest(manifest)
    ids = read_ids(path)
    if ids is None:
        numbers = read_array(path, array, table.height, f"row of {source}")
    else:
        order = _order_of(ids, table[IMAGE_ID], str(path), source)
        numbers = read_array(path, array, ids.len(), f"id in its {IMAGE_ID}")
        if not np.array_equal(order, np.arange(order.size)):
            numbers = numbers[order]
    present = np.ones(table.height, dtype=np.bool_)
    wrong: list[int] = []
    for first in range(0, table.height, SHARD_IMAGES):
        part = numbers[first : first + SHARD_IMAGES]
        present[first : first + SHARD_IMAGES] = ~np.isnan(part).all(axis=(1, 2))
        wrong += (first + np.flatnonzero(~finite_images(as_half(part)))).tolist()
    _refuse_out_of_range([table[IMAGE_ID][image] for image in wrong if present[image]], str(path))
    if not present.any():
        raise InputError(f"{path}: expected features, found none: all are NaN")
    yield Given(table, numbers, present, file_sha256(path))


def _order_of(ids: pl.Series, image_ids: pl.Series, source: str, manifest: str) -> NDArray[np.int64]:
    """Return the row of each image of a manifest in an array, whose ids must be those of the manifest."""
    for name, twice in (("id", ids), ("row", image_ids)):
        again = twice.filter(twice.is_duplicated())
        if again.len():
            raise InputError(f"{source}: expected one {name} for each image, found {again[0]} twice")
    for found, other, where in ((image_ids, ids, manifest), (ids, image_ids, source)):
        lost = found.filter(~found.is_in(other.implode())).to_list()
        if lost:
            raise InputError(
                f"{source}: expected the {image_ids.len():,} images of {manifest} by its {IMAGE_ID}, found"
                f" {len(lost):,} of {where} alone ({shown(lost)})"
            )
    rows = {image_id: row for row, image_id in enumerate(ids)}
    return np.array([rows[image_id] for image_id in image_ids], dtype=np.int64)


@contextmanager
def _from_table(table: FeatureTable, features: Table, manifest: Table | None, out: Source) -> Iterator[Given]:
    if manifest is None:
        rows, source = canonical_manifest(table.manifest(), table.source), table.source
    else:
        rows, source = _read_manifest(manifest)
    image, view = _places(table, rows[IMAGE_ID], source)
    views = int(view.max()) + 1
    beside = tempfile.gettempdir() if is_url(out) else str(Path(out).absolute().parent)
    with refusals_in_words(beside), tempfile.TemporaryFile(prefix="trust-cache-", dir=beside) as scratch:
        numbers, there = _fill(table, scratch, image, view, (rows.height, views), rows[IMAGE_ID])
        some = np.asarray(there.any(axis=1))
        partly = np.flatnonzero(some & ~there.all(axis=1))
        if partly.size:
            name = rows[IMAGE_ID][int(partly[0])]
            raise InputError(
                f"{table.source}: image {name}: expected features of every view or of none, found both"
            )
        if isinstance(features, Path):
            sha256 = file_sha256(features)
        else:
            sha256 = hashlib.sha256(numbers.reshape(-1).view(np.uint8).data).hexdigest()
        yield Given(rows, numbers, some, sha256)


def _places(
    table: FeatureTable, image_ids: pl.Series, manifest: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the image (its number in the manifest, or -1) and the view of every row of a table."""
    keys = table.keys()
    ids = as_ids(keys[IMAGE_ID], table.source)
    for name, column in ((IMAGE_ID, ids), (VIEW, keys[VIEW])):
        if column.null_count():
            raise InputError(
                f"{table.source}: expected a {name} in every row, found {column.null_count()} empty"
            )
    rows = pl.DataFrame({IMAGE_ID: ids, VIEW: keys[VIEW].cast(pl.Int64)})
    known = pl.DataFrame({IMAGE_ID: image_ids}).with_row_index("number")
    missing = known.join(rows, on=IMAGE_ID, how="anti", maintain_order="left")[IMAGE_ID].to_list()
    if missing:
        lost = "; its ids are numbers, without leading zeros" if keys[IMAGE_ID].dtype.is_numeric() else ""
        raise InputError(
            f"{table.source}: expected a row for each of the {image_ids.len():,} images of {manifest}, found"
            f" none for {len(missing):,} ({shown(missing)}){lost}; an image that failed has a row with empty"
            " features"
        )
    rows = rows.join(known, on=IMAGE_ID, how="left", maintain_order="left")
    used = rows.drop_nulls()
    if used.height < rows.height:
        _LOG.warning(
            "%s: %d rows of images that are not in %s are left out",
            table.source, rows.height - used.height, manifest,
        )  # fmt: skip
    _check_views(used, table.source)
    return rows["number"].cast(pl.Int64).fill_null(-1).to_numpy(), rows[VIEW].to_numpy()


def _check_views(rows: pl.DataFrame, source: str) -> None:
    """Refuse an image that has a view twice, or not all views from 0."""
    twice = rows.filter(rows.is_duplicated())
    if twice.height:
        image_id, view, _ = twice.row(0)
        raise InputError(
            f"{source}: expected one row for each image and view, found image {image_id}, view {view} twice"
            f" ({twice.height} such rows)"
        )
    views = int(rows[VIEW].max()) + 1  # type: ignore[arg-type]
    counted = rows.group_by(IMAGE_ID, maintain_order=True).agg(pl.len(), pl.col(VIEW).min())
    lacking = counted.filter((pl.col("len") != views) | (pl.col(VIEW) != 0))
    if lacking.height:
        raise InputError(
            f"{source}: image {lacking[IMAGE_ID][0]}: expected the views 0 to {views - 1}, as other images"
            f" have, found {lacking['len'][0]} of them ({lacking.height} such images)"
        )


def _fill(
    table: FeatureTable,
    scratch: IO[bytes],
    image: NDArray[np.int64],
    view: NDArray[np.int64],
    shape: tuple[int, int],
    image_ids: pl.Series,
) -> tuple[Features, NDArray[np.bool_]]:
    """Put the features of every row at its place; return them, in a scratch file, and which are there."""
    numbers: Features | None = None
    there, start = np.zeros(shape, dtype=np.bool_), 0
    wrong: list[int] = []
    for present, values in table.batches():
        rows = np.flatnonzero(present) + start
        start += present.size
        if not rows.size:
            continue
        dim = values.shape[1]
        if numbers is None:
            numbers = np.memmap(scratch, dtype=np.float16, mode="w+", shape=(*shape, dim))
        elif dim != numbers.shape[2]:
            raise InputError(
                f"{table.source}: row {rows[0] + 1}: expected as many features as in the rows before"
                f" ({numbers.shape[2]}), found {dim}"
            )
        used = image[rows] >= 0
        rows, half = rows[used], as_half(values[used])
        wrong += image[rows[~finite_images(half)]].tolist() if rows.size else []
        numbers[image[rows], view[rows]] = half
        there[image[rows], view[rows]] = True
    _refuse_out_of_range([image_ids[number] for number in dict.fromkeys(wrong)], table.source)
    if numbers is None:
        raise InputError(f"{table.source}: expected features, found none: all are empty")
    return numbers, np.asarray(there)


def _refuse_out_of_range(wrong: Sequence[str], source: str) -> None:
    if wrong:
        raise InputError(
            f"{source}: features of {len(wrong)} images are NaN, infinite or beyond float16's 65,504"
            f" ({shown(list(wrong))})"
        )
