"""What a head is truly worth: fresh cases without end from the law that made a simulated cohort.

A head's logit is (a.x - mean(x) sum(a)) / sqrt(var(x) + eps) + c with a = gamma * weight. So only a.x,
the sum of x and the square of its length matter. With Q an orthonormal basis of the span of a, the
vector of ones, m and B, noise inside that span is a few normal numbers, and outside it only its squared
length counts, which is chi-square with dim - rank degrees of freedom and independent of the inside: an
image costs about a dozen random numbers instead of 2048. This is exact up to float16's rounding of
stored features.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from trust_cache.cache.cohorts import draw_cases, images_of, law_of
from trust_cache.cache.feature_model import NOISE, FeatureModel, draw_coordinates, make_model

EPS = 1e-5  # of LayerNorm
_CASES_AT_ONCE = 50_000  # bounds the memory


@dataclass(frozen=True)
class TrueScores:
    """Scores of fresh cases (the highest of their images' clean views) and their labels."""

    scores: NDArray[np.float64]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Truth:
    """The law behind the simulated cohorts of one data set's shape and one truth seed."""

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
        """Draw fresh cases and score them with a head LayerNorm(gamma, beta) -> Linear(weight, bias)."""
        model, law = make_model(self.truth_seed, self.dim), law_of(self.like)
        gamma, beta, weight = (
            np.asarray(part, dtype=np.float64).reshape(-1) for part in (gamma, beta, weight)
        )
        head = _Projected.of(model, gamma * weight, float(beta @ weight) + float(bias))
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *self.like.encode()])))
        scores, labels = [], []
        for first in range(0, cases, _CASES_AT_ONCE):
            shapes = draw_cases(law, min(_CASES_AT_ONCE, cases - first), generator)
            images = images_of(shapes)
            logits = head.logits(draw_coordinates(model, images, generator), generator)
            starts = np.cumsum(shapes.sizes) - shapes.sizes
            scores.append(expit(np.maximum.reduceat(logits, starts)))
            labels.append(shapes.positive.astype(np.int64))
        return TrueScores(np.concatenate(scores), np.concatenate(labels))


@dataclass(frozen=True)
class _Projected:
    """A head and the law in the small space where they meet."""

    dim: int
    rank: int
    mean: NDArray[np.float64]  # [rank]
    basis: NDArray[np.float64]  # [rank, coordinate]
    head: NDArray[np.float64]  # [rank]
    ones: NDArray[np.float64]  # [rank]
    offset: float

    @staticmethod
    def of(model: FeatureModel, head: NDArray[np.float64], offset: float) -> "_Projected":
        ones = np.ones(model.dim)
        if head.shape != (model.dim,):
            raise ValueError(f"expected a head of {model.dim} features, found {head.size}")
        spanning = np.column_stack([head, ones, model.mean, model.basis])
        # Columns that depend on each other still give orthonormal ones: the span is only larger than needed.
        span, _ = np.linalg.qr(spanning)
        return _Projected(
            dim=model.dim,
            rank=span.shape[1],
            mean=span.T @ model.mean,
            basis=span.T @ model.basis,
            head=span.T @ head,
            ones=span.T @ ones,
            offset=offset,
        )

    def logits(self, coordinates: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
        inside = self.mean + coordinates @ self.basis.T
        inside += NOISE * generator.standard_normal(inside.shape)
        outside = 0.0
        if self.dim > self.rank:
            outside = NOISE**2 * generator.chisquare(self.dim - self.rank, size=inside.shape[0])
        mean = inside @ self.ones / self.dim
        variance = (np.einsum("ij,ij->i", inside, inside) + outside) / self.dim - mean**2
        raw = inside @ self.head - mean * float(self.head @ self.ones)
        return np.asarray(raw / np.sqrt(variance + EPS) + self.offset)
