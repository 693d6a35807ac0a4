"""Planning: the cases that a wanted bound needs, and what a given cohort can reach."""

import math
from dataclasses import dataclass
from fractions import Fraction

from trust_cache.base.errors import InputError
from trust_cache.certificate.settings import check_delta, check_targets
from trust_cache.statistics.bounds import clopper_pearson_upper
from trust_cache.statistics.planning import chance_target_met, dismissed_needed
from trust_cache.statistics.rules import allowance
from trust_cache.statistics.splits import SEARCH_SHARE, search_sizes
from trust_cache.statistics.thresholds import allowed_misses, exact_share

LARGEST_COHORT = 10**12
DISMISSALS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)


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
    """The bound if a share of the evaluation cases is dismissed with so many misses."""

    dismissal: float
    dismissed: int
    misses: int
    bound: float


@dataclass(frozen=True)
class TargetOutlook:
    """What the cohort can say about one recall target."""

    target: float
    search_misses: int
    allowed: int  # misses on evaluation that still meet the target
    chance_met: float | None
    crc_needs: int | None  # search positives; None: no number suffices
    ltt_needs: int | None
    crc_feasible: bool
    ltt_feasible: bool
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
    recall_step: float  # the finest difference of recall that the search subset can see
    best_bound: float  # every negative dismissed, no positive
    bounds: tuple[BoundAt, ...]  # without a miss
    targets: tuple[TargetOutlook, ...]


def plan_cases(*, bound: float, dismissal: float, misses: int, delta: float = 0.01) -> Need:
    """Return how many cases a bound needs at an expected dismissal and number of misses."""
    if not 0 <= misses <= LARGEST_COHORT:
        raise InputError(f"misses: expected 0 to {LARGEST_COHORT}, found {misses}")
    check_delta(delta)
    if not 0.0 < bound < 1.0:
        raise InputError(f"bound: expected a fraction strictly between 0 and 1, found {bound}")
    share = exact_share(dismissal, "dismissal")
    dismissed = dismissed_needed(bound, misses, delta)
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
    """Return what a cohort can reach: its best bounds and how often each target will be met."""
    check_targets(targets)
    check_delta(delta)
    if cases > LARGEST_COHORT:
        raise InputError(f"cases: expected at most {LARGEST_COHORT}, found {cases}")
    if not 0 < positives < cases:
        raise InputError(
            f"expected fewer positives than cases and at least one, found {positives} of {cases}"
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
    crc = allowance("crc", search_positives, target, delta)
    ltt = allowance("ltt", search_positives, target, delta)
    return TargetOutlook(
        target=target,
        search_misses=allowed_misses(search_positives, target),
        allowed=allowed,
        chance_met=chance_target_met("recall", search_positives, positives, target, delta),
        crc_needs=crc.needed,
        ltt_needs=ltt.needed,
        crc_feasible=crc.misses is not None,
        ltt_feasible=ltt.misses is not None,
        bounds=_bounds(evaluation_cases, allowed, delta, dismissals),
    )


def _bounds(cases: int, misses: int, delta: float, dismissals: tuple[float, ...]) -> tuple[BoundAt, ...]:
    rows = []
    for dismissal in dismissals:
        dismissed = math.floor(cases * exact_share(dismissal, "dismissal"))
        if dismissed >= misses:
            bound = clopper_pearson_upper(misses, dismissed, delta)
            rows.append(BoundAt(dismissal, dismissed, misses, bound))
    return tuple(rows)
