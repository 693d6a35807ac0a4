"""What FORMAT.md fixes for both backends: the shape, the shards, the marks and the describing document."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.fingerprint import Fingerprint

FORMAT = "trust-cache"
SCHEMA = 1
SHARD_IMAGES = 32
DIGEST_BYTES = 32  # of SHA-256
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


@dataclass(frozen=True)
class Description:
    """The document of a cache: all that is known of it apart from its arrays."""

    layout: Layout
    fingerprint: Fingerprint
    columns: tuple[tuple[str, str], ...]  # (name in the manifest, name of its array), in the manifest's order
    manifest_sha256: str

    def as_document(self) -> dict[str, Any]:
        """Return the document as FORMAT.md gives it."""
        return {
            "format": FORMAT,
            "schema": SCHEMA,
            "shard_images": self.layout.shard_images,
            "columns": [{"name": name, "array": array} for name, array in self.columns],
            "manifest_sha256": self.manifest_sha256,
            "fingerprint": self.fingerprint.as_document(),
        }


def read_description(document: object, shape: Sequence[int], source: str) -> Description:
    """Check a cache's document and join it with the shape of its features."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{source}: not a feature cache of trust-cache (it carries no such description)")
    schema = document.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise InputError(f"{source}: expected a schema version of the cache, found {schema!r}")
    if schema > SCHEMA:
        raise InputError(
            f"{source}: the cache has schema {schema}, this version of trust-cache reads up to {SCHEMA};"
            " install a newer trust-cache"
        )
    try:
        images, views, dim = (int(size) for size in shape)
        return Description(
            layout=Layout(images, views, dim, int(document["shard_images"])),
            fingerprint=Fingerprint.from_document(document["fingerprint"], source),
            columns=tuple((str(item["name"]), str(item["array"])) for item in document["columns"]),
            manifest_sha256=str(document["manifest_sha256"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source}: the cache's description is damaged ({error!r})") from error


def make_mark(layout: Layout, features: Features, present: NDArray[np.bool_]) -> bytes:
    """Return the mark of a shard: SHA-256 over its features and presence bytes, then those bytes."""
    presence = present.astype(np.uint8).tobytes()
    digest = hashlib.sha256(np.ascontiguousarray(features, dtype="<f2").data)
    digest.update(presence)
    return digest.digest() + presence.ljust(layout.shard_images, b"\0")


def present_images(layout: Layout, marks: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return for each image whether a mark vouches for its features."""
    return np.asarray(marks[:, DIGEST_BYTES:].reshape(-1)[: layout.images] != 0)


def marked_shards(marks: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return for each shard whether it has a mark; a mark that is not there reads as zeros."""
    return np.asarray(marks[:, :DIGEST_BYTES].any(axis=1))


def finite_images(features: Features) -> NDArray[np.bool_]:
    """Return for each image whether all its features are finite, at several GB/s."""
    images = features.shape[0]
    bits = features.view(np.uint16).reshape(images, -1)
    magnitude = np.empty(bits.shape[1], dtype=np.uint16)  # one image at a time stays in the processor's cache
    finite = np.empty(images, dtype=np.bool_)
    for image in range(images):
        np.bitwise_and(bits[image], 0x7FFF, out=magnitude)
        finite[image] = magnitude.max() < NOT_FINITE
    return finite
