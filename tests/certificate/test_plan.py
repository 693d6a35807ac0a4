"""Plans against brute force and published feasibility figures."""

import math

import numpy as np
import pytest

from trust_cache import clopper_pearson_upper
from trust_cache.base.errors import InputError
from trust_cache.certificate.planning.plan import plan_cases, plan_reach
from trust_cache.certificate.planning.plan_tables import watch_table
from trust_cache.certificate.planning.watch_plan import plan_assurance, plan_watch
from trust_cache.figures.monitoring_figures import assurance_figure, watch_figure
from trust_cache.statistics.bounds import smallest_sample
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


def test_assurance_of_a_plan_is_the_chance_of_its_study() -> None:
    """Simulated studies: the share whose bound is at most the limit; four standard errors of 20,000."""
    plan = plan_assurance(rate=0.002, limit=0.01, dismissal=0.2, cases=6_000)
    assert (plan.evaluation_cases, plan.dismissed) == (4_800, 960)
    k = np.random.default_rng(0).binomial(960, 0.002, 20_000)
    share = float(np.mean(clopper_pearson_upper(k, np.full(k.size, 960)) <= 0.01))
    assert abs(plan.assurance - share) < 4 * np.sqrt(share * (1 - share) / 20_000)
    wanted = plan_assurance(rate=0.002, limit=0.01, dismissal=0.9, wanted=0.9)
    assert wanted.assurance >= 0.9
    assert wanted.evaluation_cases * 0.9 >= wanted.dismissed
    assert min(chance for cases, chance in wanted.curve if cases >= wanted.cases) >= 0.9
    for wrong in ({"cases": 10, "wanted": 0.5}, {}, {"cases": 0}):
        with pytest.raises(InputError):
            plan_assurance(rate=0.002, limit=0.01, dismissal=0.2, **wrong)  # type: ignore[arg-type]


def test_a_watched_plan_and_its_audit() -> None:
    plan = plan_watch(bound=0.01, misses=2, audit=0.05, rate=0.001)
    assert plan.certified_dismissed == smallest_sample(2, 0.01, 0.01)
    assert [round(item.of_bound, 3) for item in plan.confirmations] == [0.1, 0.25, 0.5]
    assert [item.of_bound for item in plan.alarms] == [1.0, 1.5, 2.0, 3.0]
    assert plan.alarms[0].chance < 0.01  # a false one
    for item in (*plan.confirmations, *plan.alarms[1:]):
        cases, dismissed = item.cases[0], item.dismissed[0]
        assert cases is not None
        assert dismissed == math.ceil(cases * 20)
        assert item.curve[-1] == (plan.horizon, item.chance)
    later = [item.cases[0] or 0 for item in plan.alarms[1:]]
    assert later == sorted(later, reverse=True)
    table = watch_table(plan)
    assert all(len(row) == len(table.header) for row in table.rows)
    assert len(watch_figure(plan).panels) == 1
    assert assurance_figure(plan_assurance(rate=0, limit=0.01, dismissal=0.2, cases=900)).data.height > 50
