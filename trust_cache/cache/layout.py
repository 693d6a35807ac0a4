"""Define what every store shares (FORMAT.md): the shape, the shards, the marks and the document."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from trust_cache.base.digests import canonical_json
from trust_cache.base.documents import Document, typed
from trust_cache.base.errors import InputError
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.encoders.probe import Probe

FORMAT = "trust-cache"
SCHEMA = 3
SHARD_IMAGES = 32
DIGEST_BYTES = 32  # of BLAKE3 and of SHA-256
_MOST_IMAGES = 2**27  # what a file declares must not take all memory
_MOST_SHARD_BYTES = 2**31
_MINUS_ZERO = 0x8000  # as a float16
NOT_FINITE = 0x7C00  # a float16 whose exponent bits are all set is infinite or NaN

Features = NDArray[np.float16]
Pictures = NDArray[np.uint8]  # the BLAKE3 digests of pictures [image, 32], zeros where unknown


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
        held = min(self.images, self.shard_images) * self.image_bytes
        if self.images > _MOST_IMAGES or held > _MOST_SHARD_BYTES:
            raise InputError(
                f"cache: expected at most {_MOST_IMAGES:,} images and {_MOST_SHARD_BYTES:,} bytes a shard,"
                f" found {self.images:,} and {held:,}"
            )

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
        """The bytes of a shard's mark: a digest, and per image one byte and the digest of its picture."""
        return DIGEST_BYTES + self.shard_images * (1 + DIGEST_BYTES)

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
    probe: Probe | None = None  # None: features that no encoder of this library made

    def identity(self) -> list[Any]:
        """Return what each shard and the whole content are bound to."""
        probe = None if self.probe is None else self.probe.sha256
        return [self.fingerprint.as_document(), self.manifest_sha256, probe]


def read_description(document: object, shape: Sequence[int], source: str) -> tuple[CacheDescription, Layout]:
    """Check a cache's document and the shape of its features."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{source}: not a feature cache of trust-cache: it has no such description")
    what = "the description of a cache"
    description = typed(document, CacheDescription, where=source, what=what, schema=SCHEMA)
    if description.probe is not None:
        description.probe.refuse_damage(source)
    if len(shape) != 3:  # noqa: PLR2004 - image, view, dim
        raise InputError(f"{source}: expected features [image, view, dim], found the shape {tuple(shape)}")
    images, views, dim = map(int, shape)
    return description, Layout(images, views, dim, description.shard_images)


def make_mark(
    description: CacheDescription,
    shard: int,
    features: Features,
    present: NDArray[np.bool_],
    pictures: Pictures,
) -> bytes:
    """Return the mark of a shard: a digest, the presence bytes, the digests of the pictures.

    The digest is BLAKE3 over the shard's identity, the presence bytes, the digests of the pictures and the
    features. The identity has the fingerprint, the digest of the manifest, which has the image_ids in their
    order, the digest of the probe, and the number of the shard: a mark fits no other shard or cache.
    """
    identity = [*description.identity(), shard]
    presence = present.astype(np.uint8).tobytes()
    digest = blake3(hashlib.sha256(canonical_json(identity)).digest())
    digest.update(presence)
    digest.update(pictures.tobytes())
    digest.update(np.ascontiguousarray(features, dtype="<f2").reshape(-1).view(np.uint8).data)
    images = description.shard_images
    return b"".join(
        (
            digest.digest(),
            presence.ljust(images, b"\0"),
            pictures.tobytes().ljust(images * DIGEST_BYTES, b"\0"),
        )
    )


def present_images(layout: Layout, marks: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return for each image whether its shard is marked and the mark says that it has features."""
    flags = (presence_bytes(layout, marks) != 0) & marked_shards(marks)[:, np.newaxis]
    return np.asarray(flags.reshape(-1)[: layout.images])


def presence_bytes(layout: Layout, marks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the presence bytes [shard, image] of marks."""
    return marks[:, DIGEST_BYTES : DIGEST_BYTES + layout.shard_images]


def picture_digests(layout: Layout, marks: NDArray[np.uint8]) -> Pictures:
    """Return the digest of each image's picture, zeros where it is unknown."""
    return marks[:, DIGEST_BYTES + layout.shard_images :].reshape(-1, DIGEST_BYTES)


def as_pictures(digests: Sequence[bytes | None]) -> Pictures:
    """Return digests of pictures as an array; None is unknown."""
    content = b"".join(digest or bytes(DIGEST_BYTES) for digest in digests)
    return np.frombuffer(content, dtype=np.uint8).reshape(-1, DIGEST_BYTES)


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
    # Infinities and NaNs are the largest signed integers if positive, the largest unsigned ones if negative.
    if bits.view(np.int16).max(initial=0) < NOT_FINITE and bits.max(initial=0) < _MINUS_ZERO | NOT_FINITE:
        return np.ones(features.shape[0], dtype=np.bool_)
    magnitude = np.empty(bits.shape[1], dtype=np.uint16)  # one image fits the processor's cache
    largest = [np.bitwise_and(image, 0x7FFF, out=magnitude).max() for image in bits]
    return np.array(largest, dtype=np.uint16) < NOT_FINITE
