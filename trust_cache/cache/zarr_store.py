"""Store a cache as Zarr: in a local folder, read and written directly, or behind a URL by zarr-python."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.documents import parse_json
from trust_cache.base.errors import InputError, TrustCacheError
from trust_cache.base.files import PARTIAL, refusals_in_words, write_durably
from trust_cache.base.places import (
    answers_in_words,
    is_of_a_store,
    is_url,
    join,
    list_names,
    read_bytes,
    redacted,
)
from trust_cache.cache.cached_manifest import columns_of
from trust_cache.cache.layout import FORMAT, CacheDescription, Features, Layout, read_description
from trust_cache.cache.store import Backend, Columns, DamagedError, ShardPlace, bytes_of, read_place
from trust_cache.cache.zarr_shards import codecs_of, index_bytes, ordered_index, read_index

if TYPE_CHECKING:
    import zarr

_PLAIN = [{"name": "bytes"}]  # the codecs of single bytes without compression
# What the format uses, and zstd, which Zarr libraries use by default. Any other codec is code of a package.
_CODECS = ("bytes", "crc32c", "sharding_indexed", "vlen-utf8", "zstd")
_VERSION_2 = {".zgroup", ".zarray", ".zattrs", ".zmetadata"}
# One folder of files rather than a folder per shard: fewer folders to sync.
_FLAT = {"name": "default", "separator": "."}


def create_zarr(target: str, layout: Layout, description: CacheDescription, manifest: pl.DataFrame) -> None:
    """Create a cache without features; the document, which makes it valid, is written last."""
    import zarr  # noqa: PLC0415 - it takes 0.2 s, and not every command opens a cache

    root = zarr.create_group(_opened(target), zarr_format=3)
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
    values = columns_of(manifest)
    for column in description.columns:
        is_label = column.name == "label"
        data: NDArray[Any] = np.array(values[column.name], dtype=np.int8 if is_label else object)
        dtype = "int8" if is_label else str
        array = columns.create_array(
            column.array, shape=data.shape, dtype=dtype, chunks=data.shape, compressors=None, filters=None
        )
        array[:] = data
    root.attrs[FORMAT] = description.as_document()


class ZarrStore:
    """A cache read and written by zarr-python: any store, a few codecs, one shard at a time."""

    backend = "zarr"

    def __init__(self, source: str, writable: bool = False) -> None:
        import zarr  # noqa: PLC0415 - as above

        self.source = source
        try:
            # zarr-python requests several files at once. Where one is refused, the other requests stay open
            # and print errors when the program ends. One request first raises the error here.
            self._check_node("")
            # Consolidated metadata would replace the metadata that were checked.
            self._root = zarr.open_group(
                _opened(source), mode="r+" if writable else "r", zarr_format=3, use_consolidated=False
            )
            # NaN is the fill value: by default zarr-python writes no object for a shard of failed images.
            self._features = self._array("features").with_config({"write_empty_chunks": True})
            document = self._root.attrs.get(FORMAT)
        except TrustCacheError:
            raise
        except Exception as error:  # damaged metadata makes zarr-python raise nearly anything
            self._refuse_silence(error)
            message = f"{source}: not a feature cache: no readable Zarr group there ({error})"
            raise InputError(redacted(message)) from error
        self.description, self.layout = read_description(document, self._features.shape, source)

    @cached_property
    def _marks(self) -> "zarr.Array[Any]":
        return self._array("marks")

    def _check_node(self, name: str) -> None:
        """Refuse a group or array of Zarr version 2, or with codecs that a cache does not use.

        zarr-python would import the packages of unknown codecs, and version 2 has one that unpickles.
        """
        try:
            document = parse_json(read_bytes(join(self.source, f"{name}/zarr.json".lstrip("/"))))
        except FileNotFoundError:
            found = sorted(_VERSION_2 & list_names(self.source))
            if found:
                message = f"{self.source}: expected Zarr version 3 (zarr.json), found version 2 ({found[0]})"
                raise InputError(message) from None
            return
        for codec in _codec_names(document.get("codecs", [])):
            if codec not in _CODECS:
                raise InputError(
                    f"{self.source}: {name}: expected the codecs {', '.join(_CODECS)}, found {codec!r}"
                )

    def _array(self, name: str) -> "zarr.Array[Any]":
        import zarr  # noqa: PLC0415 - as above

        self._check_node(name)
        node = self._root.get(name)
        if not isinstance(node, zarr.Array):
            raise InputError(f"{self.source}: not a feature cache, or half-made: it has no array {name!r}")
        return node

    @contextmanager
    def _damage_in_words(self, what: str, kind: str) -> Iterator[None]:
        """Turn whatever zarr-python raises for damaged bytes, MemoryError included, into a DamagedError."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            self._refuse_silence(error)
            raise DamagedError(redacted(f"{self.source}: {what} cannot be read ({error})"), kind) from error

    def _refuse_silence(self, error: Exception) -> None:
        """Raise the error of a store that refuses or does not answer; damaged bytes are another matter."""
        if is_url(self.source) and is_of_a_store(error):
            with answers_in_words(self.source):
                raise error

    def _writing(self) -> AbstractContextManager[None]:
        return answers_in_words(self.source) if is_url(self.source) else refusals_in_words(self.source)

    def read_columns(self) -> Columns:
        """Read the manifest's columns by their names in the manifest."""
        with self._damage_in_words("the manifest", "manifest"):
            return {
                column.name: self._array(f"manifest/{column.array}")[:].tolist()  # type: ignore[union-attr]  # no scalar
                for column in self.description.columns
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
        """Fill `out` with a shard's features; DamagedError where they are incomplete."""
        first, last = self.layout.bounds(shard)
        with self._damage_in_words(f"shard {shard}", "unreadable"):
            out[...] = self._features[first:last]

    def locate_shard(self, shard: int) -> ShardPlace | None:  # noqa: ARG002
        """Return None: only `read_shard` gets at the features."""
        return None

    def write_shard(self, shard: int, features: Features) -> None:
        """Write a complete shard; the store is responsible for its durability."""
        first, last = self.layout.bounds(shard)
        with self._writing():
            self._features[first:last] = features

    def write_mark(self, shard: int, mark: bytes) -> None:
        """Write a shard's mark (zeros remove it)."""
        with self._writing():
            self._marks[shard] = np.frombuffer(mark, dtype=np.uint8)

    def remove_partial(self) -> None:
        """Do nothing: a store behind zarr-python shows only complete objects."""

    def close(self) -> None:
        """Do nothing: zarr-python keeps nothing open."""


class LocalZarrStore(ZarrStore):
    """A cache in a local folder with the layout of FORMAT.md: its files are read and written directly."""

    def __init__(self, source: str, writable: bool = False) -> None:
        super().__init__(source, writable)
        self._folder = Path(source)
        keys = {name: _metadata(self._folder, name)["chunk_key_encoding"] for name in ("features", "marks")}
        self._separators = {name: str(key["configuration"]["separator"]) for name, key in keys.items()}

    def remove_partial(self) -> None:
        """Remove half-written files of killed writers; only the holder of the lock calls this."""
        for folder in (self._folder, self._folder / "features", self._folder / "marks"):
            for left in folder.glob(f"*{PARTIAL}"):
                left.unlink(missing_ok=True)

    def read_marks(self, shards: Sequence[int] | None = None) -> NDArray[np.uint8]:
        """Read the marks [shard, byte], all or those of some shards; zeros where a shard has none."""
        marks = np.zeros((self.layout.shards, self.layout.mark_bytes), dtype=np.uint8)
        for shard in range(self.layout.shards) if shards is None else shards:
            try:
                mark = self._path("marks", shard, 0).read_bytes()
            except FileNotFoundError:
                continue
            if len(mark) == self.layout.mark_bytes:  # a shorter one vouches for nothing
                marks[shard] = np.frombuffer(mark, dtype=np.uint8)
        return marks

    def read_shard(self, shard: int, out: Features) -> None:
        """Fill `out` with a shard's features; DamagedError where they are incomplete."""
        place = self.locate_shard(shard)
        if place is None:
            super().read_shard(shard, out)
        else:
            read_place(place, out, f"{self.source}: shard {shard}")

    def locate_shard(self, shard: int) -> ShardPlace | None:
        """Find a shard's images through the index at the end of its file."""
        first, last = self.layout.bounds(shard)
        path, length = self._path("features", shard, 0, 0), index_bytes(self.layout)
        try:
            with path.open("rb", buffering=0) as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - length))
                index = file.read(length)
        except FileNotFoundError as error:
            raise DamagedError(f"{self.source}: shard {shard}: its file is missing", "deleted") from error
        except OSError as error:
            message = f"{self.source}: shard {shard} cannot be read ({error})"
            raise DamagedError(message, "unreadable") from error
        expected = (last - first) * self.layout.image_bytes + length
        offsets = read_index(self.layout, last - first, index) if len(index) == length else None
        if offsets is None:
            kind, found = "index", "an index that does not fit its checksum"
            if size < expected:
                kind, found = "truncated", f"{size} of {expected} bytes"
            raise DamagedError(f"{self.source}: shard {shard} is damaged: found {found}", kind)
        if np.any(offsets < 0):  # an absent chunk reads as NaN, through zarr-python
            return None
        if int(offsets.max()) + self.layout.image_bytes > size - length:
            raise DamagedError(f"{self.source}: shard {shard} is truncated to {size} bytes", "truncated")
        return ShardPlace(path, offsets)

    def write_shard(self, shard: int, features: Features) -> None:
        """Write a complete shard and force it to the disk."""
        index = ordered_index(self.layout, features.shape[0])
        content = np.ascontiguousarray(features, dtype="<f2")
        with refusals_in_words(self.source):
            write_durably(self._path("features", shard, 0, 0), (bytes_of(content), index))

    def write_mark(self, shard: int, mark: bytes) -> None:
        """Write a shard's mark (zeros remove it) and force it to the disk."""
        with refusals_in_words(self.source):
            write_durably(self._path("marks", shard, 0), (mark,))

    def _path(self, array: str, *chunk: int) -> Path:
        return self._folder / array / self._separators[array].join(map(str, ("c", *chunk)))


def open_zarr(source: str, writable: bool = False) -> ZarrStore:
    """Open a Zarr cache: directly if it is a local folder in our layout, else through zarr-python."""
    if is_url(source):
        return ZarrStore(source, writable)
    for parent, folders, files in os.walk(source):
        for name in (*folders, *files):
            if Path(parent, name).is_symlink():  # it may point at any file outside the cache
                raise DamagedError(f"{source}: {name} is a link; a cache holds files only", "link")
    return (LocalZarrStore if _is_ours(Path(source)) else ZarrStore)(source, writable)


def _is_ours(folder: Path) -> bool:
    """Return whether the arrays' metadata is what this module writes, so that offsets can be computed."""
    try:
        features, marks = _metadata(folder, "features"), _metadata(folder, "marks")
        images, views, dim = features["shape"]
        shard_images, *rest = features["chunk_grid"]["configuration"]["chunk_shape"]
        layout = Layout(images, views, dim, shard_images)
        nodes = [(array["zarr_format"], array["node_type"]) for array in (features, marks)]
        return bool(
            nodes == [(3, "array"), (3, "array")]
            and rest == [views, dim]
            and features["data_type"] == "float16"
            and features["codecs"] == codecs_of(layout)
            and features["chunk_key_encoding"]["name"] == "default"
            and marks["chunk_key_encoding"]["name"] == "default"
            and marks["data_type"] == "uint8"
            and marks["codecs"] == _PLAIN
            and marks["chunk_grid"]["configuration"]["chunk_shape"] == [1, layout.mark_bytes]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _opened(source: str) -> str | Path:
    """Return a place as zarr-python opens it: it takes any text with :: or :// for a URL."""
    return source if is_url(source) else Path(source)


def _codec_names(codecs: Any) -> Iterator[str]:
    """Yield the names of codecs and of those inside them; damaged metadata raise KeyError or TypeError."""
    for codec in codecs:
        if isinstance(codec, str):
            yield codec
            continue
        yield str(codec["name"])
        inner = codec.get("configuration") or {}
        for key in ("codecs", "index_codecs"):
            yield from _codec_names(inner.get(key, []))


def _metadata(folder: Path, array: str) -> Any:
    return parse_json((folder / array / "zarr.json").read_bytes())


ZARR = Backend(".zarr", False, create_zarr, open_zarr)
