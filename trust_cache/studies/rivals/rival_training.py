"""Train the score models of a study over the same five folds; every image gets out-of-fold scores."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from trust_cache.base.errors import InputError
from trust_cache.cache.feature_rows import FeatureRows
from trust_cache.heads.fold_training import train_folds
from trust_cache.heads.folds import CALIBRATE, FIT, FOLDS, TEST
from trust_cache.heads.run_folder import FoldResult, FoldScores, scores_table
from trust_cache.heads.trainer import COMPILED, Trainer
from trust_cache.heads.training_data import Preparation
from trust_cache.studies.rivals.rival_models import (
    LinearSettings,
    conformal_misses,
    fit_conformal_risk,
    fit_logistic_regression,
    fit_selective_net,
)
from trust_cache.studies.rivals.rival_parts import Floats, LabelledImages, Part, clean_rows, drawn_rows
from trust_cache.studies.rivals.rival_rules import CONFORMAL, LOGISTIC, SELECTIVE, RivalSettings

_LOG = logging.getLogger(__name__)
Advance = Callable[[], None]


@dataclass(frozen=True)
class OutOfFold:
    """Scores [image] of every model, each by the fold's model that never saw the image's patient.

    NaN where an image has no features.
    """

    scores: dict[str, Floats]
    fold: NDArray[np.int64]  # of every image
    strengths: dict[str, list[float]]  # ridge strengths of the linear models, by fold
    warnings: tuple[str, ...]

    def table(self, manifest: pl.DataFrame) -> pl.DataFrame:
        """Return the scores as a run folder has them: one row per model and image."""
        parts = [np.flatnonzero(self.fold == number) for number in range(FOLDS)]
        columns = list(self.scores.values())
        results = [FoldScores(images, np.stack([column[images] for column in columns])) for images in parts]
        return scores_table(results, manifest, list(self.scores), [str(number) for number in range(FOLDS)])


def train_models(
    work: Preparation,
    rows: FeatureRows,
    settings: RivalSettings,
    linear: LinearSettings,
    threads: int,
    advance: Advance,
    trainer: Trainer = COMPILED,
) -> OutOfFold:
    """Train all models of the study on the same folds."""
    fold = np.empty(rows.images, dtype=np.int64)
    for number in range(FOLDS):
        fold[work.images(0, number, TEST)] = number
    scores = _paper_heads(work, rows, threads, advance, trainer)
    strengths: dict[str, list[float]] = {}
    stopped: dict[str, list[str]] = {}
    # One thread: BLAS splits its sums by the number of threads; the same seed must give the same scores.
    with threadpool_limits(limits=1):
        for number in range(FOLDS if settings.linear_fits else 0):
            _LOG.info("fitting linear models of fold %d", number)
            for name in _fit_linear(work, rows, number, settings, linear, scores, strengths, advance):
                stopped.setdefault(name, []).append(str(number))
    for name, column in scores.items():
        if not np.all(np.isfinite(column[work.present])):
            raise InputError(f"{name}: training diverged, its scores are not finite")
    warnings = _warnings(work, settings)
    warnings += [
        f"{name}: stopped after {linear.iterations} iterations in fold {', '.join(folds)}, before it"
        " converged"
        for name, folds in stopped.items()
    ]
    return OutOfFold(scores, fold, strengths, tuple(warnings))


def _paper_heads(
    work: Preparation, rows: FeatureRows, threads: int, advance: Advance, trainer: Trainer
) -> dict[str, Floats]:
    """Train the paper's heads as fit-heads does: the same seed gives its scores, byte for byte."""
    heads = work.settings.configurations
    scores = {name: np.full(rows.images, np.nan) for name in heads}

    def keep(_repeat: int, _fold: int, result: FoldResult) -> None:
        for name, column in zip(heads, result.scores, strict=True):
            scores[name][result.images] = column

    if heads:
        folds = [(0, fold) for fold in range(FOLDS)]
        train_folds(
            work, rows, list(heads.values()), folds, keep, trainer=trainer, threads=threads,
            on_epoch=lambda _: advance(),
        )  # fmt: skip
    return scores


def _fit_linear(
    work: Preparation,
    rows: FeatureRows,
    fold: int,
    settings: RivalSettings,
    linear: LinearSettings,
    scores: dict[str, Floats],
    strengths: dict[str, list[float]],
    advance: Advance,
) -> list[str]:
    """Fit and score one fold's linear models; return the names of those that did not converge."""
    fit = fitting_part(work, rows, fold, linear)
    calibrate, test = (clean_part(work, rows, fold, part) for part in (CALIBRATE, TEST))
    tested = images_of(work, fold, TEST)
    needed = {LOGISTIC, CONFORMAL} & set(settings.models)
    start = fit_logistic_regression(fit, calibrate, linear) if needed else None
    fitted = {}
    if start is not None and LOGISTIC in settings.models:
        fitted[LOGISTIC] = start
    if SELECTIVE in settings.models:
        fitted[SELECTIVE] = fit_selective_net(fit, calibrate, linear)
    if start is not None and CONFORMAL in settings.models:
        for target in settings.targets:
            fitted[f"{CONFORMAL}@{target!r}"] = fit_conformal_risk(start, fit, target, linear)
    for name, model in fitted.items():
        scores.setdefault(name, np.full(rows.images, np.nan))[tested] = model.score(test)
        strengths.setdefault(name, []).append(model.strength)
        advance()
    return [name for name, model in fitted.items() if not model.converged]


def images_of(work: Preparation, fold: int, part: int) -> NDArray[np.int64]:
    """Return the images of a part that have features, by number."""
    images = work.images(0, fold, part)
    return images[work.present[images]]


def clean_part(work: Preparation, rows: FeatureRows, fold: int, part: int) -> Part:
    """Return a part of a fold by its clean views."""
    return clean_rows(rows, cohort_of(work), images_of(work, fold, part))


def fitting_part(work: Preparation, rows: FeatureRows, fold: int, linear: LinearSettings) -> Part:
    """Return the fitting part as the paper's heads see it."""
    generator = np.random.default_rng([work.settings.seed, fold, *b"rivals"])
    images = images_of(work, fold, FIT)
    return drawn_rows(rows, cohort_of(work), images, linear.draws, linear.dropout, generator)


def cohort_of(work: Preparation) -> LabelledImages:
    """Return the labels and cases of all images, and the share of cancer in a batch."""
    training = work.settings.training
    share = training.batch_positives / (training.batch_positives + training.batch_negatives)
    return LabelledImages(work.labels, work.cases.of_image, share)


def _warnings(work: Preparation, settings: RivalSettings) -> list[str]:
    """Warn where conformal risk training has too few positives for its own threshold."""
    if CONFORMAL not in settings.models:
        return []
    fitting = (images_of(work, fold, FIT) for fold in range(FOLDS))
    positive = (images[work.labels[images] == 1] for images in fitting)
    found = min(int(np.unique(work.cases.of_image[images]).size) for images in positive)
    warnings = []
    for target in settings.targets:
        allowed = conformal_misses(found, target)
        if allowed.misses is None:
            needed = "" if allowed.needed is None else f" of the {allowed.needed}"
            warnings.append(
                f"{CONFORMAL}@{target!r}: a fold has only {found}{needed} positive fitting cases"
                " that it needs; their lowest score is the threshold in training there"
            )
    return warnings
