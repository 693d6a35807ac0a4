"""Threshold rules against their definitions, by brute force with other people's formulas."""

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import beta, binom

from trust_cache import clopper_pearson_upper
from trust_cache.base.errors import InputError
from trust_cache.statistics.bounds import smallest_sample
from trust_cache.statistics.rules import (
    RULES,
    MissRule,
    allowance,
    bonferroni,
    find_rule,
    fixed_sequence,
    guaranteed_risk,
    miss_rules,
)

# A handful of values, so that ties are common.
cases = st.lists(
    st.tuples(st.integers(0, 12).map(float), st.sampled_from([0, 0, 0, 1])), min_size=1, max_size=60
)
levels = st.sampled_from([0.1, 0.25, 0.4, 0.6])
deltas = st.sampled_from([0.05, 0.2, 0.4])


def columns(rows: list[tuple[float, int]]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    scores, labels = zip(*rows, strict=True)
    return np.array(scores), np.array(labels, dtype=np.int64)


def below(scores: NDArray[np.float64], labels: NDArray[np.int64], tau: float) -> tuple[int, int]:
    dismissed = scores < tau
    return int(dismissed.sum()), int(labels[dismissed].sum())


def p_value(k: int, n: int, level: float) -> float:
    """How surprising k or fewer of n are at the level; nothing dismissed is never surprising."""
    return float(binom.cdf(k, n, level)) if n else 1.0


# The miss rate: thresholds from the safest on, each of the positives' scores a candidate.


@given(cases, levels, deltas)
def test_rcps_and_learn_then_test_by_their_own_definitions(
    rows: list[tuple[float, int]], alpha: float, delta: float
) -> None:
    scores, labels = columns(rows)
    positives = int(labels.sum())
    if not positives:
        return
    by_bound = by_test = None
    for tau in np.unique(scores[labels == 1]):
        if clopper_pearson_upper(below(scores, labels, tau)[1], positives, delta) > alpha:
            break
        by_bound = float(tau)
    for tau in np.unique(scores[labels == 1]):
        if p_value(below(scores, labels, tau)[1], positives, alpha) > delta:
            break
        by_test = float(tau)
    target = float(1 - Fraction(str(alpha)))
    assert RULES["rcps"].choose(scores, labels, target, delta).tau == by_bound
    assert RULES["ltt"].choose(scores, labels, target, delta).tau == by_test


@given(cases, levels)
def test_conformal_risk_control_by_its_definition(rows: list[tuple[float, int]], alpha: float) -> None:
    """The largest threshold with (C R + 1) / (C + 1) <= alpha, R the miss rate on the search subset."""
    scores, labels = columns(rows)
    positives = int(labels.sum())
    if not positives:
        return
    kept = [
        float(tau)
        for tau in scores[labels == 1]
        if Fraction(below(scores, labels, tau)[1] + 1, positives + 1) <= Fraction(str(alpha))
    ]
    target = float(1 - Fraction(str(alpha)))
    assert RULES["crc"].choose(scores, labels, target, 0.1).tau == (max(kept) if kept else None)


@given(cases, levels)
def test_the_paper_rule_by_its_definition(rows: list[tuple[float, int]], alpha: float) -> None:
    scores, labels = columns(rows)
    positives = int(labels.sum())
    if not positives:
        return
    target = float(1 - Fraction(str(alpha)))
    kept = [
        float(tau)
        for tau in scores[labels == 1]
        if Fraction(positives - below(scores, labels, tau)[1], positives) >= Fraction(str(target))
    ]
    assert RULES["recall"].choose(scores, labels, target, 0.1).tau == max(kept)


@pytest.mark.parametrize(
    ("rule", "target", "needed"),
    [
        ("rcps", 0.98, 228), ("ltt", 0.98, 228), ("rcps", 0.95, 90), ("ltt", 0.95, 90),
        ("crc", 0.98, 49), ("crc", 0.95, 19),
    ],
)  # fmt: skip
def test_positives_needed(rule: str, target: float, needed: int) -> None:
    """One positive fewer has no threshold and says so; with exactly that many there is one."""
    generator = np.random.default_rng(1)
    for positives, feasible in ((needed - 1, False), (needed, True)):
        labels = np.repeat([1, 0], [positives, 500])
        choice = RULES[rule].choose(generator.random(labels.size), labels, target, 0.01)
        assert choice.needed == needed
        assert (choice.tau is not None) == feasible
        assert choice.reason == (None if feasible else f"needs {needed} positives, found {positives}")
        assert clopper_pearson_upper(0, 228, 0.01) <= 0.02 < clopper_pearson_upper(0, 227, 0.01)


def test_a_recall_of_one_is_beyond_any_number() -> None:
    labels = np.repeat([1, 0], [500, 500])
    choice = RULES["rcps"].choose(np.linspace(0, 1, 1000), labels, 1.0, 0.01)
    assert (choice.tau, choice.needed) == (None, None)
    assert "no number" in str(choice.reason)


# Cancer among the dismissed.


def thresholds_at(scores: NDArray[np.float64], ranks: list[int]) -> list[float]:
    ordered = sorted(scores.tolist())
    return [ordered[rank] if rank < len(ordered) else math.nextafter(ordered[-1], math.inf) for rank in ranks]


@cache
def ranks_by_search(cases: int, level: float, delta: float) -> list[int]:
    """For k = 0, 1, ... the smallest n up to `cases` at which k positives reject, by trying every n."""
    ranks = []
    for k in range(cases + 1):
        sizes = np.arange(k + 1, cases + 1)
        enough = sizes[binom.cdf(k, sizes, level) <= delta]
        if not enough.size:
            break
        ranks.append(int(enough[0]))
    return ranks


@given(cases, levels, deltas)
def test_the_fixed_sequence_by_brute_force(rows: list[tuple[float, int]], level: float, delta: float) -> None:
    scores, labels = columns(rows)
    expected = None
    ranks = ranks_by_search(scores.size, level, delta)
    for tau in thresholds_at(scores, ranks):
        n, k = below(scores, labels, tau)
        if n < ranks[0]:
            continue
        if p_value(k, n, level) > delta:
            break
        expected = tau
    found = fixed_sequence(scores, labels, level, delta)
    assert found.tau == expected
    if expected is not None:
        assert (found.dismissed, found.positives_dismissed) == below(scores, labels, expected)


@given(cases, levels, deltas)
def test_bonferroni_by_brute_force(rows: list[tuple[float, int]], level: float, delta: float) -> None:
    scores, labels = columns(rows)
    tests = 1
    while len(ranks_by_search(scores.size, level, delta / (tests + 1))) > tests:
        tests += 1
    ranks = ranks_by_search(scores.size, level, delta / tests)[:tests]
    passed = [
        tau
        for tau in thresholds_at(scores, ranks)
        if p_value(*reversed(below(scores, labels, tau)), level) <= delta / tests  # type: ignore[misc]
    ]
    found = bonferroni(scores, labels, level, delta)
    assert found.tests == tests
    assert found.tau == (max(passed) if passed else None)


@given(cases, levels, deltas)
def test_sgr_as_it_was_published(rows: list[tuple[float, int]], level: float, delta: float) -> None:
    """Algorithm 2 of the paper, with confidence minus the score; the last look that passed is what counts."""
    scores, labels = columns(rows)
    size = scores.size
    looks = max(math.ceil(math.log2(size)), 1)
    confidence = np.sort(-scores)
    low, high, expected = 1, size, None
    for _ in range(looks):
        z = math.ceil((low + high) / 2)
        selected = -scores >= confidence[z - 1]
        n, k = int(selected.sum()), int(labels[selected].sum())
        bound = 1.0 if k == n else float(beta.ppf(1 - delta / looks, k + 1, n - k))
        if bound <= level:
            high, expected = z, selected
        else:
            low = z
    found = guaranteed_risk(scores, labels, level, delta)
    if expected is None:
        assert found.tau is None
    else:
        assert found.tau is not None
        np.testing.assert_array_equal(scores < found.tau, expected)


def test_dismissed_needed() -> None:
    """459 without a cancer for 1 % at 99 % confidence: one fewer is not enough."""
    for size, feasible in ((458, False), (459, True)):
        choice = RULES["ltt-for-sequence"].choose(
            np.arange(float(size)), np.zeros(size, dtype=np.int64), 0.01, 0.01
        )
        assert (choice.tau is not None, choice.needed) == (feasible, 459)
    assert "needs 459 dismissed, found 458" in str(
        RULES["ltt-for-sequence"].choose(np.arange(458.0), np.zeros(458, dtype=np.int64), 0.01, 0.01).reason
    )
    # SGR looks nine times at 459 cases; that many tests need more cases, and so do two by Bonferroni.
    assert guaranteed_risk(np.arange(459.0), np.zeros(459), 0.01, 0.01).needed == smallest_sample(
        0, 0.01, 0.01 / 9
    )
    assert bonferroni(np.arange(1_200.0), np.zeros(1_200), 0.01, 0.01).needed == 597
    assert guaranteed_risk(np.arange(1_200.0), np.zeros(1_200), 0.01, 0.01).needed == 697


def test_one_cancer_at_the_bottom_stops_the_sequence_and_is_named() -> None:
    labels = np.zeros(1_000, dtype=np.int64)
    labels[3] = 1
    choice = RULES["ltt-for-sequence"].choose(np.arange(1_000.0), labels, 0.01, 0.01)
    assert choice.tau is None
    assert choice.reason == "needs 459 dismissed, 1 of 459 positive"
    assert RULES["ltt-for-bonferroni"].choose(np.arange(1_000.0), labels, 0.01, 0.01).tau is not None


def test_thresholds_are_chosen_without_labels() -> None:
    """Whatever the labels, a threshold is one of the few scores that the unlabelled scores determine."""
    generator = np.random.default_rng(3)
    scores = generator.random(800)
    possible: set[float] = set()
    for steepness in (0.0, 0.05, 0.1, 0.3):
        labels = (generator.random(800) < steepness * scores**2).astype(np.int64)
        tau = fixed_sequence(scores, labels, 0.02, 0.05).tau
        possible |= set() if tau is None else {tau}
    ranks = ranks_by_search(800, 0.02, 0.05)
    assert possible <= set(thresholds_at(scores, ranks))
    assert len(possible) > 1


def test_equal_scores_leave_no_threshold_but_all() -> None:
    labels = np.zeros(500, dtype=np.int64)
    everybody = fixed_sequence(np.full(500, 0.3), labels, 0.05, 0.05)
    assert everybody.tau is None
    choice = RULES["ltt-for-sequence"].choose(np.full(500, 0.3), labels, 0.05, 0.05)
    assert "equal scores" in str(choice.reason)


def test_every_rule_has_a_promise_and_unknown_ones_are_refused() -> None:
    assert all(rule.promise for rule in RULES.values())
    assert list(miss_rules()) == ["recall", "crc", "rcps", "ltt"]
    with pytest.raises(InputError, match="rcps"):
        find_rule("rpcs")
    for rule in RULES:
        if isinstance(RULES[rule], MissRule):
            with pytest.raises(InputError, match="at least one positive"):
                RULES[rule].choose(np.arange(3.0), np.zeros(3, dtype=np.int64), 0.9, 0.1)


def test_rcps_and_ltt_allow_the_same_for_every_number_of_positives() -> None:
    for positives in range(1, 400, 9):
        allowed = allowance("ltt", positives, 0.95, 0.01).misses
        bounds = clopper_pearson_upper(np.arange(positives + 1), np.full(positives + 1, positives), 0.01)
        expected = int(np.count_nonzero(bounds <= 0.05)) - 1
        assert (-1 if allowed is None else allowed) == expected
