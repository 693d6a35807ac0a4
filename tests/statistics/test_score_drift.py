"""Drift: ranks by brute force, wealth that exchangeable scores rarely multiply, shifts that are found."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, mannwhitneyu

from trust_cache.base.errors import InputError
from trust_cache.statistics.score_drift import ALARM, log_wealth_path, shift_size, smoothed_ranks


@given(st.lists(st.integers(0, 9), max_size=30), st.lists(st.integers(0, 9), max_size=30), st.integers(0, 9))
def test_ranks_by_brute_force(reference: list[int], scores: list[int], seed: int) -> None:
    ties = np.random.default_rng(seed).random(len(scores))
    found = smoothed_ranks(np.array(reference, float), np.array(scores, float), ties)
    for step, score in enumerate(scores):
        earlier = [*reference, *scores[: step + 1]]
        below, equal = sum(x < score for x in earlier), sum(x == score for x in earlier)
        assert found[step] == pytest.approx((below + ties[step] * equal) / len(earlier))


def test_ranks_of_tied_exchangeable_scores_are_uniform_and_independent() -> None:
    generator = np.random.default_rng(1)
    ranks = smoothed_ranks(
        generator.integers(0, 5, 200).astype(float),
        generator.integers(0, 5, 20_000).astype(float),
        generator.random(20_000),
    )
    assert kstest(ranks, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(ranks[:-1], ranks[1:])[0, 1]) < 4 / np.sqrt(ranks.size)


def test_the_wealth_is_a_martingale() -> None:
    """Its mean over the last of a few uniform ranks is the wealth before, by integration on a grid."""
    grid = (np.arange(2_000) + 0.5) / 2_000
    before = [0.1, 0.9, 0.95, 0.2]
    paths = log_wealth_path(np.array([[*before, last] for last in grid]))
    assert np.exp(paths[:, -1]).mean() == pytest.approx(np.exp(paths[0, -2]), rel=1e-5)
    assert np.array_equal(paths[3], log_wealth_path(np.array([*before, grid[3]])))
    assert np.all(np.isfinite(log_wealth_path(np.array([0.0, 1.0] * 200))))  # no bet is ruin


def test_the_size_of_a_shift() -> None:
    generator = np.random.default_rng(2)
    reference, moved = generator.normal(size=4_000), generator.normal(0.2, size=4_000)
    found = shift_size(reference, moved)
    assert found is not None
    assert found.superiority == pytest.approx(mannwhitneyu(moved, reference).statistic / 16_000_000)
    assert found.standard_deviations == pytest.approx(0.2, abs=4 * np.sqrt(2 / 4_000))
    above = shift_size(np.array([1.0]), np.array([2.0]))
    assert above is not None
    assert above.standard_deviations is None
    assert shift_size(np.empty(0), moved) is None
    with pytest.raises(InputError, match="one for each score"):
        smoothed_ranks(reference, moved, np.zeros(3))


@pytest.mark.parametrize(
    ("reference", "shift", "start"), [(947, 0.2, 0), (947, -0.2, 1_000), (4_000, 0.2, 0)]
)
def test_a_shift_of_a_fifth_of_a_standard_deviation_is_found(
    reference: int, shift: float, start: int, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = np.random.default_rng(5)
    ranks = []
    for _ in range(40):
        scores = generator.normal(size=start + 6_000)
        scores[start:] += shift
        ranks.append(smoothed_ranks(generator.normal(size=reference), scores, generator.random(scores.size)))
    reached = log_wealth_path(np.array(ranks)) >= np.log(ALARM)
    found = reached.any(axis=1)
    delays = np.sort(reached.argmax(axis=1)[found] - start)
    with capsys.disabled():
        sys.stdout.write(
            f"\n  reference {reference}, shift {shift} SD after {start} cases:"
            f" median delay {delays[20]} cases\n"
        )
    assert found.mean() >= 0.9
    assert np.median(delays) < 2_000


@pytest.mark.slow
@pytest.mark.parametrize("reference", [947, 4_797])
def test_exchangeable_scores_rarely_reach_the_alarm(reference: int) -> None:
    """2,000 streams of 20,000 cases with ties: at most 1 % and three standard errors reach 100."""
    generator, streams, cases = np.random.default_rng(7), 2_000, 20_000
    crossed = 0
    for _ in range(streams // 250):
        ranks = np.empty((250, cases))
        for row in ranks:
            scores = np.round(generator.beta(2, 8, reference + cases), 4)
            row[:] = smoothed_ranks(scores[:reference], scores[reference:], generator.random(cases))
        crossed += int((log_wealth_path(ranks).max(axis=1) >= np.log(ALARM)).sum())
    assert crossed / streams <= 0.01 + 3 * np.sqrt(0.01 * 0.99 / streams)
