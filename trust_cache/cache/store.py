"""The interface of a backend: how a cache's parts are read and written, whatever holds them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.layout import Description, Features

Columns = dict[str, Sequence[str] | Sequence[int]]


class DamagedError(InputError):
    """A part of a cache is not as it was written; `kind` is one word for what happened to it."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        # By default only the message would travel from a worker, and the error could not be built again.
        return type(self), (str(self), self.kind)


@dataclass(frozen=True)
class ShardPlace:
    """Where the uncompressed features of a shard's images lie in a local file."""

    path: Path
    offsets: NDArray[np.int64]  # bytes, one per image


class Store(Protocol):
    """A cache's arrays. Reading needs no closing: nothing stays open between calls."""

    @property
    def source(self) -> str:
        """The path or URL, as the user gave it."""
        ...

    @property
    def backend(self) -> str:
        """`zarr` or `hdf5`."""
        ...

    @property
    def description(self) -> Description:
        """The cache's document, read when it was opened."""
        ...

    def read_columns(self) -> Columns:
        """Read the manifest's columns by their names in the manifest."""
        ...

    def read_marks(self, shards: Sequence[int] | None = None) -> NDArray[np.uint8]:
        """Read the marks [shard, byte], all or those of some shards; zeros where a shard has none."""
        ...

    def read_shard(self, shard: int, out: Features) -> None:
        """Fill `out` with a shard's features; DamagedError where they are not whole."""
        ...

    def locate_shard(self, shard: int) -> ShardPlace | None:
        """Tell where a shard's bytes lie, or None where only `read_shard` can get at them."""
        ...


class WritableStore(Store, Protocol):
    """A store to which one process at a time writes any one shard."""

    def write_shard(self, shard: int, features: Features) -> None:
        """Write a shard whole and force it to the disk."""
        ...

    def write_mark(self, shard: int, mark: bytes) -> None:
        """Write a shard's mark (zeros take it away) and force it to the disk."""
        ...

    def remove_partial(self) -> None:
        """Remove what killed writers left half-written; only for the one that holds the lock."""
        ...

    def close(self) -> None:
        """Let go of what writing needed."""
        ...


def read_place(place: ShardPlace, out: Features, source: str) -> None:
    """Read a located shard straight into `out`: one read where its images follow each other."""
    size = out.nbytes // out.shape[0]
    target = bytes_of(out)
    runs = [(int(at), target[n * size : (n + 1) * size]) for n, at in enumerate(place.offsets)]
    if np.all(np.diff(place.offsets) == size):
        runs = [(int(place.offsets[0]), target)]
    with place.path.open("rb", buffering=0) as file:
        for offset, part in runs:
            file.seek(offset)
            filled = 0
            while filled < len(part):
                count = file.readinto(part[filled:])
                if not count:
                    raise DamagedError(f"{source}: {place.path.name} is truncated", "truncated")
                filled += count


def bytes_of(features: Features) -> memoryview:
    """Return the bytes of C-contiguous features without copying them."""
    return features.reshape(-1).view(np.uint8).data
