"""Everything random in training, as pure functions of (seed, fold, repeat, step): the readable definition.

All heads of a fold share these draws (common random numbers); bank, threads and machine do not enter. The
streams are splitmix64's: the state begins at a key and grows by the golden ratio, each state gives one word
of 64 bits. kernels.py draws the same batches and masks: tests hold the two together and to fixed numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_BITS = (1 << 64) - 1
_INITIAL, _BATCHES, _MASKS = 1, 2, 3  # the purposes that streams are kept apart by
_MANTISSA = 53


@dataclass(frozen=True)
class InitialWeights:
    """PyTorch's default for Linear(dim, 1); LayerNorm starts at ones and zeros."""

    weight: NDArray[np.float32]
    bias: float


@dataclass(frozen=True)
class Batch:
    """One step's images, positives first, and the view of each."""

    images: NDArray[np.int64]
    views: NDArray[np.int64]


@dataclass(frozen=True)
class Draws:
    """The random numbers of one fold of one repeat."""

    seed: int
    fold: int
    repeat: int = 0

    @property
    def batch_key(self) -> np.uint64:
        """The key that steps' batches derive from."""
        return np.uint64(self._key(_BATCHES))

    @property
    def mask_key(self) -> np.uint64:
        """The key that steps' masks derive from."""
        return np.uint64(self._key(_MASKS))

    def initial_weights(self, dim: int) -> InitialWeights:
        """Return uniform weights and bias within 1 / sqrt(dim)."""
        words = _words(self._key(_INITIAL), dim + 1) >> np.uint64(64 - _MANTISSA)
        values = (words.astype(np.float64) / 2.0 ** (_MANTISSA - 1) - 1.0) / np.sqrt(dim)
        values = values.astype(np.float32)
        return InitialWeights(values[:dim], float(values[dim]))

    def batch(
        self,
        step: int,
        positives: NDArray[np.int64],
        negatives: NDArray[np.int64],
        counts: tuple[int, int],
        stored_views: int,
    ) -> Batch:
        """Draw `counts` images of each class, distinct where the class is large enough, and their views."""
        words = _stream(_derive(self._key(_BATCHES), step))
        images = [
            image
            for pool, count in zip((positives, negatives), counts, strict=True)
            for image in _draw_images(words, pool, count)
        ]
        augmented = stored_views - 1
        views = [1 + _below(words, augmented) if augmented else 0 for _ in images]
        return Batch(np.array(images, dtype=np.int64), np.array(views, dtype=np.int64))

    def mask(self, step: int, rows: int, dim: int, dropped_of_256: int) -> NDArray[np.float32]:
        """Return [row, feature]: 0 where the feature's byte is below `dropped_of_256`, else 256 / kept.

        A row takes whole words: its bytes are theirs, low byte first, as many as it has features.
        """
        n_words = -(-dim // 8)
        words = _words(_derive(self._key(_MASKS), step), rows * n_words).reshape(rows, n_words)
        draws = words.astype("<u8").view(np.uint8)[:, :dim]
        return np.where(draws >= dropped_of_256, np.float32(256 / (256 - dropped_of_256)), np.float32(0))

    def _key(self, purpose: int) -> int:
        return _derive(0, self.seed, purpose, self.fold, self.repeat)


def _mix(state: int) -> int:
    word = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _BITS
    return word ^ (word >> 31)


def _derive(key: int, *parts: int) -> int:
    """Return the key of a part of a stream, of a part of that, and so on."""
    for part in parts:
        key = _mix(((key ^ part) + _GOLDEN) & _BITS)
    return key


def _stream(key: int) -> Iterator[int]:
    state = key
    while True:
        state = (state + _GOLDEN) & _BITS
        yield _mix(state)


def _words(key: int, count: int) -> NDArray[np.uint64]:
    """Return the first words of a stream at once."""
    word = np.uint64(key) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def _below(words: Iterator[int], limit: int) -> int:
    """Return a uniform integer below `limit`, without bias (Lemire 2019)."""
    while True:
        product = (next(words) >> 32) * limit
        if product & 0xFFFFFFFF >= (1 << 32) % limit:
            return product >> 32


def _draw_images(words: Iterator[int], pool: NDArray[np.int64], count: int) -> list[int]:
    distinct = pool.size >= count
    drawn: list[int] = []
    while len(drawn) < count:
        image = int(pool[_below(words, pool.size)])
        if not (distinct and image in drawn):
            drawn.append(image)
    return drawn
