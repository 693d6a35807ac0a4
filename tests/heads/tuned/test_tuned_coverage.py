"""Certificates of tuned heads hold by exact truth, out of fold and on another set."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from trust_cache.cache.feature_rows import rows_of_array
from trust_cache.certificate.certify import certify
from trust_cache.certificate.points import Point
from trust_cache.certificate.score_table import check_scores
from trust_cache.heads.bank import HeadParameters, score_rows
from trust_cache.heads.draws import Draws
from trust_cache.heads.fold_training import train_fold
from trust_cache.heads.folds import FOLDS, TEST, draw_folds
from trust_cache.heads.head_settings import TrainingSettings, known_configurations
from trust_cache.heads.trainer import FoldImages, FoldJob
from trust_cache.manifest.cases import find_cases
from trust_cache.synthetic.feature_cohort import SimulatedCohort
from trust_cache.synthetic.population import Population
from trust_cache.synthetic.truth import LinearHeads, Truth

COHORTS = 60
DELTA = 0.10
CASES, DIM = 700, 32
TUNED = [known_configurations()["tuned"]]


@pytest.mark.slow
def test_certificates_of_tuned_hold_by_exact_truth() -> None:
    """Bounds below the true rate in at most delta of cohorts, within 4 standard errors of their number."""
    population = Population(Truth("nlbs", dim=DIM), positives=40_000, negatives=20_000, seed=3)
    out_of_fold, external = zip(*(failures(number, population) for number in range(COHORTS)), strict=True)
    allowed = DELTA * COHORTS + 4 * np.sqrt(COHORTS * DELTA * (1 - DELTA))
    assert sum(out_of_fold) <= allowed
    assert sum(external) <= allowed


def failures(number: int, population: Population) -> tuple[bool, bool]:
    """Whether the bound at 95 % recall is below the true rate: out of fold, and of one head elsewhere."""
    cohort = SimulatedCohort("nlbs", seed=number, dim=DIM, cases=CASES)
    cases, labels = find_cases(cohort.manifest), cohort.manifest["label"].to_numpy().astype(np.int64)
    rows = rows_of_array(np.ascontiguousarray(cohort.features(0, labels.size, 1)))
    parts = draw_folds(cases, number).parts[:, cases.of_image]
    scores, heads = np.empty(labels.size), []
    for fold in range(FOLDS):
        tested = np.flatnonzero(parts[fold] == TEST)
        fitted = np.flatnonzero(parts[fold] != TEST)
        images = FoldImages(labels, fitted, fitted[:0], cases.of_image, cases.patients[cases.of_image])
        job = FoldJob(rows, images, TUNED, TrainingSettings(epochs=1), Draws(number, fold))
        heads.append(train_fold(job).parameters)
        scores[tested] = score_rows(rows, tested, heads[-1])[0]
    own = certified(cohort.manifest, scores, number)
    other = SimulatedCohort("nlbs", seed=10_000 + number, dim=DIM, cases=CASES)
    images_there = other.manifest.height
    there = rows_of_array(np.ascontiguousarray(other.features(0, images_there, 1)))
    elsewhere = score_rows(there, np.arange(images_there), heads[0])[0]
    outside = certified(other.manifest, elsewhere, number)
    return (
        own.bound < true_rate(population, heads, own.tau),
        outside.bound < true_rate(population, heads[:1], outside.tau),
    )


def certified(manifest: pl.DataFrame, scores: NDArray[np.float64], seed: int) -> Point:
    columns = ("case_id", "image_id", "label", "laterality")
    table = manifest.select(*columns).with_columns(score=pl.Series(scores), configuration=pl.lit("tuned"))
    found = replace(check_scores(table), aggregations={"tuned": TUNED[0].aggregation})
    return certify(found, targets=[0.95], delta=DELTA, seed=seed).points[0]


def true_rate(population: Population, heads: list[HeadParameters], tau: float | None) -> float:
    """The cancer rate among new cases below tau, each scored by one of the heads at random."""
    assert tau is not None
    parts = {name: np.concatenate([getattr(head, name) for head in heads]) for name in vars(heads[0])}
    taus = np.full((1, len(heads)), tau)
    shares = population.dismissed(LinearHeads.of(**parts), taus, TUNED[0].aggregation).mean(axis=(1, 2))
    missed = population.prevalence * shares[1]
    dismissed = missed + (1 - population.prevalence) * shares[0]
    return float(missed / dismissed) if dismissed else 0.0
