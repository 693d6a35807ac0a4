"""The interval's parts against brute force on repeated cases, and its whole against the plain bootstrap."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trust_cache.statistics.thresholds import allowed_misses, select_threshold, threshold_allowing
from trust_cache.studies.compare import paired_tests
from trust_cache.studies.compare.paired_tests import (
    Pair,
    cells,
    difference_intervals,
    dismiss,
    make_pair,
    patient_differences,
    patient_intervals,
    patient_weights,
    resample_weights,
    resampled_differences,
    weighted_thresholds,
)


def cohort(positives: int, negatives: int, seed: int = 0, decimals: int = 9) -> Pair:
    generator = np.random.default_rng(seed)
    labels = np.repeat([1, 0], [positives, negatives])
    common = generator.normal(size=labels.size) + labels
    columns = np.round(common + 0.5 * generator.normal(size=(2, labels.size)), decimals)
    return make_pair(columns[0], columns[1], labels)


@given(
    scores=st.lists(st.integers(0, 6), min_size=4, max_size=12),
    misses=st.integers(0, 3),
    seed=st.integers(0, 9),
)
def test_weighted_thresholds_equal_those_of_repeated_cases(scores: list[int], misses: int, seed: int) -> None:
    values = np.array(scores, dtype=np.float64)
    (weights,) = resample_weights(values.size, 20, seed)
    taus, missed = weighted_thresholds(values, weights, misses)
    for row, tau, below in zip(weights, taus, missed, strict=True):
        copies = np.repeat(values, row)
        assert copies.size == values.size
        assert tau == threshold_allowing(copies, misses)
        assert below == np.count_nonzero(copies < tau) <= misses


def test_cells_equal_a_count_for_each_pair_of_thresholds() -> None:
    pair = cohort(40, 300, decimals=1)  # ties with the thresholds
    taus, other = pair.positives[:, 0], pair.positives[:, 1]
    alone, other_alone = cells(pair.negatives, taus, other)
    for index in range(40):
        first, second = pair.negatives[:, 0] < taus[index], pair.negatives[:, 1] < other[index]
        assert alone[index] == np.count_nonzero(first & ~second)
        assert other_alone[index] == np.count_nonzero(second & ~first)


def plain_bootstrap(pair: Pair, misses: int, resamples: int, seed: int) -> np.ndarray:
    """Copies of cases, drawn within class: the same thing done the long way."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(resamples):
        drawn = [
            part[generator.integers(0, len(part), len(part))] for part in (pair.positives, pair.negatives)
        ]
        first, second = (dismiss(drawn[0][:, c], drawn[1][:, c], misses).dismissed for c in (0, 1))
        found.append((first - second) / pair.cases)
    return np.array(found)


def test_resampled_differences_have_the_law_of_the_plain_bootstrap() -> None:
    """Moments and quantiles within four standard errors of two independent runs of 6,000 resamples."""
    pair = cohort(120, 900, seed=4)
    (found,) = resampled_differences(pair, [6], 6_000, seed=1)
    expected = plain_bootstrap(pair, 6, 6_000, seed=2)
    error = expected.std() * np.sqrt(2 / 6_000)
    assert found.mean() == pytest.approx(expected.mean(), abs=4 * error)
    assert found.std() == pytest.approx(expected.std(), rel=4 / np.sqrt(6_000))
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        value = np.quantile(expected, share)
        margin = 4 * np.sqrt(2 * share * (1 - share) / 6_000)
        assert np.mean(found < value) - margin <= share <= np.mean(found <= value) + margin


def test_the_memory_bound_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = cohort(60, 200)
    whole = resampled_differences(pair, [1, 4], 500, seed=3)
    monkeypatch.setattr(paired_tests, "_WEIGHTS_AT_ONCE", 60 * 7)
    np.testing.assert_array_equal(resampled_differences(pair, [1, 4], 500, seed=3), whole)
    assert resampled_differences(pair, [4], 500, seed=3)[0].tolist() == whole[1].tolist()  # alone or not


def test_fewer_than_three_positives_below_is_not_resolvable() -> None:
    pair = cohort(149, 500)
    below = {target: allowed_misses(149, target) for target in (0.98, 0.95)}
    assert below == {0.98: 2, 0.95: 7}
    nothing, something = difference_intervals(pair, list(below.values()), 300, seed=0)
    assert nothing is None
    assert something is not None
    assert something.low < something.high
    tied = make_pair(np.zeros(100), np.arange(100.0), np.repeat([1, 0], 50))
    assert difference_intervals(tied, [10], 300, seed=0) == [None]  # ties leave nobody below


def test_the_same_column_twice_differs_by_exactly_nothing() -> None:
    column = cohort(100, 500).negatives[:, 0]
    labels = np.arange(column.size) % 5 == 0
    (found,) = difference_intervals(make_pair(column, column, labels.astype(np.int64)), [5], 300, seed=0)
    assert found is not None
    assert (found.low, found.high, found.excludes_zero) == (0.0, 0.0, False)


def test_a_cohort_of_positives_alone() -> None:
    pair = make_pair(np.arange(50.0), np.arange(50.0)[::-1], np.ones(50, dtype=np.int64))
    (found,) = difference_intervals(pair, [5], 300, seed=0)
    assert found is not None
    assert -0.2 < found.low <= 0.0 <= found.high < 0.2


def test_dismissal_uses_the_threshold_rule_of_the_certificate() -> None:
    pair = cohort(70, 300, decimals=1)
    scores = np.concatenate([pair.positives[:, 0], pair.negatives[:, 0]])
    labels = np.repeat([1, 0], [70, 300])
    tau = select_threshold(scores, labels, 0.95)
    pooled = dismiss(pair.positives[:, 0], pair.negatives[:, 0], allowed_misses(70, 0.95))
    assert pooled.tau == tau
    assert pooled.dismissed == int(np.count_nonzero(scores < tau))


def with_patients(seed: int = 0) -> Pair:
    """Patients with one to three cases that share most of their scores; some have cases of both classes."""
    generator = np.random.default_rng(seed)
    patients = np.repeat(np.arange(400), generator.integers(1, 4, 400))
    sick = generator.random(400) < 0.2
    labels = (sick[patients] & (generator.random(patients.size) < 0.7)).astype(np.int64)
    common = generator.normal(size=400)[patients] + labels
    columns = common + 0.3 * generator.normal(size=(2, patients.size))
    return make_pair(columns[0], columns[1], labels, patients)


def test_whole_patients_are_resampled_by_the_definition() -> None:
    """Each resample against copies of the drawn patients' cases, with its own misses and cases."""
    pair = with_patients()
    assert pair.patients is not None
    columns = np.concatenate([pair.positives, pair.negatives])
    labels = np.repeat([1, 0], [len(pair.positives), len(pair.negatives)])
    found = patient_differences(pair, [0.95, 0.9], 25, seed=3)
    (weights,) = patient_weights(pair.patients, len(pair.positives), 25, seed=3)
    sick = np.unique(pair.patients[: len(pair.positives)])
    assert {int(row[sick].sum()) for row in weights} == {sick.size}
    assert {int(row.sum()) for row in weights} == {int(pair.patients.max()) + 1}
    for place, row in enumerate(weights):
        drawn = np.concatenate([np.repeat(np.flatnonzero(pair.patients == n), k) for n, k in enumerate(row)])
        for line, target in zip(found, (0.95, 0.9), strict=True):
            below = [
                np.count_nonzero(
                    columns[drawn, c] < select_threshold(columns[drawn, c], labels[drawn], target)
                )
                for c in (0, 1)
            ]
            assert line[place] == pytest.approx((below[0] - below[1]) / drawn.size, abs=1e-15)


def test_correlated_cases_of_a_patient_widen_the_interval() -> None:
    """Copies of cases say nothing new: three of each leave the interval of the patients where it was."""
    single = cohort(100, 500, seed=2)
    columns = np.concatenate([single.positives, single.negatives])
    labels = np.repeat([1, 0], [100, 500])
    alone, copied = np.arange(600), np.repeat(np.arange(600), 3)
    pair = make_pair(columns[copied, 0], columns[copied, 1], labels[copied], patients=copied)
    (found,) = patient_intervals(pair, [0.9], 2_000, seed=0)
    (expected,) = difference_intervals(single, [10], 2_000, seed=0)
    (naive,) = difference_intervals(make_pair(*columns[copied].T, labels[copied]), [30], 2_000, seed=0)
    assert found is not None
    assert expected is not None
    assert naive is not None
    width = expected.high - expected.low
    assert found.high - found.low == pytest.approx(width, rel=0.15)
    assert naive.high - naive.low < 0.75 * width
    assert make_pair(*columns.T, labels, alone).patients is None  # one case each: nothing changes


def test_an_interval_needs_positives_of_three_patients_below() -> None:
    labels = np.repeat([1, 0], [40, 200])
    scores = np.random.default_rng(0).normal(size=(2, 240))
    scores[:, :4] = -9.0 - np.arange(4)  # below every other score
    two = np.concatenate([[0, 0, 1, 1], np.arange(2, 238)])
    assert patient_intervals(make_pair(*scores, labels, two), [0.9], 200, seed=0) == [None]
    three = np.concatenate([[0, 0, 1, 2], np.arange(3, 239)])
    assert patient_intervals(make_pair(*scores, labels, three), [0.9], 200, seed=0) != [None]


def test_incomplete_cases_count_in_the_denominator_alone() -> None:
    pair = cohort(100, 500, seed=5)
    columns = np.concatenate([pair.positives, pair.negatives])
    labels = np.repeat([1, 0], [100, 500])
    more = np.concatenate([columns, [[np.nan, 0.3], [0.1, np.nan], [np.nan, np.nan], [np.nan, -9.0]]])
    padded = make_pair(*more.T, np.concatenate([labels, [1, 0, 0, 1]]))
    assert (padded.complete, padded.incomplete, padded.cases) == (600, 4, 604)
    (found,), (expected,) = (resampled_differences(item, [5], 300, seed=0) for item in (padded, pair))
    np.testing.assert_allclose(found * 604, expected * 600, rtol=0, atol=1e-9)
    (of_patients,) = patient_differences(padded, [0.95], 300, seed=0)
    (without,) = patient_differences(pair, [0.95], 300, seed=0)
    np.testing.assert_allclose(of_patients * 604, without * 600, rtol=0, atol=1e-9)
