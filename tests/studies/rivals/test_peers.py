"""The same scores in MAPIE and crepes: where they agree with our rules, and why they differ."""

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value
from scipy.stats import binom

from trust_cache.statistics.bounds import smallest_samples
from trust_cache.statistics.rules import RULES

DOCS = Path(__file__).resolve().parents[3] / "docs"
COHORTS = 6


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("rivals_numbers")


def test_mapie_finds_our_threshold_for_the_miss_rate(numbers: ModuleType) -> None:
    """With the positives' scores as its grid and a fixed sequence: there is no other candidate to find."""
    for scores, labels in numbers.cohorts(COHORTS, seed=1):
        grid = np.sort(scores[labels == 1])
        found = numbers.control(scores, labels, numbers.MISS_RISK, 0.05, grid, "fixed_sequence")
        ours = RULES["ltt"].choose(scores, labels, 0.95, 0.01)
        assert ours.tau is not None
        assert numbers.largest(found) == ours.tau == RULES["rcps"].choose(scores, labels, 0.95, 0.01).tau


def test_mapie_finds_our_threshold_for_cancer_among_the_dismissed(numbers: ModuleType) -> None:
    feasible = 0
    for scores, labels in numbers.cohorts(COHORTS, seed=3):
        grid = numbers.bonferroni_grid(scores, labels)
        found = numbers.control(scores, labels, numbers.OMISSION_RISK, 0.01, grid, "bonferroni")
        ours = RULES["ltt-for-bonferroni"].choose(scores, labels, 0.01, 0.01).tau
        assert numbers.largest(found) == ours
        feasible += ours is not None
    assert 0 < feasible < COHORTS


def test_mapie_p_values_are_the_exact_ones_but_for_a_rounding(numbers: ModuleType) -> None:
    """ceil(n * rate) is k + 1 for some k: then the p-value is too large, never too small."""
    n = 459
    k = np.arange(40)
    exact = binom.cdf(k, n, 0.05)
    bumps = []
    for npv in (False, True):
        rate = 1 - (n - k) / n if npv else k / n
        found = compute_hoeffding_bentkus_p_value(rate, np.full(k.size, n), 0.05, binary=True)[:, 0]
        bumped = np.ceil(n * rate) > k
        np.testing.assert_allclose(found[~bumped], exact[~bumped], rtol=1e-9)
        assert np.all(found[bumped] > exact[bumped])
        bumps.append(int(np.count_nonzero(bumped)))
    assert 0 < bumps[0] < bumps[1]
    assert numbers.rounded_up(npv=False, largest_n=100)[0] < numbers.rounded_up(npv=True, largest_n=100)[0]


def test_mapie_turns_a_sequence_round_by_its_labels(numbers: ModuleType) -> None:
    """One cancer at the very bottom: the observed rate falls along the grid, and MAPIE starts at its end."""
    labels = np.zeros(2_000, dtype=np.int64)
    labels[3] = 1
    scores = np.linspace(0.1, 0.9, 2_000)
    grid = scores[smallest_samples(5, 0.01, 0.01)]
    found = numbers.control(scores, labels, numbers.OMISSION_RISK, 0.01, grid, "fixed_sequence")
    assert numbers.largest(found) == grid[-1]
    assert RULES["ltt-for-sequence"].choose(scores, labels, 0.01, 0.01).tau is None


def test_mapie_default_grid_finds_nothing_on_calibrated_scores(numbers: ModuleType) -> None:
    """Its hundred thresholds from 0 to 0.99 lie where a screening cohort has almost no cases."""
    for scores, labels in numbers.cohorts(COHORTS, seed=2):
        chances = numbers.calibrated(scores)
        assert np.median(chances) < 0.02
        ours = RULES["ltt"].choose(chances, labels, 0.95, 0.01).tau
        assert ours is not None
        found = numbers.control(chances, labels, numbers.MISS_RISK, 0.05, None, "bonferroni_holm")
        assert (numbers.largest(found) or 0.0) < ours
        found = numbers.control(chances, labels, numbers.OMISSION_RISK, 0.01, None, "bonferroni_holm")
        assert numbers.largest(found) is None


def test_crepes_dismisses_whom_conformal_risk_control_dismisses(numbers: ModuleType) -> None:
    """A case is dismissed where "cancer" is not in its prediction set; ties included."""
    generator = np.random.default_rng(5)
    for scores, labels in numbers.cohorts(COHORTS, seed=4):
        later, _ = numbers.RSNA.draw(400, generator)
        later = np.concatenate([later, scores[labels == 1]])
        tau = RULES["crc"].choose(scores, labels, 0.95, 0.01).tau
        assert tau is not None
        np.testing.assert_array_equal(numbers.dismissed_by_crepes(scores, labels, later), later < tau)
