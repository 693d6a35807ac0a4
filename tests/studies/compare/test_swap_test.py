"""The swap test against scipy's permutation test and full enumeration; Holm against its definition."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test, rankdata

from trust_cache.statistics.thresholds import threshold_allowing
from trust_cache.studies.compare.paired_tests import (
    Pair,
    adjust,
    draw_masks,
    excess,
    make_contest,
    make_pair,
    midranks,
    swap_test,
    swapped_excess,
)


def small_pair(seed: int, positives: int = 4, negatives: int = 8, *, levels: int = 0) -> Pair:
    generator = np.random.default_rng(seed)
    labels = np.repeat([1, 0], [positives, negatives])
    scores = generator.normal(size=(2, labels.size)) + labels
    if levels:
        scores = np.round(scores * levels) / levels  # ties
    return make_pair(scores[0], scores[1], labels)


def brute_excess(first: np.ndarray, second: np.ndarray, positives: int, misses: int) -> int:
    """Dismissed by the first column minus dismissed by the second, by the definition."""
    taus = [threshold_allowing(column[:positives].astype(float), misses) for column in (first, second)]
    return int((first < taus[0]).sum() - (second < taus[1]).sum())


@pytest.mark.parametrize("levels", [0, 2])
@pytest.mark.parametrize("misses", [0, 1, 3])
def test_every_exchange_equals_the_definition(misses: int, levels: int) -> None:
    """All 4,096 exchanges of 12 cases, with and without ties: leaving closed cases out changes nothing."""
    pair = small_pair(3, levels=levels)
    masks = np.array(list(itertools.product([False, True], repeat=12)))
    ranks = midranks(pair)
    found = swapped_excess(make_contest(ranks, 4, misses), ranks[:, :4], masks)
    expected = [
        brute_excess(np.where(mask, ranks[1], ranks[0]), np.where(mask, ranks[0], ranks[1]), 4, misses)
        for mask in masks
    ]
    assert found.tolist() == expected
    assert found[0] == excess(pair, misses)
    np.testing.assert_array_equal(found, -found[::-1])  # exchanging everything only turns the sign


def test_the_p_value_agrees_with_scipy() -> None:
    """scipy enumerates all exchanges of the ranks; ours draws 40,000 of them (standard error 0.0025)."""
    pair = small_pair(11, positives=5, negatives=9)
    columns = np.concatenate([pair.positives, pair.negatives]).T
    ranks = [rankdata(column) for column in columns]

    def statistic(first: np.ndarray, second: np.ndarray) -> float:
        return abs(brute_excess(first, second, 5, 1))

    exact = permutation_test(
        ranks, statistic, permutation_type="samples", alternative="greater", n_resamples=np.inf
    )
    assert 0.05 < exact.pvalue < 0.95  # not a case where any answer would do
    (found,) = swap_test(pair, [1], 40_000, seed=1)
    assert found == pytest.approx(exact.pvalue, abs=4 * np.sqrt(exact.pvalue * (1 - exact.pvalue) / 40_000))


def test_the_p_value_counts_the_observation_itself() -> None:
    pair = make_pair(np.arange(20.0), np.arange(20.0), np.repeat([1, 0], 10))
    assert swap_test(pair, [0, 2], 200, seed=0) == [1.0, 1.0]  # equal columns: every exchange is as extreme
    labels = np.repeat([1, 0], [100, 900])
    good, poor = labels * 1e6 + np.arange(1_000), np.arange(1_000.0)
    assert swap_test(make_pair(good, poor, labels), [3], 500, seed=0) == [1 / 501]


@given(seed=st.integers(0, 50), power=st.sampled_from([0.2, 3.0]), misses=st.integers(0, 3))
def test_an_increasing_transformation_changes_nothing(seed: int, power: float, misses: int) -> None:
    pair = small_pair(seed)
    stretched = Pair(
        *(np.sign(part) * np.abs(part) ** [1.0, power] for part in (pair.positives, pair.negatives))
    )
    assert swap_test(pair, [misses], 60, seed) == swap_test(stretched, [misses], 60, seed)


def test_patients_are_exchanged_whole() -> None:
    """All 128 exchanges of seven patients by the definition; ours draws 40,000 (four standard errors)."""
    pair = small_pair(11, positives=5, negatives=9)
    numbers = np.array([0, 1, 2, 3, 4, 0, 1, 2, 5, 5, 5, 6, 6, 3])
    ranks = midranks(pair)
    observed = abs(excess(pair, 1))
    as_extreme = [
        abs(brute_excess(np.where(mask, ranks[1], ranks[0]), np.where(mask, ranks[0], ranks[1]), 5, 1))
        >= observed
        for mask in np.array(list(itertools.product([False, True], repeat=7)))[:, numbers]
    ]
    exact = float(np.mean(as_extreme))
    (found,) = swap_test(replace(pair, patients=numbers), [1], 40_000, seed=1)
    (by_case,) = swap_test(pair, [1], 40_000, seed=1)
    margin = 4 * np.sqrt(exact * (1 - exact) / 40_000)
    assert found == pytest.approx(exact, abs=margin)
    assert abs(by_case - exact) > 2 * margin  # exchanging single cases is another test


def test_correlated_cases_break_the_test_by_case_and_not_that_by_patient() -> None:
    """Equal columns, four like cases a patient, 200 cohorts; 9.6 % is 5 % and three standard errors."""
    generator = np.random.default_rng(8)
    numbers = np.repeat(np.arange(300), 4)
    labels = (numbers < 60).astype(np.int64)
    rejected = {"case": 0, "patient": 0}
    for number in range(200):
        own = generator.normal(size=(2, 300)) + (np.arange(300) < 60)
        columns = own[:, numbers] + 0.01 * generator.normal(size=(2, numbers.size))
        for unit, patients in (("case", None), ("patient", numbers)):
            (p,) = swap_test(make_pair(*columns, labels, patients), [24], 200, seed=number)
            rejected[unit] += p <= 0.05
    assert rejected["patient"] / 200 <= 0.096
    assert rejected["case"] / 200 > 0.2


def test_incomplete_cases_do_not_change_the_test() -> None:
    pair = small_pair(4, positives=20, negatives=80)
    columns = np.concatenate([pair.positives, pair.negatives])
    labels = np.repeat([1, 0], [20, 80])
    more = np.concatenate([columns, [[np.nan, 5.0], [-5.0, np.nan]]])
    padded = make_pair(*more.T, np.concatenate([labels, [1, 0]]))
    assert swap_test(padded, [2], 300, seed=0) == swap_test(pair, [2], 300, seed=0)


def test_order_of_cases_and_of_columns_does_not_matter_to_the_observed_difference() -> None:
    pair = small_pair(5)
    turned = Pair(pair.positives[:, ::-1], pair.negatives[:, ::-1])
    assert excess(turned, 1) == -excess(pair, 1)
    assert swap_test(pair, [1], 300, 0) == swap_test(turned, [1], 300, 0)


def test_masks_are_fair_bits_that_depend_on_the_seed_alone() -> None:
    masks = draw_masks(np.random.PCG64(5), 400, 130)
    assert masks.shape == (400, 130)
    assert masks.mean() == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(masks.size))
    bits = np.random.PCG64(5)
    again = np.concatenate([draw_masks(bits, 150, 130), draw_masks(bits, 250, 130)])
    np.testing.assert_array_equal(masks, again)  # how many are drawn at once changes nothing


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=8))
def test_holm_rejects_what_its_step_down_definition_rejects(p_values: list[float]) -> None:
    adjusted = adjust(p_values)
    for level in (0.01, 0.05, 0.2):
        rejected = set()
        for place, index in enumerate(np.argsort(p_values, kind="stable").tolist()):
            if (len(p_values) - place) * p_values[index] > level:
                break
            rejected.add(index)
        assert {index for index, p in enumerate(adjusted) if p <= level} == rejected


def test_holm_on_a_worked_example() -> None:
    assert adjust([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
