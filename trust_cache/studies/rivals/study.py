"""A study of rivals: from a cache, or from scores, to every rule's outcome on every score model."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.base.versions import versions_of
from trust_cache.cache.loading import load_rows, map_rows
from trust_cache.cache.reading import Cache, open_cache
from trust_cache.certificate.cautions import limits, score_warnings
from trust_cache.certificate.cohort import build_cohort
from trust_cache.certificate.scores import Scores, check_scores, read_scores
from trust_cache.certificate.split import Split, draw_split, read_split
from trust_cache.heads.preparation import FitSettings, prepare
from trust_cache.heads.settings import TrainingSettings, presets
from trust_cache.studies.rivals.models import LinearSettings
from trust_cache.studies.rivals.outcomes import Outcome, find_outcomes
from trust_cache.studies.rivals.settings import PAPER_HEADS, RivalSettings
from trust_cache.studies.rivals.training import train_models

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Study:
    """All that a study of rivals found, before any of it is written."""

    settings: RivalSettings
    scores: Scores
    split: Split
    folds: pl.DataFrame | None  # None: the scores were given
    outcomes: tuple[Outcome, ...]
    training: dict[str, Any] | None  # what makes the scores these scores
    warnings: tuple[str, ...]
    limits: tuple[str, ...]
    versions: dict[str, str]


def study_cache(
    cache: Cache | Path | str,
    settings: RivalSettings | None = None,
    *,
    split: Path | str | None = None,
    splits: Path | str | None = None,
    threads: int | None = None,
    low_memory: bool = False,
    linear: LinearSettings | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Study:
    """Train every score model over the same five folds, then hold every rule to the same split.

    `splits` are folds of an earlier run, `split` an earlier search/evaluation split. `advance` is called
    `settings.steps` times.
    """
    settings, linear = settings or RivalSettings(), linear or LinearSettings()
    threads = (os.cpu_count() or 1) if threads is None else threads
    if threads < 1:
        raise InputError(f"threads: expected 1 or more, found {threads}")
    heads = {name: presets()[name] for name in PAPER_HEADS if name in settings.models}
    opened = cache if isinstance(cache, Cache) else open_cache(cache)
    fit = FitSettings(heads, TrainingSettings(epochs=settings.epochs), settings.seed)
    work = prepare(opened, fit, None if splits is None else Path(splits))
    rows = (map_rows if low_memory else load_rows)(opened, threads=threads)
    found = train_models(work, rows, settings, linear, threads, advance)
    scores = check_scores(found.table(opened.manifest), str(opened.source))
    record = {
        **work.identity,
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
) -> Study:
    """Hold every rule to given scores, without training: a run folder, a scores.csv or a table."""
    if isinstance(scores, pl.DataFrame):
        scores = check_scores(scores)
    elif not isinstance(scores, Scores):
        scores = read_scores(Path(scores))
    return _judge(scores, settings or RivalSettings(), split)


def _judge(
    scores: Scores,
    settings: RivalSettings,
    split: Path | str | None,
    *,
    folds: pl.DataFrame | None = None,
    training: dict[str, Any] | None = None,
    warnings: Sequence[str] = (),
) -> Study:
    cohort = build_cohort(scores)
    parts, doubts = (
        (draw_split(cohort, settings.seed), []) if split is None else read_split(Path(split), cohort)
    )
    _LOG.info(
        "%d score models, %d rules, %d search cases", len(cohort.scores), len(settings.rules),
        int(parts.search.sum()),
    )  # fmt: skip
    return Study(
        settings=settings,
        scores=scores,
        split=parts,
        folds=folds,
        outcomes=find_outcomes(cohort, parts, settings),
        training=training,
        warnings=(*warnings, *doubts, *score_warnings(cohort)),
        limits=limits(scores.kind()),
        versions=versions_of("numpy", "scipy", "scikit-learn", "polars"),
    )
