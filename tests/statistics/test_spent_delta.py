"""Repeated looks: the error over all of them, computed exactly, stays below delta."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta, binom

from trust_cache.base.errors import InputError
from trust_cache.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper, spent_delta


def chance_of_any_error(
    rate: float, sizes: list[int], delta: float, *, corrected: bool, upper: bool
) -> float:
    """The chance that some look's bound is on the wrong side of the true rate, by summing over all paths.

    `alive[k]` is the chance of k positives so far and of no error at any look before.
    """
    alive = np.ones(1)
    erred, before = 0.0, 0
    for number, size in enumerate(sizes, start=1):
        step = binom.pmf(np.arange(size - before + 1), size - before, rate)
        alive, before = np.convolve(alive, step), size
        level = spent_delta(delta, number) if corrected else delta
        k = np.arange(size + 1)
        bounds = (clopper_pearson_upper if upper else clopper_pearson_lower)(k, np.full(k.size, size), level)
        wrong = bounds < rate if upper else bounds > rate
        erred += float(alive[wrong].sum())
        alive = np.where(wrong, 0.0, alive)
    return erred


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("rate", [0.002, 0.005, 0.01, 0.03, 0.1, 0.5])
@pytest.mark.parametrize("sizes", [[300], list(range(100, 1300, 100)), [50, 60, 500, 1000], [20] * 5])
def test_all_looks_together_err_less_often_than_delta(rate: float, sizes: list[int], upper: bool) -> None:
    for delta in (0.01, 0.05):
        assert chance_of_any_error(rate, sizes, delta, corrected=True, upper=upper) <= delta


def test_without_the_correction_they_do_not() -> None:
    """What the correction is for: the same looks, each at delta, err more often."""
    sizes = list(range(100, 3100, 100))
    assert chance_of_any_error(0.03, sizes, 0.05, corrected=False, upper=True) > 0.1
    assert chance_of_any_error(0.03, sizes, 0.05, corrected=True, upper=True) < 0.05


def test_a_simulation_agrees_with_the_exact_calculation() -> None:
    """Monte Carlo margin: four standard errors of 4,000 runs; the bound by scipy, not by us."""
    sizes, rate, delta, runs = [100, 200, 400, 800], 0.02, 0.2, 4_000
    generator = np.random.default_rng(5)
    steps = np.diff([0, *sizes])
    k = np.cumsum(generator.binomial(steps, rate, size=(runs, len(steps))), axis=1)
    levels = [delta / (j * (j + 1)) for j in range(1, len(sizes) + 1)]
    upper = beta.ppf(1 - np.array(levels), k + 1, np.array(sizes) - k)
    share = float(np.mean((upper < rate).any(axis=1)))
    exact = chance_of_any_error(rate, sizes, delta, corrected=True, upper=True)
    assert abs(share - exact) < 4 * np.sqrt(exact * (1 - exact) / runs)
    assert exact > 0.02  # the setting can err at all


def test_what_looks_spend_sums_to_less_than_delta_exactly() -> None:
    for looks in (1, 7, 1000):
        total = sum(Fraction(1, j * (j + 1)) for j in range(1, looks + 1))
        assert total == 1 - Fraction(1, looks + 1)
        assert sum(spent_delta(0.01, j) for j in range(1, looks + 1)) == pytest.approx(float(total) * 0.01)


@pytest.mark.parametrize(("delta", "look"), [(0.01, 0), (0.01, -3), (0.0, 1), (1.0, 1), (float("nan"), 1)])
def test_what_is_no_look(delta: float, look: int) -> None:
    with pytest.raises(InputError):
        spent_delta(delta, look)
