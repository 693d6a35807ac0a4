"""Store a cache in one local HDF5 file, with contiguous features and one writer at a time."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import h5py  # type: ignore[import-untyped]  # it has no types
import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.documents import parse_json
from trust_cache.base.errors import InputError
from trust_cache.base.files import refusals_in_words, sync
from trust_cache.cache.cached_manifest import columns_of
from trust_cache.cache.layout import FORMAT, CacheDescription, Features, Layout, read_description
from trust_cache.cache.store import Backend, Columns, DamagedError, ShardPlace, read_place

_PAGE = 4096  # features start at a page: a map of them is aligned for every processor


def create_hdf5(target: str, layout: Layout, description: CacheDescription, manifest: pl.DataFrame) -> None:
    """Create a cache whose features are NaN and already allocated on the disk.

    The file's structure never changes after this: a killed writer loses only the data it was writing.
    """
    columns = columns_of(manifest)
    with (
        _system_errors(),
        h5py.File(target, "x", locking=False, alignment_threshold=_PAGE, alignment_interval=_PAGE) as file,
    ):
        for column in description.columns:
            dtype = np.dtype(np.int8) if column.name == "label" else h5py.string_dtype()
            file.create_dataset(f"manifest/{column.array}", data=columns[column.name], dtype=dtype)
        early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        shape = (layout.images, layout.views, layout.dim)
        file.create_dataset("features", shape=shape, dtype="<f2", fillvalue=np.float16(np.nan), dcpl=early)
        shape_of_marks = (layout.shards, layout.mark_bytes)
        file.create_dataset("marks", shape=shape_of_marks, dtype=np.uint8, fillvalue=0, dcpl=early)
        file.attrs[FORMAT] = json.dumps(description.as_document(), ensure_ascii=False)


@contextmanager
def _system_errors() -> Iterator[None]:
    """Restore the type of the operating system's errors, which HDF5 reports only in its message."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        number = re.search(r"errno = (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def _refuse_links(file: h5py.File, source: str) -> None:
    """Refuse arrays outside the file (by a link or external storage): this library never writes them."""
    for group in (file, file.get("manifest")):
        if not isinstance(group, h5py.Group):
            continue  # reported where it is needed
        for name in group:
            node = group.get(name) if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
            outside = isinstance(node, h5py.Dataset) and (node.external or node.is_virtual)
            if node is None or outside:
                sentence = f"{source}: {name} is a link or external storage; a cache holds its own arrays"
                raise DamagedError(sentence, "link")


class Hdf5Store:
    """A cache in an HDF5 file. For reading, the file is open only during a call."""

    backend = "hdf5"

    def __init__(self, source: str, writable: bool = False) -> None:
        self.source = source
        self._path = Path(source)
        with self._reading() as file:
            if not isinstance(file.get("features"), h5py.Dataset) or FORMAT not in file.attrs:
                raise InputError(
                    f"{source}: an HDF5 file, but not a feature cache of trust-cache, or half-made"
                )
            _refuse_links(file, source)
            features = file["features"]
            try:
                document = parse_json(file.attrs[FORMAT])
            except (TypeError, ValueError) as error:
                raise InputError(f"{source}: the cache's description is damaged ({error})") from error
            self.description, self.layout = read_description(document, features.shape, source)
            # None for a chunked dataset, which other writers may make; it is read through HDF5.
            plain = features.chunks is None and features.dtype == np.dtype("<f2")
            self._offset: int | None = features.id.get_offset() if plain else None
        self._file: h5py.File | None = None
        if writable:
            with refusals_in_words(source):
                # Our lock is a file beside it; HDF5's own lock fails on many network file systems.
                self._file = h5py.File(self._path, "r+", locking=False)

    def read_columns(self) -> Columns:
        """Read the manifest's columns by their names in the manifest."""
        columns: Columns = {}
        with self._reading() as file:
            for column in self.description.columns:
                node = file.get(f"manifest/{column.array}")
                if not isinstance(node, h5py.Dataset):
                    message = f"{self.source}: the manifest lacks its column {column.name}"
                    raise DamagedError(message, "manifest")
                self._require_shape(node, (self.layout.images,), column.name)
                texts = h5py.check_string_dtype(node.dtype) is not None
                if not texts and node.dtype.kind not in "iu":  # references and compounds are no columns
                    message = f"{self.source}: the column {column.name} has the type {node.dtype}"
                    raise DamagedError(message, "manifest")
                columns[column.name] = (node.asstr() if texts else node)[:].tolist()
        return columns

    def read_marks(self, shards: Sequence[int] | None = None) -> NDArray[np.uint8]:  # noqa: ARG002 - one read
        """Read the marks [shard, byte], all of them at once; zeros where a shard has none."""
        with self._reading() as file:
            marks = file.get("marks")
            if not isinstance(marks, h5py.Dataset):
                raise DamagedError(f"{self.source}: the cache has no marks", "marks")
            self._require_shape(marks, (self.layout.shards, self.layout.mark_bytes), "marks")
            return np.asarray(marks[:], dtype=np.uint8)

    def _require_shape(self, node: h5py.Dataset, shape: tuple[int, ...], name: str) -> None:
        """Refuse an array of another shape, or of more rows than its file has bytes, before it is read."""
        if node.shape != shape or shape[0] > self._path.stat().st_size:
            raise DamagedError(
                f"{self.source}: {name}: expected the shape {shape} in a file of"
                f" {self._path.stat().st_size:,} bytes, found {node.shape}",
                "manifest",
            )

    def read_shard(self, shard: int, out: Features) -> None:
        """Fill `out` with a shard's features; DamagedError where they are incomplete."""
        place = self.locate_shard(shard)
        if place is not None:
            read_place(place, out, f"{self.source}: shard {shard}")
            return
        first, last = self.layout.bounds(shard)
        with self._reading() as file:
            out[...] = file["features"][first:last]

    def locate_shard(self, shard: int) -> ShardPlace | None:
        """Return the place of a shard's images in the contiguous dataset."""
        if self._offset is None:
            return None
        images = np.arange(*self.layout.bounds(shard), dtype=np.int64)
        return ShardPlace(self._path, self._offset + self.layout.image_bytes * images)

    def write_shard(self, shard: int, features: Features) -> None:
        """Write a complete shard and force it to the disk."""
        first, last = self.layout.bounds(shard)
        self._write("features", first, last, features)

    def write_mark(self, shard: int, mark: bytes) -> None:
        """Write a shard's mark (zeros remove it) and force it to the disk."""
        self._write("marks", shard, shard + 1, np.frombuffer(mark, dtype=np.uint8))

    def remove_partial(self) -> None:
        """Do nothing: the file is written in place, and its marks say which shards are complete."""

    def close(self) -> None:
        """Close the file that writing kept open."""
        file, self._file = self._file, None
        if file is not None:
            with refusals_in_words(self.source), _system_errors():
                file.close()

    def _write(self, name: str, first: int, last: int, values: NDArray[np.generic]) -> None:
        if self._file is None:
            raise InputError(f"{self.source}: was opened for reading")
        with refusals_in_words(self.source), _system_errors():
            self._file[name][first:last] = values
            self._file.flush()
            sync(self._path)

    @contextmanager
    def _reading(self) -> Iterator[h5py.File]:
        try:
            with h5py.File(self._path, "r", locking=False) as file:
                yield file
        except InputError:
            raise
        except (OSError, RuntimeError, KeyError) as error:
            if "truncated" in str(error):
                raise DamagedError(f"{self.source}: the file is truncated ({error})", "truncated") from error
            raise InputError(f"{self.source}: not a readable HDF5 file ({error})") from error


HDF5 = Backend(".h5", True, create_hdf5, Hdf5Store)
