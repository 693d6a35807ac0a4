"""Drift: a two-sample test that warns if scores are distributed differently."""

import numpy as np
import pytest
from scipy.stats import ks_2samp

from trust_cache.clinic.triage import FEWEST, LEVEL, compare_scores


def test_other_scores_are_noticed() -> None:
    generator = np.random.default_rng(0)
    reference = np.sort(generator.beta(2, 8, 1000))
    shifted = generator.beta(2, 6, 800)
    found = compare_scores(shifted, reference)
    assert found.differs
    assert "distributed differently" in found.warnings[0]
    oracle = ks_2samp(shifted, reference)
    assert found.statistic == pytest.approx(oracle.statistic)
    assert found.p_value == pytest.approx(oracle.pvalue, rel=0.1)


def test_the_same_scores_raise_few_alarms() -> None:
    """1,000 draws at a level of 1 %: more than 25 alarms would be five standard deviations too many."""
    generator = np.random.default_rng(1)
    reference = generator.beta(2, 8, 400)
    alarms = 0
    for _ in range(1000):
        both = generator.permutation(np.concatenate([reference, generator.beta(2, 8, 300)]))
        alarms += compare_scores(both[:300], both[300:]).differs
    assert alarms <= 1000 * LEVEL + 5 * np.sqrt(1000 * LEVEL)


def test_too_few_cases_are_not_compared() -> None:
    few, many = np.linspace(0, 1, FEWEST - 1), np.linspace(5, 6, 1000)
    for one, other in ((few, many), (many, few)):
        found = compare_scores(one, other)
        assert (found.p_value, found.differs, found.warnings) == (None, False, ())
    assert compare_scores(np.linspace(0, 1, FEWEST), many).differs
