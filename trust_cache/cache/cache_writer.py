"""Write a cache shard by shard: each one is synced, then marked done with its checksum."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.base.locks import FileLock
from trust_cache.base.places import write_bytes
from trust_cache.cache.cached_manifest import array_names, canonical_manifest, manifest_sha256
from trust_cache.cache.fingerprint import Fingerprint, require_same_fingerprint
from trust_cache.cache.known_stores import (
    Source,
    companion,
    create_store,
    lock_of,
    open_store,
    refuse_existing,
)
from trust_cache.cache.layout import (
    SHARD_IMAGES,
    CacheDescription,
    Features,
    Layout,
    Pictures,
    as_pictures,
    make_mark,
    marked_shards,
    picture_digests,
    present_images,
)
from trust_cache.cache.store import DamagedError, WritableStore
from trust_cache.encoders.probe import Probe
from trust_cache.images.examined_table import EXAMINED, ExaminedPicture, examined_bytes
from trust_cache.images.image_failures import FAILURES, Failure, failures_bytes


class CacheWriter:
    """Writes shards of one cache, from any thread; a context manager that holds its lock."""

    def __init__(
        self, store: WritableStore, lock: FileLock | None, shards: Sequence[int] | None = None
    ) -> None:
        self._store = store
        self._lock = lock
        if lock is not None:
            store.remove_partial()
        marks = store.read_marks(shards)
        self._marks = marks
        self._marked = marked_shards(marks)
        self._present = present_images(self.layout, marks)
        self._pictures = picture_digests(self.layout, marks).copy()

    @property
    def layout(self) -> Layout:
        """The shape of the features and their division into shards."""
        return self._store.layout

    @property
    def fingerprint(self) -> Fingerprint:
        """How the features are made."""
        return self._store.description.fingerprint

    @property
    def pending(self) -> list[int]:
        """The shards that are not marked done yet."""
        return np.flatnonzero(~self._marked).tolist()

    @property
    def images_done(self) -> int:
        """The number of images that have features."""
        return int(self._present.sum())

    def is_done(self, shard: int) -> bool:
        """Return whether a shard is marked done, even if it lacks some images."""
        return bool(self._marked[shard])

    def absent(self, shard: int) -> list[int]:
        """Return which images of a shard, counted within it, have no features."""
        first, last = self.layout.bounds(shard)
        return np.flatnonzero(~self._present[first:last]).tolist()

    def pictures(self, shard: int) -> list[bytes | None]:
        """Return the digests of the pictures of a shard that is done; None where unknown."""
        digests = self._pictures[slice(*self.layout.bounds(shard))]
        return [digest.tobytes() if digest.any() else None for digest in digests]

    def is_damaged(self, shard: int) -> bool:
        """Return whether a shard that was done when the cache was opened does not fit its mark."""
        features = np.empty(self.layout.shard_shape(shard), dtype=np.float16)
        try:
            self._store.read_shard(shard, features)
        except DamagedError:
            return True
        images = slice(*self.layout.bounds(shard))
        present, pictures = self._present[images], self._pictures[images]
        mark = make_mark(self._store.description, shard, features, present, pictures)
        return bool(mark != self._marks[shard].tobytes())

    def clear(self, shard: int) -> None:
        """Remove the mark of a shard: its images are pending again."""
        self._store.write_mark(shard, bytes(self.layout.mark_bytes))
        self._marked[shard] = False
        self._present[slice(*self.layout.bounds(shard))] = False

    def write_shard(
        self,
        shard: int,
        features: Features,
        present: NDArray[np.bool_] | None = None,
        pictures: Pictures | None = None,
    ) -> None:
        """Write a complete shard [image, view, dim], force it to the disk, then mark it done.

        `present` says which images have features (all by default); the others become NaN and count as
        missing. `pictures` has the digests of the pictures (unknown by default). A shard that was marked
        before loses its mark first.
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
        pictures = as_pictures([None] * shape[0]) if pictures is None else pictures
        if self._marked[shard]:
            self.clear(shard)
        self._store.write_shard(shard, features)
        mark = make_mark(self._store.description, shard, features, present, pictures)
        self._store.write_mark(shard, mark)
        self._marked[shard] = True
        images = slice(*self.layout.bounds(shard))
        self._present[images], self._pictures[images] = present, pictures

    def close(self) -> None:
        """Release the cache."""
        if self._lock is not None:
            self._store.remove_partial()  # of workers that were killed
        self._store.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def create_cache(
    out: Source,
    manifest: pl.DataFrame,
    views: int,
    dim: int,
    fingerprint: Fingerprint,
    shard_images: int = SHARD_IMAGES,
    probe: Probe | None = None,
) -> CacheWriter:
    """Create a cache for these images and `views` stored views (the clean one included)."""
    table = canonical_manifest(manifest, str(out))
    layout = Layout(table.height, views, dim, shard_images)
    description = CacheDescription(
        shard_images=shard_images,
        fingerprint=fingerprint,
        columns=array_names(table.columns),
        manifest_sha256=manifest_sha256(table),
        probe=probe,
    )
    refuse_existing(out)
    with ExitStack() as on_error:
        lock = _acquired(out, on_error)
        refuse_existing(out)  # again, now that nobody else can be making it
        create_store(out, layout, description, table)
        writer = CacheWriter(open_store(out, writable=True), lock)
        on_error.pop_all()
        return writer


def resume_cache(
    source: Source,
    manifest: pl.DataFrame | None = None,
    fingerprint: Fingerprint | None = None,
    *,
    locked: bool = True,
    shards: Sequence[int] | None = None,
) -> CacheWriter:
    """Open a cache to write its pending shards; it must have this manifest and fingerprint where given.

    `locked=False` is for workers of the process that holds the lock. Each has its own `shards` (Zarr) and
    reads only their marks.
    """
    with ExitStack() as on_error:
        lock = _acquired(source, on_error) if locked else None
        store = open_store(source, writable=True)
        on_error.callback(store.close)
        name, description = str(source), store.description
        if fingerprint is not None:
            require_same_fingerprint(fingerprint, description.fingerprint, name)
        if (
            manifest is not None
            and manifest_sha256(canonical_manifest(manifest, name)) != description.manifest_sha256
        ):
            raise InputError(
                f"{source}: was made for another manifest (other images, labels or columns);"
                " resume with that one or choose another --out"
            )
        writer = CacheWriter(store, lock, shards)
        on_error.pop_all()
        return writer


def write_failures(cache: Source, failures: Iterable[Failure]) -> None:
    """Replace failures.csv of a cache, which has the reasons of its failed images."""
    write_bytes(companion(cache, FAILURES), failures_bytes(failures))


def write_examined(cache: Source, rows: Iterable[ExaminedPicture]) -> None:
    """Replace examined.csv of a cache, which has what was found in its external pictures."""
    write_bytes(companion(cache, EXAMINED), examined_bytes(rows))


def _acquired(source: Source, on_error: ExitStack) -> FileLock | None:
    lock = lock_of(source)
    return None if lock is None else on_error.enter_context(lock)
