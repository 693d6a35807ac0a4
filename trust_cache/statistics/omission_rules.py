"""Rules that bound cancer among the dismissed (the false omission rate) by exact tests on labelled cases.

Unlike the miss rate, this rate need not grow with the threshold, so a rule has to say which thresholds it
tests and how the tests share delta. Where k of the n cases below a threshold are positive, a test at delta'
rejects "the rate exceeds the level" if P(Bin(n, level) <= k) <= delta', that is if n >= n_min(k).

Thresholds are scores at ranks that are fixed beforehand, so they are chosen without labels. Given the score
at a rank, the cases strictly below it are independent draws from all those below that score: the count of
positives among them is binomial with the very rate that the threshold has.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trust_cache.statistics.bounds import Integers, smallest_sample, smallest_samples
from trust_cache.statistics.thresholds import checked_columns

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OmissionThreshold:
    """The chosen threshold with the counts that justify it, or None and what the easiest failed test saw."""

    tau: float | None
    dismissed: int
    positives_dismissed: int
    needed: int  # dismissed cases without a positive that the easiest test takes
    tests: int  # among which delta is divided; 1 where it is not


def fixed_sequence(scores: ArrayLike, labels: ArrayLike, level: float, delta: float) -> OmissionThreshold:
    """Learn then Test, one threshold after the other, each at all of delta, until one is not rejected.

    It starts at n_min(0), the first rank at which a test can reject at all, and goes on by n_min(1),
    n_min(2), ...: each allows one positive more. Its promise holds where the risk grows with the score.
    """
    cases = _Sorted(scores, labels)
    table = _table(cases.size, level, delta)
    needed = smallest_sample(0, level, delta)
    last = None
    first = None
    for n, k, tau in cases.at_ranks(table):
        if n < needed:
            continue  # ties leave too few below: no labels are needed to see that
        first = first or (n, k)
        if not _rejects(n, k, table):
            break
        last = OmissionThreshold(tau, n, k, needed, 1)
    return last or OmissionThreshold(None, *(first or (0, 0)), needed, 1)


def bonferroni(scores: ArrayLike, labels: ArrayLike, level: float, delta: float) -> OmissionThreshold:
    """Learn then Test, m thresholds each at delta / m; the largest that is rejected.

    m is the largest number of tests for which the ranks n_min(0) .. n_min(m - 1) at delta / m all exist.
    It holds whatever the relation of score and risk.
    """
    cases = _Sorted(scores, labels)
    tests = _affordable(cases.size, level, delta)
    needed = smallest_sample(0, level, delta / tests)
    table = _table(cases.size, level, delta / tests)[:tests]
    looks = list(cases.at_ranks(table))
    for n, k, tau in reversed(looks):
        if _rejects(n, k, table):
            return OmissionThreshold(tau, n, k, needed, tests)
    n, k = looks[0][:2] if looks else (0, 0)
    return OmissionThreshold(None, n, k, needed, tests)


def guaranteed_risk(scores: ArrayLike, labels: ArrayLike, level: float, delta: float) -> OmissionThreshold:
    """SGR (Geifman and El-Yaniv 2017): a binary search over the ranks, each look at delta / ceil(log2 m).

    The selective classifier is "no cancer" on the cases with the lowest scores; its error is cancer among
    them. The published algorithm returns its last look, which may have failed; this returns the last that
    passed. Its union bound over the looks holds where the risk grows with the score.
    """
    cases = _Sorted(scores, labels)
    looks = max(math.ceil(math.log2(cases.size)), 1) if cases.size else 1
    needed = smallest_sample(0, level, delta / looks)
    table = _table(cases.size, level, delta / looks)
    best, seen = None, (0, 0)
    low, high = 1, max(cases.size, 1)  # ranks from the highest score on: low dismisses more
    for _ in range(looks if cases.size else 0):
        middle = -(-(low + high) // 2)
        n, k, tau = cases.up_to(cases.size - middle)
        if _rejects(n, k, table):
            high, best = middle, OmissionThreshold(tau, n, k, needed, looks)
        else:
            low = middle
            seen = (n, k) if n >= needed else seen
    return best or OmissionThreshold(None, *seen, needed, looks)


class _Sorted:
    """Cases by score, with the positives among the first 0, 1, 2, ... of them."""

    def __init__(self, scores: ArrayLike, labels: ArrayLike) -> None:
        values, positive = checked_columns(scores, labels)
        order = np.argsort(values, kind="stable")
        self.scores: Floats = values[order]
        self.positives = np.concatenate(([0], np.cumsum(positive[order], dtype=np.int64)))
        self.size = int(values.size)

    def at_ranks(self, ranks: Integers) -> list[tuple[int, int, float]]:
        """Return (dismissed, positives, tau) where tau has `rank` cases below it, fewer where it is tied."""
        found = []
        for rank in ranks.tolist():
            tau = self._score(rank)
            n = int(np.searchsorted(self.scores, tau, side="left"))
            found.append((n, int(self.positives[n]), tau))
        return found

    def up_to(self, rank: int) -> tuple[int, int, float]:
        """Return the same for the threshold just above the score at this rank, its ties dismissed too."""
        n = int(np.searchsorted(self.scores, self.scores[rank], side="right"))
        return n, int(self.positives[n]), self._score(n)

    def _score(self, rank: int) -> float:
        """Return the score at a rank; behind the last one, the number just above it."""
        if rank < self.size:
            return float(self.scores[rank])
        return math.nextafter(float(self.scores[-1]), math.inf)


@lru_cache(maxsize=256)
def _table(cases: int, level: float, delta: float) -> Integers:
    """Return the part of n_min(0), n_min(1), ... that `cases` reach; k > level n never rejects."""
    table = smallest_samples(math.floor(level * cases) + 1, level, delta)
    table = table[table <= cases]
    table.flags.writeable = False  # shared by all who ask
    return table


def _rejects(n: int, k: int, table: Integers) -> bool:
    return k < table.size and n >= int(table[k])


@lru_cache(maxsize=256)
def _affordable(cases: int, level: float, delta: float) -> int:
    """Return the largest m with n_min(m - 1; level, delta / m) <= cases, at least 1."""
    tests = 1
    while smallest_sample(tests, level, delta / (tests + 1)) <= cases:
        tests += 1
    return tests
