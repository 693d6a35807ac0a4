"""The simulation of out-of-fold certificates: train and certify whole cohorts, compare with the truth.

A cohort of NLBS's size has features from the law of `trust_cache.synthetic`. The library's trainer trains
the five fold models and the refit, one model on 90 % of the cases; the library's functions choose tau and
the bound. The truth about a model at tau comes from a large population of new cases of the same law.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import polars as pl
from numpy.random import SFC64, Generator, SeedSequence
from numpy.typing import NDArray
from scipy.stats import binom

from trust_cache.cache.feature_rows import FeatureRows, rows_of_array
from trust_cache.certificate.points import Point, Terms, choose_threshold, evaluate
from trust_cache.certificate.score_table import Cohort
from trust_cache.certificate.split import draw_split
from trust_cache.heads.bank import HeadParameters, score_rows
from trust_cache.heads.draws import Draws
from trust_cache.heads.folds import (
    CALIBRATE,
    CALIBRATION_SHARE,
    EXTERNAL,
    FIT,
    FOLDS,
    TEST,
    Folds,
)
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings, presets
from trust_cache.heads.trainer import COMPILED, FoldImages, FoldJob, TrainedFold
from trust_cache.manifest.cases import Cases
from trust_cache.statistics.bounds import smallest_samples
from trust_cache.statistics.stratified_draws import draw_stratified, random_keys
from trust_cache.synthetic.cohort_shape import (
    assign_patients,
    counts_of,
    draw_exact_cases,
    images_of,
    law_of,
)
from trust_cache.synthetic.feature_cohort import FeatureModel, draw_coordinates
from trust_cache.synthetic.feature_law import draw_traits
from trust_cache.synthetic.population import Population
from trust_cache.synthetic.truth import LinearHeads, Truth

LIKE = "nlbs"
DIM = 256
VIEWS = 2  # augmented views of each image
TARGETS = (0.98, 0.95)
DELTAS = (0.01, 0.05)
TRAINING = TrainingSettings()  # the paper's: 20 epochs
CONFIGURATIONS: dict[str, HeadSettings] = {
    "closed-loop": presets()["closed-loop"],
    "ce": presets()["ce"],
    "ce-lr-0.001": msgspec.structs.replace(presets()["ce"], lr=1e-3),
}
PREVALENCE = law_of(LIKE).prevalence
COLUMNS = (
    "cohort", "configuration", "target", "tau", "dismissed", "positives_dismissed", "bound", "status",
    "auroc", "miss", "spared", "refit_miss", "refit_spared", "chance_01", "chance_05",
)  # fmt: skip
TRUTH = Truth(LIKE, dim=DIM)
PARTS = ("gamma", "beta", "weight", "bias")  # of heads
_SHARED = 1  # points that share delta: each point is taken as the only one
_DIGITS, _DECIMALS = 6, 9  # of numbers in the CSV file
_NEGLIGIBLE = 1e-15  # a chance
_IMAGES_AT_ONCE = 1_000
_CALIBRATION, _REFIT = 1, FOLDS  # the stream of calibration draws; the refit's number among the models

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]


@dataclass(frozen=True)
class SimulatedFeatures:
    """The cases and the features of a cohort, in memory."""

    cases: Cases
    labels: NDArray[np.int64]  # of images
    rows: FeatureRows


def draw_cohort(number: int, truth: Truth = TRUTH, views: int = VIEWS) -> SimulatedFeatures:
    """Draw a cohort of exactly the data set's counts."""
    generator = Generator(SFC64(SeedSequence([number, *b"coverage"])))
    shapes = draw_exact_cases(law_of(truth.like), counts_of(truth.like), generator)
    images = images_of(shapes)
    model = truth.model
    traits = draw_traits(model.law, shapes.positive, generator)
    size, patients = shapes.positive.size, None
    if model.law.patients:
        patients = assign_patients(size, model.law.patients, generator)
    coordinates = draw_coordinates(model, images, traits, generator, patients)
    cases = Cases(
        pl.Series([f"{case:06d}" for case in range(size)]),
        shapes.positive.astype(np.int64),
        images.case,
        np.arange(size) if patients is None else patients,
        2 * images.case + images.here,
    )
    rows = rows_of_array(draw_features(model, coordinates, views, generator))
    return SimulatedFeatures(cases, images.label.astype(np.int64), rows)


def draw_features(
    model: FeatureModel, coordinates: Floats, views: int, generator: Generator
) -> NDArray[np.float16]:
    """Draw features [image, view, dim] of the law of `feature_cohort.draw_features`, many images at once."""
    mean, directions = model.single
    features = np.empty((len(coordinates), views + 1, model.dim), dtype=np.float16)
    for first in range(0, len(coordinates), _IMAGES_AT_ONCE):
        part = coordinates[first : first + _IMAGES_AT_ONCE].astype(np.float32)
        clean = part @ directions + mean
        clean += np.float32(model.law.noise) * generator.standard_normal(clean.shape, dtype=np.float32)
        here = features[first : first + _IMAGES_AT_ONCE]
        here[:, 0] = clean
        for view in range(1, views + 1):
            here[:, view] = clean + view_changes(model, len(part), generator)
    return features


def view_changes(model: FeatureModel, images: int, generator: Generator) -> Singles:
    """Draw how an augmented view of each image differs from the clean one [image, dim]."""
    _, directions = model.single
    changes = generator.standard_normal((images, len(directions)), dtype=np.float32) @ directions
    noise = generator.standard_normal(changes.shape, dtype=np.float32)
    changes *= np.float32(model.law.view_shift)
    noise *= np.float32(model.law.view_noise)
    changes += noise
    return changes


def deal_folds(cases: Cases) -> Folds:
    """Deal the cases of each class to the five folds in turn; draw each fold's calibration part.

    Cases of a class are exchangeable here, so this has the law of the library's random folds, in no time.
    """
    labels = cases.labels
    place = np.empty(labels.size, dtype=np.int64)
    for label in (0, 1):
        members = np.flatnonzero(labels == label)
        place[members] = np.arange(members.size) % FOLDS
    parts = np.where(place == np.arange(FOLDS)[:, None], TEST, FIT).astype(np.int8)
    for fold in range(FOLDS):
        _draw_calibration(parts[fold], labels, fold)
    return Folds(cases.case_ids, labels, parts)


def final_fold(cases: Cases) -> Folds:
    """Return the one fold of the refit: 90 % to fit on, 10 % for calibration."""
    parts = np.full((1, cases.labels.size), FIT, dtype=np.int8)
    _draw_calibration(parts[0], cases.labels, _REFIT)
    return Folds(cases.case_ids, cases.labels, parts, (EXTERNAL,))


def _draw_calibration(parts: NDArray[np.int8], labels: NDArray[np.int64], stream: int) -> None:
    rest = np.flatnonzero(parts == FIT)
    keys = random_keys(rest.size, 0, _CALIBRATION, stream)
    parts[rest[draw_stratified(labels[rest], round(labels.size / CALIBRATION_SHARE), keys)]] = CALIBRATE


@dataclass(frozen=True)
class TrainedCohort:
    """The six models of a cohort (five folds, then the refit), and its out-of-fold case scores."""

    models: tuple[HeadParameters, ...]
    cohort: Cohort


def train_cohort(features: SimulatedFeatures, number: int) -> TrainedCohort:
    """Train the fold models and the refit with the library's trainer; pool the out-of-fold scores."""
    cases, rows = features.cases, features.rows
    folds, final = deal_folds(cases), final_fold(cases)
    jobs = []
    for model, parts in enumerate((*folds.parts, *final.parts)):
        of_images = parts[cases.of_image]
        images = FoldImages(
            features.labels, np.flatnonzero(of_images == FIT), np.flatnonzero(of_images == CALIBRATE)
        )
        # A refit has the draws of fold 0 of its run's seed (clinic/export_model.py).
        draws = Draws(number, 0 if model == _REFIT else model)
        jobs.append(FoldJob(rows, images, tuple(CONFIGURATIONS.values()), TRAINING, draws))
    trained: dict[int, TrainedFold] = dict(COMPILED.train(jobs, threads=1, on_epoch=lambda *_: None))
    models = tuple(trained[model].parameters for model in range(len(jobs)))
    scores = np.empty((len(CONFIGURATIONS), rows.images))
    for fold in range(FOLDS):
        tested = np.flatnonzero(folds.parts[fold][cases.of_image] == TEST)
        scores[:, tested] = score_rows(rows, tested, models[fold])
    cohort = Cohort(
        case_ids=cases.case_ids,
        labels=cases.labels,
        patients=cases.patients,
        configurations=tuple(CONFIGURATIONS),
        scores=tuple(cases.score(scores)),
        images=(None,) * len(CONFIGURATIONS),
    )
    return TrainedCohort(models, cohort)


def dismissed_shares(population: Population, models: Sequence[HeadParameters], taus: Floats) -> Floats:
    """Return the shares [label, threshold, model, head] of new cases below `taus` [threshold, head]."""
    parts = (np.concatenate([getattr(model, name) for model in models]) for name in PARTS)
    shares = population.dismissed(LinearHeads.of(*parts), np.tile(taus, len(models)))
    return shares.reshape(2, len(taus), len(models), -1)


def simulate(number: int, population: Population) -> list[dict[str, object]]:
    """Train and certify one cohort; return one row for each configuration and target."""
    trained = train_cohort(draw_cohort(number), number)
    points = certify(trained.cohort, number)
    taus = np.array([[point.tau for point in of_target] for of_target in points], dtype=np.float64)
    shares = dismissed_shares(population, trained.models, taus)
    rows = []
    for head, name in enumerate(CONFIGURATIONS):
        for place, target in enumerate(TARGETS):
            point = points[place][head]
            spared, miss = (float(shares[label, place, :FOLDS, head].mean()) for label in (0, 1))
            values = {
                "tau": point.tau,
                "bound": point.bound,
                "auroc": point.auroc_case,
                "miss": miss,
                "spared": spared,
                "refit_miss": shares[1, place, _REFIT, head],
                "refit_spared": shares[0, place, _REFIT, head],
                "chance_01": chance_of_failure(point.cases, point.positives, miss, spared, DELTAS[0]),
                "chance_05": chance_of_failure(point.cases, point.positives, miss, spared, DELTAS[1]),
            }
            rows.append(
                {"cohort": number, "configuration": name, "target": target, "status": point.status}
                | {"dismissed": point.dismissed, "positives_dismissed": point.positives_dismissed}
                | {key: _rounded(value) for key, value in values.items()}
            )
    return rows


def _rounded(value: float | None) -> float | None:
    """Return a number with the digits that the CSV file has."""
    return None if value is None else round(float(f"{value:.{_DIGITS}g}"), _DECIMALS)


def certify(cohort: Cohort, seed: int) -> list[list[Point]]:
    """Return the points [target][configuration] of a cohort by the paper's rule."""
    split = draw_split(cohort, seed)
    terms = Terms("recall", DELTAS[0], _SHARED)
    return [
        [
            evaluate(cohort, split, index, choose_threshold(cohort, split, index, target, terms), terms)
            for index in range(len(cohort.configurations))
        ]
        for target in TARGETS
    ]


def omission_rate(miss: Floats, spared: Floats) -> Floats:
    """Return the cancer rate among the dismissed, of shares of each class that are dismissed."""
    missed = PREVALENCE * miss
    dismissed = missed + (1 - PREVALENCE) * spared
    return np.divide(missed, dismissed, out=np.zeros_like(dismissed), where=dismissed > 0)


def chance_of_failure(cases: int, positives: int, miss: float, spared: float, delta: float) -> float:
    """Return the chance of a bound below the true rate if the evaluation cases were new ones.

    Then the dismissed of each class are binomial. For given k the bound is below the rate exactly where the
    dismissed reach n_min(k).
    """
    rate = float(omission_rate(np.array(miss), np.array(spared)))
    if not 0 < rate < 1:
        return 0.0
    k = np.arange(positives + 1)
    weights = binom.pmf(k, positives, miss)
    k, weights = k[weights > _NEGLIGIBLE], weights[weights > _NEGLIGIBLE]
    needed = smallest_samples(int(k[-1]), rate, delta)[k]
    return float(np.sum(weights * binom.sf(needed - k - 1, cases - positives, spared)))
