"""DeLong's intervals of an AUROC and of a difference, against another's code, brute force and simulation."""

import numpy as np
import pytest
from confidenceinterval import roc_auc_score
from numpy.typing import NDArray
from scipy.stats import norm

from trust_cache.statistics.auroc import auroc, auroc_difference, auroc_interval, compare_aurocs


def draw(seed: int, positives: int = 30, negatives: int = 200) -> tuple[NDArray[np.float64], ...]:
    generator = np.random.default_rng(seed)
    labels = np.repeat([1, 0], [positives, negatives])
    one = generator.normal(labels, 1.0)
    return one, 0.7 * one + generator.normal(0.0, 0.7, labels.size), labels


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_one_auroc_agrees_with_confidenceinterval(seed: int, confidence: float) -> None:
    scores, _, labels = draw(seed)
    found = auroc_interval(scores, labels, confidence)
    value, (lower, upper) = roc_auc_score(labels, scores, confidence_level=confidence)
    assert found is not None
    assert found.value == pytest.approx(auroc(scores, labels), abs=1e-12)
    # Its ranks are float32; the jackknife below holds ours to the last digits.
    assert (found.value, found.lower, found.upper) == pytest.approx((value, lower, upper), abs=1e-6)


def test_a_difference_is_the_jackknife_of_both_classes() -> None:
    """DeLong's variance is the jackknife's, class by class (Hanley and Hajian-Tilaki 1997), ties included."""
    one, other, labels = draw(7, positives=12, negatives=25)
    one, other = np.round(one, 1), np.round(other, 1)
    found = auroc_difference(one, other, labels, 0.95)
    assert found is not None

    def difference(kept: NDArray[np.bool_]) -> float:
        values = [auroc(scores[kept], labels[kept]) for scores in (one, other)]
        assert values[0] is not None
        assert values[1] is not None
        return values[0] - values[1]

    whole = difference(np.ones(labels.size, dtype=bool))
    assert found.value == pytest.approx(whole, abs=1e-12)
    variance = 0.0
    for label in (0, 1):
        members = np.flatnonzero(labels == label)
        left_out = np.array([difference(np.arange(labels.size) != member) for member in members])
        variance += (members.size - 1) / members.size * np.square(left_out - left_out.mean()).sum()
    assert (found.upper - found.lower) / 2 == pytest.approx(1.959963984540054 * np.sqrt(variance), rel=1e-9)


def brute_delong(
    columns: NDArray[np.float64], labels: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The AUROCs and their covariance from every pair of cases: the definition of DeLong et al. (1988)."""
    positives, negatives = columns[:, labels == 1], columns[:, labels == 0]
    above = positives[:, :, np.newaxis] > negatives[:, np.newaxis, :]
    wins = above + 0.5 * (positives[:, :, np.newaxis] == negatives[:, np.newaxis, :])
    of_positives, of_negatives = wins.mean(axis=2), wins.mean(axis=1)
    covariance = np.cov(of_positives) / positives.shape[1] + np.cov(of_negatives) / negatives.shape[1]
    return wins.mean(axis=(1, 2)), covariance


@pytest.mark.parametrize("decimals", [9, 1, 0])  # no ties, some, mostly ties
@pytest.mark.parametrize("seed", range(3))
def test_the_paired_test_is_that_of_the_full_covariance(seed: int, decimals: int) -> None:
    one, other, labels = draw(seed, positives=23, negatives=61)
    one, other = np.round(one, decimals), np.round(other - 0.4 * labels, decimals)
    found = compare_aurocs(one, other, labels, 0.9)
    assert found is not None
    aurocs, covariance = brute_delong(np.stack([one, other]), labels)
    assert (found.first, found.second) == pytest.approx(tuple(aurocs), abs=1e-12)
    gap = aurocs[0] - aurocs[1]
    error = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    assert found.difference.value == pytest.approx(gap, abs=1e-12)
    assert found.p == pytest.approx(2 * norm.cdf(-abs(gap) / error), rel=1e-9)
    ends = gap + error * norm.ppf([0.05, 0.95])
    assert (found.difference.lower, found.difference.upper) == pytest.approx(tuple(ends), rel=1e-9)
    turned = compare_aurocs(other, one, labels, 0.9)
    assert turned is not None
    assert turned.p == pytest.approx(found.p, rel=1e-12)
    assert turned.difference.value == pytest.approx(-gap, abs=1e-12)


def test_a_difference_without_variance_is_nothing_or_certain() -> None:
    labels = np.array([0, 0, 0, 1, 1, 1])
    scores = np.arange(6.0)
    same, reversed_scores = compare_aurocs(scores, scores, labels), compare_aurocs(scores, -scores, labels)
    assert same is not None
    assert (same.difference.value, same.p) == (0.0, 1.0)
    assert reversed_scores is not None
    assert (reversed_scores.difference.value, reversed_scores.p) == (1.0, 0.0)


def test_the_interval_of_equal_laws_covers_zero_as_often_as_it_says() -> None:
    generator = np.random.default_rng(3)
    labels = np.repeat([1, 0], [60, 300])
    covered = 0
    for _ in range(400):
        shared, first, second = generator.normal(size=(3, labels.size))
        found = auroc_difference(labels + shared + first, labels + shared + second, labels, 0.95)
        assert found is not None
        covered += found.lower <= 0.0 <= found.upper
    assert abs(covered / 400 - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 400) + 0.01  # DeLong is approximate


def test_classes_too_small_and_scores_all_alike() -> None:
    assert auroc_interval(np.array([0.1, 0.2, 0.3]), np.array([1, 0, 0])) is None
    assert auroc_difference(np.array([0.1, 0.2]), np.array([0.1, 0.2]), np.array([0, 0])) is None
    alike = auroc_interval(np.full(6, 0.5), np.array([1, 1, 1, 0, 0, 0]))
    assert alike is not None
    assert (alike.value, alike.lower, alike.upper) == (0.5, 0.5, 0.5)
    apart = auroc_interval(np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 0, 1, 1]))
    assert apart is not None
    assert (apart.value, apart.lower, apart.upper) == (1.0, 1.0, 1.0)
