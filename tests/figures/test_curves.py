"""Laws of the curves: exact against brute force, nothing lost by keeping one row for each positive."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import roc_curve

from trust_cache.figures.curves import Counter, class_shares, histogram_edges, operating_curve, reliability

Cohort = tuple[np.ndarray, np.ndarray]


@st.composite
def cohorts(draw: st.DrawFn) -> Cohort:
    """Scores with many ties, and labels of both kinds."""
    size = draw(st.integers(4, 60))
    scores = draw(st.lists(st.integers(0, 12), min_size=size, max_size=size))
    labels = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    labels[0], labels[1] = 0, 1
    return np.array(scores, dtype=np.float64) / 10, np.array(labels, dtype=np.int64)


@given(cohorts())
def test_counts_are_those_strictly_below(cohort: Cohort) -> None:
    scores, labels = cohort
    taus = np.concatenate([scores, [0.05, -1.0, 9.0]])
    counter = Counter.of(scores, labels)
    assert counter.dismissed(taus).tolist() == [int((scores < tau).sum()) for tau in taus]
    assert counter.missed(taus).tolist() == [int(((scores < tau) & (labels == 1)).sum()) for tau in taus]


@given(cohorts())
def test_the_curve_is_the_best_dismissal_at_every_recall(cohort: Cohort) -> None:
    scores, labels = cohort
    rows = operating_curve(scores, labels).to_dicts()
    candidates = [*np.unique(scores), np.inf]
    for row in rows:
        same = [tau for tau in candidates if (labels[scores < tau] == 1).sum() <= row["positives_dismissed"]]
        assert row["dismissed"] == max(int((scores < tau).sum()) for tau in same)
    reachable = {int((labels[scores < tau] == 1).sum()) for tau in candidates}
    assert {row["positives_dismissed"] for row in rows} == reachable


@given(cohorts())
def test_the_roc_is_scikit_learns(cohort: Cohort) -> None:
    scores, labels = cohort
    rates, recalls, _ = roc_curve(labels, scores, drop_intermediate=False)
    corners = {(round(x, 12), round(y, 12)) for x, y in zip(rates, recalls, strict=True)}
    curve = operating_curve(scores, labels)
    ours = zip(curve["false_positive_rate"], curve["recall"], strict=True)
    assert {(round(x, 12), round(y, 12)) for x, y in ours} <= corners


@given(cohorts())
def test_histograms_hold_every_case_once(cohort: Cohort) -> None:
    scores, labels = cohort
    table = class_shares(scores, labels, histogram_edges((scores,)))
    for label in (0, 1):
        rows = table.filter(label=label)
        assert rows["cases"].sum() == int((labels == label).sum())
        assert rows["share"].sum() == pytest.approx(1.0)


@settings(max_examples=25)
@given(cohorts())
def test_reliability_holds_every_case_once_with_scipys_intervals(cohort: Cohort) -> None:
    scores, labels = cohort
    table = reliability(scores, labels)
    assert table["cases"].sum() == scores.size
    assert table["positives"].sum() == labels.sum()
    edges = [*table["lowest_score"], np.inf]
    for row, low, high in zip(table.to_dicts(), edges[:-1], edges[1:], strict=True):
        inside = (scores >= low) & (scores < high)
        assert row["cases"] == inside.sum()
        assert row["mean_score"] == pytest.approx(scores[inside].mean())
        interval = binomtest(row["positives"], row["cases"]).proportion_ci(0.95, method="exact")
        assert (row["lower"], row["upper"]) == pytest.approx((interval.low, interval.high), abs=1e-12)


def test_reliability_of_distinct_scores_has_ten_equal_groups() -> None:
    scores = np.random.default_rng(0).permutation(1000) / 1000
    assert reliability(scores, (scores > 0.9).astype(np.int64))["cases"].to_list() == [100] * 10


def test_equal_scores_give_one_group_and_a_histogram() -> None:
    scores, labels = np.full(20, 0.5), np.array([0, 1] * 10)
    assert reliability(scores, labels)["cases"].to_list() == [20]
    assert class_shares(scores, labels, histogram_edges((scores,)))["cases"].sum() == 20
