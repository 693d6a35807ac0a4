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
    Cohort,
    Grouping,
    Scores,
    as_scores,
    build_cohort,
    group_cases,
)
from trust_cache.certificate.split import Split
from trust_cache.manifest.cases import PATIENT
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
    by: str | None = None,
    prevalence: float | None = None,
    resplits: int = 0,
    rule: str = "recall",
    limit: float | None = None,
    protocol: Protocol | Path | str = PAPER,
    patient: str = PATIENT,
    band: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> Certification:
    """Find a threshold per configuration and target on the search subset and certify it.

    `scores` is a CSV file, a run folder, or a table with case_id, label and score, one row per image or
    case. `split` is the file of an earlier split; without it a split is drawn from `seed`. `protocol` says
    which cases may be dismissed at all. `advance` is called after each resplit.
    """
    settings = CertifySettings(
        targets=tuple(map(float, targets)), delta=delta, seed=seed, rule=rule, by=by, prevalence=prevalence,
        resplits=resplits, limit=limit, protocol=find_protocol(protocol), patient=patient, band=band,
    )  # fmt: skip
    table = as_scores(scores, patient)
    cohort = build_cohort(table, settings.protocol)
    _LOG.info(
        "%s: %d rows, %d configurations, %d cases, %d of them positive",
        table.source, table.table.height, len(cohort.configurations), cohort.cases, cohort.positives,
    )  # fmt: skip
    parts, warnings = draw_or_read_split(cohort, seed, split)
    _LOG.info("split from %s: %d cases for search", parts.origin, int(parts.search.sum()))
    warnings = [*warnings, *protocol_warnings(table, settings.protocol)]
    grouping = None if by is None else group_cases(table, cohort, by)
    composition = _composition(cohort, settings.targets, grouping)
    terms = Terms(rule, delta, composition.points, prevalence, limit)
    points, subgroups = _points(cohort, parts, grouping, terms, composition)
    if resplits:
        _LOG.info("certifying %d resplits", resplits)
    splits = certify_resplits(cohort, settings.targets, terms, seed=seed, resplits=resplits, advance=advance)
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
        bands=draw_bands(cohort, parts, delta) if band else (),
        warnings=(*warnings, *certification_warnings(cohort, settings.targets, grouping, points)),
        limits=limits(table.kind(), patients=cohort.repeated_patients),
        versions=versions_of("numpy", "scipy", "polars"),
    )


def _composition(cohort: Cohort, targets: tuple[float, ...], grouping: Grouping | None) -> Composition:
    groups = {} if grouping is None else {grouping.column: grouping.names}
    return Composition(configurations=cohort.configurations, targets=targets, groups=groups)


def _points(
    cohort: Cohort, split: Split, grouping: Grouping | None, terms: Terms, composition: Composition
) -> tuple[tuple[Point, ...], tuple[SubgroupPoint, ...]]:
    """Return the overall points, and those of the groups: asking for these does not change the former."""
    points, subgroups = [], []
    of_groups = replace(terms, compared=composition.points_with_groups)
    for index in range(len(cohort.configurations)):
        for target in composition.targets:
            threshold = choose_threshold(cohort, split, index, target, terms)
            points.append(evaluate(cohort, split, index, threshold, terms))
            if grouping is None:
                continue
            shared = replace(of_groups, limit=points[-1].limit)
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
