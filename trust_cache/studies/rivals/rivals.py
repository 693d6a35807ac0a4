"""Study rivals: apply every threshold rule to every score model, from a cache or from scores."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from trust_cache.base.errors import check_least
from trust_cache.base.versions import versions_of
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.feature_rows import open_rows
from trust_cache.certificate.cautions import (
    incomplete_warnings,
    limit_warnings,
    limits,
    protocol_warnings,
    score_warnings,
    stopped_warnings,
)
from trust_cache.certificate.certified_folder import draw_or_read_split
from trust_cache.certificate.score_table import (
    COLUMNS,
    Cohort,
    ScoreColumns,
    Scores,
    as_scores,
    build_cohort,
    check_scores,
    with_manifest,
)
from trust_cache.certificate.split import Split
from trust_cache.heads.fold_training import gated_manifest
from trust_cache.heads.head_settings import TrainingSettings, presets
from trust_cache.heads.training_data import FitSettings, prepare
from trust_cache.studies.rivals.rival_models import LinearSettings
from trust_cache.studies.rivals.rival_rules import PAPER_HEADS, RivalOutcome, RivalSettings, find_outcomes
from trust_cache.studies.rivals.rival_training import train_models

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class RivalsStudy:
    """Everything that a study of rivals found, before it is written."""

    settings: RivalSettings
    scores: Scores
    cohort: Cohort
    split: Split
    folds: pl.DataFrame | None  # None: the scores were given
    outcomes: tuple[RivalOutcome, ...]
    training: dict[str, Any] | None  # what the scores depend on
    warnings: tuple[str, ...]
    limits: tuple[str, ...]
    versions: dict[str, str]


def study_cache(
    cache: Cache | Path | str,
    settings: RivalSettings | None = None,
    *,
    split: Path | str | None = None,
    folds: Path | str | None = None,
    threads: int | None = None,
    low_memory: bool = False,
    linear: LinearSettings | None = None,
    advance: Callable[[], None] = lambda: None,
) -> RivalsStudy:
    """Train every score model over the same five folds, then apply every rule on the same split.

    `folds` is the folds.csv of an earlier run, `split` an earlier search/evaluation split. `advance` is
    called `settings.steps` times.
    """
    settings, linear = settings or RivalSettings(), linear or LinearSettings()
    threads = (os.cpu_count() or 1) if threads is None else threads
    check_least("threads", threads, 1)
    heads = {name: presets()[name] for name in PAPER_HEADS if name in settings.models}
    opened = cache if isinstance(cache, Cache) else open_cache(cache)
    fit = FitSettings(heads, TrainingSettings(epochs=settings.epochs), settings.seed)
    work = prepare(opened, fit, None if folds is None else Path(folds))
    rows = open_rows(opened, threads, low_memory=low_memory)
    found = train_models(work, rows, settings, linear, threads, advance)
    table = found.table(opened.manifest)
    if settings.protocol.examines_pictures:
        gated = settings.protocol.feature_tail > 0
        table = with_manifest(table, gated_manifest(work, rows) if gated else opened.manifest)
    scores = check_scores(table, str(opened.source))
    record = {
        **work.identity.as_document(),
        "cache": str(opened.source),
        "linear": asdict(linear),
        "ridge": found.strengths,
    }
    return _judge(
        scores, settings, split, folds=work.folds[0].table, training=record,
        warnings=(*work.warnings, *found.warnings),
    )  # fmt: skip


def study_scores(
    scores: Scores | pl.DataFrame | Path | str,
    settings: RivalSettings | None = None,
    *,
    split: Path | str | None = None,
    columns: ScoreColumns = COLUMNS,
) -> RivalsStudy:
    """Apply every rule to given scores, without training: a run folder, a file of scores or a table."""
    return _judge(as_scores(scores, columns), settings or RivalSettings(), split)


def _judge(
    scores: Scores,
    settings: RivalSettings,
    split: Path | str | None,
    *,
    folds: pl.DataFrame | None = None,
    training: dict[str, Any] | None = None,
    warnings: Sequence[str] = (),
) -> RivalsStudy:
    cohort = build_cohort(scores, settings.protocol)
    parts, doubts = draw_or_read_split(cohort, settings.seed, split)
    _LOG.info(
        "%d score models, %d rules, %d search cases", len(cohort.scores), len(settings.rules),
        int(parts.search.sum()),
    )  # fmt: skip
    outcomes = find_outcomes(cohort, parts, settings)
    return RivalsStudy(
        settings=settings,
        scores=scores,
        cohort=cohort,
        split=parts,
        folds=folds,
        outcomes=outcomes,
        training=training,
        warnings=(
            *scores.warnings,
            *warnings,
            *doubts,
            *protocol_warnings(scores, settings.protocol),
            *score_warnings(cohort),
            *incomplete_warnings(cohort),
            *stopped_warnings(cohort),
            *limit_warnings([outcomes[0].point]),
        ),
        limits=limits(scores.kind(), patients=cohort.repeated_patients),
        versions=versions_of("numpy", "scipy", "scikit-learn", "polars"),
    )
