"""Recognise an image by its clean features, up to rounding, other runtimes and single pixels.

A sketch is a few random projections of the features, centred by the mean of the training images. Two images
are the same if their sketches are much closer than those of different training images.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trust_cache.cache.feature_rows import FeatureRows

Codes = NDArray[np.int16]  # [image, number]; zeros: an image that cannot be compared
Floats = NDArray[np.float32]
Positions = NDArray[np.int64]

NUMBERS = 64
FEWEST_DIMS = 16  # with fewer features two images may agree by chance
LEAST, MOST = 0.01, 0.2  # limits of how close a copy comes, in spreads of the training images
SHARE = 0.25  # of the usual distance to the nearest other image; 0.13 were seen after bfloat16
_UNIT = 1000  # steps per spread
_SEED = 20  # of the projections: part of the format of model folders
_BLOCK = 1024  # images at a time: blocks of distances stay below 30 MB
_BLOCK_KNOWN = 8192
_FIRST = 16  # numbers that tell most different images apart, at a quarter of the price
_ROUNDING = 0.003  # spreads; more than float32 loses in a squared distance near the limit
_SAMPLE = 512  # images whose nearest others set the scale


@dataclass(frozen=True)
class ImageSketches:
    """The sketches of the images that a head is trained on, and how close a copy of one comes."""

    centre: Floats = field(repr=False)  # [dim], the mean of the features
    spread: float  # root mean square distance from the centre; 0: the images cannot be compared
    same_to: float  # largest distance of a copy, in spreads
    codes: Codes = field(repr=False)

    @property
    def usable(self) -> bool:
        """Whether images can be compared."""
        return self.spread > 0.0 and self.centre.size >= FEWEST_DIMS

    def sketch(self, rows: FeatureRows) -> Codes:
        """Return the sketches of other images, with the centre and the spread of these."""
        codes = np.zeros((rows.images, NUMBERS), dtype=np.int16)
        if not self.usable:
            return codes
        projections = _projections(rows.dim)
        for images, clean in _blocks(rows):
            numbers = (clean - self.centre) @ projections * np.float32(_UNIT / self.spread)
            codes[images] = np.rint(numbers).clip(-(2**15) + 1, 2**15 - 1)
        return codes

    def find(self, others: Codes) -> tuple[Positions, Positions]:
        """Return the pairs (one of these images, one of the others) that show the same image.

        Each of the others is paired with the nearest of these images, if it is near enough.
        """
        known, asked = np.flatnonzero(self.codes.any(axis=1)), np.flatnonzero(others.any(axis=1))
        near = _maybe_near(self.codes[known], others[asked], self.same_to)
        nearest, distance = _nearest(self.codes[known], others[asked[near]])
        same = distance <= self.same_to
        return known[nearest[same]], asked[near[same]]


def sketch_images(rows: FeatureRows) -> ImageSketches:
    """Return the sketches of the images that a head is trained on."""
    # Sums of differences from the first block's mean: a large common part would swallow the spread.
    shift, total, squares, count = np.zeros(rows.dim, np.float32), np.zeros(rows.dim), 0.0, 0
    for _, clean in _blocks(rows):
        if not count:
            shift = clean.mean(axis=0)
        centred = clean - shift
        total += centred.sum(axis=0, dtype=np.float64)
        squares += float(np.einsum("ij,ij->i", centred, centred).sum(dtype=np.float64))
        count += len(clean)
    mean = total / max(count, 1)
    spread = float(np.sqrt(max(squares / max(count, 1) - float(mean @ mean), 0.0)))
    empty = np.zeros((rows.images, NUMBERS), dtype=np.int16)
    found = ImageSketches((shift + mean).astype(np.float32), spread, LEAST, empty)
    codes = found.sketch(rows)
    return ImageSketches(found.centre, found.spread, _same_to(codes), codes)


def _same_to(codes: Codes) -> float:
    """Return how close a copy comes: a share of the usual distance to the nearest other image.

    Copies among the images themselves, at up to `LEAST`, say nothing about other images.
    """
    usable = codes[codes.any(axis=1)]
    sample = usable[:: max(1, len(usable) // _SAMPLE)]
    _, distance = _nearest(usable, sample, beyond=LEAST)
    found = distance[np.isfinite(distance)]
    return min(max(SHARE * float(np.median(found)), LEAST), MOST) if found.size else LEAST


def _maybe_near(known: Codes, asked: Codes, limit: float) -> Positions:
    """Return which of those asked for may have a known code within a distance, by their first numbers."""
    known, asked = known[:, :_FIRST], asked[:, :_FIRST]
    near = np.zeros(len(asked), np.bool_)
    for start in range(0, len(known), _BLOCK_KNOWN):
        other = known[start : start + _BLOCK_KNOWN].astype(np.float32) / _UNIT
        # One product gives squared distances: [a, a.a, 1] . [-2 b, 1, b.b].
        right = np.column_stack([-2 * other, np.ones(len(other), np.float32), np.square(other).sum(axis=1)]).T
        for low in range(0, len(asked), _BLOCK):
            one = asked[low : low + _BLOCK].astype(np.float32) / _UNIT
            left = np.column_stack([one, np.square(one).sum(axis=1), np.ones(len(one), np.float32)])
            near[low : low + _BLOCK] |= (left @ right).min(axis=1) <= (limit + _ROUNDING) ** 2
    return np.flatnonzero(near)


def _nearest(known: Codes, asked: Codes, beyond: float = -1.0) -> tuple[Positions, Floats]:
    """Return the nearest known code of each one asked for, and its distance, if it is `beyond` a distance.

    By matrix products in float32, exact to a thousandth of a spread.
    """
    position, best = np.zeros(len(asked), np.int64), np.full(len(asked), np.inf, np.float32)
    for low in range(0, len(asked), _BLOCK):
        here = slice(low, low + _BLOCK)
        one = asked[here].astype(np.float32) / _UNIT
        for start in range(0, len(known), _BLOCK_KNOWN):
            other = known[start : start + _BLOCK_KNOWN].astype(np.float32) / _UNIT
            squares = one @ (-2 * other.T)
            squares += np.square(other).sum(axis=1)
            squares += np.square(one).sum(axis=1)[:, None]
            if beyond >= 0:
                squares[squares <= beyond**2] = np.inf
            nearest = squares.argmin(axis=1)
            distance = np.sqrt(np.maximum(squares[np.arange(len(one)), nearest], 0))
            closer = distance < best[here]
            position[here] = np.where(closer, start + nearest, position[here])
            best[here] = np.where(closer, distance, best[here])
    return position, best


def _blocks(rows: FeatureRows) -> Iterator[tuple[Positions, Floats]]:
    """Yield positions and clean features [image, dim], without images whose features are constant."""
    present = np.flatnonzero(rows.present)
    for low in range(0, present.size, _BLOCK):
        images = present[low : low + _BLOCK]
        clean = np.stack([rows.clean(image) for image in images.tolist()]).astype(np.float32)
        varied = np.any(clean != clean[:, :1], axis=1)
        if varied.any():
            yield images[varied], clean[varied]


@lru_cache(maxsize=4)
def _projections(dim: int) -> Floats:
    """Return fixed signs [dim, number] that keep distances, from raw output that numpy keeps stable."""
    words = np.random.PCG64(np.random.SeedSequence(_SEED)).random_raw(NUMBERS * dim)
    signs = np.where(np.asarray(words, dtype=np.uint64) >> np.uint64(63), 1.0, -1.0).reshape(dim, -1)
    return np.asarray(signs / np.sqrt(NUMBERS), dtype=np.float32)
