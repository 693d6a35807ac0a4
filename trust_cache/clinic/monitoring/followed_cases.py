"""Let cases enter the count once their follow-up has passed, in the order of examinations; bound the rate.

The date of a case decides when it enters, never its outcome: cancers that are counted at once and healthy
cases after two years would raise false alarms. A case that has entered without a known outcome counts as
cancer for the confirmation and as healthy for the alarm.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trust_cache.clinic.monitoring.outcomes import CaseKey, Outcome, Period
from trust_cache.statistics.confidence_sequences import MixturePrior, sequence_lower, sequence_upper

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
KnownAnswer = Literal["cancer", "healthy", "unknown"]


@dataclass(frozen=True)
class EnteredCases:
    """The cases whose follow-up has passed, in the order of their examination dates."""

    days: Integers = field(repr=False)  # ordinals of the examination dates
    cancer: NDArray[np.bool_] = field(repr=False)
    unknown: NDArray[np.bool_] = field(repr=False)
    waiting: int  # cases whose follow-up has not passed
    later_cancers: int  # found after the follow-up time: not counted as cancer


def enter_cases(
    examined: Mapping[CaseKey, date],
    outcomes: Mapping[CaseKey, Outcome],
    follow_up: Period,
    as_of: date,
    *,
    read: bool = False,
) -> EnteredCases:
    """Return the cases that have matured on a day; equal dates are ordered by case_id.

    With `read`, an outcome is what a reader found, an answer from its date on.
    """
    entered: list[tuple[int, KnownAnswer]] = []
    waiting = later = 0
    for key, day in sorted(examined.items(), key=lambda item: (item[1], item[0])):
        end = follow_up.after(day)
        if end > as_of:
            waiting += 1
            continue
        outcome = outcomes.get(key)
        answer = reading_of(outcome, as_of) if read else answer_of(outcome, end)
        entered.append((day.toordinal(), answer))
        later += not read and outcome is not None and outcome.cancer is not None and outcome.cancer > end
    answers = [answer for _, answer in entered]
    return EnteredCases(
        days=np.array([day for day, _ in entered], dtype=np.int64),
        cancer=np.array([answer == "cancer" for answer in answers], dtype=np.bool_),
        unknown=np.array([answer == "unknown" for answer in answers], dtype=np.bool_),
        waiting=waiting,
        later_cancers=later,
    )


def answer_of(outcome: Outcome | None, end: date) -> KnownAnswer:
    """Return what is known at the end of a follow-up: a healthy case must have been followed until then."""
    if outcome is None or outcome.followed is None:
        return "unknown"
    if outcome.cancer is not None and outcome.cancer <= end:
        return "cancer"
    return "healthy" if outcome.followed >= end else "unknown"


def reading_of(outcome: Outcome | None, as_of: date) -> KnownAnswer:
    """Return what a reader has found by a day."""
    if outcome is None or outcome.followed is None or min(outcome.cancer or as_of, outcome.followed) > as_of:
        return "unknown"
    return "cancer" if outcome.cancer is not None and outcome.cancer <= as_of else "healthy"


@dataclass(frozen=True)
class WatchedRate:
    """The confidence sequence of a cancer rate after the last case, compared with the certified bound."""

    entered: int
    cancers: int
    unknown: int
    waiting: int
    later_cancers: int
    upper: float  # every unknown outcome a cancer
    lower: float  # every unknown outcome healthy
    upper_if_unknown_alike: float | None  # without the unknown: descriptive
    confirmed: bool | None  # the upper end is at most the certified bound; None: no certificate
    alarm: bool | None  # the lower end has been above the certified bound
    alarm_after: int | None  # the number of entered cases at which it first was
    alarm_day: str | None  # the examination date of that case


@dataclass(frozen=True)
class WatchedPath:
    """The confidence sequence after each entered case."""

    days: Integers = field(repr=False)
    cancers: Integers = field(repr=False)
    unknown: Integers = field(repr=False)
    upper: Floats = field(repr=False)
    lower: Floats = field(repr=False)


def watch(
    cases: EnteredCases, prior: MixturePrior, delta: float, bound: float | None
) -> tuple[WatchedRate, WatchedPath]:
    """Bound the rate after each case; nothing is spent by looking."""
    n = np.arange(1, cases.days.size + 1)
    k, unknown = np.cumsum(cases.cancer), np.cumsum(cases.unknown)
    upper = np.atleast_1d(sequence_upper(k + unknown, n, prior, delta))
    lower = np.atleast_1d(sequence_lower(k, n, prior, delta))
    known, cancers = int(np.count_nonzero(~cases.unknown)), int(np.count_nonzero(cases.cancer))
    alike = float(sequence_upper(cancers, known, prior, delta)) if known else None
    above = np.flatnonzero(lower > bound) if bound is not None else np.empty(0, dtype=np.int64)
    first = int(above[0]) if above.size else None
    last_upper = float(upper[-1]) if n.size else 1.0
    rate = WatchedRate(
        entered=n.size,
        cancers=cancers,
        unknown=n.size - known,
        waiting=cases.waiting,
        later_cancers=cases.later_cancers,
        upper=last_upper,
        lower=float(lower[-1]) if n.size else 0.0,
        upper_if_unknown_alike=alike,
        confirmed=None if bound is None else last_upper <= bound,
        alarm=None if bound is None else first is not None,
        alarm_after=None if first is None else first + 1,
        alarm_day=None if first is None else date.fromordinal(int(cases.days[first])).isoformat(),
    )
    return rate, WatchedPath(cases.days, k.astype(np.int64), unknown.astype(np.int64), upper, lower)


@dataclass(frozen=True)
class RecentCases:
    """Counts of the cases examined last. Descriptive: no confidence is attached to them."""

    since: str
    entered: int
    cancers: int
    unknown: int
    rate: float | None  # among those with a known outcome


def recent_cases(cases: EnteredCases, window: Period) -> RecentCases | None:
    """Count the entered cases of the last window of examinations; None before the first case."""
    if not cases.days.size:
        return None
    since = window.before(date.fromordinal(int(cases.days[-1])))
    chosen = cases.days > since.toordinal()
    cancers, unknown = int(cases.cancer[chosen].sum()), int(cases.unknown[chosen].sum())
    known = int(chosen.sum()) - unknown
    return RecentCases(
        since.isoformat(), int(chosen.sum()), cancers, unknown, cancers / known if known else None
    )
