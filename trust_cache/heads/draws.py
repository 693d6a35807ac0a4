"""The keys of training's random numbers and the initial weights: pure functions of (seed, fold, repeat).

All heads of a fold share the draws (common random numbers); they do not depend on bank, threads or machine.
The streams are splitmix64's: the state begins at a key and grows by the golden ratio, each state gives one
word of 64 bits. kernels.py draws batches and masks; tests/heads/draws.py is the readable definition of both.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_BITS = (1 << 64) - 1
_INITIAL, _BATCHES, _MASKS = 1, 2, 3  # one stream per purpose
_MANTISSA = 53


@dataclass(frozen=True)
class Draws:
    """The random numbers of one fold of one repeat."""

    seed: int
    fold: int
    repeat: int = 0

    @property
    def batch_key(self) -> np.uint64:
        """The key that steps' batches derive from."""
        return np.uint64(_derive(0, self.seed, _BATCHES, self.fold, self.repeat))

    @property
    def mask_key(self) -> np.uint64:
        """The key that steps' masks derive from."""
        return np.uint64(_derive(0, self.seed, _MASKS, self.fold, self.repeat))

    def initial_weights(self, dim: int) -> tuple[NDArray[np.float32], float]:
        """Return uniform weights and bias within 1 / sqrt(dim): PyTorch's default for Linear(dim, 1)."""
        words = _words(_derive(0, self.seed, _INITIAL, self.fold, self.repeat), dim + 1) >> np.uint64(
            64 - _MANTISSA
        )
        values = (words.astype(np.float64) / 2.0 ** (_MANTISSA - 1) - 1.0) / np.sqrt(dim)
        values = values.astype(np.float32)
        return values[:dim], float(values[dim])


def _mix(state: int) -> int:
    word = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _BITS
    return word ^ (word >> 31)


def _derive(key: int, *parts: int) -> int:
    """Return the key of a part of a stream, of a part of that, and so on."""
    for part in parts:
        key = _mix(((key ^ part) + _GOLDEN) & _BITS)
    return key


def _words(key: int, count: int) -> NDArray[np.uint64]:
    """Return the first words of a stream at once."""
    word = np.uint64(key) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
