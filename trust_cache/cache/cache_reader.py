"""Read a cache: its manifest, its fingerprint, which images have features, and those like an array.

An image without features is either pending (its shard is not marked yet) or failed: it was tried, and
failures.csv has the reason.
"""

import hashlib
import html
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import DTypeLike, NDArray

from trust_cache.base.digests import canonical_json
from trust_cache.base.errors import InputError, shown
from trust_cache.base.places import read_bytes
from trust_cache.cache.cached_manifest import manifest_sha256, table_of
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.cache.known_stores import Source, companion, open_store
from trust_cache.cache.layout import (
    DIGEST_BYTES,
    Features,
    Layout,
    Pictures,
    make_mark,
    marked_shards,
    picture_digests,
    present_images,
)
from trust_cache.cache.store import DamagedError, Store
from trust_cache.encoders.probe import Probe
from trust_cache.images.examined_table import (
    EXAMINED,
    ExaminedPicture,
    parse_examined,
    warnings_of_pictures,
)
from trust_cache.images.image_failures import FAILURES, Failure, parse_failures
from trust_cache.manifest.cases import WARNING, add_warnings, count_incomplete, find_cases, texts


@dataclass(frozen=True)
class Cache:
    """A cache as it was when opened. Nothing stays open on the disk."""

    store: Store

    def __repr__(self) -> str:
        return "\n  ".join(self._lines())

    def _repr_html_(self) -> str:
        title, *lines = map(html.escape, self._lines())
        return f"<div><b>{title}</b><ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul></div>"

    def _lines(self) -> Iterator[str]:
        """Describe the cache: its place, then its size, its state and its encoder."""
        cases, encoder = find_cases(self.manifest), self.fingerprint.encoder
        yield f"Cache {self.source}"
        yield f"{self.images:,} images of {cases.labels.size:,} cases, {int(cases.labels.sum()):,} positive"
        yield f"1 clean + {self.views - 1} augmented views, {self.dim} features, encoder {encoder}"
        for state, count in (("pending", self.pending.sum()), ("failed", self.failed.sum())):
            if count:
                yield f"{int(count):,} images {state}"

    @property
    def source(self) -> str:
        """The path or URL."""
        return self.store.source

    @property
    def layout(self) -> Layout:
        """The shape of the features and their division into shards."""
        return self.store.layout

    @property
    def fingerprint(self) -> Fingerprint:
        """What the features were made by."""
        return self.store.description.fingerprint

    @property
    def probe(self) -> Probe | None:
        """The features of the probe in the runtime of this cache; None for imported and synthetic ones."""
        return self.store.description.probe

    @property
    def images(self) -> int:
        """The number of images, with or without features."""
        return self.layout.images

    @property
    def views(self) -> int:
        """The number of stored views, the clean one included."""
        return self.layout.views

    @property
    def dim(self) -> int:
        """The number of features of a view."""
        return self.layout.dim

    @cached_property
    def features(self) -> "StoredFeatures":
        """The features [image, view, dim], read when indexed; NaN where there are none yet."""
        return StoredFeatures(self)

    @cached_property
    def manifest(self) -> pl.DataFrame:
        """The stored manifest with the warnings about external pictures, which `extract` examines."""
        examined, stored = read_examined(self.source), self.stored_manifest
        if examined is None:
            return stored
        cases = dict(stored.select("image_id", "case_id").iter_rows())
        pictures = [digest.tobytes().hex() for digest in self.pictures]
        pairs = zip(stored["image_id"], pictures, self.done, strict=True)
        digests = {image_id: picture for image_id, picture, has_features in pairs if has_features}
        return add_warnings(stored, warnings_of_pictures(examined, cases, digests))

    @cached_property
    def stored_manifest(self) -> pl.DataFrame:
        """The manifest's columns, checked against the digest that was stored with them."""
        table = read_manifest(self.store)
        if manifest_sha256(table) != self.store.description.manifest_sha256:
            raise DamagedError(
                f"{self.source}: the manifest inside was changed after the cache was made"
                " (it does not fit its digest)",
                "manifest",
            )
        return table

    @cached_property
    def marks(self) -> NDArray[np.uint8]:
        """The raw marks of all shards."""
        return self.store.read_marks()

    @cached_property
    def shards_done(self) -> NDArray[np.bool_]:
        """For each shard, whether it is marked done."""
        return marked_shards(self.marks)

    @cached_property
    def done(self) -> NDArray[np.bool_]:
        """For each image, whether it has features."""
        return present_images(self.layout, self.marks)

    @cached_property
    def pictures(self) -> Pictures:
        """For each image, the digest of its picture; zeros where it is unknown."""
        return picture_digests(self.layout, self.marks)[: self.images]

    @cached_property
    def content_sha256(self) -> str:
        """The digest of the whole content: the fingerprint, the manifest, the probe and the marks.

        It is computed from the marks: whoever needs the features compares each shard with its mark.
        """
        digests = [mark[:DIGEST_BYTES].tobytes().hex() for mark in self.marks]
        content = [*self.store.description.identity(), digests]
        return hashlib.sha256(canonical_json(content)).hexdigest()

    @cached_property
    def pending(self) -> NDArray[np.bool_]:
        """For each image, whether it has not been tried: its shard is not marked done."""
        return np.repeat(~self.shards_done, self.layout.shard_images)[: self.images]

    @cached_property
    def failed(self) -> NDArray[np.bool_]:
        """For each image, whether it was tried and has no features."""
        return ~self.done & ~self.pending

    def image_ids(self, chosen: NDArray[np.bool_]) -> list[str]:
        """Return the image_ids of a mask, in the order of the manifest."""
        return self.manifest["image_id"].filter(pl.Series(chosen)).to_list()


class StoredFeatures:
    """Features on disk that read like an array [image, view, dim], a shard at a time.

    Images may be chosen by a number, a slice, numbers or a mask; views and dims by numbers and slices.
    """

    dtype = np.dtype(np.float16)
    ndim = 3

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    @property
    def shape(self) -> tuple[int, int, int]:
        """Images, stored views, dims."""
        layout = self._cache.layout
        return layout.images, layout.views, layout.dim

    def __len__(self) -> int:
        return self._cache.images

    def __getitem__(self, key: Any) -> Any:
        first, *parts = _expanded(key)
        if any(not isinstance(part, int | np.integer | slice) for part in parts):
            raise IndexError("views and dims of a cache are chosen by numbers and slices")
        chosen = np.arange(self._cache.images)[first]
        images = np.reshape(chosen, -1)
        inner: NDArray[np.float16] = np.broadcast_to(np.float16(0), self.shape[1:])[tuple(parts)]
        out = np.empty((images.size, *inner.shape), dtype=np.float16)
        layout, done = self._cache.layout, self._cache.shards_done
        shards = images // layout.shard_images
        for shard in np.unique(shards):
            here = np.flatnonzero(shards == shard)
            block = np.full(layout.shard_shape(shard), np.nan, dtype=np.float16)
            if done[shard]:
                self._cache.store.read_shard(int(shard), block)
            out[here] = block[(images[here] - shard * layout.shard_images, *parts)]
        return out.reshape(chosen.shape + inner.shape)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("features on disk become an array only by a copy")
        return np.asarray(self[:], dtype=dtype)

    def __repr__(self) -> str:
        return f"<features {self.shape} float16 of {self._cache.source}>"


def open_cache(source: Source) -> Cache:
    """Open a cache: a `.zarr` folder or URL, or an `.h5` file."""
    return Cache(open_store(source))


def read_manifest(store: Store) -> pl.DataFrame:
    """Read the manifest without comparing it with its digest."""
    table = table_of(store.read_columns(), store.source)
    if table.height != store.layout.images:
        raise DamagedError(
            f"{store.source}: the manifest inside has {table.height} rows for {store.layout.images} images",
            "manifest",
        )
    return table


def read_checked_shard(cache: Cache, shard: int) -> Features:
    """Read a shard that is marked done and compare it with its checksum."""
    out = np.empty(cache.layout.shard_shape(shard), dtype=np.float16)
    cache.store.read_shard(shard, out)
    check_shard(cache, shard, out)
    return out


def check_shard(cache: Cache, shard: int, features: Features) -> None:
    """Refuse features of a shard that do not match its mark."""
    first, last = cache.layout.bounds(shard)
    pictures = cache.pictures[first:last]
    mark = make_mark(cache.store.description, shard, features, cache.done[first:last], pictures)
    if mark != cache.marks[shard].tobytes():
        raise DamagedError(
            f"{cache.source}: shard {shard} (images {first} to {last - 1}) does not fit its checksum:"
            " its bytes were changed, or they belong to other images or another cache",
            "checksum",
        )


def refuse_unfinished(cache: Cache) -> None:
    """Refuse a cache with pending images; say how many, which, and how to resume. Failed ones are allowed."""
    if cache.pending.any():
        names = cache.image_ids(cache.pending)
        raise InputError(
            f"{cache.source}: the cache is unfinished: {len(names)} of {cache.images} images"
            f" are pending ({shown(names)}). Resume with the same command as before,"
            f" `trust-cache extract ... --out {cache.source}`"
        )


def read_failures(cache: Source) -> tuple[Failure, ...]:
    """Read failures.csv of a cache; empty if there is none."""
    try:
        return parse_failures(read_bytes(companion(cache, FAILURES)))
    except FileNotFoundError:
        return ()


def read_examined(cache: Source) -> tuple[ExaminedPicture, ...] | None:
    """Read examined.csv of a cache; None if there is none."""
    try:
        return parse_examined(read_bytes(companion(cache, EXAMINED)))
    except FileNotFoundError:
        return None


def failed_warning(cache: Cache) -> str | None:
    """Return the warning about failed images and their cases; None if no image failed."""
    if not cache.failed.any():
        return None
    listed = {failure.image_id for failure in read_failures(cache.source)}
    whole = listed.issuperset(cache.image_ids(cache.failed))
    # A copy of a cache may lack the table.
    place = companion(cache.source, FAILURES) if whole else f"`trust-cache cache info {cache.source} --json`"
    return f"{cache.source}: {count_incomplete(cache.manifest, ~cache.failed).sentence(place)}"


def warned_images(cache: Cache) -> int:
    """Return the number of images with a warning about their picture."""
    manifest = cache.manifest
    return int(texts(manifest[WARNING]).is_not_null().sum()) if WARNING in manifest.columns else 0


def _expanded(key: Any) -> tuple[Any, ...]:
    """Expand an index to one part for each of the three axes."""
    parts = key if isinstance(key, tuple) else (key,)
    dots = [number for number, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1 or len(parts) - len(dots) > StoredFeatures.ndim:
        raise IndexError(f"too many indices for features [image, view, dim]: {key!r}")
    at = dots[0] if dots else len(parts)
    fill = (slice(None),) * (StoredFeatures.ndim - len(parts) + len(dots))
    return (*parts[:at], *fill, *parts[at + 1 :])
