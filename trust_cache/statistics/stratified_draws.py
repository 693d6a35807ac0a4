"""Stratified draws of cases that depend only on the seed and the sorted cases.

The random numbers are a bit generator's raw output, which numpy keeps stable between versions (unlike
its distributions and scikit-learn's splitters). Assignments are still written to files and reused.
"""

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import check_least

SEARCH_SHARE = (1, 5)  # numerator and denominator: sizes are integer arithmetic

Mask = NDArray[np.bool_]


def draw_search(labels: NDArray[np.integer], seed: int, *, resplit: int | None = None) -> Mask:
    """Mark ceil(20 %) of the cases as the search subset, stratified by label.

    `labels` belong to cases sorted by case_id. `resplit` numbers further splits of the same seed.
    """
    size, _ = search_sizes(labels.size, int(np.count_nonzero(labels == 1)))
    stream = () if resplit is None else (resplit,)
    return draw_stratified(labels, size, random_keys(labels.size, seed, *stream))


def search_sizes(cases: int, positives: int) -> tuple[int, int]:
    """Return the cases and the positives of the search subset."""
    share, whole = SEARCH_SHARE
    size = -(-cases * share // whole)
    return size, _proportional(positives, cases, size)


def draw_stratified(labels: NDArray[np.integer], size: int, keys: NDArray[np.uint64]) -> Mask:
    """Mark `size` cases with the smallest keys of their class, classes in proportion."""
    drawn = np.zeros(labels.size, dtype=np.bool_)
    positives = int(np.count_nonzero(labels == 1))
    of_positives = _proportional(positives, labels.size, size)
    for label, count in ((1, of_positives), (0, size - of_positives)):
        members = np.flatnonzero(labels == label)
        drawn[members[np.argsort(keys[members], kind="stable")[:count]]] = True
    return drawn


def random_keys(count: int, seed: int, *stream: int) -> NDArray[np.uint64]:
    """Return `count` random 64-bit keys of this seed; another stream gives other keys."""
    check_least("seed", seed)
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=stream))
    return np.asarray(bits.random_raw(count), dtype=np.uint64)


def _proportional(positives: int, cases: int, size: int) -> int:
    """Return the positives among `size` cases in proportion, rounded to the nearest, halves up."""
    return (2 * positives * size + cases) // (2 * cases) if cases else 0
