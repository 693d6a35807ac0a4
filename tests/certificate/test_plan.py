"""Plans against brute force and published feasibility figures."""

import pytest

from trust_cache import clopper_pearson_upper
from trust_cache.base.errors import InputError
from trust_cache.certificate.planning.plan import plan_cases, plan_reach
from trust_cache.statistics.rules import miss_rules
from trust_cache.statistics.stratified_draws import search_sizes


@pytest.mark.parametrize(
    ("bound", "dismissal", "misses"), [(0.01, 0.2, 2), (0.007, 0.1974, 1), (0.05, 1, 0), (0.3, 0.3, 5)]
)
def test_cases_needed_are_enough_and_one_fewer_is_not(bound: float, dismissal: float, misses: int) -> None:
    need = plan_cases(bound=bound, dismissal=dismissal, misses=misses)
    assert clopper_pearson_upper(misses, need.dismissed, 0.01) <= bound
    assert clopper_pearson_upper(misses, need.dismissed - 1, 0.01) > bound
    assert need.evaluation_cases * dismissal >= need.dismissed - 1e-9
    assert (need.evaluation_cases - 1) * dismissal < need.dismissed
    search, _ = search_sizes(need.cases, 0)
    assert need.cases - search >= need.evaluation_cases
    search, _ = search_sizes(need.cases - 1, 0)
    assert need.cases - 1 - search < need.evaluation_cases


def test_reach_of_the_published_cohorts() -> None:
    nlbs = plan_reach(cases=5_997, positives=149)
    assert (nlbs.search_cases, nlbs.search_positives) == (1_200, 30)
    assert (nlbs.evaluation_cases, nlbs.evaluation_positives) == (4_797, 119)
    assert [round(100 * row.rules[0].chance_met) for row in nlbs.targets] == [49, 43]  # type: ignore[operator]
    assert all([item.rule for item in row.rules] == list(miss_rules()) for row in nlbs.targets)
    assert [row.rules[0].search_misses for row in nlbs.targets] == [0, 1]
    assert [row.rules[1].search_misses for row in nlbs.targets] == [None, 0]
    needed = [[item.needed for item in row.rules] for row in nlbs.targets]
    assert needed == [[1, 49, 228, 228], [1, 19, 90, 90]]
    assert [row.allowed for row in nlbs.targets] == [2, 5]
    assert nlbs.best_bound == clopper_pearson_upper(0, 4_797 - 119)
    rsna = plan_reach(cases=11_913, positives=486)
    assert [round(100 * row.rules[0].chance_met) for row in rsna.targets] == [56, 54]  # type: ignore[operator]
    assert rsna.targets[1].rules[3].search_misses is not None


def test_bounds_of_a_reach_are_the_bound_of_their_counts() -> None:
    reach = plan_reach(cases=1_000, positives=100, targets=(0.9,), dismissals=(0.001, 0.1))
    assert [row.dismissed for row in reach.bounds] == [0, 80]
    assert reach.bounds[1].bound == clopper_pearson_upper(0, 80)
    (row,) = reach.targets[0].bounds  # 8 misses do not fit into no dismissed case
    assert (row.misses, row.bound) == (8, clopper_pearson_upper(8, 80))


@pytest.mark.parametrize(
    ("cases", "positives", "said"),
    [
        (100, 0, "at least one"),
        (10, 10, "fewer positives"),
        (100, 2, "0 for search and 2 for evaluation"),
        (-5, 3, "fewer"),
    ],
)
def test_impossible_cohorts(cases: int, positives: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan_reach(cases=cases, positives=positives)


@pytest.mark.parametrize(
    "wrong", [{"bound": 0}, {"bound": 1.2}, {"dismissal": 0}, {"dismissal": 20}, {"misses": -1}, {"delta": 2}]
)
def test_impossible_wishes(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        plan_cases(**{"bound": 0.01, "dismissal": 0.2, "misses": 0, **wrong})  # type: ignore[arg-type]
