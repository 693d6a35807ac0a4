"""The swap test: do two columns of scores dismiss differently, or would exchanging them change nothing?

Under the hypothesis the two scores of a case are exchangeable given its class. Columns of different
heads have different scales, so ranks are exchanged, not scores (Venkatraman and Begg, Biometrika 1996,
do the same to compare two ROC curves from one sample): the test is the same for any increasing
transformation of either column.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trust_cache.studies.compare.pairs import Integers, Pair, excess

Ranks = NDArray[np.int32]
Masks = NDArray[np.bool_]
SWAPS_AT_ONCE = 50  # bounds the memory: as many masks of all cases are held
_BITS = 64


@dataclass(frozen=True)
class Contest:
    """What the exchanges can change at one number of allowed misses.

    A case below every threshold that can occur counts in both columns whatever is exchanged, one above
    all of them in neither; the difference is the open cases' alone.
    """

    misses: int
    open_cases: Integers
    ranks: Ranks  # [2, open case]


def swap_test(pair: Pair, misses: Sequence[int], swaps: int, seed: int) -> list[float]:
    """Return a two-sided p-value for each number of allowed misses: (1 + as extreme) / (1 + swaps)."""
    observed = [abs(excess(pair, allowed)) for allowed in misses]
    extreme = [0] * len(misses)
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(1,)))
    ranks = midranks(pair)
    positive = ranks[:, : len(pair.positives)]
    contests = [make_contest(ranks, len(pair.positives), allowed) for allowed in misses]
    for start in range(0, swaps, SWAPS_AT_ONCE):
        masks = draw_masks(bits, min(SWAPS_AT_ONCE, swaps - start), pair.cases)
        for index, contest in enumerate(contests):
            found = swapped_excess(contest, positive, masks)
            extreme[index] += int(np.count_nonzero(np.abs(found) >= observed[index]))
    return [(1 + count) / (1 + swaps) for count in extreme]


def midranks(pair: Pair) -> Ranks:
    """Return twice the mid-rank of every score within its column: [2, case], positives first."""
    columns = np.concatenate([pair.positives, pair.negatives]).T
    ranks = np.empty(columns.shape, dtype=np.int32)
    for column, values in enumerate(columns):
        order = np.sort(values)
        below = np.searchsorted(order, values, side="left")
        ranks[column] = below + np.searchsorted(order, values, side="right") + 1
    return ranks


def make_contest(ranks: Ranks, positives: int, misses: int) -> Contest:
    """Find the cases that an exchange can carry over a threshold."""
    lower, upper = ranks.min(axis=0), ranks.max(axis=0)
    least = np.partition(lower[:positives], misses)[misses]
    most = np.partition(upper[:positives], misses)[misses]
    open_cases = np.flatnonzero((lower < most) & (upper >= least))
    return Contest(misses, open_cases, np.ascontiguousarray(ranks[:, open_cases]))


def swapped_excess(contest: Contest, positive: Ranks, masks: Masks) -> Integers:
    """Return for each mask how many cases more the first column dismisses once marked ranks are exchanged."""
    of_positives = masks[:, : positive.shape[1]]
    of_open = masks.take(contest.open_cases, axis=1)
    counts = []
    for one, other in ((0, 1), (1, 0)):
        column = np.where(of_positives, positive[other], positive[one])
        column.partition(contest.misses, axis=1)
        tau = column[:, contest.misses, np.newaxis]
        below = np.where(of_open, contest.ranks[other] < tau, contest.ranks[one] < tau)
        counts.append(np.count_nonzero(below, axis=1))
    return np.asarray(counts[0] - counts[1], dtype=np.int64)


def draw_masks(bits: np.random.PCG64, masks: int, cases: int) -> Masks:
    """Mark each case with chance one half, from raw bits, which numpy keeps stable between versions."""
    words = -(-cases // _BITS)
    raw = np.asarray(bits.random_raw(masks * words), dtype="<u8").view(np.uint8).reshape(masks, -1)
    return np.unpackbits(raw, axis=1, count=cases, bitorder="little").astype(np.bool_)


def adjust(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number by Holm's method: the chance of one false alarm among all stays."""
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda item: p_values[item])):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = running
    return adjusted
