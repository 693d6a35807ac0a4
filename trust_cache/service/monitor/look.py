"""One look: what the outcomes known so far say about the cancer rate among dismissed examinations."""

from dataclasses import dataclass
from typing import Literal

from trust_cache.service.monitor.outcomes import FollowUp
from trust_cache.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper
from trust_cache.statistics.looks import spent_delta

Status = Literal["confirmed", "contradicted", "open", "uncertified"]


@dataclass(frozen=True)
class Look:
    """The bounds of one look; all looks together keep their promise with confidence 1 - delta."""

    number: int
    delta: float  # over all looks
    delta_spent: float  # by this one
    bound_complete: float  # upper bound among dismissed cases with an outcome
    bound_worst: float  # upper bound if every dismissed case without an outcome had cancer
    rate_lower: float  # lower bound if none of those had
    certified_bound: float | None
    holds_complete: bool | None  # bound_complete is at most what the certificate says
    status: Status


def take_look(counts: FollowUp, certified_bound: float | None, delta: float, number: int) -> Look:
    """Bound the cancer rate among the dismissed at this look's share of delta.

    The certificate is confirmed where even the worst case stays below its bound, contradicted where even the
    best case lies above. Only one of the two can be an error, whatever the true rate: the chance of an error
    in any look is at most delta.
    """
    spent = spent_delta(delta, number)
    positives, unknown = counts.dismissed_positives, counts.dismissed_unknown
    complete = float(clopper_pearson_upper(positives, counts.dismissed_followed, spent))
    worst = float(clopper_pearson_upper(positives + unknown, counts.dismissed, spent))
    lower = float(clopper_pearson_lower(positives, counts.dismissed, spent))
    return Look(
        number=number,
        delta=delta,
        delta_spent=spent,
        bound_complete=complete,
        bound_worst=worst,
        rate_lower=lower,
        certified_bound=certified_bound,
        holds_complete=None if certified_bound is None else complete <= certified_bound,
        status=_status(worst, lower, certified_bound),
    )


def _status(worst: float, lower: float, certified_bound: float | None) -> Status:
    if certified_bound is None:
        return "uncertified"
    if worst <= certified_bound:
        return "confirmed"
    return "contradicted" if lower > certified_bound else "open"
