"""Confidence sequences: brute-force integrals as the oracle, and streams watched by an adversary."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from trust_cache.base.errors import InputError
from trust_cache.statistics.assurance import (
    assurance,
    cases_until,
    crossing_chances,
    dismissed_for_assurance,
    sequence_boundaries,
)
from trust_cache.statistics.bounds import clopper_pearson_upper
from trust_cache.statistics.confidence_sequences import (
    MixturePrior,
    alarming_samples,
    confirming_samples,
    log_wealth,
    prior_of,
    sequence_lower,
    sequence_upper,
)

DELTA = 0.01
PRIOR = prior_of(1, 947)
LEVEL = clopper_pearson_upper(1, 947, DELTA)


def test_the_published_figure() -> None:
    assert (PRIOR.a, PRIOR.b) == (0.5, pytest.approx(0.5 * (1 - 1.5 / 948) / (1.5 / 948)))
    assert f"{100 * sequence_upper(1, 947, PRIOR, DELTA):.2f}" == "0.88"


def brute_force_wealth(k: int, n: int, rate: float, prior: MixturePrior) -> mpmath.mpf:
    """The wealth against a rate as the integral of likelihood ratios over the prior, in 30 digits."""
    with mpmath.workdps(30):
        a, b, p = mpmath.mpf(prior.a), mpmath.mpf(prior.b), mpmath.mpf(rate)

        def bet(x: mpmath.mpf) -> mpmath.mpf:
            ratio = k * mpmath.log(x / p) + (n - k) * mpmath.log((1 - x) / (1 - p))
            return mpmath.exp(ratio + (a - 1) * mpmath.log(x) + (b - 1) * mpmath.log(1 - x))

        points = sorted({mpmath.mpf(0), *(min(mpmath.mpf(x), 1) for x in (1e-6, 1e-4, 1e-3, 0.01, 0.1, 1))})
        return mpmath.quad(bet, points) / mpmath.beta(a, b)


@pytest.mark.parametrize(("k", "n"), [(0, 1), (0, 300), (1, 947), (3, 3), (12, 900), (40, 5000)])
@pytest.mark.parametrize("rate", [0.0007, 0.007, 0.3])
def test_wealth_is_the_integral_over_the_prior(k: int, n: int, rate: float) -> None:
    exact = mpmath.log(brute_force_wealth(k, n, rate, PRIOR))
    assert float(exact) == pytest.approx(log_wealth(k, n, rate, PRIOR), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize(("k", "n"), [(0, 5), (1, 947), (30, 10**4), (10**3, 10**6), (10**6, 10**9)])
def test_ends_fed_back_give_their_level(k: int, n: int) -> None:
    """At both ends the wealth is 1 / delta, computed in 60 digits without our formulas."""
    with mpmath.workdps(60):
        a, b = mpmath.mpf(PRIOR.a), mpmath.mpf(PRIOR.b)
        mixture = mpmath.loggamma(a + k) + mpmath.loggamma(b + n - k) - mpmath.loggamma(a + b + n)
        mixture -= mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(a + b)
        ends = [sequence_upper(k, n, PRIOR, DELTA), sequence_lower(k, n, PRIOR, DELTA)]
        for end in ends if k else ends[:1]:
            p = mpmath.mpf(end)
            wealth = mixture - k * mpmath.log(p) - (n - k) * mpmath.log(1 - p)
            # A rounding of the end itself moves the log likelihood by its slope.
            slack = abs(k / p - (n - k) / (1 - p)) * p * 1e-15 + 1e-12
            assert abs(wealth - mpmath.log(100)) < 4 * slack


def test_edges_and_arrays() -> None:
    k, n = np.array([0, 0, 1, 5]), np.array([0, 10, 1, 5])
    upper, lower = sequence_upper(k, n, PRIOR), sequence_lower(k, n, PRIOR)
    assert upper[0] == upper[2] == upper[3] == 1.0
    assert lower[0] == lower[1] == 0.0
    for each in range(4):
        assert upper[each] == sequence_upper(int(k[each]), int(n[each]), PRIOR)
        assert lower[each] == sequence_lower(int(k[each]), int(n[each]), PRIOR)
    with pytest.raises(InputError, match="integer counts"):
        sequence_upper(1.0, 10, PRIOR)
    with pytest.raises(InputError, match="prior a"):
        MixturePrior(0.0, 1.0)


@given(st.integers(0, 300), st.integers(1, 5000))
def test_order_of_the_ends(k: int, n: int) -> None:
    k = min(k, n)
    assert sequence_lower(k, n, PRIOR) <= k / n <= sequence_upper(k, n, PRIOR)
    assert sequence_upper(k, n, PRIOR) >= clopper_pearson_upper(k, n, DELTA)  # the price of any time
    assert sequence_upper(k, n + 1, PRIOR) <= sequence_upper(k, n, PRIOR)


def test_tables_decide_as_the_ends_do() -> None:
    confirming = confirming_samples(30, LEVEL, PRIOR, DELTA)
    alarming = alarming_samples(60, LEVEL, PRIOR, DELTA)
    for k, n in enumerate(confirming.tolist()):
        assert sequence_upper(k, n, PRIOR) <= LEVEL < sequence_upper(k, n - 1, PRIOR)
    for k, n in enumerate(alarming.tolist()):
        if n:
            assert sequence_lower(k, n, PRIOR) > LEVEL >= sequence_lower(k, n + 1, PRIOR)
        else:
            assert k == 0 or sequence_lower(k, k, PRIOR) <= LEVEL
    assert np.count_nonzero(alarming) > 40
    with pytest.raises(InputError, match="mean below the level"):
        alarming_samples(3, 0.0001, PRIOR)


def test_chances_of_a_boundary_agree_with_simulation() -> None:
    """Monte Carlo margin: four standard errors of 4,000 streams."""
    generator = np.random.default_rng(3)
    cases, runs = 4_000, 4_000
    decide = sequence_boundaries(cases, LEVEL, PRIOR, DELTA)
    for rate, confirms in ((2 * LEVEL, False), (0.4 * LEVEL, True)):
        k = np.cumsum(generator.random((runs, cases)) < rate, axis=1)
        hit = k <= decide.confirms[1:] if confirms else k >= decide.alarms[1:]
        by = np.logical_or.accumulate(hit, axis=1).mean(axis=0)
        exact = crossing_chances(rate, decide.confirms if confirms else decide.alarms, confirms=confirms)
        for moment in (999, 1999, 3999):
            chance = exact[moment + 1]
            assert abs(by[moment] - chance) < 4 * np.sqrt(max(chance * (1 - chance), 1e-4) / runs)
        assert 0.3 < exact[-1] < 0.99
        half = cases_until(exact, 0.3)
        assert half is not None
        assert exact[half] >= 0.3 > exact[half - 1]


def test_assurance_by_brute_force() -> None:
    for dismissed, rate, limit in (
        (947, 0.001, 0.01),
        (300, 0.0, 0.01),
        (5000, 0.006, 0.01),
        (459, 0.0, 0.01),
    ):
        k = np.arange(dismissed + 1)
        within = clopper_pearson_upper(k, np.full(k.size, dismissed), DELTA) <= limit
        expected = binom.pmf(k[within], dismissed, rate).sum()
        assert assurance(dismissed, rate, limit, DELTA) == pytest.approx(expected, abs=1e-12)
    needed = dismissed_for_assurance(0.002, 0.01, 0.9, DELTA)
    after = [assurance(n, 0.002, 0.01, DELTA) for n in range(needed - 200, needed + 800)]
    assert min(after[200:]) >= 0.9
    assert after[199] < 0.9
    assert (
        dismissed_for_assurance(0.0, 0.01, 0.99, DELTA) == 459
    )  # the published figure: no cancer, no chance
    with pytest.raises(InputError, match="below the limit"):
        dismissed_for_assurance(0.02, 0.01, 0.9, DELTA)


def watched(
    generator: np.random.Generator, rate: float, late_share: float, streams: int, cases: int
) -> tuple[float, float]:
    """The shares of streams in which somebody who looks after every case can confirm or raise the alarm.

    Each case enters when its follow-up time has passed, in the order of examinations. Its outcome becomes
    known a random number of entries later, that of cancers more often; until then it counts as cancer
    for the confirmation and as healthy for the alarm.
    """
    decide = sequence_boundaries(cases, LEVEL, PRIOR, DELTA)
    confirmed = alarmed = 0
    for _ in range(streams // 500):
        cancer = generator.random((500, cases)) < rate
        late = generator.random((500, cases)) < np.where(cancer, 3 * late_share, late_share)
        delay = np.where(late, generator.integers(0, 200, (500, cases)), 0)
        known_at = np.minimum(np.arange(cases) + delay, cases)
        row = np.arange(500)[:, None] * (cases + 1)

        def known(weights: NDArray[np.bool_], at: NDArray[np.int64]) -> NDArray[np.float64]:
            flat = np.bincount(at.ravel(), weights=weights.ravel(), minlength=500 * (cases + 1))
            return np.cumsum(flat.reshape(500, cases + 1), axis=1)[:, :cases]

        k = known(cancer, known_at + row)
        unknown = np.arange(1, cases + 1) - known(np.ones_like(cancer), known_at + row)
        confirmed += int((k + unknown <= decide.confirms[1:]).any(axis=1).sum())
        alarmed += int((k >= decide.alarms[1:]).any(axis=1).sum())
    return confirmed / streams, alarmed / streams


@pytest.mark.slow
@pytest.mark.parametrize("late_share", [0.0, 0.005])
@pytest.mark.parametrize("rate", [LEVEL, 1 / 947])
def test_an_adversary_who_stops_at_the_best_moment(rate: float, late_share: float) -> None:
    """10,000 streams of 5,000 cases: false confirmations and false alarms at most delta + 3 SE.

    At a rate equal to the certified bound a confirmation is an error; at the certified rate, and at the
    bound, an alarm is.
    """
    streams = 10_000
    confirmed, alarmed = watched(np.random.default_rng(18), rate, late_share, streams, 5_000)
    margin = 3 * np.sqrt(DELTA * (1 - DELTA) / streams)
    assert alarmed <= DELTA + margin
    if rate == LEVEL:
        assert confirmed <= DELTA + margin
        assert late_share or confirmed > DELTA / 2  # the simulation can err at all
    else:
        assert confirmed > 0.5  # the sequence can confirm a model that is as good as its certificate says
