"""Make a cache from another one (convert, subset) or from imported features (.npy, .npz)."""

import math
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.csv_tables import read_text_table
from trust_cache.base.digests import file_sha256
from trust_cache.base.errors import InputError
from trust_cache.base.places import read_bytes, write_bytes
from trust_cache.cache.cache_reader import Cache, open_cache, read_checked_shard, read_failures, shown
from trust_cache.cache.cache_writer import CacheWriter, create_cache, write_failures
from trust_cache.cache.cached_manifest import canonical_manifest
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.cache.known_stores import EXTRACTION, Source, companion
from trust_cache.cache.layout import SHARD_IMAGES, Features, as_half, finite_images
from trust_cache.images.image_failures import FAILURES
from trust_cache.manifest.cases import CASE_LABEL, find_cases
from trust_cache.manifest.manifest_file import REQUIRED_COLUMNS

Filter = pl.Expr | Mapping[str, str]
FEATURES = "features"  # the array of an .npz file
_ZIP = b"PK"  # the start of an .npz file
_MOST_NUMBERS = 1 << 24  # per image: more than any encoder makes; more is refused before it is unpacked


def convert_cache(source: Source, out: Source) -> Cache:
    """Copy a cache to another name and backend, bit for bit, with the files that go with it.

    Failed images stay failed and pending ones pending.
    """
    cache = open_cache(source)
    layout = cache.layout
    with _create_like(cache, out, cache.manifest) as writer:
        for name in (FAILURES, EXTRACTION):
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
    return create_cache(out, manifest, layout.views, layout.dim, cache.fingerprint, layout.shard_images)


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


def import_features(
    features: Path,
    manifest: Path,
    out: Source,
    *,
    encoder: str | None = None,
    array: str = FEATURES,
    shard_images: int = SHARD_IMAGES,
) -> Cache:
    """Make a cache of an array [image, dim] or [image, view, dim] and a manifest with rows in its order.

    Of a .npz file, `array` is the name of the array to take.

    Two imported caches count as made by one encoder only if the caller gives both the same `encoder`: the
    files do not record it. Values outside float16's range are refused.
    """
    table = canonical_manifest(read_text_table(manifest, REQUIRED_COLUMNS), str(manifest))
    numbers = _read_array(features, array, table.height, str(manifest))
    _refuse_out_of_range(numbers, table["image_id"].to_list(), features)
    sha256 = file_sha256(features)
    fingerprint = Fingerprint(
        encoder="imported" if encoder is None else f"imported {encoder}",
        weights_sha256=f"features {sha256}" if encoder is None else "",
        image_size=None,
        preprocessing="external",
        standardisation="external",
        precision="float16",
        view_settings=f"imported from a file with sha256 {sha256}",
        seed=0,
        decoder="external",
    )
    with create_cache(out, table, numbers.shape[1], numbers.shape[2], fingerprint, shard_images) as writer:
        for shard in range(writer.layout.shards):
            writer.write_shard(shard, as_half(numbers[slice(*writer.layout.bounds(shard))]))
    return open_cache(out)


def _read_array(path: Path, name: str, images: int, manifest: str) -> NDArray[Any]:
    try:
        shape = _shape_of(path, name)
        if len(shape) not in (2, 3) or 0 in shape:
            raise InputError(f"{path}: expected features [image, dim] or [image, view, dim], found {shape}")
        if shape[0] != images:
            raise InputError(
                f"{path}: expected features of {images} images, one for each row of {manifest},"
                f" found {shape[0]}"
            )
        if math.prod(shape[1:]) > _MOST_NUMBERS:
            raise InputError(f"{path}: expected at most {_MOST_NUMBERS} numbers per image, found {shape[1:]}")
        found = np.load(path, mmap_mode="r", allow_pickle=False)  # unpickling could run any code
        if isinstance(found, np.ndarray):
            array: NDArray[Any] = found
        else:
            with found:
                array = np.asarray(found[name])
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a readable .npy or .npz file of numbers ({error})") from error
    if array.dtype.kind != "f":
        raise InputError(f"{path}: expected floating-point features, found {array.dtype}")
    return array[:, np.newaxis, :] if array.ndim == 2 else array  # noqa: PLR2004


def _shape_of(path: Path, name: str) -> tuple[int, ...]:
    """Return the shape of the array from the file's header, before anything is unpacked."""
    with path.open("rb") as file:
        if file.read(len(_ZIP)) != _ZIP:
            return _header_shape(file)
        with zipfile.ZipFile(file) as archive:
            names = [member.removesuffix(".npy") for member in archive.namelist()]
            if name not in names:
                raise InputError(
                    f"{path}: expected an array {name!r}, found {', '.join(names) or 'none'}; name one with"
                    " --array"
                )
            with archive.open(f"{name}.npy") as member:
                return _header_shape(member)


def _header_shape(file: IO[bytes]) -> tuple[int, ...]:
    file.seek(0)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which could run any code")
    return tuple(shape)


def _refuse_out_of_range(array: NDArray[Any], names: list[str], path: Path) -> None:
    wrong: list[str] = []
    for first in range(0, array.shape[0], SHARD_IMAGES):
        finite = finite_images(as_half(array[first : first + SHARD_IMAGES]))
        wrong += [names[first + image] for image in np.flatnonzero(~finite)]
    if wrong:
        raise InputError(
            f"{path}: features of {len(wrong)} images are NaN, infinite or beyond float16's 65,504"
            f" ({shown(wrong)})"
        )
