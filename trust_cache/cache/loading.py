"""All features for training: read into memory at the disk's speed, or mapped where they lie."""

import logging
import os
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.durable import refusals_in_words
from trust_cache.base.errors import InputError
from trust_cache.cache.backends import is_url
from trust_cache.cache.layout import Features, finite_images
from trust_cache.cache.maps import MappedFile
from trust_cache.cache.reading import Cache, check_shard, refuse_unfinished, shown
from trust_cache.cache.rows import FeatureRows, rows_of_array
from trust_cache.cache.store import ShardPlace, bytes_of

_MOST_MAPS = 20_000  # Linux permits 65,530 maps to a process
_logger = logging.getLogger(__name__)

OnShard = Callable[[int, int], None]


def _say_nothing(_done: int, _of: int) -> None:
    pass


def load_rows(
    cache: Cache,
    threads: int | None = None,
    *,
    views: int | None = None,
    check: bool = True,
    on_shard: OnShard = _say_nothing,
) -> FeatureRows:
    """Read features into memory; refuse an unfinished or damaged cache and features that are not finite.

    `views` keeps only the first views, which bounds the memory by theirs. `check=False` leaves the checksums
    aside, for what `verify` has just looked at. `on_shard` is called with the shards done and their number.
    """
    refuse_unfinished(cache)
    _ = cache.manifest  # refuses an edited one
    kept = cache.views if views is None else min(views, cache.views)
    features = np.empty((cache.images, kept, cache.dim), dtype=np.float16)

    def read(shard: int) -> NDArray[np.int64]:
        first, last = cache.layout.bounds(shard)
        part = features[first:last]
        whole = part if kept == cache.views else np.empty(cache.layout.shard_shape(shard), dtype=np.float16)
        cache.store.read_shard(shard, whole)
        if whole is not part:
            part[:] = whole[:, :kept]
        return _examined(cache, shard, whole, check=check)

    _refuse_not_finite(cache, _over_shards(cache, read, threads, on_shard))
    return rows_of_array(features)


def map_rows(
    cache: Cache,
    scratch: Path | None = None,
    threads: int | None = None,
    *,
    check: bool = True,
    on_shard: OnShard = _say_nothing,
) -> FeatureRows:
    """Map all features; what cannot be mapped is first copied to a file in `scratch`, with a message.

    The copy lies beside the cache if no folder is given, and goes with the maps. Refuses as `load_rows`.
    """
    refuse_unfinished(cache)
    _ = cache.manifest
    places = _places(cache)
    if places is None:
        path = _copy_to_scratch(cache, scratch, threads)
        try:
            maps, places = [MappedFile(path)], _places_in_copy(cache, path)
        finally:
            if os.name != "nt":  # the map keeps the content; Windows removes no mapped file
                path.unlink()
    else:
        maps = [MappedFile(path) for path in dict.fromkeys(place.path for place in places)]
    by_path = {mapped.path: mapped for mapped in maps}

    def examine(shard: int) -> NDArray[np.int64]:
        place = places[shard]
        shape = (cache.views, cache.dim)
        blocks = [by_path[place.path].array(int(offset), shape) for offset in place.offsets]
        return _examined(cache, shard, np.stack(blocks), check=check)

    _refuse_not_finite(cache, _over_shards(cache, examine, threads, on_shard))
    addresses = np.concatenate([by_path[place.path].address + place.offsets for place in places])
    return FeatureRows(addresses, cache.views, cache.dim, owner=maps)


def _examined(cache: Cache, shard: int, features: Features, *, check: bool) -> NDArray[np.int64]:
    """Return the images of a shard that are not finite; refuse one that does not fit its checksum."""
    if check:
        check_shard(cache, shard, features)
    return cache.layout.bounds(shard)[0] + np.flatnonzero(~finite_images(features))


def _over_shards(
    cache: Cache,
    act: Callable[[int], NDArray[np.int64]],
    threads: int | None,
    on_shard: OnShard = _say_nothing,
) -> list[NDArray[np.int64]]:
    found = []
    with ThreadPoolExecutor(threads or min(8, os.cpu_count() or 1)) as pool:
        futures = [pool.submit(act, shard) for shard in range(cache.layout.shards)]
        try:
            for future in futures:
                found.append(future.result())
                on_shard(len(found), len(futures))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return found


def _refuse_not_finite(cache: Cache, found: Iterable[NDArray[np.int64]]) -> None:
    wrong = np.concatenate(list(found))
    if wrong.size:
        names = cache.manifest["image_id"][wrong].to_list()
        raise InputError(
            f"{cache.source}: features of {wrong.size} images are NaN or infinite ({shown(names)});"
            " extract those images again or leave them out with `trust-cache cache subset`"
        )


def _places(cache: Cache) -> list[ShardPlace] | None:
    """Return where every shard lies, or None if any cannot be mapped."""
    places = []
    for shard in range(cache.layout.shards):
        place = cache.store.locate_shard(shard)
        if place is None or np.any(place.offsets % np.dtype(np.float16).itemsize):
            return None
        places.append(place)
    return places if len({place.path for place in places}) <= _MOST_MAPS else None


def _places_in_copy(cache: Cache, path: Path) -> list[ShardPlace]:
    offsets = cache.layout.image_bytes * np.arange(cache.images, dtype=np.int64)
    bounds = (cache.layout.bounds(shard) for shard in range(cache.layout.shards))
    return [ShardPlace(path, offsets[first:last]) for first, last in bounds]


def _copy_to_scratch(cache: Cache, scratch: Path | None, threads: int | None) -> Path:
    folder = scratch if scratch is not None else _folder_beside(cache)
    total = cache.images * cache.layout.image_bytes
    _logger.warning(
        "%s: cannot be mapped as it lies (compressed, remote or in very many files);"
        " copying %.1f GB of features to %s first",
        cache.source, total / 1e9, folder,
    )  # fmt: skip
    with refusals_in_words(str(folder)):
        handle, name = tempfile.mkstemp(prefix="trust-cache-", suffix=".features", dir=folder)
    path = Path(name)
    try:
        with refusals_in_words(name), os.fdopen(handle, "wb") as file:
            file.truncate(total)

        def copy(shard: int) -> NDArray[np.int64]:
            block = np.empty(cache.layout.shard_shape(shard), dtype=np.float16)
            cache.store.read_shard(shard, block)
            with refusals_in_words(name), path.open("r+b", buffering=0) as file:
                file.seek(cache.layout.bounds(shard)[0] * cache.layout.image_bytes)
                _write_all(file.write, bytes_of(block))
            return np.empty(0, dtype=np.int64)

        _over_shards(cache, copy, threads)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _write_all(write: Callable[[memoryview], int | None], content: memoryview) -> None:
    written = 0
    while written < len(content):
        written += write(content[written:]) or 0


def _folder_beside(cache: Cache) -> Path:
    return Path(tempfile.gettempdir()) if is_url(cache.source) else Path(cache.source).absolute().parent
