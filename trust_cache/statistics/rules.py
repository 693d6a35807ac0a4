"""Threshold rules: how each chooses tau from the search cases, and what it promises.

`RULES` is the registry; `certify --rule`, `plan` and `rivals` all read it, so a new rule is one entry there.
A `MissRule` promises something about the miss rate of positives. It is a rank: with C search positives it
allows a(C) misses, and tau is the (a + 1)-th smallest positive score. An `OmissionRule` promises something
about the cancer rate among the dismissed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trust_cache.base.errors import InputError
from trust_cache.statistics.bounds import Floats, Integers, smallest_sample, smallest_samples
from trust_cache.statistics.thresholds import (
    Share,
    allowed_misses,
    checked_columns,
    exact_share,
    threshold_allowing,
)


@dataclass(frozen=True)
class Allowance:
    """The misses that a rule allows among the positives at hand; None: it has no threshold."""

    misses: int | None
    needed: int | None  # the smallest number of positives with a threshold; None: no number suffices


@dataclass(frozen=True)
class Choice:
    """The threshold that a rule chose; tau None: it has none, for this reason."""

    tau: float | None
    needed: int | None  # positives, or dismissed cases without a positive; None: no number suffices
    reason: str | None


@dataclass(frozen=True)
class MissRule:
    """A rule about the miss rate: `allow(positives, 1 - target, delta)` gives its allowance."""

    name: str
    promise: str
    allow: Callable[[int, Fraction, float], Allowance]
    promises: bool = True  # whether it promises anything about further cases
    risk: str = "miss rate"
    needed_of: str = "positives"

    def choose(self, scores: Floats, labels: NDArray[np.integer], target: Share, delta: float) -> Choice:
        """Choose tau on the search cases for a target recall."""
        positive_scores = scores[labels == 1]
        if not positive_scores.size:
            raise InputError("labels: expected at least one positive, found none")
        allowed = self.allow(positive_scores.size, 1 - exact_share(target), delta)
        if allowed.misses is not None:
            return Choice(threshold_allowing(positive_scores, allowed.misses), allowed.needed, None)
        if allowed.needed is None:
            return Choice(None, None, "no number of positives suffices for a recall of 1")
        return Choice(None, allowed.needed, f"needs {allowed.needed} positives, found {positive_scores.size}")


@dataclass(frozen=True)
class OmissionRule:
    """A rule about cancer among the dismissed: `find(scores, labels, level, delta)` gives its threshold."""

    name: str
    promise: str
    find: Callable[[ArrayLike, ArrayLike, float, float], "OmissionThreshold"]
    promises: bool = True
    risk: str = "cancer among the dismissed"
    needed_of: str = "dismissed"

    def choose(self, scores: Floats, labels: NDArray[np.integer], level: float, delta: float) -> Choice:
        """Choose tau on the search cases for a cancer rate to stay below."""
        found = self.find(scores, labels, level, delta)
        if found.tau is not None:
            return Choice(found.tau, found.needed, None)
        if found.dismissed:
            seen = f"{found.positives_dismissed} of {found.dismissed} positive"
        elif scores.size < found.needed:
            seen = f"found {scores.size}"
        else:
            seen = "equal scores leave fewer"
        return Choice(None, found.needed, f"needs {found.needed} dismissed, {seen}")


def miss_rules() -> dict[str, MissRule]:
    """Return the rules that take a target recall, by name: those of `certify` and `plan`."""
    return {name: rule for name, rule in RULES.items() if isinstance(rule, MissRule)}


def find_rule(name: str) -> MissRule:
    """Return a rule that takes a target recall."""
    rules = miss_rules()
    if name not in rules:
        raise InputError(f"rule: expected one of {', '.join(rules)}, found {name!r}")
    return rules[name]


def allowance(rule: str, positives: int, recall: Share, delta: float) -> Allowance:
    """Return the misses that a rule allows among `positives` search positives."""
    return find_rule(rule).allow(positives, 1 - exact_share(recall), delta)


def chance_target_met(
    rule: str, search_positives: int, positives: int, target: Share, delta: float
) -> float | None:
    """Return the chance that evaluation meets the target at the rule's threshold; None: infeasible.

    With a misses allowed among C search positives, the share of positives below the (a + 1)-th smallest
    score is Beta(a + 1, C - a) for any model whose scores have no ties. The misses among further positives
    are therefore Beta-binomial.
    """
    misses = allowance(rule, search_positives, target, delta).misses
    if misses is None:
        return None
    from scipy.stats import betabinom  # noqa: PLC0415 - half a second to import

    law = betabinom(positives, misses + 1, search_positives - misses)
    return float(law.cdf(allowed_misses(positives, target)))


def _empirical_recall(positives: int, alpha: Fraction, _delta: float) -> Allowance:
    """Allow floor(C alpha) misses."""
    return Allowance(allowed_misses(positives, 1 - alpha), needed=1)


def _conformal_risk_control(positives: int, alpha: Fraction, _delta: float) -> Allowance:
    """Allow the largest a with (a + 1) / (C + 1) <= alpha (Angelopoulos et al. 2022, theorem 1)."""
    if alpha == 0:
        return Allowance(None, needed=None)
    misses = math.floor(alpha * (positives + 1)) - 1
    return Allowance(misses if misses >= 0 else None, needed=math.ceil(1 / alpha) - 1)


def _learn_then_test(positives: int, alpha: Fraction, delta: float) -> Allowance:
    """Test "m(tau) > alpha" from the safest threshold upwards, while P(Bin(C, alpha) <= a) <= delta.

    That p-value is at most delta exactly where C >= n_min(a), and grows with a: the fixed sequence
    stops at the first a whose table entry exceeds C.
    """
    if alpha == 0:
        return Allowance(None, needed=None)
    table = smallest_samples(positives, float(alpha), delta)
    rejected = int(np.searchsorted(table, positives, side="right"))
    return Allowance(rejected - 1 if rejected else None, needed=int(table[0]))


@dataclass(frozen=True)
class OmissionThreshold:
    """The chosen threshold and its counts; tau None: the counts of the easiest test that failed."""

    tau: float | None
    dismissed: int
    positives_dismissed: int
    needed: int  # dismissed cases without a positive that the easiest test takes
    tests: int  # among which delta is divided; 1 where it is not


def fixed_sequence(scores: ArrayLike, labels: ArrayLike, level: float, delta: float) -> OmissionThreshold:
    """Learn then Test, one threshold after the other, each at all of delta, until one is not rejected.

    It starts at n_min(0), the first rank at which a test can reject, and continues with n_min(1),
    n_min(2), ...: each allows one more positive. Its promise holds where the risk grows with the score.
    """
    cases = _Sorted(scores, labels)
    table = _table(cases.size, level, delta)
    needed = smallest_sample(0, level, delta)
    first = last = None
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
    The promise holds for any relation of score and risk.
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
        taus = [self._score(rank) for rank in ranks.tolist()]
        below = np.searchsorted(self.scores, taus, side="left")
        return list(zip(below.tolist(), self.positives[below].tolist(), taus, strict=True))

    def up_to(self, rank: int) -> tuple[int, int, float]:
        """Return the same for the threshold just above the score at this rank, its ties dismissed too."""
        n = int(np.searchsorted(self.scores, self.scores[rank], side="right"))
        return n, int(self.positives[n]), self._score(n)

    def _score(self, rank: int) -> float:
        """Return the score at a rank; past the last one, the next float above it."""
        if rank < self.size:
            return float(self.scores[rank])
        return math.nextafter(float(self.scores[-1]), math.inf)


@lru_cache(maxsize=256)
def _table(cases: int, level: float, delta: float) -> Integers:
    """Return the part of n_min(0), n_min(1), ... that `cases` reach; k > level n never rejects."""
    table = smallest_samples(math.floor(level * cases) + 1, level, delta)
    table = table[table <= cases]
    table.flags.writeable = False  # the cached array is shared
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


_MISSES = "with confidence 1 - delta the miss rate is at most 1 - target"
_OMISSIONS = "with confidence 1 - delta at most `level` of the dismissed have cancer"
_MONOTONE = "where the risk grows with the score"

RULES: dict[str, MissRule | OmissionRule] = {
    rule.name: rule
    for rule in (
        MissRule(
            "recall",
            "the recall on the search subset is at least the target; no promise beyond it (the paper's rule)",
            _empirical_recall,
            promises=False,
        ),
        MissRule(
            "crc",
            "the expected miss rate is at most 1 - target (conformal risk control)",
            _conformal_risk_control,
        ),
        # The miss rate grows with the threshold, and the exact binomial p-value is at most delta exactly
        # where the Clopper-Pearson bound is at most 1 - target. So RCPS with that bound and Learn then Test
        # with that p-value stop at the same threshold. Tests derive both from their own definitions.
        MissRule("rcps", f"{_MISSES} (RCPS)", _learn_then_test),
        MissRule("ltt", f"{_MISSES} (Learn then Test)", _learn_then_test),
        OmissionRule("ltt-for-bonferroni", f"{_OMISSIONS} (Learn then Test, Bonferroni)", bonferroni),
        OmissionRule(
            "ltt-for-sequence",
            f"{_OMISSIONS}, {_MONOTONE} (Learn then Test, fixed sequence)",
            fixed_sequence,
        ),
        OmissionRule("sgr", f"{_OMISSIONS}, {_MONOTONE} (SGR)", guaranteed_risk),
    )
}
