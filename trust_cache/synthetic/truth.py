"""Score any number of new cases from the distribution of a synthetic cohort: the truth about a head.

A head's logit is (a.x - mean(x) sum(a)) / sqrt(var(x) + eps) + c with a = gamma * weight. So only a.x,
the sum of x and the square of its length matter. With Q an orthonormal basis of the span of the vector of
ones, m and B, noise inside that span is a few normal numbers. Outside it only the part along the head, one
normal number whatever the head, and the squared length of the rest, which is chi-square, matter. So an image
takes about a dozen random numbers instead of 2048, and one draw serves all heads: an image is a row of
numbers, divided by its standard deviation, and its logit is a product with the head's coefficients. This is
exact up to the float16 rounding of stored features.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import PCG64, Generator, SeedSequence
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from trust_cache.manifest.cases import MAXIMUM, Aggregation, aggregate
from trust_cache.synthetic.cohort_shape import draw_cases, images_of, law_of
from trust_cache.synthetic.feature_cohort import PLAIN, FeatureModel, draw_coordinates, make_model
from trust_cache.synthetic.feature_law import FeatureLaw, draw_traits

EPS = 1e-5  # of LayerNorm
_CASES_AT_ONCE = 50_000  # bounds the memory

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LinearHeads:
    """Heads by what their logits depend on: directions [head, dim] in normalised features, and offsets."""

    directions: Floats
    offsets: Floats

    @classmethod
    def of(cls, gamma: ArrayLike, beta: ArrayLike, weight: ArrayLike, bias: ArrayLike) -> "LinearHeads":
        """Return heads LayerNorm(gamma, beta) -> Linear(weight, bias): arrays [head, dim] and [head]."""
        of_norm, beside, of_linear = (
            np.atleast_2d(np.asarray(part, dtype=np.float64)) for part in (gamma, beta, weight)
        )
        offsets = np.einsum("hd,hd->h", beside, of_linear) + np.asarray(bias, dtype=np.float64)
        return cls(of_norm * of_linear, offsets)


class TruthSpan:
    """The span of the vector of ones, the mean and the directions of a model: where images and heads meet.

    Of each head alone all is exact. Outside the span the noise along every head is the same number: what
    several heads do on the same image is exact for those whose directions are `within`.
    """

    def __init__(self, model: FeatureModel, within: LinearHeads | None = None) -> None:
        self.model = model
        columns = [np.ones(model.dim), model.mean, model.basis]
        if within is not None:
            columns.append(within.directions.T)
        # Dependent columns still give orthonormal ones: the span is only larger than needed.
        self._span, _ = np.linalg.qr(np.column_stack(columns))

    def draw_numbers(self, coordinates: Floats, generator: Generator) -> Floats:
        """Draw what heads see of images [image, number]: inside the span, and along any head outside it."""
        model, span = self.model, self._span
        inside = span.T @ model.mean + coordinates @ (span.T @ model.basis).T
        inside += model.law.noise * generator.standard_normal(inside.shape)
        along, rest = np.zeros(len(inside)), np.zeros(len(inside))
        if (further := model.dim - span.shape[1]) > 0:
            along = model.law.noise * generator.standard_normal(len(inside))
        if further > 1:
            rest = model.law.noise**2 * generator.chisquare(further - 1, size=len(inside))
        mean = inside @ span.sum(axis=0) / model.dim
        squares = np.einsum("ij,ij->i", inside, inside) + along**2 + rest
        deviation = np.sqrt(squares / model.dim - mean**2 + EPS)
        return np.asarray(np.column_stack([inside, along]) / deviation[:, np.newaxis])

    def coefficients(self, heads: LinearHeads) -> Floats:
        """Return what the numbers of an image are multiplied with [number, head]."""
        directions = heads.directions.T
        if len(directions) != self.model.dim:
            raise ValueError(f"expected a head of {self.model.dim} features, found {len(directions)}")
        inside = self._span.T @ directions
        along = np.linalg.norm(directions - self._span @ inside, axis=0)
        # LayerNorm subtracts the mean of the features.
        inside = inside - np.outer(self._span.sum(axis=0), directions.sum(axis=0)) / self.model.dim
        return np.vstack([inside, along])

    @cached_property
    def free_numbers(self) -> Floats:
        """Orthonormal combinations [number, free] of an image's numbers that heads within the span see."""
        ones = self._span.sum(axis=0)
        _, _, rows = np.linalg.svd(ones[np.newaxis])
        return np.vstack([rows[1:].T, np.zeros(len(ones) - 1)])  # LayerNorm hides the mean of the features

    def heads_within(self, weights: Floats) -> LinearHeads:
        """Return the heads whose logits are the free numbers times `weights` [free, head]."""
        directions = (self._span @ (self.free_numbers @ weights)[:-1]).T
        return LinearHeads(directions, np.zeros(len(directions)))


@dataclass(frozen=True)
class TrueScores:
    """Scores of new cases, aggregated from their images' clean views, their labels and kinds of lesion."""

    scores: Floats
    labels: NDArray[np.int64]
    kinds: NDArray[np.int64]  # by their number in the law's `kind_names`


@dataclass(frozen=True)
class Truth:
    """The distribution of the synthetic cohorts of one data set's shape, one truth seed and one law."""

    like: str
    truth_seed: int = 0
    dim: int = 2048
    law: FeatureLaw = PLAIN

    @property
    def model(self) -> FeatureModel:
        """The mean and the directions of the features."""
        return make_model(self.truth_seed, self.dim, self.law)

    def score(
        self,
        gamma: ArrayLike,
        beta: ArrayLike,
        weight: ArrayLike,
        bias: float,
        *,
        cases: int = 1_000_000,
        seed: int = 0,
        aggregation: Aggregation = MAXIMUM,
    ) -> TrueScores:
        """Draw new cases and score them with a head LayerNorm(gamma, beta) -> Linear(weight, bias)."""
        heads, span = LinearHeads.of(gamma, beta, weight, [bias]), TruthSpan(self.model)
        coefficients = span.coefficients(heads)[:, 0]
        generator = Generator(PCG64(SeedSequence([seed, *self.like.encode()])))
        scores, labels, kinds = [], [], []
        for first in range(0, cases, _CASES_AT_ONCE):
            shapes = draw_cases(law_of(self.like), min(_CASES_AT_ONCE, cases - first), generator)
            images, traits = images_of(shapes), draw_traits(self.law, shapes.positive, generator)
            coordinates = draw_coordinates(span.model, images, traits, generator)
            logits = span.draw_numbers(coordinates, generator) @ coefficients + heads.offsets[0]
            breasts = 2 * images.case + images.here
            scores.append(aggregate(expit(logits), images.case, aggregation, breasts))
            labels.append(shapes.positive.astype(np.int64))
            kinds.append(traits.kind)
        return TrueScores(np.concatenate(scores), np.concatenate(labels), np.concatenate(kinds))
