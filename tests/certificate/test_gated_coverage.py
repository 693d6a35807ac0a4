"""Certificates with both gates on keep their confidence: the truth is that of cases that pass the gates."""

import numpy as np
import polars as pl
import pytest
from numpy.random import Generator
from scipy.stats import binom

from trust_cache.certificate.certify import certify
from trust_cache.manifest.protocol import SCREENING

NAMES = (("L", "CC"), ("L", "MLO"), ("R", "CC"), ("R", "MLO"))
COHORTS, CASES, PREVALENCE, DELTA = 300, 900, 0.1, 0.05


def draw_cases(generator: Generator, cases: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Labels, scores, and what the two gates stop: more of the positives, and of low scores."""
    labels = (generator.random(cases) < PREVALENCE).astype(np.int64)
    scores = generator.standard_normal(cases) + 1.6 * labels
    chance = np.where(labels == 1, 0.15, 0.05) * np.where(scores < 0, 2, 1)
    pixels, features = (generator.random((2, cases)) < chance).astype(bool)
    return labels, scores, pixels, features


def table_of(generator: Generator) -> pl.DataFrame:
    labels, scores, pixels, features = draw_cases(generator, CASES)
    images = []
    for number, (side, projection) in enumerate(NAMES):
        last = number == len(NAMES) - 1
        images.append(
            pl.DataFrame(
                {
                    "case_id": [f"{case:05d}" for case in range(CASES)],
                    "image_id": [f"{case:05d}_{number}" for case in range(CASES)],
                    "label": labels,
                    "score": scores - number,
                    "laterality": side,
                    "projection": projection,
                    "warning": ["polarity: so" if last and stopped else None for stopped in pixels],
                    "feature_tail": [1e-5 if last and stopped else 0.5 for stopped in features],
                }
            )
        )
    return pl.concat(images, how="vertical_relaxed")


@pytest.mark.slow
def test_coverage_with_both_gates() -> None:
    """At delta 5 % the bound is below the truth in at most 5 % of cohorts, within the Monte Carlo margin."""
    labels, scores, pixels, features = draw_cases(np.random.default_rng(0), 2_000_000)
    passed = ~(pixels | features)
    order = np.argsort(scores[passed])
    sorted_scores, positives = scores[passed][order], np.cumsum(labels[passed][order])
    failures = 0
    for seed in range(COHORTS):
        done = certify(
            table_of(np.random.default_rng((1, seed))), protocol=SCREENING, targets=[0.9], delta=DELTA
        )
        point = done.points[0]
        assert point.tau is not None
        assert point.incomplete > 0
        below = int(np.searchsorted(sorted_scores, point.tau))
        truth = positives[below - 1] / below if below else 0.0
        failures += point.bound < truth
    assert failures <= binom.ppf(0.999, COHORTS, DELTA)
