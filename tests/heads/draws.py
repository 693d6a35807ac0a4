"""The readable definition of the batches and masks that kernels.py draws."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trust_cache.heads.draws import _BITS, _GOLDEN, Draws, _derive, _mix, _words


@dataclass(frozen=True)
class Batch:
    """One step's images, positives first, and the view of each."""

    images: NDArray[np.int64]
    views: NDArray[np.int64]


def draw_batch(
    draws: Draws,
    step: int,
    positives: NDArray[np.int64],
    negatives: NDArray[np.int64],
    counts: tuple[int, int],
    stored_views: int,
) -> Batch:
    """Draw `counts` images of each class, distinct where the class is large enough, and their views."""
    words = _stream(_derive(int(draws.batch_key), step))
    images = [
        image
        for pool, count in zip((positives, negatives), counts, strict=True)
        for image in _draw_images(words, pool, count)
    ]
    augmented = stored_views - 1
    views = [1 + _below(words, augmented) if augmented else 0 for _ in images]
    return Batch(np.array(images, dtype=np.int64), np.array(views, dtype=np.int64))


def draw_mask(draws: Draws, step: int, rows: int, dim: int, dropped_of_256: int) -> NDArray[np.float32]:
    """Return [row, feature]: 0 where the feature's byte is below `dropped_of_256`, else 256 / kept.

    A row takes a number of words and uses their bytes, low byte first, as many as it has features.
    """
    n_words = -(-dim // 8)
    words = _words(_derive(int(draws.mask_key), step), rows * n_words).reshape(rows, n_words)
    bytes_drawn = words.astype("<u8").view(np.uint8)[:, :dim]
    return np.where(bytes_drawn >= dropped_of_256, np.float32(256 / (256 - dropped_of_256)), np.float32(0))


def _stream(key: int) -> Iterator[int]:
    state = key
    while True:
        state = (state + _GOLDEN) & _BITS
        yield _mix(state)


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
