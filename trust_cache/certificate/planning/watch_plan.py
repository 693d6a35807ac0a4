"""Plan with a chance attached: how likely a certificate is, and how soon monitoring answers."""

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError, check_fraction
from trust_cache.certificate.certification import check_delta
from trust_cache.statistics.assurance import (
    LARGEST_WATCHED,
    assurance,
    cases_until,
    crossing_chances,
    dismissed_for_assurance,
    sequence_boundaries,
)
from trust_cache.statistics.bounds import smallest_sample
from trust_cache.statistics.confidence_sequences import prior_of
from trust_cache.statistics.stratified_draws import SEARCH_SHARE
from trust_cache.statistics.thresholds import exact_share

CONFIRMING = (0.25, 0.5)  # true rates at which a confirmation is planned, as shares of the bound
ALARMING = (1.0, 1.5, 2.0, 3.0)  # and an alarm; the first is the false one
CHANCES = (0.5, 0.9)
_HORIZON = 160.0  # cancers at the bound; most questions are answered by then
_LONGEST = 200_000  # cases followed in a plan
_CURVE_POINTS = 200


@dataclass(frozen=True)
class AssurancePlan:
    """How likely the bound of a study is at most the limit, if the true rate and the dismissal are these."""

    rate: float
    limit: float
    dismissal: float
    delta: float
    wanted: float | None
    dismissed: int
    evaluation_cases: int
    cases: int  # with the search subset
    assurance: float
    curve: tuple[tuple[int, float], ...] = field(repr=False)  # cases and assurance


def plan_assurance(
    *,
    rate: float,
    limit: float,
    dismissal: float,
    cases: int | None = None,
    wanted: float | None = None,
    delta: float = 0.01,
) -> AssurancePlan:
    """Return the assurance of a number of cases, or the number of cases for a wanted assurance.

    The assurance is the chance that the bound is at most the limit. It takes the number of dismissed cases as
    given, not as random.
    """
    check_delta(delta)
    check_fraction("limit", limit)
    share = exact_share(dismissal, "dismissal")
    if (cases is None) == (wanted is None):
        raise InputError("plan: expected either a number of cases or a wanted assurance")
    searched, whole = SEARCH_SHARE
    if wanted is not None:
        dismissed = dismissed_for_assurance(rate, limit, wanted, delta)
        evaluation = math.ceil(dismissed / share)
        cases = math.ceil(Fraction(evaluation * whole, whole - searched))
    else:
        if cases is None or cases < 1:
            raise InputError(f"cases: expected 1 or more, found {cases}")
        evaluation = cases - math.ceil(Fraction(cases * searched, whole))
        dismissed = math.floor(evaluation * share)
    points = sorted({round(cases * part) for part in np.linspace(0.05, 2.0, _CURVE_POINTS)} - {0})
    sizes = [math.floor((point - math.ceil(Fraction(point * searched, whole))) * share) for point in points]
    curve = tuple((p, assurance(n, rate, limit, delta)) for p, n in zip(points, sizes, strict=True))
    return AssurancePlan(
        rate, limit, dismissal, delta, wanted, dismissed, evaluation, cases,
        assurance(dismissed, rate, limit, delta), curve,
    )  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """When a confidence sequence answers at a true rate; None: not within the cases of the plan."""

    rate: float
    of_bound: float  # the rate as a multiple of the bound
    chance: float  # of the answer within the cases of the plan
    cases: tuple[int | None, ...]  # followed cases for each of CHANCES
    dismissed: tuple[int | None, ...]  # cases to dismiss for them: more, if only a share is audited
    curve: tuple[tuple[int, float], ...] = field(repr=False)


@dataclass(frozen=True)
class WatchPlan:
    """How soon monitoring confirms a certificate or raises its alarm."""

    bound: float
    misses: int
    certified_dismissed: int  # of the smallest certificate with this bound and these misses
    delta: float
    audit: float | None  # the share of dismissed cases that is read; None: all are followed
    horizon: int  # followed cases
    confirmations: tuple[Answer, ...]
    alarms: tuple[Answer, ...]


def plan_watch(
    *,
    bound: float,
    misses: int = 0,
    audit: float | None = None,
    delta: float = 0.01,
    rate: float | None = None,
) -> WatchPlan:
    """Return when cases that are followed, or an audited share of them, confirm a bound or raise its alarm.

    The prior is that of the smallest certificate with this bound and number of misses. With `rate`, the
    confirmation is planned for this true rate besides a quarter and a half of the bound.
    """
    check_delta(delta)
    check_fraction("bound", bound)
    share = Fraction(1) if audit is None else exact_share(audit, "audit")
    certified = smallest_sample(misses, bound, delta)
    prior = prior_of(misses, certified)
    horizon = int(min(_LONGEST, LARGEST_WATCHED, max(_HORIZON / bound, 1000)))
    decides = sequence_boundaries(horizon, bound, prior, delta)
    rates = [part * bound for part in CONFIRMING] + ([rate] if rate is not None else [])

    def answer(true: float, boundary: NDArray[np.int64], *, confirms: bool) -> Answer:
        chances = crossing_chances(true, boundary, confirms=confirms)
        needed = tuple(cases_until(chances, chance) for chance in CHANCES)
        places = np.unique(np.linspace(0, horizon, _CURVE_POINTS).astype(np.int64))
        return Answer(
            rate=true,
            of_bound=true / bound,
            chance=float(chances[-1]),
            cases=needed,
            dismissed=tuple(None if n is None else math.ceil(n / share) for n in needed),
            curve=tuple((int(place), float(chances[place])) for place in places),
        )

    return WatchPlan(
        bound=bound,
        misses=misses,
        certified_dismissed=certified,
        delta=delta,
        audit=audit,
        horizon=horizon,
        confirmations=tuple(answer(true, decides.confirms, confirms=True) for true in sorted(set(rates))),
        alarms=tuple(answer(part * bound, decides.alarms, confirms=False) for part in ALARMING),
    )
