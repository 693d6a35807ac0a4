"""Plan a study: the cases that a wanted bound needs, and what a given cohort can reach."""

import math
from dataclasses import dataclass
from fractions import Fraction

from trust_cache.base.errors import InputError, check_fraction
from trust_cache.certificate.certification import check_delta, check_targets
from trust_cache.statistics.bounds import clopper_pearson_upper, smallest_sample
from trust_cache.statistics.rules import allowance, chance_target_met, miss_rules
from trust_cache.statistics.stratified_draws import SEARCH_SHARE, search_sizes
from trust_cache.statistics.thresholds import allowed_misses, exact_share

LARGEST_COHORT = 10**12
DISMISSALS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Need:
    """The cases that a wanted bound needs."""

    bound: float
    dismissal: float
    misses: int
    delta: float
    dismissed: int  # dismissed evaluation cases, `misses` of them with cancer
    evaluation_cases: int
    cases: int  # with the search subset


@dataclass(frozen=True)
class BoundAt:
    """The bound if a share of the evaluation cases is dismissed, with this number of misses."""

    dismissal: float
    dismissed: int
    misses: int
    bound: float


@dataclass(frozen=True)
class RuleOutlook:
    """What one threshold rule can do with the cohort's search positives at one target."""

    rule: str
    search_misses: int | None  # misses it allows on search; None: infeasible
    needed: int | None  # search positives; None: no number suffices
    chance_met: float | None  # chance that evaluation meets the target; None: infeasible


@dataclass(frozen=True)
class TargetOutlook:
    """What the cohort can show at one recall target."""

    target: float
    allowed: int  # misses on evaluation that still meet the target
    rules: tuple[RuleOutlook, ...]
    bounds: tuple[BoundAt, ...]  # with as many misses as the target allows


@dataclass(frozen=True)
class Reach:
    """What a cohort of this size can reach with any model."""

    cases: int
    positives: int
    search_cases: int
    search_positives: int
    evaluation_cases: int
    evaluation_positives: int
    delta: float
    recall_step: float  # the smallest difference in recall on the search subset
    best_bound: float  # all negatives dismissed, no positives
    bounds: tuple[BoundAt, ...]  # without misses
    targets: tuple[TargetOutlook, ...]


def plan_cases(*, bound: float, dismissal: float, misses: int, delta: float = 0.01) -> Need:
    """Return how many cases a bound needs at an expected dismissal and number of misses."""
    if not 0 <= misses <= LARGEST_COHORT:
        raise InputError(f"misses: expected 0 to {LARGEST_COHORT}, found {misses}")
    check_delta(delta)
    check_fraction("bound", bound)
    share = exact_share(dismissal, "dismissal")
    dismissed = smallest_sample(misses, bound, delta)
    evaluation = math.ceil(dismissed / share)
    searched, whole = SEARCH_SHARE
    return Need(
        bound=bound,
        dismissal=dismissal,
        misses=misses,
        delta=delta,
        dismissed=dismissed,
        evaluation_cases=evaluation,
        cases=math.ceil(Fraction(evaluation * whole, whole - searched)),
    )


def plan_reach(
    *,
    cases: int,
    positives: int,
    targets: tuple[float, ...] = (0.98, 0.95),
    delta: float = 0.01,
    dismissals: tuple[float, ...] = DISMISSALS,
) -> Reach:
    """Return what a cohort can reach: its best bounds and the chance to meet each target."""
    check_targets(targets)
    check_delta(delta)
    if cases > LARGEST_COHORT:
        raise InputError(f"cases: expected at most {LARGEST_COHORT}, found {cases}")
    if not 0 < positives < cases:
        raise InputError(
            f"expected at least one positive and fewer positives than cases, found {positives} of {cases}"
        )
    search_cases, search_positives = search_sizes(cases, positives)
    evaluation_cases, left = cases - search_cases, positives - search_positives
    if not search_positives or not left:
        raise InputError(
            f"{positives} positives leave {search_positives} for search and {left} for evaluation;"
            " each part needs at least one"
        )
    return Reach(
        cases=cases,
        positives=positives,
        search_cases=search_cases,
        search_positives=search_positives,
        evaluation_cases=evaluation_cases,
        evaluation_positives=left,
        delta=delta,
        recall_step=1.0 / search_positives,
        best_bound=clopper_pearson_upper(0, evaluation_cases - left, delta),
        bounds=_bounds(evaluation_cases, 0, delta, dismissals),
        targets=tuple(
            _outlook(target, search_positives, left, evaluation_cases, delta, dismissals)
            for target in targets
        ),
    )


def _outlook(
    target: float,
    search_positives: int,
    positives: int,
    evaluation_cases: int,
    delta: float,
    dismissals: tuple[float, ...],
) -> TargetOutlook:
    allowed = allowed_misses(positives, target)
    rules = []
    for rule in miss_rules():
        found = allowance(rule, search_positives, target, delta)
        chance = chance_target_met(rule, search_positives, positives, target, delta)
        rules.append(RuleOutlook(rule, found.misses, found.needed, chance))
    return TargetOutlook(target, allowed, tuple(rules), _bounds(evaluation_cases, allowed, delta, dismissals))


def _bounds(cases: int, misses: int, delta: float, dismissals: tuple[float, ...]) -> tuple[BoundAt, ...]:
    rows = []
    for dismissal in dismissals:
        dismissed = math.floor(cases * exact_share(dismissal, "dismissal"))
        if dismissed >= misses:
            bound = clopper_pearson_upper(misses, dismissed, delta)
            rows.append(BoundAt(dismissal, dismissed, misses, bound))
    return tuple(rows)
