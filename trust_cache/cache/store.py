"""Define a store: how the parts of a cache are read and written, whatever holds them.

A new store is one module with a `Backend` and one line in `known_stores.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.layout import CacheDescription, Features, Layout

Columns = dict[str, Sequence[str] | Sequence[int]]


class DamagedError(InputError):
    """A part of a cache differs from what was written; `kind` is one word for the damage."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        # By default only the message would be pickled, and a worker's error could not be rebuilt.
        return type(self), (str(self), self.kind)


@dataclass(frozen=True)
class ShardPlace:
    """The place of a shard's uncompressed features in a local file."""

    path: Path
    offsets: NDArray[np.int64]  # bytes, one per image


class Store(Protocol):
    """A cache's arrays. Reading needs no closing: nothing stays open between calls."""

    @property
    def source(self) -> str:
        """The path or URL, as the user gave it."""

    @property
    def backend(self) -> str:
        """The name of the backend, such as `zarr`."""

    @property
    def description(self) -> CacheDescription:
        """The cache's document, read when it was opened."""

    @property
    def layout(self) -> Layout:
        """The shape of the features and their division into shards."""

    def read_columns(self) -> Columns:
        """Read the manifest's columns by their names in the manifest."""

    def read_marks(self, shards: Sequence[int] | None = None) -> NDArray[np.uint8]:
        """Read the marks [shard, byte], all or those of some shards; zeros where a shard has none."""

    def read_shard(self, shard: int, out: Features) -> None:
        """Fill `out` with a shard's features; DamagedError where they are incomplete."""

    def locate_shard(self, shard: int) -> ShardPlace | None:
        """Return the place of a shard's bytes, or None where only `read_shard` can get at them."""


class WritableStore(Store, Protocol):
    """A store to which one process at a time writes any one shard."""

    def write_shard(self, shard: int, features: Features) -> None:
        """Write a complete shard and force it to the disk."""

    def write_mark(self, shard: int, mark: bytes) -> None:
        """Write a shard's mark (zeros remove it) and force it to the disk."""

    def remove_partial(self) -> None:
        """Remove half-written files of killed writers; only the holder of the lock calls this."""

    def close(self) -> None:
        """Release what writing needed."""


@dataclass(frozen=True)
class Backend:
    """One kind of store: which names it has, how it is created and opened."""

    suffix: str
    is_file: bool  # one file with one writer; otherwise a folder, in which each process writes its own shards
    # Creates a cache without features; refuses a taken name.
    create: Callable[[str, Layout, CacheDescription, pl.DataFrame], None]
    open: Callable[[str, bool], WritableStore]  # the place, and whether it is opened for writing


def read_place(place: ShardPlace, out: Features, source: str) -> None:
    """Read a located shard straight into `out`: one read where its images follow each other."""
    size = out.nbytes // out.shape[0]
    target = bytes_of(out)
    runs = [(int(at), target[n * size : (n + 1) * size]) for n, at in enumerate(place.offsets)]
    if np.all(np.diff(place.offsets) == size):
        runs = [(int(place.offsets[0]), target)]
    with place.path.open("rb") as file:
        for offset, part in runs:
            file.seek(offset)
            if file.readinto(part) < len(part):
                raise DamagedError(f"{source}: {place.path.name} is truncated", "truncated")


def bytes_of(features: Features) -> memoryview:
    """Return the bytes of C-contiguous features without copying them."""
    return features.reshape(-1).view(np.uint8).data
