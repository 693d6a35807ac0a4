"""Score any number of new cases from the distribution of a synthetic cohort: the truth about a head.

A head's logit is (a.x - mean(x) sum(a)) / sqrt(var(x) + eps) + c with a = gamma * weight. So only a.x,
the sum of x and the square of its length matter. With Q an orthonormal basis of the span of a, the
vector of ones, m and B, noise inside that span is a few normal numbers, and outside it only its squared
length matters, which is chi-square with dim - rank degrees of freedom and independent of the inside: an
image takes about a dozen random numbers instead of 2048. This is exact up to the float16 rounding of
stored features.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import PCG64, Generator, SeedSequence
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from trust_cache.manifest.cases import case_maxima
from trust_cache.synthetic.cohort_shape import draw_cases, images_of, law_of
from trust_cache.synthetic.feature_cohort import NOISE, FeatureModel, draw_coordinates, make_model

EPS = 1e-5  # of LayerNorm
_CASES_AT_ONCE = 50_000  # bounds the memory


@dataclass(frozen=True)
class TrueScores:
    """Scores of new cases (the highest of their images' clean views) and their labels."""

    scores: NDArray[np.float64]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Truth:
    """The distribution of the synthetic cohorts of one data set's shape and one truth seed."""

    like: str
    truth_seed: int = 0
    dim: int = 2048

    def score(
        self,
        gamma: ArrayLike,
        beta: ArrayLike,
        weight: ArrayLike,
        bias: float,
        *,
        cases: int = 1_000_000,
        seed: int = 0,
    ) -> TrueScores:
        """Draw new cases and score them with a head LayerNorm(gamma, beta) -> Linear(weight, bias)."""
        model, law = make_model(self.truth_seed, self.dim), law_of(self.like)
        gamma, beta, weight = (
            np.asarray(part, dtype=np.float64).reshape(-1) for part in (gamma, beta, weight)
        )
        head, offset = gamma * weight, float(beta @ weight) + float(bias)
        if head.shape != (model.dim,):
            raise ValueError(f"expected a head of {model.dim} features, found {head.size}")
        generator = Generator(PCG64(SeedSequence([seed, *self.like.encode()])))
        scores, labels = [], []
        for first in range(0, cases, _CASES_AT_ONCE):
            shapes = draw_cases(law, min(_CASES_AT_ONCE, cases - first), generator)
            images = images_of(shapes)
            logits = _logits(model, head, draw_coordinates(model, images, generator), generator) + offset
            scores.append(expit(case_maxima(logits, images.case)))
            labels.append(shapes.positive.astype(np.int64))
        return TrueScores(np.concatenate(scores), np.concatenate(labels))


def _logits(
    model: FeatureModel, head: NDArray[np.float64], coordinates: NDArray[np.float64], generator: Generator
) -> NDArray[np.float64]:
    """Draw images in the span Q and the length of their noise outside it; return a head's logits less c."""
    ones = np.ones(model.dim)
    # Dependent columns still give orthonormal ones: the span is only larger than needed.
    span, _ = np.linalg.qr(np.column_stack([head, ones, model.mean, model.basis]))
    inside = span.T @ model.mean + coordinates @ (span.T @ model.basis).T
    inside += NOISE * generator.standard_normal(inside.shape)
    outside = 0.0
    if (further := model.dim - span.shape[1]) > 0:
        outside = NOISE**2 * generator.chisquare(further, size=inside.shape[0])
    within_ones, within_head = span.T @ ones, span.T @ head
    mean = inside @ within_ones / model.dim
    variance = (np.einsum("ij,ij->i", inside, inside) + outside) / model.dim - mean**2
    raw = inside @ within_head - mean * float(within_head @ within_ones)
    return np.asarray(raw / np.sqrt(variance + EPS))
