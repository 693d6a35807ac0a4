"""The Zarr backend: a folder (fast, durable) or anything zarr-python opens by URL."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import zarr
from numpy.typing import NDArray

from trust_cache.base.documents import parse_json
from trust_cache.base.durable import PARTIAL, refusals_in_words, write_durably
from trust_cache.base.errors import InputError
from trust_cache.base.places import answers_in_words, is_of_a_store, is_url, join, read_bytes
from trust_cache.cache.columns import columns_of
from trust_cache.cache.layout import FORMAT, Description, Features, Layout, read_description
from trust_cache.cache.store import Columns, DamagedError, ShardPlace, bytes_of, read_place
from trust_cache.cache.zarr_shards import codecs_of, index_bytes, ordered_index, read_index

_PLAIN = [{"name": "bytes"}]  # the codecs of single bytes without compression
# One folder of files rather than a folder per shard: fewer folders to sync.
_FLAT = {"name": "default", "separator": "."}


def create_zarr(target: str, description: Description, manifest: pl.DataFrame) -> None:
    """Make a cache without features; the document that makes it one comes last."""
    layout = description.layout
    root = zarr.create_group(target, zarr_format=3)
    root.create_array(
        "features",
        shape=(layout.images, layout.views, layout.dim),
        dtype="float16",
        chunks=(1, layout.views, layout.dim),
        shards=(layout.shard_images, layout.views, layout.dim),
        compressors=None,
        filters=None,
        fill_value=float("nan"),
        chunk_key_encoding=_FLAT,  # type: ignore[arg-type]  # zarr's own documentation passes a dict
        dimension_names=("image", "view", "dim"),
    )
    root.create_array(
        "marks",
        shape=(layout.shards, layout.mark_bytes),
        dtype="uint8",
        chunks=(1, layout.mark_bytes),
        compressors=None,
        filters=None,
        fill_value=0,
        chunk_key_encoding=_FLAT,  # type: ignore[arg-type]  # as above
    )
    columns = root.create_group("manifest")
    arrays = dict(description.columns)
    for name, values in columns_of(manifest):
        data: NDArray[Any] = np.array(values, dtype=np.int8 if name == "label" else object)
        array = columns.create_array(
            arrays[name],
            shape=data.shape,
            dtype="int8" if name == "label" else str,
            chunks=data.shape,
            compressors=None,
            filters=None,
        )
        array[:] = data
    root.attrs[FORMAT] = description.as_document()


class ZarrStore:
    """A cache through zarr-python: any store, any codec, one shard at a time."""

    backend = "zarr"

    def __init__(self, source: str, *, writable: bool = False) -> None:
        self.source = source
        if is_url(source):
            # zarr-python asks for several files at once; where one is refused the others' requests are left
            # open and complain when the program ends. One request before it tells.
            with suppress(FileNotFoundError):
                read_bytes(join(source, "zarr.json"))
        try:
            self._root = zarr.open_group(source, mode="r+" if writable else "r")
            self._features = self._array("features")
            document = self._root.attrs.get(FORMAT)
        except InputError:
            raise
        except Exception as error:  # damaged metadata makes zarr-python raise nearly anything
            self._refuse_silence(error)
            raise InputError(
                f"{source}: not a feature cache: no readable Zarr group there ({error})"
            ) from error
        self.description = read_description(document, self._features.shape, source)
        self.layout: Layout = self.description.layout

    @cached_property
    def _marks(self) -> "zarr.Array[Any]":
        return self._array("marks")

    def _array(self, name: str) -> "zarr.Array[Any]":
        node = self._root.get(name)
        if not isinstance(node, zarr.Array):
            raise InputError(f"{self.source}: not a feature cache, or half-made: it has no array {name!r}")
        return node

    @contextmanager
    def _damage_in_words(self, what: str, kind: str) -> Iterator[None]:
        """Name what damaged bytes make zarr-python raise; a huge count among them raises MemoryError."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            self._refuse_silence(error)
            raise DamagedError(f"{self.source}: {what} cannot be read ({error})", kind) from error

    def _refuse_silence(self, error: Exception) -> None:
        """Tell a store that refuses or does not answer from bytes that are damaged."""
        if is_url(self.source) and is_of_a_store(error):
            with answers_in_words(self.source):
                raise error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with answers_in_words(self.source) if is_url(self.source) else refusals_in_words(self.source):
            yield

    def read_columns(self) -> Columns:
        """Read the manifest's columns by their names in the manifest."""
        with self._damage_in_words("the manifest", "manifest"):
            return {
                name: self._array(f"manifest/{array}")[:].tolist()  # type: ignore[union-attr]  # an array, not a scalar
                for name, array in self.description.columns
            }

    def read_marks(self, shards: Sequence[int] | None = None) -> NDArray[np.uint8]:
        """Read the marks [shard, byte], all or those of some shards; zeros where a shard has none."""
        with self._damage_in_words("the marks", "marks"):
            if shards is None:
                return np.asarray(self._marks[:], dtype=np.uint8)
            marks = np.zeros((self.layout.shards, self.layout.mark_bytes), dtype=np.uint8)
            for shard in shards:  # each is a request of its own behind a URL
                marks[shard] = self._marks[shard]
            return marks

    def read_shard(self, shard: int, out: Features) -> None:
        """Fill `out` with a shard's features; DamagedError where they are not whole."""
        first, last = self.layout.bounds(shard)
        with self._damage_in_words(f"shard {shard}", "unreadable"):
            out[...] = self._features[first:last]

    def locate_shard(self, shard: int) -> ShardPlace | None:  # noqa: ARG002
        """Tell that only `read_shard` gets at the features."""
        return None

    def write_shard(self, shard: int, features: Features) -> None:
        """Write a shard whole; that it is durable is the store's promise."""
        first, last = self.layout.bounds(shard)
        with self._writing():
            self._features[first:last] = features

    def write_mark(self, shard: int, mark: bytes) -> None:
        """Write a shard's mark (zeros take it away)."""
        with self._writing():
            self._marks[shard] = np.frombuffer(mark, dtype=np.uint8)

    def remove_partial(self) -> None:
        """Remove nothing: what a store behind zarr-python shows is whole."""

    def close(self) -> None:
        """Let go of nothing: zarr-python holds nothing open."""


class LocalZarrStore(ZarrStore):
    """A cache in a local folder, laid out as FORMAT.md says: its files are read and written directly."""

    def __init__(self, source: str, *, writable: bool = False) -> None:
        super().__init__(source, writable=writable)
        self._folder = Path(source)
        self._separator = self._separator_of("features")
        self._mark_separator = self._separator_of("marks")

    def remove_partial(self) -> None:
        """Remove the files that killed writers left half-written; only for the one that holds the lock."""
        for name in ("features", "marks"):
            for left in (self._folder / name).glob(f"*{PARTIAL}"):
                left.unlink(missing_ok=True)

    def read_marks(self, shards: Sequence[int] | None = None) -> NDArray[np.uint8]:
        """Read the marks [shard, byte], all or those of some shards; zeros where a shard has none."""
        marks = np.zeros((self.layout.shards, self.layout.mark_bytes), dtype=np.uint8)
        for shard in range(self.layout.shards) if shards is None else shards:
            try:
                mark = self._mark_path(shard).read_bytes()
            except FileNotFoundError:
                continue
            if len(mark) == self.layout.mark_bytes:  # a shorter one vouches for nothing
                marks[shard] = np.frombuffer(mark, dtype=np.uint8)
        return marks

    def read_shard(self, shard: int, out: Features) -> None:
        """Fill `out` with a shard's features; DamagedError where they are not whole."""
        place = self.locate_shard(shard)
        if place is None:
            super().read_shard(shard, out)
        else:
            read_place(place, out, f"{self.source}: shard {shard}")

    def locate_shard(self, shard: int) -> ShardPlace | None:
        """Find a shard's images through the index at the end of its file."""
        first, last = self.layout.bounds(shard)
        path, length = self._shard_path(shard), index_bytes(self.layout)
        try:
            with path.open("rb", buffering=0) as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - length))
                index = file.read(length)
        except FileNotFoundError as error:
            raise DamagedError(f"{self.source}: shard {shard}: its file is missing", "deleted") from error
        except OSError as error:
            raise DamagedError(
                f"{self.source}: shard {shard} cannot be read ({error})", "unreadable"
            ) from error
        expected = (last - first) * self.layout.image_bytes + length
        offsets = read_index(self.layout, last - first, index) if len(index) == length else None
        if offsets is None:
            kind = "truncated" if size < expected else "index"
            found = (
                f"{size} of {expected} bytes"
                if size < expected
                else "an index that does not fit its checksum"
            )
            raise DamagedError(f"{self.source}: shard {shard} is damaged: found {found}", kind)
        if np.any(offsets < 0):  # an absent chunk reads as NaN, through zarr-python
            return None
        if int(offsets.max()) + self.layout.image_bytes > size - length:
            raise DamagedError(f"{self.source}: shard {shard} is truncated to {size} bytes", "truncated")
        return ShardPlace(path, offsets)

    def write_shard(self, shard: int, features: Features) -> None:
        """Write a shard whole and force it to the disk."""
        index = ordered_index(self.layout, features.shape[0])
        content = np.ascontiguousarray(features, dtype="<f2")
        with refusals_in_words(self.source):
            write_durably(self._shard_path(shard), (bytes_of(content), index))

    def write_mark(self, shard: int, mark: bytes) -> None:
        """Write a shard's mark (zeros take it away) and force it to the disk."""
        with refusals_in_words(self.source):
            write_durably(self._mark_path(shard), (mark,))

    def _shard_path(self, shard: int) -> Path:
        return self._folder / "features" / self._separator.join(("c", str(shard), "0", "0"))

    def _mark_path(self, shard: int) -> Path:
        return self._folder / "marks" / self._mark_separator.join(("c", str(shard), "0"))

    def _separator_of(self, name: str) -> str:
        metadata = parse_json((self._folder / name / "zarr.json").read_bytes())
        return str(metadata["chunk_key_encoding"]["configuration"]["separator"])


def refuse_links(folder: Path) -> None:
    """Refuse a cache with links in it: what they name may lie anywhere, and is not what was written here."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if Path(parent, name).is_symlink():
                raise DamagedError(f"{folder}: {name} is a link; a cache holds files only", "link")


def open_zarr(source: str, *, writable: bool = False) -> ZarrStore:
    """Open a cache in Zarr: directly where it is a local folder in our layout, else through zarr-python."""
    if not is_url(source):
        refuse_links(Path(source))
    if not is_url(source) and _is_ours(Path(source)):
        return LocalZarrStore(source, writable=writable)
    return ZarrStore(source, writable=writable)


def _is_ours(folder: Path) -> bool:
    """Tell whether the arrays' metadata says what this module writes, so that bytes lie where we think."""
    try:
        features = parse_json((folder / "features" / "zarr.json").read_bytes())
        marks = parse_json((folder / "marks" / "zarr.json").read_bytes())
        images, views, dim = features["shape"]
        shard_images, *rest = features["chunk_grid"]["configuration"]["chunk_shape"]
        layout = Layout(images, views, dim, shard_images)
        return bool(
            rest == [views, dim]
            and features["data_type"] == "float16"
            and features["codecs"] == codecs_of(layout)
            and features["chunk_key_encoding"]["name"] == "default"
            and marks["chunk_key_encoding"]["name"] == "default"
            and marks["codecs"] == _PLAIN
            and marks["chunk_grid"]["configuration"]["chunk_shape"] == [1, layout.mark_bytes]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False
