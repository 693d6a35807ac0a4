"""Clopper-Pearson bounds against published figures, other people's code and the binomial law itself."""

import csv
from pathlib import Path

import numpy as np
import pytest
from confidenceinterval import npv_score
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from trust_cache import clopper_pearson_lower, clopper_pearson_upper
from trust_cache.base.errors import InputError
from trust_cache.statistics.bounds import smallest_sample, smallest_samples

GOLDENS = Path(__file__).parents[1] / "goldens" / "paper_operating_points.csv"
DELTAS = st.sampled_from([0.001, 0.005, 0.01, 0.05, 0.1, 0.5])


@st.composite
def counts(draw: st.DrawFn, largest: int = 20_000) -> tuple[int, int]:
    n = draw(st.integers(0, largest))
    return draw(st.integers(0, n)), n


def published() -> list[dict[str, str]]:
    with GOLDENS.open(newline="") as file:
        return list(csv.DictReader(file))


def test_all_published_points_are_there() -> None:
    assert len(published()) == 21


@pytest.mark.parametrize(
    "row", published(), ids=lambda r: f"{r['setting']}-{r['configuration']}-{r['recall_target']}"
)
def test_published_bounds_to_the_printed_digit(row: dict[str, str]) -> None:
    k, n, cases = int(row["positives_dismissed"]), int(row["dismissed"]), int(row["evaluation_cases"])
    assert f"{100 * clopper_pearson_upper(k, n, 0.01):.2f}" == row["cpu99_percent"]
    assert f"{100 * n / cases:.2f}" == row["dismissal_percent"]


@given(counts(), DELTAS)
def test_binomial_tail_at_the_bounds_is_delta(pair: tuple[int, int], delta: float) -> None:
    k, n = pair
    upper, lower = clopper_pearson_upper(k, n, delta), clopper_pearson_lower(k, n, delta)
    if k < n:
        assert binom.cdf(k, n, upper) == pytest.approx(delta, rel=1e-7)
    else:
        assert upper == 1.0
    if k > 0:
        assert binom.sf(k - 1, n, lower) == pytest.approx(delta, rel=1e-7)
    else:
        assert lower == 0.0


@given(counts(5_000), DELTAS)
def test_monotone_in_k_and_n(pair: tuple[int, int], delta: float) -> None:
    k, n = pair
    upper = clopper_pearson_upper(k, n, delta)
    assert clopper_pearson_upper(k, n + 1, delta) < upper or n == 0
    if k < n:
        assert clopper_pearson_upper(k + 1, n, delta) > upper
    assert clopper_pearson_upper(k, n, delta / 2) >= upper


@given(counts(), DELTAS)
def test_lower_bound_mirrors_the_upper(pair: tuple[int, int], delta: float) -> None:
    k, n = pair
    if n:
        assert clopper_pearson_lower(k, n, delta) == pytest.approx(
            1.0 - clopper_pearson_upper(n - k, n, delta), abs=1e-12
        )


@given(counts(2_000).filter(lambda pair: pair[1] > 0), DELTAS)
def test_agrees_with_scipy_binomtest(pair: tuple[int, int], delta: float) -> None:
    k, n = pair
    interval = binomtest(k, n, alternative="less").proportion_ci(1 - delta, method="exact")
    assert clopper_pearson_upper(k, n, delta) == pytest.approx(interval.high, rel=1e-8)
    interval = binomtest(k, n, alternative="greater").proportion_ci(1 - delta, method="exact")
    assert clopper_pearson_lower(k, n, delta) == pytest.approx(interval.low, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize(("k", "n"), [(1, 579), (7, 671), (13, 1876), (6, 1364)])
def test_agrees_with_the_confidenceinterval_package(k: int, n: int) -> None:
    """Cancer among the dismissed is one minus the negative predictive value."""
    truth = [1] * k + [0] * (n - k) + [1] * 5
    predicted = [0] * n + [1] * 5
    _, (low, _) = npv_score(truth, predicted, confidence_level=0.98, method="beta")
    assert clopper_pearson_upper(k, n, 0.01) == pytest.approx(1 - low, rel=1e-9)


def test_undefined_corners() -> None:
    assert clopper_pearson_upper(0, 0) == 1.0
    assert clopper_pearson_upper(5, 5) == 1.0
    assert clopper_pearson_lower(0, 0) == 0.0
    assert clopper_pearson_upper(0, 100, 0.05) == pytest.approx(1 - 0.05 ** (1 / 100))


def test_vectorised_and_broadcast() -> None:
    k, n = np.array([[0], [1], [2]]), np.array([2, 10, 100])
    table = clopper_pearson_upper(k, n)
    assert table.shape == (3, 3)
    assert table[1, 2] == clopper_pearson_upper(1, 100)
    assert table[2, 0] == 1.0
    assert isinstance(clopper_pearson_upper(1, 100), float)


@pytest.mark.parametrize(
    ("k", "n", "delta", "said"),
    [
        (1.0, 10, 0.01, "integer"),
        (0.1 * 30, 30, 0.01, "integer"),
        (3, 2, 0.01, "k = 3"),
        (-1, 2, 0.01, "k = -1"),
        (1, 2, 0.0, "delta"),
        (1, 2, 1.0, "delta"),
        (1, 2, float("nan"), "delta"),
    ],
)
def test_refuses_rates_and_impossible_counts(k: float, n: int, delta: float, said: str) -> None:
    for bound in (clopper_pearson_upper, clopper_pearson_lower):
        with pytest.raises(InputError, match=said):
            bound(k, n, delta)


@pytest.mark.parametrize(("level", "delta"), [(0.01, 0.05), (0.02, 0.01), (0.3, 0.1), (0.9, 0.5)])
def test_table_of_smallest_samples_by_brute_force(level: float, delta: float) -> None:
    table = smallest_samples(30, level, delta)
    for k, n in enumerate(table):
        assert clopper_pearson_upper(k, int(n), delta) <= level
        assert n - 1 == k or clopper_pearson_upper(k, int(n) - 1, delta) > level


def test_levels_that_no_sample_can_show_end_with_a_sentence() -> None:
    for level in (1e-19, 1e-300):
        with pytest.raises(InputError, match="level"):
            smallest_samples(3, level, 0.01)
    assert smallest_sample(1_000_000, 0.01, 0.01) > 100_000_000
    assert [smallest_sample(k, 0.01, 0.05) for k in range(5)] == smallest_samples(4, 0.01, 0.05).tolist()


def test_table_starts_as_published() -> None:
    assert smallest_samples(0, 0.01, 0.05).tolist() == [299]
    assert smallest_samples(0, 0.01, 0.01).tolist() == [459]


@pytest.mark.parametrize("n", [1, 2, 10, 59, 300, 947, 2_000])
@pytest.mark.parametrize("delta", [0.01, 0.05])
def test_exact_failure_probability_reaches_delta_and_never_exceeds_it(n: int, delta: float) -> None:
    """Fails for pi where the bound of the k observed is below pi: the binomial mass of those k."""
    k = np.arange(n + 1)
    bounds = clopper_pearson_upper(k, n, delta)
    just_above = np.nextafter(bounds[:-1], 1.0)  # the supremum lies right of each bound
    between = np.linspace(0.0, 1.0, 4_001)
    for rates in (just_above, between):
        failing = np.searchsorted(bounds, rates, side="left")  # how many k have U(k, n) < pi
        failure = np.where(failing > 0, binom.cdf(failing - 1, n, rates), 0.0)
        assert np.all(failure <= delta * (1 + 1e-7))
        if rates is just_above:
            assert failure == pytest.approx(delta, rel=1e-7)
