"""Writing a cache: shard by shard, each whole, synced, then marked done with its checksum."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.base.locks import FileLock
from trust_cache.cache.backends import Source, create_store, lock_of, open_writable_store, refuse_existing
from trust_cache.cache.columns import array_names, canonical_manifest, manifest_sha256
from trust_cache.cache.fingerprint import Fingerprint, require_same_fingerprint
from trust_cache.cache.layout import (
    SHARD_IMAGES,
    Description,
    Features,
    Layout,
    make_mark,
    marked_shards,
    present_images,
)
from trust_cache.cache.store import WritableStore


class CacheWriter:
    """Writes shards of one cache, from several threads if wanted; a context manager that holds its lock."""

    def __init__(
        self, store: WritableStore, lock: FileLock | None, shards: Sequence[int] | None = None
    ) -> None:
        self._store = store
        self._lock = lock
        if lock is not None:
            store.remove_partial()
        marks = store.read_marks(shards)
        self._marked = marked_shards(marks)
        self._present = present_images(self.layout, marks)

    @property
    def layout(self) -> Layout:
        """The shape of the features and their division into shards."""
        return self._store.description.layout

    @property
    def fingerprint(self) -> Fingerprint:
        """What the features are made by."""
        return self._store.description.fingerprint

    @property
    def pending(self) -> list[int]:
        """The shards that are not marked done yet."""
        return [int(shard) for shard in np.flatnonzero(~self._marked)]

    @property
    def images_done(self) -> int:
        """The number of images that have features."""
        return int(self._present.sum())

    def is_done(self, shard: int) -> bool:
        """Tell whether a shard is marked done, be it without some of its images."""
        return bool(self._marked[shard])

    def absent(self, shard: int) -> list[int]:
        """Return which images of a shard, counted within it, have no features."""
        first, last = self.layout.bounds(shard)
        return [int(image) for image in np.flatnonzero(~self._present[first:last])]

    def write_shard(self, shard: int, features: Features, present: NDArray[np.bool_] | None = None) -> None:
        """Write a shard [image, view, dim] whole, force it to the disk, then mark it done.

        `present` says which images have features (all by default); the others' become NaN and the cache
        says that it lacks them. A shard that was marked before loses its mark first.
        """
        shape = self.layout.shard_shape(shard)
        if features.shape != shape or features.dtype != np.float16:
            raise InputError(
                f"{self._store.source}: shard {shard}: expected float16 features of shape {shape},"
                f" found {features.dtype} of shape {features.shape}"
            )
        if present is None:
            present = np.ones(shape[0], dtype=np.bool_)
        elif present.shape != (shape[0],):
            raise InputError(f"{self._store.source}: shard {shard}: expected {shape[0]} flags of presence")
        if not present.all():
            features = features.copy()
            features[~present] = np.nan
        images = slice(*self.layout.bounds(shard))
        if self._marked[shard]:
            self._store.write_mark(shard, bytes(self.layout.mark_bytes))
            self._marked[shard] = False
            self._present[images] = False
        self._store.write_shard(shard, features)
        self._store.write_mark(shard, make_mark(self.layout, features, present))
        self._marked[shard] = True
        self._present[images] = present

    def close(self) -> None:
        """Give the cache free for others."""
        if self._lock is not None:
            self._store.remove_partial()  # of workers that were killed
        self._store.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def create_cache(
    out: Source,
    manifest: pl.DataFrame,
    views: int,
    dim: int,
    fingerprint: Fingerprint,
    shard_images: int = SHARD_IMAGES,
) -> CacheWriter:
    """Make a new cache for these images and `views` stored views (the clean one included)."""
    table = canonical_manifest(manifest, str(out))
    description = Description(
        layout=Layout(table.height, views, dim, shard_images),
        fingerprint=fingerprint,
        columns=array_names(table.columns),
        manifest_sha256=manifest_sha256(table),
    )
    refuse_existing(out)
    lock = _acquired(out)
    try:
        refuse_existing(out)  # again, now that nobody else can be making it
        create_store(out, description, table)
        return CacheWriter(open_writable_store(out), lock)
    except BaseException:
        if lock is not None:
            lock.release()
        raise


def resume_cache(
    source: Source,
    manifest: pl.DataFrame | None = None,
    fingerprint: Fingerprint | None = None,
    *,
    locked: bool = True,
    shards: Sequence[int] | None = None,
) -> CacheWriter:
    """Open a cache to write its pending shards; it must have this manifest and fingerprint where given.

    `locked=False` is for workers of the process that holds the lock, each with `shards` of its own (Zarr);
    of the others' marks it then knows nothing.
    """
    lock = _acquired(source) if locked else None
    try:
        store = open_writable_store(source)
        try:
            if fingerprint is not None:
                require_same_fingerprint(fingerprint, store.description.fingerprint, str(source))
            if manifest is not None:
                _require_same_manifest(manifest, store.description, str(source))
            return CacheWriter(store, lock, shards)
        except BaseException:
            store.close()
            raise
    except BaseException:
        if lock is not None:
            lock.release()
        raise


def _acquired(source: Source) -> FileLock | None:
    lock = lock_of(source)
    return None if lock is None else lock.acquire()


def _require_same_manifest(manifest: pl.DataFrame, description: Description, source: str) -> None:
    if manifest_sha256(canonical_manifest(manifest, source)) != description.manifest_sha256:
        raise InputError(
            f"{source}: was made for another manifest (other images, labels or columns);"
            " resume with that one or choose another --out"
        )
