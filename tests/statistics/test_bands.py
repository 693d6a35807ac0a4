"""Bounds at all thresholds at once: exact at the ranks, and they hold for whoever chooses freely."""

import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest

from tests.risk_laws import RISK_LAWS, count_failures
from trust_cache.base.errors import InputError
from trust_cache.statistics.bands import LARGEST_RANKS, Rank, band_ranks, simultaneous_band
from trust_cache.statistics.bounds import clopper_pearson_upper

Floats = NDArray[np.float64]
DELTA = 0.01


@st.composite
def cohorts(draw: st.DrawFn) -> tuple[Floats, NDArray[np.int64]]:
    """Cohorts with many ties, few or none, and any number of positives."""
    cases = draw(st.integers(2, 120))
    values = draw(st.sampled_from([3, 20, 10_000]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    scores = generator.integers(0, values, cases) / values
    return scores, (generator.random(cases) < draw(st.floats(0, 1))).astype(np.int64)


def every_threshold(scores: Floats) -> Floats:
    """Return thresholds that give every possible set of dismissed cases, at both ends of its interval."""
    return np.concatenate([scores, np.nextafter(scores, np.inf), np.nextafter(scores, -np.inf)])


@given(st.integers(2, 200_000))
def test_ranks_depend_on_the_number_of_cases_alone_and_reach_from_few_to_all(cases: int) -> None:
    ranks = band_ranks(cases)
    assert ranks[-1] == cases - 1
    assert 1 <= ranks[0] <= max(1, 0.05 * cases)
    assert ranks.size <= LARGEST_RANKS
    assert np.all(np.diff(ranks) > 0)
    assert np.all(ranks[1:] <= 1.2 * ranks[:-1] + 1.2)


@given(cohorts(), st.sampled_from([0.001, 0.01, 0.05, 0.2]))
def test_each_rank_has_the_exact_bound_of_scipy_at_an_equal_share(
    cohort: tuple[Floats, NDArray[np.int64]], delta: float
) -> None:
    scores, labels = cohort
    band = simultaneous_band(scores, labels, delta)
    ranks = band_ranks(scores.size)
    wanted = {float(np.sort(scores)[rank]) for rank in ranks} - {float(scores.min())}
    assert [rank.threshold for rank in band.ranks] == sorted(wanted)
    assert (band.cases, band.positives) == (scores.size, labels.sum())
    for rank in band.ranks:
        below = scores < rank.threshold
        assert (rank.dismissed, rank.positives_dismissed) == (below.sum(), labels[below].sum())
        assert isinstance(rank.dismissed, int)
        assert rank.share == delta / ranks.size
        exact = binomtest(rank.positives_dismissed, rank.dismissed, alternative="less")
        assert rank.bound == pytest.approx(exact.proportion_ci(1 - rank.share, method="exact").high, rel=1e-8)


@given(cohorts(), st.sampled_from([0.001, 0.01, 0.05, 0.2]))
def test_free_thresholds_follow_their_definitions(
    cohort: tuple[Floats, NDArray[np.int64]], delta: float
) -> None:
    """By brute force over the ranks, one threshold at a time."""
    scores, labels = cohort
    band = simultaneous_band(scores, labels, delta)
    taus = every_threshold(scores)
    for tau, kept in zip(taus, band.keep(taus), strict=True):
        below = [rank for rank in band.ranks if rank.threshold <= tau]
        assert band.lower(tau) == (below[-1] if below else None)
        above = [rank for rank in band.ranks if rank.threshold >= tau]
        dismissed = int(np.count_nonzero(scores < tau))
        if not above or not dismissed:
            assert kept == 1.0
        else:
            assert kept == pytest.approx(min(1.0, above[0].bound * above[0].dismissed / dismissed), rel=1e-12)
            assert kept >= clopper_pearson_upper(int(labels[scores < tau].sum()), dismissed, delta)


@given(cohorts())
def test_at_a_rank_both_ways_give_its_bound(cohort: tuple[Floats, NDArray[np.int64]]) -> None:
    band = simultaneous_band(*cohort, DELTA)
    for rank in band.ranks:
        assert band.lower(rank.threshold) == rank
        assert band.keep(rank.threshold) == rank.bound


@given(cohorts(), st.integers(0, 2**32))
def test_thresholds_and_shares_never_depend_on_labels_nor_bounds_on_the_scale(
    cohort: tuple[Floats, NDArray[np.int64]], seed: int
) -> None:
    scores, labels = cohort
    band = simultaneous_band(scores, labels, DELTA)
    shuffled = simultaneous_band(scores, np.random.default_rng(seed).permutation(labels), DELTA)
    for field in ("threshold", "dismissed", "share"):
        assert [getattr(rank, field) for rank in band.ranks] == [
            getattr(rank, field) for rank in shuffled.ranks
        ]
    stretched = simultaneous_band(scores * 8 - 3, labels, DELTA)
    assert [rank.bound for rank in stretched.ranks] == [rank.bound for rank in band.ranks]


@pytest.mark.parametrize("share", [0.25, 0.01, 1e-4])
def test_what_the_argument_for_a_kept_threshold_uses(share: float) -> None:
    """n U(k, n) rises with n, and is at least k + 1 for k <= n - 2: Hoeffding's inequality needs that."""
    n = np.arange(400)
    for k in range(60):
        expected = n[k:] * clopper_pearson_upper(k, n[k:], share)
        assert np.all(np.diff(expected) > -1e-9)
        assert np.all(expected[2:] >= k + 1 - 1e-9)


def test_the_price_at_the_size_of_the_paper() -> None:
    """40 equal ranks give 1.13 % and 1.46 % at these counts (pointwise 0.70 % and 1.06 %)."""
    for cases, n, k, by_40 in ((4_797, 947, 1, 0.0113), (9_530, 1_364, 6, 0.0146)):
        share = DELTA / band_ranks(cases).size
        assert clopper_pearson_upper(k, n, DELTA / 40) == pytest.approx(by_40, abs=5e-5)
        assert clopper_pearson_upper(k, n, share) < 0.95 * by_40


def test_rows_carry_every_field_of_a_rank() -> None:
    band = simultaneous_band(np.arange(100) / 100, np.arange(100) % 7 == 0, DELTA)
    rows = list(band.rows())
    assert [Rank(**row) for row in rows] == list(band.ranks)  # type: ignore[arg-type]
    assert list(rows[0]) == [field.name for field in fields(Rank)]


@pytest.mark.parametrize("cases", [0, 1, 50])
def test_without_two_different_scores_nothing_is_said(cases: int) -> None:
    band = simultaneous_band(np.full(cases, 0.5), np.zeros(cases, dtype=int), DELTA)
    assert band.ranks == ()
    assert band.lower(0.7) is None
    assert band.keep([0.2, 0.5, 0.7]).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("scores", "labels", "delta", "said"),
    [
        ([0.1, np.nan], [0, 1], 0.01, "finite"),
        ([0.1, 0.2], [0, 2], 0.01, "labels"),
        ([0.1, 0.2], [0, 1], 0.0, "delta"),
    ],
)
def test_refuses(scores: list[float], labels: list[int], delta: float, said: str) -> None:
    with pytest.raises(InputError, match=said):
        simultaneous_band(scores, labels, delta)


@pytest.mark.slow
@pytest.mark.parametrize("name", RISK_LAWS)
def test_an_adversary_who_chooses_freely_fails_in_at_most_delta_of_cohorts(name: str) -> None:
    """20,000 seeded cohorts of a law; the margin is three standard errors of their number."""
    found = count_failures(name, DELTA, cohorts=20_000, seed=14)
    most = DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / found.cohorts)
    assert found.lowered <= found.kept  # a rank is a threshold like others
    assert found.kept / found.cohorts <= most
    assert found.pointwise / found.pointwise_cohorts > 3 * most
    if name == "sharp":
        assert found.rank_below / found.cohorts > 0.95
