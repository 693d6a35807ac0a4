"""Certify scores: choose thresholds on the search subset, bound them on the evaluation subset."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from trust_cache.base.versions import versions_of
from trust_cache.certificate.cautions import certification_warnings, limits, protocol_warnings
from trust_cache.certificate.certification import Certification, CertifySettings, Composition
from trust_cache.certificate.certified_folder import draw_or_read_split
from trust_cache.certificate.points import Point, SubgroupPoint, Terms, choose_threshold, evaluate
from trust_cache.certificate.resplits import certify_resplits, summarise
from trust_cache.certificate.score_table import (
    COLUMNS,
    Cohort,
    Scores,
    as_scores,
    build_cohort,
    group_cases,
)
from trust_cache.certificate.split import Split
from trust_cache.manifest.case_groups import Grouping
from trust_cache.manifest.protocol import PAPER, Protocol, find_protocol
from trust_cache.statistics.bands import Band, simultaneous_band

_LOG = logging.getLogger(__name__)


def certify(
    scores: Scores | pl.DataFrame | Path | str,
    *,
    targets: Sequence[float] = (0.98, 0.95),
    delta: float = 0.01,
    seed: int = 0,
    split: Path | str | None = None,
    by: str | Sequence[str] | None = None,
    prevalence: float | None = None,
    resplits: int = 0,
    rule: str = "recall",
    limit: float | None = None,
    protocol: Protocol | Path | str = PAPER,
    case: str = COLUMNS.case,
    label: str = COLUMNS.label,
    score: str = COLUMNS.score,
    patient: str = COLUMNS.patient,
    positive: str | None = None,
    band: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> Certification:
    """Find a threshold per configuration and target on the search subset and certify it.

    `scores` is a file (CSV, Parquet, Excel), a run folder, or a table with case_id, label and score, one row
    per image or case. `case`, `label`, `score` and `patient` are other names of these columns, `positive` the
    label of cancer where labels are not 0 and 1. `by` are columns to group by; `age=50,60,70` divides numbers
    into bands. `split` is the file of an earlier split; without it a split is drawn from `seed`. `protocol`
    says which cases may be dismissed at all. `advance` is called after each resplit.
    """
    settings = CertifySettings(
        targets=tuple(map(float, targets)), delta=delta, seed=seed, rule=rule, prevalence=prevalence,
        by=(by,) if isinstance(by, str) else tuple(by or ()), resplits=resplits, limit=limit,
        protocol=find_protocol(protocol), case=case, label=label, score=score, patient=patient,
        positive=positive, band=band,
    )  # fmt: skip
    return certify_table(as_scores(scores, settings.columns), settings, split, advance)


def certify_table(
    table: Scores, settings: CertifySettings, split: Path | str | None, advance: Callable[[], None]
) -> Certification:
    """Certify scores that were read; see `certify`."""
    cohort = build_cohort(table, settings.protocol)
    _LOG.info(
        "%s: %d rows, %d configurations, %d cases, %d of them positive",
        table.source, table.table.height, len(cohort.configurations), cohort.cases, cohort.positives,
    )  # fmt: skip
    parts, warnings = draw_or_read_split(cohort, settings.seed, split)
    _LOG.info("split from %s: %d cases for search", parts.origin, int(parts.search.sum()))
    warnings = [*table.warnings, *warnings, *protocol_warnings(table, settings.protocol)]
    groupings = tuple(group_cases(table, cohort, column) for column in settings.by)
    composition = _composition(cohort, settings.targets, groupings)
    terms = Terms(settings.rule, settings.delta, composition.points, settings.prevalence, settings.limit)
    points, subgroups = _points(cohort, parts, groupings, terms, composition)
    if settings.resplits:
        _LOG.info("certifying %d resplits", settings.resplits)
    splits = certify_resplits(
        cohort, settings.targets, terms, seed=settings.seed, resplits=settings.resplits, advance=advance
    )
    return Certification(
        settings=settings,
        scores=table,
        cohort=cohort,
        split=parts,
        composition=composition,
        points=points,
        subgroups=subgroups,
        resplits=splits,
        spreads=summarise(splits, terms),
        bands=draw_bands(cohort, parts, settings.delta) if settings.band else (),
        warnings=(*warnings, *certification_warnings(cohort, settings.targets, groupings, points)),
        limits=limits(table.kind(), patients=cohort.repeated_patients, rule=settings.rule),
        versions=versions_of("numpy", "scipy", "polars"),
    )


def _composition(cohort: Cohort, targets: tuple[float, ...], groupings: tuple[Grouping, ...]) -> Composition:
    groups = {grouping.column: grouping.names for grouping in groupings}
    return Composition(configurations=cohort.configurations, targets=targets, groups=groups)


def _points(
    cohort: Cohort,
    split: Split,
    groupings: tuple[Grouping, ...],
    terms: Terms,
    composition: Composition,
) -> tuple[tuple[Point, ...], tuple[SubgroupPoint, ...]]:
    """Return the overall points, and those of the groups: asking for these does not change the former."""
    points, subgroups = [], []
    of_groups = replace(terms, compared=composition.points_with_groups)
    for index in range(len(cohort.configurations)):
        for target in composition.targets:
            threshold = choose_threshold(cohort, split, index, target, terms)
            points.append(evaluate(cohort, split, index, threshold, terms))
            shared = replace(of_groups, limit=points[-1].limit)
            for grouping in groupings:
                for position, name in enumerate(grouping.names):
                    point = evaluate(cohort, split, index, threshold, shared, grouping.group == position)
                    subgroups.append(SubgroupPoint(grouping.column, name, point))
    return tuple(points), tuple(subgroups)


def draw_bands(cohort: Cohort, split: Split, delta: float) -> tuple[Band, ...]:
    """Return each configuration's bounds at all thresholds at once; the configurations share delta."""
    found = []
    for index, scores in enumerate(cohort.scores):
        members = split.evaluation & split.drawn & cohort.complete(index)
        shared = delta / len(cohort.configurations)
        found.append(simultaneous_band(scores[members], cohort.labels[members], shared))
    return tuple(found)
