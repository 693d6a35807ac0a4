"""Thresholds by exact arithmetic: maximal, ties together, a float target meaning its decimal."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from trust_cache import select_threshold
from trust_cache.base.errors import InputError
from trust_cache.statistics.rules import allowance
from trust_cache.statistics.thresholds import allowed_misses, exact_share

TARGETS = ["0.98", "0.95", "0.93", "0.9", "0.8", "0.7", "0.5", "0.999", "1", "0.29", "0.57"]
# Few distinct values, so that ties are common.
SCORES = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 0.9, 1.0, 1.5]), min_size=1, max_size=40)


@pytest.mark.parametrize("target", TARGETS)
def test_allowed_misses_at_every_size(target: str) -> None:
    numerator, denominator = Decimal(target).as_integer_ratio()
    for positives in range(1_001):
        expected = positives * (denominator - numerator) // denominator
        assert allowed_misses(positives, float(target)) == expected
        assert allowed_misses(positives, np.float64(float(target))) == expected
        assert allowed_misses(positives, target) == expected


def test_floats_would_be_wrong() -> None:
    """What exact arithmetic is for: these come out one less by floating point."""
    assert int(30 * (1 - 0.9)) == 2
    assert allowed_misses(30, 0.9) == 3
    assert allowed_misses(100, 0.93) == 7


def test_published_allowances() -> None:
    assert [allowed_misses(30, r) for r in (0.98, 0.95)] == [0, 1]
    assert [allowed_misses(97, r) for r in (0.98, 0.95)] == [1, 4]


@given(SCORES, st.data(), st.sampled_from(TARGETS))
def test_threshold_keeps_recall_and_is_maximal(scores: list[float], data: st.DataObject, target: str) -> None:
    labels = data.draw(st.lists(st.integers(0, 1), min_size=len(scores), max_size=len(scores)))
    labels[0] = 1
    values, classes = np.array(scores), np.array(labels)
    tau = select_threshold(values, classes, float(target))
    positives = values[classes == 1]
    recall = Fraction(int(np.sum(positives >= tau)), positives.size)
    assert recall >= Fraction(target)
    assert tau in positives
    larger = [*sorted(s for s in set(scores) if s > tau), np.nextafter(max(scores), np.inf)]
    next_recall = Fraction(int(np.sum(positives >= larger[0])), positives.size)
    assert next_recall < Fraction(target)
    order = data.draw(st.permutations(range(len(scores))))
    assert select_threshold(values[order], classes[order], float(target)) == tau


@pytest.mark.parametrize("bad", [0, -0.1, 1.01, 98, "nan", "abc", float("nan"), float("inf"), "1/0"])
def test_refuses_other_targets(bad: object) -> None:
    with pytest.raises(InputError, match="target"):
        exact_share(bad)  # type: ignore[arg-type]


def test_percent_given_as_a_target_gets_a_hint() -> None:
    with pytest.raises(InputError, match=r"write 0\.98"):
        exact_share(98)


@pytest.mark.parametrize(
    ("scores", "labels", "said"),
    [
        ([0.1, float("nan")], [1, 0], "finite"),
        ([0.1, float("inf")], [1, 0], "finite"),
        ([0.1, 0.2], [1, 2], "0 or 1"),
        ([0.1, 0.2], [0, 0], "positive"),
        ([0.1, 0.2], [1], "one length"),
        ([], [], "positive"),
    ],
)
def test_refuses_bad_columns(scores: list[float], labels: list[int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        select_threshold(scores, labels, 0.9)


@pytest.mark.parametrize(
    ("rule", "target", "needed"),
    [("crc", 0.98, 49), ("crc", 0.95, 19), ("ltt", 0.98, 228), ("ltt", 0.95, 90)],
)
def test_rules_become_feasible_where_published(rule: str, target: float, needed: int) -> None:
    assert allowance(rule, needed - 1, target, 0.01).misses is None
    assert allowance(rule, needed, target, 0.01).misses == 0
    assert allowance(rule, 5, target, 0.01).needed == needed


@given(st.integers(1, 2_000), st.sampled_from([0.99, 0.98, 0.95, 0.9, 0.8]), st.sampled_from([0.01, 0.05]))
def test_rules_by_their_definitions(positives: int, target: float, delta: float) -> None:
    alpha = 1 - Fraction(str(target))
    crc = allowance("crc", positives, target, delta).misses
    expected = [a for a in range(positives) if Fraction(a + 1, positives + 1) <= alpha]
    assert crc == (max(expected) if expected else None)
    ltt = allowance("ltt", positives, target, delta).misses
    # The fixed sequence, taken literally: from the safest threshold on while the p-value rejects.
    rejected = None
    for a in range(positives + 1):
        if binom.cdf(a, positives, float(alpha)) > delta:
            break
        rejected = a
    assert ltt == rejected


def test_rules_at_a_target_of_one_are_never_feasible() -> None:
    for rule in ("crc", "ltt"):
        assert allowance(rule, 10_000, 1, 0.01).misses is None
        assert allowance(rule, 10_000, 1, 0.01).needed is None
    with pytest.raises(InputError, match="rule"):
        allowance("best", 10, 0.9, 0.01)
