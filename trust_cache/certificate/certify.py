"""Certification: scores and settings in, all points with their bounds out."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from trust_cache.base.versions import versions_of
from trust_cache.certificate.cautions import (
    group_warnings,
    limits,
    outcome_warnings,
    resolution_warnings,
    score_warnings,
)
from trust_cache.certificate.cohort import Cohort, build_cohort
from trust_cache.certificate.points import (
    Point,
    SubgroupPoint,
    Terms,
    choose_threshold,
    evaluate,
)
from trust_cache.certificate.resplits import Resplit, Spread, certify_resplits, summarise
from trust_cache.certificate.scores import Scores, check_scores, read_scores
from trust_cache.certificate.settings import CertifySettings
from trust_cache.certificate.split import Split, draw_split, read_split
from trust_cache.certificate.subgroups import Grouping, group_cases

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Certification:
    """All that a certification found, before any of it is written."""

    settings: CertifySettings
    scores: Scores
    split: Split
    points: tuple[Point, ...]
    subgroups: tuple[SubgroupPoint, ...]
    resplits: tuple[Resplit, ...]
    spreads: tuple[Spread, ...]
    warnings: tuple[str, ...]
    limits: tuple[str, ...]
    versions: dict[str, str]


def certify(
    scores: Scores | pl.DataFrame | Path | str,
    *,
    targets: Sequence[float] = (0.98, 0.95),
    delta: float = 0.01,
    seed: int = 0,
    split: Path | str | None = None,
    by: str | None = None,
    prevalence: float | None = None,
    resplits: int = 0,
    rule: str = "recall",
    advance: Callable[[], None] = lambda: None,
) -> Certification:
    """Find a threshold per configuration and target on the search subset and certify it.

    `scores`: a CSV file, a run folder, or a table with case_id, label, score, one row per image or
    case. `split`: the file of an earlier split; otherwise one is drawn from `seed`. `advance` is called
    after each resplit.
    """
    settings = CertifySettings(
        tuple(float(target) for target in targets), delta, seed, rule, by, prevalence, resplits
    )
    table = _scores(scores)
    cohort = build_cohort(table)
    _LOG.info(
        "%s: %d rows, %d configurations, %d cases, %d of them positive",
        table.source, table.table.height, len(cohort.configurations), cohort.cases, cohort.positives,
    )  # fmt: skip
    parts, warnings = (draw_split(cohort, seed), []) if split is None else read_split(Path(split), cohort)
    _LOG.info("split by %s: %d cases for search", parts.chosen_by, int(parts.search.sum()))
    grouping = None if by is None else group_cases(table, cohort, by)
    groups = 1 if grouping is None else len(grouping.names)
    terms = Terms(
        rule=rule,
        delta=delta,
        compared=len(cohort.configurations) * len(settings.targets) * groups,
        assumed_prevalence=prevalence,
    )
    points, subgroups = _points(cohort, parts, grouping, settings, terms)
    if resplits:
        _LOG.info("certifying %d resplits", resplits)
    splits = certify_resplits(cohort, settings.targets, terms, seed=seed, resplits=resplits, advance=advance)
    return Certification(
        settings=settings,
        scores=table,
        split=parts,
        points=points,
        subgroups=subgroups,
        resplits=splits,
        spreads=summarise(splits, terms),
        warnings=(
            *warnings,
            *score_warnings(cohort),
            *resolution_warnings(settings.targets, points[0].search_positives),
            *([] if grouping is None else group_warnings(grouping)),
            *outcome_warnings(points),
        ),
        limits=limits(table.kind()),
        versions=versions_of("numpy", "scipy", "polars"),
    )


def _scores(scores: Scores | pl.DataFrame | Path | str) -> Scores:
    if isinstance(scores, Scores):
        return scores
    if isinstance(scores, pl.DataFrame):
        return check_scores(scores)
    return read_scores(Path(scores))


def _points(
    cohort: Cohort,
    split: Split,
    grouping: Grouping | None,
    settings: CertifySettings,
    terms: Terms,
) -> tuple[tuple[Point, ...], tuple[SubgroupPoint, ...]]:
    points, subgroups = [], []
    for index in range(len(cohort.configurations)):
        for target in settings.targets:
            threshold = choose_threshold(cohort, split, index, target, terms)
            points.append(evaluate(cohort, split.evaluation, index, threshold, terms))
            if grouping is None:
                continue
            for position, name in enumerate(grouping.names):
                members = split.evaluation & grouping.members(position)
                point = evaluate(cohort, members, index, threshold, terms)
                subgroups.append(SubgroupPoint(grouping.column, name, point))
    return tuple(points), tuple(subgroups)
