"""All features of a cache for training: mapped from its files, or read into memory."""

import ctypes
import logging
import mmap
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError, StoppedError, shown
from trust_cache.base.files import refusals_in_words
from trust_cache.base.places import is_url
from trust_cache.cache.cache_reader import Cache, check_shard, refuse_unfinished
from trust_cache.cache.layout import Features, finite_images
from trust_cache.cache.store import ShardPlace, bytes_of


@dataclass(frozen=True)
class FeatureRows:
    """float16 features [image, view, dim]; each image's block is contiguous, at any address.

    `addresses[i]` is where image i's view 0 starts; view v follows `v * dim` elements later. `owner` keeps
    the memory (an array or memory maps) alive as long as the addresses are in use. `present[i]` tells whether
    image i has features. A failed image has none: its row is NaN, and training must leave it out.
    """

    addresses: NDArray[np.int64]
    views: int  # stored views, the clean one included
    dim: int
    owner: object = field(repr=False)
    present: NDArray[np.bool_] = field(kw_only=True, repr=False)

    @property
    def images(self) -> int:
        """The number of images."""
        return int(self.addresses.size)

    def clean(self, image: int) -> NDArray[np.float16]:
        """Return the clean view [dim] of one image, not a copy: valid only while this record exists."""
        memory = (ctypes.c_uint16 * self.dim).from_address(int(self.addresses[image]))
        return np.ctypeslib.as_array(memory).view(np.float16)

    def gather_clean(self, images: NDArray[np.int64]) -> NDArray[np.float16]:
        """Return a copy of the clean views [image, dim] of these images."""
        found = np.empty((len(images), self.dim), dtype=np.float16)
        size, begin = found.itemsize * self.dim, found.ctypes.data
        for row, address in enumerate(self.addresses[images].tolist()):
            ctypes.memmove(begin + row * size, address, size)
        return found


def rows_of_array(features: NDArray[np.float16], present: NDArray[np.bool_] | None = None) -> FeatureRows:
    """Return the rows of a C-contiguous float16 array [image, view, dim] without copying it.

    `present` tells which images have features; by default all.
    """
    if features.dtype != np.float16 or features.ndim != 3 or not features.flags.c_contiguous:  # noqa: PLR2004
        raise TypeError("expected a C-contiguous float16 array [image, view, dim]")
    images, views, dim = features.shape
    addresses = features.ctypes.data + features.strides[0] * np.arange(images, dtype=np.int64)
    present = np.ones(images, dtype=np.bool_) if present is None else present
    return FeatureRows(addresses, views, dim, owner=features, present=present)


class MappedFile:
    """A file mapped into memory as long as this object exists; its pages belong to the page cache."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        if self.size == 0:
            raise ValueError(f"{path}: an empty file cannot be mapped")
        with path.open("rb") as file:
            if sys.platform == "win32":
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self.address = np.frombuffer(self._map, dtype=np.uint8).ctypes.data
            else:
                self.address = _map_pages(file.fileno(), self.size)
                weakref.finalize(self, _libc.munmap, self.address, self.size)

    def array(self, offset: int, shape: tuple[int, ...]) -> NDArray[np.float16]:
        """Return float16 values at a byte offset without copying; valid only while this object exists."""
        count = int(np.prod(shape))
        if offset < 0 or offset + 2 * count > self.size:
            raise ValueError(f"{self.path}: {2 * count} bytes at {offset} are outside its {self.size} bytes")
        buffer = (ctypes.c_uint16 * count).from_address(self.address + offset)
        return np.frombuffer(memoryview(buffer), dtype=np.float16).reshape(shape)


if sys.platform != "win32":
    # Python's own mmap keeps a copy of the file's descriptor open as long as the map (up to 3.12).
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t,
    ]  # fmt: skip
    _libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    _FAILED = ctypes.c_void_p(-1).value

    def _map_pages(handle: int, size: int) -> int:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
        if address is None or address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return int(address)


_MOST_MAPS = 20_000  # Linux permits 65,530 maps to a process
_logger = logging.getLogger(__name__)

OnShard = Callable[[int, int], None]


def open_rows(
    cache: Cache,
    threads: int | None = None,
    *,
    low_memory: bool = False,
    views: int | None = None,
    on_shard: OnShard = lambda _done, _of: None,
) -> FeatureRows:
    """Map the features where the files allow it, which is faster than reading them; else read them.

    With `low_memory`, features that cannot be mapped are copied to a file instead of into memory. `views` is
    the number of views that are needed, to save memory. See `load_rows` for what is refused.
    """
    return _opener(cache, threads, low_memory=low_memory, views=views, on_shard=on_shard)()


def _opener(
    cache: Cache, threads: int | None, *, low_memory: bool, views: int | None, on_shard: OnShard
) -> Callable[[], FeatureRows]:
    """Find the features, and return the function that maps or reads them."""
    refuse_unfinished(cache)
    places = _places(cache)
    if low_memory or places is not None:
        return partial(map_rows, cache, threads=threads, places=places, on_shard=on_shard)
    return partial(load_rows, cache, threads, views=views, on_shard=on_shard)


@contextmanager
def open_rows_aside(
    cache: Cache,
    threads: int | None = None,
    *,
    low_memory: bool = False,
    on_shard: OnShard = lambda _done, _of: None,
) -> Iterator[Callable[[], FeatureRows]]:
    """Start `open_rows` in a thread beside what the caller does next; the function given waits for the rows.

    An error of the caller ends the reading after the shards that are being read.
    """
    stopped = threading.Event()

    def count(done: int, of: int) -> None:
        if stopped.is_set():
            raise StoppedError("the features are no longer needed")
        on_shard(done, of)

    opener = _opener(cache, threads, low_memory=low_memory, views=None, on_shard=count)
    with ThreadPoolExecutor(1) as beside:
        opening = beside.submit(opener)
        try:
            yield opening.result
        finally:
            stopped.set()


def load_rows(
    cache: Cache,
    threads: int | None = None,
    *,
    views: int | None = None,
    check: bool = True,
    on_shard: OnShard = lambda _done, _of: None,
) -> FeatureRows:
    """Read features into memory; refuse an unfinished or damaged cache and features that are not finite.

    Failed images are rows of NaN that are not `present`; only pending images make a cache unfinished.
    `views` keeps only the first views, to save memory. `check=False` skips the checksums, for a cache that
    was just verified. `on_shard` is called with the number of shards done and their total.
    """
    refuse_unfinished(cache)
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
    _ = cache.manifest  # refuses an edited one
    return rows_of_array(features, cache.done)


def map_rows(
    cache: Cache,
    scratch: Path | None = None,
    threads: int | None = None,
    *,
    check: bool = True,
    places: list[ShardPlace] | None = None,
    on_shard: OnShard = lambda _done, _of: None,
) -> FeatureRows:
    """Map all features; those that cannot be mapped are first copied to a file in `scratch`, with a warning.

    Without `scratch` the copy is beside the cache. It is removed with the maps. `places` are those of all
    shards, if they are known. Refuses as `load_rows` does.
    """
    refuse_unfinished(cache)
    places = places or _places(cache)
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
        return _examined(cache, shard, _mapped(cache, by_path[place.path], place.offsets), check=check)

    _refuse_not_finite(cache, _over_shards(cache, examine, threads, on_shard))
    _ = cache.manifest  # refuses an edited one
    addresses = np.concatenate([by_path[place.path].address + place.offsets for place in places])
    return FeatureRows(addresses, cache.views, cache.dim, owner=maps, present=cache.done)


def _mapped(cache: Cache, file: MappedFile, offsets: NDArray[np.int64]) -> Features:
    """Return the features of a shard: those of the map where its images follow each other, else a copy."""
    shape = (cache.views, cache.dim)
    if np.all(np.diff(offsets) == cache.layout.image_bytes):
        return file.array(int(offsets[0]), (offsets.size, *shape))
    return np.stack([file.array(int(offset), shape) for offset in offsets])


def _examined(cache: Cache, shard: int, features: Features, *, check: bool) -> NDArray[np.int64]:
    """Return the images of a shard that are present but not finite; refuse one that breaks its checksum."""
    if check:
        check_shard(cache, shard, features)
    first, last = cache.layout.bounds(shard)
    return first + np.flatnonzero(cache.done[first:last] & ~finite_images(features))


def _over_shards(
    cache: Cache,
    act: Callable[[int], NDArray[np.int64]],
    threads: int | None,
    on_shard: OnShard = lambda _done, _of: None,
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
            " extract those images again"
        )


def _places(cache: Cache) -> list[ShardPlace] | None:
    """Return the places of all shards, or None if any cannot be mapped."""
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
    beside = tempfile.gettempdir() if is_url(cache.source) else Path(cache.source).absolute().parent
    folder = scratch if scratch is not None else Path(beside)
    total = cache.images * cache.layout.image_bytes
    _logger.warning(
        "%s: cannot be mapped directly (compressed, remote or in very many files);"
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
            with refusals_in_words(name), path.open("r+b") as file:
                file.seek(cache.layout.bounds(shard)[0] * cache.layout.image_bytes)
                file.write(bytes_of(block))
            return np.empty(0, dtype=np.int64)

        _over_shards(cache, copy, threads)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path
