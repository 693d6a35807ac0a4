"""Certify scores: choose thresholds on the search subset, bound them on the evaluation subset."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from trust_cache.base.versions import versions_of
from trust_cache.certificate.cautions import certification_warnings, limits
from trust_cache.certificate.certification import Certification, CertifySettings
from trust_cache.certificate.certified_folder import draw_or_read_split
from trust_cache.certificate.points import Point, SubgroupPoint, Terms, choose_threshold, evaluate
from trust_cache.certificate.resplits import certify_resplits, summarise
from trust_cache.certificate.score_table import Cohort, Grouping, Scores, as_scores, build_cohort, group_cases
from trust_cache.certificate.split import Split

_LOG = logging.getLogger(__name__)


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

    `scores` is a CSV file, a run folder, or a table with case_id, label and score, one row per image or
    case. `split` is the file of an earlier split; without it a split is drawn from `seed`. `advance` is
    called after each resplit.
    """
    settings = CertifySettings(tuple(map(float, targets)), delta, seed, rule, by, prevalence, resplits)
    table = as_scores(scores)
    cohort = build_cohort(table)
    _LOG.info(
        "%s: %d rows, %d configurations, %d cases, %d of them positive",
        table.source, table.table.height, len(cohort.configurations), cohort.cases, cohort.positives,
    )  # fmt: skip
    parts, warnings = draw_or_read_split(cohort, seed, split)
    _LOG.info("split from %s: %d cases for search", parts.origin, int(parts.search.sum()))
    grouping = None if by is None else group_cases(table, cohort, by)
    groups = 1 if grouping is None else len(grouping.names)
    terms = Terms(rule, delta, len(cohort.configurations) * len(settings.targets) * groups, prevalence)
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
        warnings=(*warnings, *certification_warnings(cohort, settings.targets, grouping, points)),
        limits=limits(table.kind()),
        versions=versions_of("numpy", "scipy", "polars"),
    )


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
                members = split.evaluation & (grouping.group == position)
                point = evaluate(cohort, members, index, threshold, terms)
                subgroups.append(SubgroupPoint(grouping.column, name, point))
    return tuple(points), tuple(subgroups)
