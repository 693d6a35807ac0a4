"""Repeat a certification over R random splits and report the spread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trust_cache.base.documents import Document
from trust_cache.certificate.points import Point, Terms, choose_threshold, count, describe
from trust_cache.certificate.score_table import Cohort
from trust_cache.certificate.split import draw_split
from trust_cache.statistics.rules import chance_target_met, find_rule

QUANTILES = {"q05": 0.05, "q50": 0.5, "q95": 0.95}


@dataclass(frozen=True)
class Resplit:
    """One point of one further split (without AUROC and image level)."""

    resplit: int
    point: Point


class Spread(Document, frozen=True, kw_only=True):
    """The results of a configuration at a target over all splits, met or not."""

    configuration: str | None
    target: float
    resplits: int
    met: int
    met_share: float
    met_share_expected: float | None  # by the Beta-binomial law; None: the rule is infeasible
    dismissal: dict[str, float]
    bound: dict[str, float]


def certify_resplits(
    cohort: Cohort,
    targets: Sequence[float],
    terms: Terms,
    *,
    seed: int,
    resplits: int,
    advance: Callable[[], None],
) -> tuple[Resplit, ...]:
    """Certify every configuration and target on `resplits` further splits of the same cases."""
    points = []
    for number in range(resplits):
        split = draw_split(cohort, seed, resplit=number)
        for index in range(len(cohort.configurations)):
            for target in targets:
                threshold = choose_threshold(cohort, split, index, target, terms)
                counts = count(cohort, index, split.evaluation, threshold.tau)
                drawn = count(cohort, index, split.evaluation & split.drawn, threshold.tau)
                points.append(Resplit(number, describe(counts, drawn, threshold, terms)))
        advance()
    return tuple(points)


def summarise(resplits: Sequence[Resplit], terms: Terms) -> tuple[Spread, ...]:
    """Summarise the splits by configuration and target, in order of appearance."""
    groups: dict[tuple[str | None, float], list[Point]] = {}
    for item in resplits:
        groups.setdefault((item.point.configuration, item.point.target), []).append(item.point)
    return tuple(_spread(points, terms) for points in groups.values())


def _spread(points: list[Point], terms: Terms) -> Spread:
    first = points[0]
    met = sum(point.met is True for point in points)
    return Spread(
        configuration=first.configuration,
        target=first.target,
        resplits=len(points),
        met=met,
        met_share=met / len(points),
        met_share_expected=_expected(first, terms),
        dismissal=_quantiles([point.dismissed / point.cases for point in points]),
        bound=_quantiles([point.bound for point in points]),
    )


def _expected(point: Point, terms: Terms) -> float | None:
    """Return the chance that a split meets the target; None where it is not known or the rule infeasible."""
    search = point.search_positives - point.search_incomplete_positives
    evaluation = point.positives - point.incomplete_positives
    # With several cases of a patient, a rule with a promise searches fewer cases, and recall counts all.
    if not search or not evaluation or (point.set_aside and find_rule(terms.rule).promises):
        return None
    return chance_target_met(terms.rule, search, evaluation, point.target, terms.delta / terms.compared)


def _quantiles(values: list[float]) -> dict[str, float]:
    shares = np.quantile(values, list(QUANTILES.values()))
    return dict(zip(QUANTILES, shares.tolist(), strict=True))
