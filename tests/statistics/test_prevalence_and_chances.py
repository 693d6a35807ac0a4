"""AUROC, another prevalence, planning and the binormal model against oracles and published figures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from tests.binormal import Binormal
from trust_cache.base.errors import InputError
from trust_cache.statistics.auroc import auroc
from trust_cache.statistics.bounds import smallest_sample
from trust_cache.statistics.prevalence import omission_at_prevalence
from trust_cache.statistics.rules import chance_target_met

RSNA = {"cases": 9_530, "positives": 389, "dismissed": 1_364, "positives_dismissed": 6}
NLBS = {"cases": 4_797, "positives": 119, "dismissed": 947, "positives_dismissed": 1}


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.3, 0.7]), st.integers(0, 1)), min_size=2, max_size=60))
def test_auroc_equals_scikit_learn(rows: list[tuple[float, int]]) -> None:
    scores, labels = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    if 0 < labels.sum() < labels.size:
        assert auroc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    else:
        assert auroc(scores, labels) is None


@pytest.mark.parametrize(
    ("counts", "prevalence", "percent"),
    [
        (RSNA, 389 / 9_530, "1.202"),
        (RSNA, 0.005, "0.1434"),
        (NLBS, 119 / 4_797, "0.819"),
        (NLBS, 0.005, "0.1628"),
    ],
)
def test_published_false_omission_rates(counts: dict[str, int], prevalence: float, percent: str) -> None:
    omission = omission_at_prevalence(**counts, prevalence=prevalence, delta=0.01)
    digits = len(percent.split(".")[1])
    assert f"{100 * omission.false_omission_rate_upper:.{digits}f}" == percent
    missed = omission.missed_per_1000_upper / (1_000 * prevalence)
    assert missed > counts["positives_dismissed"] / counts["positives"]


def test_nothing_dismissed_says_nothing_about_omissions() -> None:
    omission = omission_at_prevalence(
        cases=100, positives=10, dismissed=0, positives_dismissed=0, prevalence=0.01, delta=0.01
    )
    assert omission.false_omission_rate_upper == 1.0
    with pytest.raises(InputError, match="prevalence"):
        omission_at_prevalence(**NLBS, prevalence=1.5, delta=0.01)


@pytest.mark.parametrize(
    ("search", "evaluation", "target", "percent"),
    [(30, 119, 0.98, 49), (30, 119, 0.95, 43), (97, 389, 0.98, 56), (97, 389, 0.95, 54)],
)
def test_published_chances_of_meeting_a_target(
    search: int, evaluation: int, target: float, percent: int
) -> None:
    chance = chance_target_met("recall", search, evaluation, target, 0.01)
    assert chance is not None
    assert round(100 * chance) == percent
    assert chance_target_met("ltt", search, evaluation, target, 0.01) is None or search == 97


def test_dismissed_cases_that_a_bound_needs() -> None:
    assert smallest_sample(0, 0.01, 0.01) == 459
    assert smallest_sample(1, 0.007, 0.01) == 946


def test_binormal_truth_by_counting() -> None:
    model = Binormal(prevalence=0.3, auroc=0.72)
    scores, labels = model.draw(400_000, np.random.default_rng(0))
    assert auroc(scores, labels) == pytest.approx(0.72, abs=0.003)
    for tau in (0.2, 0.5, 0.8):
        below = scores < tau
        assert below[labels == 1].mean() == pytest.approx(model.miss_rate(tau), abs=0.005)
        assert below[labels == 0].mean() == pytest.approx(model.spared_rate(tau), abs=0.005)
        assert labels[below].mean() == pytest.approx(model.omission_rate(tau), abs=0.005)
    _, exact = model.draw(1_000, np.random.default_rng(0), positives=123)
    assert exact.sum() == 123
