"""Sketches: a few numbers by which equal and nearly equal vectors are recognised."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Sketches = NDArray[np.int16]

SKETCH_NUMBERS = 16
_UNIT = 1000  # steps per standard deviation
_SAME = 30  # steps in each number; vectors that differ by a tenth of their length agree once in 10^10 pairs
_SEED = 20  # of the signs: part of the formats that keep sketches


def sketch_vector(vector: NDArray[Any]) -> Sketches:
    """Return the sketch of a vector, whatever its mean and length; zeros for a constant one."""
    centred = vector.astype(np.float64)
    centred -= centred.mean()
    length = float(np.linalg.norm(centred))
    if not length > 0:  # constant, or not a number
        return np.zeros(SKETCH_NUMBERS, dtype=np.int16)
    numbers = np.rint(_signs(centred.size) @ (centred / length) * _UNIT)
    return np.asarray(numbers.clip(-(2**15), 2**15 - 1), dtype=np.int16)


def same_pairs(sketches: Sketches) -> list[tuple[int, int]]:
    """Return the pairs of positions whose sketches are the same, sorted."""
    usable = np.flatnonzero(sketches.any(axis=1))
    if usable.size < 2:  # noqa: PLR2004 (a pair)
        return []
    from scipy.spatial import cKDTree  # noqa: PLC0415 - a third of a second that most commands need not wait

    pairs = cKDTree(sketches[usable].astype(np.float64)).query_pairs(_SAME, p=np.inf)
    return sorted((int(usable[first]), int(usable[second])) for first, second in pairs)


@lru_cache(maxsize=4)
def _signs(dim: int) -> NDArray[np.float64]:
    """Return fixed signs [number, dim] from a bit generator's raw output, which numpy keeps stable."""
    words = np.random.PCG64(np.random.SeedSequence(_SEED)).random_raw(SKETCH_NUMBERS * dim)
    return np.where(np.asarray(words, dtype=np.uint64) >> np.uint64(63), 1.0, -1.0).reshape(-1, dim)
