"""Define what every store shares (FORMAT.md): the shape, the shards, the marks and the document."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.documents import Document, typed
from trust_cache.base.errors import InputError
from trust_cache.cache.fingerprint import Fingerprint

FORMAT = "trust-cache"
SCHEMA = 1
SHARD_IMAGES = 32
DIGEST_BYTES = 32  # of SHA-256
_MINUS_ZERO = 0x8000  # as a float16
NOT_FINITE = 0x7C00  # a float16 whose exponent bits are all set is infinite or NaN

Features = NDArray[np.float16]


@dataclass(frozen=True)
class Layout:
    """The shape of `features` and its division into shards."""

    images: int
    views: int  # stored views, the clean one included
    dim: int
    shard_images: int

    def __post_init__(self) -> None:
        for name in ("images", "views", "dim", "shard_images"):
            if getattr(self, name) < 1:
                raise InputError(f"cache: expected at least 1 as {name}, found {getattr(self, name)}")

    @property
    def shards(self) -> int:
        """The number of shards; the last may hold fewer images."""
        return -(-self.images // self.shard_images)

    @property
    def image_bytes(self) -> int:
        """The bytes of one image's features, all views."""
        return self.views * self.dim * np.dtype(np.float16).itemsize

    @property
    def mark_bytes(self) -> int:
        """The bytes of a shard's mark: a digest and one byte per image."""
        return DIGEST_BYTES + self.shard_images

    def bounds(self, shard: int) -> tuple[int, int]:
        """Return the first image of a shard and the one after its last."""
        if not 0 <= shard < self.shards:
            raise IndexError(f"shard {shard} of {self.shards}")
        first = shard * self.shard_images
        return first, min(first + self.shard_images, self.images)

    def shard_shape(self, shard: int) -> tuple[int, int, int]:
        """Return the shape of a shard's features."""
        first, last = self.bounds(shard)
        return last - first, self.views, self.dim


class ColumnArray(Document, frozen=True):
    """A column of the manifest and the array that holds it."""

    name: str
    array: str


class CacheDescription(Document, frozen=True, kw_only=True):
    """The JSON document of a cache, as FORMAT.md defines it."""

    format: str = FORMAT
    schema: int = SCHEMA
    shard_images: int
    columns: tuple[ColumnArray, ...]  # in the manifest's order
    manifest_sha256: str
    fingerprint: Fingerprint


def read_description(document: object, shape: Sequence[int], source: str) -> tuple[CacheDescription, Layout]:
    """Check a cache's document and the shape of its features."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{source}: not a feature cache of trust-cache: it has no such description")
    what = "the description of a cache"
    description = typed(document, CacheDescription, where=source, what=what, schema=SCHEMA)
    if len(shape) != 3:  # noqa: PLR2004 - image, view, dim
        raise InputError(f"{source}: expected features [image, view, dim], found the shape {tuple(shape)}")
    images, views, dim = map(int, shape)
    return description, Layout(images, views, dim, description.shard_images)


def make_mark(layout: Layout, features: Features, present: NDArray[np.bool_]) -> bytes:
    """Return the mark of a shard: SHA-256 over its features and presence bytes, then those bytes."""
    presence = present.astype(np.uint8).tobytes()
    digest = hashlib.sha256(np.ascontiguousarray(features, dtype="<f2").data)
    digest.update(presence)
    return digest.digest() + presence.ljust(layout.shard_images, b"\0")


def present_images(layout: Layout, marks: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return for each image whether its shard is marked and the mark says that it has features."""
    flags = (marks[:, DIGEST_BYTES:] != 0) & marked_shards(marks)[:, np.newaxis]
    return np.asarray(flags.reshape(-1)[: layout.images])


def marked_shards(marks: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return for each shard whether it has a mark; a missing mark reads as zeros."""
    return np.asarray(marks[:, :DIGEST_BYTES].any(axis=1))


def as_half(features: NDArray[Any]) -> Features:
    """Return features as float16; tiny values become zero, large ones infinite.

    -0.0 becomes 0.0: it has bytes of its own, and equal features must have equal digests.
    """
    with np.errstate(over="ignore", under="ignore"):
        half = np.array(features, dtype=np.float16, order="C")
    bits = half.view(np.uint16)
    bits[bits == _MINUS_ZERO] = 0
    return half


def finite_images(features: Features) -> NDArray[np.bool_]:
    """Return for each image whether all its features are finite, at several GB/s."""
    bits = features.view(np.uint16).reshape(features.shape[0], -1)
    magnitude = np.empty(bits.shape[1], dtype=np.uint16)  # one image fits the processor's cache
    largest = [np.bitwise_and(image, 0x7FFF, out=magnitude).max() for image in bits]
    return np.array(largest, dtype=np.uint16) < NOT_FINITE
