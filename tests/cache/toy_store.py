"""A third store, added through the seam alone: a folder of .npy and JSON files."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.cached_manifest import columns_of
from trust_cache.cache.layout import CacheDescription, Features, Layout, read_description
from trust_cache.cache.store import Backend, Columns, ShardPlace

DOCUMENT = "document.json"


class NpyStore:
    backend = "npy"

    def __init__(self, source: str, writable: bool = False) -> None:
        self.source = source
        self._folder = Path(source)
        self._writable = writable
        try:
            document = json.loads((self._folder / DOCUMENT).read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"{source}: not a feature cache ({error})") from error
        self.description, self.layout = read_description(document["cache"], document["shape"], source)

    def read_columns(self) -> Columns:
        columns: Columns = json.loads((self._folder / "manifest.json").read_text())
        return columns

    def read_marks(self, shards: Sequence[int] | None = None) -> NDArray[np.uint8]:
        marks = np.zeros((self.layout.shards, self.layout.mark_bytes), dtype=np.uint8)
        for shard in range(self.layout.shards) if shards is None else shards:
            path = self._folder / f"mark-{shard}.npy"
            if path.exists():
                marks[shard] = np.load(path)
        return marks

    def read_shard(self, shard: int, out: Features) -> None:
        out[...] = np.load(self._folder / f"shard-{shard}.npy")

    def locate_shard(self, shard: int) -> ShardPlace | None:  # noqa: ARG002
        return None

    def write_shard(self, shard: int, features: Features) -> None:
        assert self._writable
        np.save(self._folder / f"shard-{shard}.npy", features)

    def write_mark(self, shard: int, mark: bytes) -> None:
        assert self._writable
        np.save(self._folder / f"mark-{shard}.npy", np.frombuffer(mark, dtype=np.uint8))

    def remove_partial(self) -> None:
        pass

    def close(self) -> None:
        pass


def create_npy(target: str, layout: Layout, description: CacheDescription, manifest: pl.DataFrame) -> None:
    folder = Path(target)
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(columns_of(manifest)))
    shape = (layout.images, layout.views, layout.dim)
    (folder / DOCUMENT).write_text(json.dumps({"cache": description.as_document(), "shape": shape}))


NPY = Backend(".npy", False, create_npy, NpyStore)
