"""Stratified draws of cases and of whole patients that depend only on the seed and the sorted cases.

The random numbers are a bit generator's raw output, which numpy keeps stable between versions (unlike
its distributions and scikit-learn's splitters). Assignments are still written to files and reused.
"""

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import check_least

SEARCH_SHARE = (1, 5)  # numerator and denominator: sizes are integer arithmetic

Mask = NDArray[np.bool_]


def draw_search(
    labels: NDArray[np.integer],
    seed: int,
    *,
    patients: NDArray[np.integer] | None = None,
    resplit: int | None = None,
) -> Mask:
    """Mark the cases of ceil(20 %) of the patients as the search subset, stratified by "has a positive case".

    `labels` and `patients` belong to cases sorted by case_id; without `patients` each case is its own.
    `resplit` numbers further splits of the same seed.
    """
    everyone = np.arange(labels.size) if patients is None else patients
    count = count_patients(everyone)
    size, _ = search_sizes(count, 0)
    stream = () if resplit is None else (resplit,)
    return draw_patients(labels, everyone, size, random_keys(count, seed, *stream))


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


def draw_patients(
    labels: NDArray[np.integer],
    patients: NDArray[np.integer],
    size: int,
    keys: NDArray[np.uint64],
) -> Mask:
    """Mark all cases of `size` patients, stratified by "has a positive case".

    `keys` has one key per patient, in the order of their first cases. Where every patient has one case this
    is `draw_stratified`.
    """
    number = _in_order(patients)
    with_positive = np.zeros(keys.size, dtype=np.int64)
    with_positive[number[labels == 1]] = 1
    return np.asarray(draw_stratified(with_positive, size, keys)[number])


def draw_one_per_patient(patients: NDArray[np.integer], members: Mask, keys: NDArray[np.uint64]) -> Mask:
    """Mark one case of each patient who has cases among `members`: the member with the smallest key.

    `keys` has one random key per case, so each of a patient's members is equally likely.
    """
    cases = np.flatnonzero(members)
    order = cases[np.lexsort((keys[cases], patients[cases]))]
    ordered = patients[order]
    drawn = np.zeros(patients.size, dtype=np.bool_)
    drawn[order[np.append(True, ordered[1:] != ordered[:-1])[: order.size]]] = True
    return drawn


def count_patients(patients: NDArray[np.integer]) -> int:
    """Return the number of different patients."""
    return int(np.unique(patients).size)


def random_keys(count: int, seed: int, *stream: int) -> NDArray[np.uint64]:
    """Return `count` random 64-bit keys of this seed; another stream gives other keys."""
    check_least("seed", seed)
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=stream))
    return np.asarray(bits.random_raw(count), dtype=np.uint64)


def _proportional(positives: int, cases: int, size: int) -> int:
    """Return the positives among `size` cases in proportion, rounded to the nearest, halves up."""
    return (2 * positives * size + cases) // (2 * cases) if cases else 0


def _in_order(patients: NDArray[np.integer]) -> NDArray[np.int64]:
    """Number the patients 0, 1, ... in the order of their first cases."""
    _, first, number = np.unique(patients, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    return rank[number]
