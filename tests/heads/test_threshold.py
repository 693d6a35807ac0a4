"""The closed-loop threshold against brute force over every candidate with scipy's beta quantile."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

from trust_cache.base.errors import InputError
from trust_cache.heads.closed_loop import (
    Dismissal,
    closed_loop_of_sorted,
    closed_loop_threshold,
    dismissal_of_sorted,
)
from trust_cache.statistics.thresholds import checked_columns


def find_closed_loop(
    scores: ArrayLike, labels: ArrayLike, level: float = 0.01, delta: float = 0.05
) -> Dismissal:
    """Return the closed-loop threshold with the integer counts that justify it."""
    values, positive = checked_columns(scores, labels)
    return closed_loop_of_sorted(np.sort(values[~positive]), np.sort(values[positive]), level, delta)


def brute_force(
    scores: NDArray[np.float64], labels: NDArray[np.int64], level: float, delta: float
) -> tuple[float, int, int]:
    """Look at each distinct score and the number above all; the paper's rule, word for word."""
    best = (0.0, 0, 0)
    candidates = [*np.unique(scores), math.nextafter(scores.max(), math.inf)] if scores.size else []
    for tau in candidates:
        dismissed = scores < tau
        n, k = int(dismissed.sum()), int(labels[dismissed].sum())
        bound = 1.0 if k == n else beta.ppf(1 - delta, k + 1, n - k)
        if bound <= level:
            best = (float(tau), n, k)
    return best


@pytest.mark.parametrize("seed", range(40))
def test_brute_force_agrees(seed: int) -> None:
    """2,000 random sets; scores on coarse grids tie, weak and strong scores make the bound come and go."""
    generator = np.random.default_rng(seed)
    for _ in range(50):
        n = int(generator.integers(1, 160))
        labels = (generator.random(n) < generator.choice([0.02, 0.1, 0.4])).astype(np.int64)
        scores = generator.normal(size=n) + labels * generator.choice([0.0, 1.0, 3.0])
        grid = generator.choice([1e9, 10.0, 2.0, 0.5])
        scores = 1 / (1 + np.exp(-np.round(scores * grid) / grid))
        level, delta = generator.choice([0.01, 0.05, 0.1, 0.3]), generator.choice([0.05, 0.2, 0.5])
        found = find_closed_loop(scores, labels, level, delta)
        assert (found.tau, found.dismissed, found.positives_dismissed) == brute_force(
            scores, labels, level, delta
        )
        assert closed_loop_threshold(scores, labels, level, delta) == found.tau


@pytest.mark.parametrize("seed", range(10))
def test_brute_force_agrees_at_the_papers_level(seed: int) -> None:
    """Sets large enough for 1 % at 95 %, where 299 without a positive are needed: most have a threshold."""
    generator = np.random.default_rng(seed)
    positive_taus = 0
    for _ in range(10):
        n = int(generator.integers(400, 1_500))
        labels = (generator.random(n) < 0.02).astype(np.int64)
        scores = np.round(generator.normal(size=n) + 2.0 * labels, int(generator.integers(1, 4)))
        scores = 1 / (1 + np.exp(-scores))
        found = find_closed_loop(scores, labels, 0.01, 0.05)
        expected = brute_force(scores, labels, 0.01, 0.05)
        assert (found.tau, found.dismissed, found.positives_dismissed) == expected
        positive_taus += found.tau > 0
    assert positive_taus >= 3


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=40), st.floats(0.05, 0.6))
def test_brute_force_agrees_on_heavy_ties(rows: list[tuple[int, bool]], level: float) -> None:
    scores = np.array([score for score, _ in rows], dtype=np.float64)
    labels = np.array([label for _, label in rows], dtype=np.int64)
    found = find_closed_loop(scores, labels, level, 0.2)
    expected = brute_force(scores, labels, level, 0.2)
    assert (found.tau, found.dismissed, found.positives_dismissed) == expected


def test_at_the_papers_size() -> None:
    generator = np.random.default_rng(0)
    labels = (np.arange(5_471) < 116).astype(np.int64)
    scores = np.round(1 / (1 + np.exp(-generator.normal(labels * 1.2 - 2, 1.0))), 3)
    found = find_closed_loop(scores, labels)
    assert found.tau > 0
    assert (found.tau, found.dismissed, found.positives_dismissed) == brute_force(scores, labels, 0.01, 0.05)


def test_299_images_without_a_positive_are_the_fewest() -> None:
    assert closed_loop_threshold(np.full(298, 0.2), np.zeros(298, dtype=int)) == 0.0
    found = find_closed_loop(np.full(299, 0.2), np.zeros(299, dtype=int))
    assert (found.tau, found.dismissed, found.positives_dismissed) == (math.nextafter(0.2, 1), 299, 0)


def test_everything_qualifies_even_at_scores_of_1() -> None:
    labels = np.zeros(1_000, dtype=int)
    labels[-1] = 1
    found = find_closed_loop(np.ones(1_000), labels)
    assert found.tau == math.nextafter(1.0, 2.0)
    assert (found.dismissed, found.positives_dismissed) == (1_000, 1)


def test_ties_stay_together() -> None:
    """A positive among 400 equal negatives: below it nothing, with it too many."""
    scores = np.full(401, 0.3)
    labels = np.zeros(401, dtype=int)
    labels[7] = 1
    assert find_closed_loop(scores, labels).tau == 0.0


def test_the_bound_may_fail_below_and_hold_above() -> None:
    """The lowest score is a positive: small sets fail, the set up to the next positive holds."""
    scores = np.arange(1_001) / 2_000
    labels = np.zeros(1_001, dtype=int)
    labels[[0, 900]] = 1
    found = find_closed_loop(scores, labels)
    assert (found.tau, found.dismissed, found.positives_dismissed) == (math.nextafter(0.5, 1), 1_001, 2)
    found = find_closed_loop(scores[:700], labels[:700])
    assert (found.dismissed, found.positives_dismissed) == (700, 1)


def test_no_images_dismiss_nothing() -> None:
    found = find_closed_loop([], [])
    assert (found.tau, found.dismissed, found.positives_dismissed) == (0.0, 0, 0)


def test_counts_at_a_given_threshold_are_strictly_below_it() -> None:
    found = dismissal_of_sorted(np.array([0.1, 0.2, 0.2, 0.9]), np.array([0.05, 0.2]), 0.2)
    assert (found.dismissed, found.positives_dismissed) == (2, 1)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([0.1, np.nan], [0, 1], "finite"),
        ([0.1, 0.2], [0, 2], "0 or 1"),
        ([0.1], [0, 1], "one length"),
    ],
)
def test_wrong_columns_are_refused(scores: list[float], labels: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        closed_loop_threshold(scores, labels)
