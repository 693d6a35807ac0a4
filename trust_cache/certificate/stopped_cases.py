"""What the checks of a protocol cost: the cases that each stops, and the dismissal that is lost by it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trust_cache.certificate.points import Point
from trust_cache.certificate.score_table import Cohort
from trust_cache.certificate.split import Split
from trust_cache.manifest.cases import aggregate
from trust_cache.manifest.picture_checks import check_of

OTHER = "no score, projections"  # incomplete without a finding about an image


@dataclass(frozen=True)
class StoppedCases:
    """The cases that a check stops in one configuration."""

    check: str
    cases: tuple[int, ...]  # their positions
    alone: tuple[int, ...]  # stopped by this check only


def stopped_cases(cohort: Cohort, index: int = 0) -> tuple[StoppedCases, ...]:
    """Return what each check stops, the most frequent first."""
    every: dict[str, list[int]] = {}
    alone: dict[str, list[int]] = {}
    for case, texts in sorted(cohort.problems[index].items()) if cohort.problems else ():
        checks = {_check_in(text) or OTHER for text in texts}
        for check in sorted(checks):
            every.setdefault(check, []).append(case)
        if len(checks) == 1:
            alone.setdefault(next(iter(checks)), []).append(case)
    ordered = sorted(every, key=lambda check: (-len(every[check]), check))
    return tuple(StoppedCases(name, tuple(every[name]), tuple(alone.get(name, ()))) for name in ordered)


def _check_in(problem: str) -> str | None:
    """Return the check that a problem of a case comes from: `image NAME: CHECK: ...`."""
    parts = problem.split(": ")
    return next((name for name in parts[1:] if check_of(f"{name}:") == name), None)


def lost_dismissal(
    cohort: Cohort, split: Split, stopped: StoppedCases, points: Sequence[Point], index: int = 0
) -> list[float | None]:
    """Return the share of evaluation cases, for each point, that would be dismissed without the check.

    None where there is no threshold, or where a case has one row, whose score an incomplete case loses.
    """
    images = cohort.images[index]
    if images is None:
        return [None] * len(points)
    scores = aggregate(images.scores, images.case, cohort.aggregation(index), images.breasts)
    members = [case for case in stopped.alone if split.evaluation[case]]
    evaluated = int(np.count_nonzero(split.evaluation))
    return [
        None if point.tau is None else float(np.count_nonzero(scores[members] < point.tau)) / evaluated
        for point in points
    ]
