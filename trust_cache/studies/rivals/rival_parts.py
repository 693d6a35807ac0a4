"""The rows that the linear rivals are fitted on and score: clean views, or augmented ones with dropout."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from trust_cache.cache.feature_rows import FeatureRows
from trust_cache.heads.bank import normalised_features
from trust_cache.manifest.cases import case_maxima

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class LabelledImages:
    """The labels and the cases of all images, and the share of cancer images in a batch."""

    labels: Integers
    case: Integers
    share: float


@dataclass(frozen=True)
class Part:
    """Rows of one part of a fold: features, labels, each row's case, numbered from 0, and its weight.

    The weights add up to 1. A cancer image of the fitting part has several rows, each another draw, which
    `draw` numbers; all others have one, of draw 0.
    """

    features: NDArray[np.floating]
    labels: Integers
    case: Integers
    weights: Floats
    draw: Integers

    def logits(self, model: Floats) -> Floats:
        """Return z of every row for a model [weights, bias]."""
        products = self.features @ model[:-1].astype(self.features.dtype)
        return np.asarray(products + model[-1], dtype=np.float64)

    def pull_back(self, slopes: Floats) -> Floats:
        """Return the gradient by the model, given the derivative by each logit."""
        by_weights = np.asarray(slopes.astype(self.features.dtype) @ self.features, dtype=np.float64)
        return np.append(by_weights, slopes.sum())

    @cached_property
    def positive_cases(self) -> NDArray[np.bool_]:
        """Which cases have cancer."""
        return np.asarray(case_maxima(self.labels, self.case) == 1)

    @cached_property
    def draws_of_positives(self) -> tuple[tuple[Integers, Integers], ...]:
        """The rows of positive cases and the cases of these rows, one draw of cancer images after another."""
        of_positive = self.positive_cases[self.case]
        found = []
        for draw in range(int(self.draw.max()) + 1):
            rows = np.flatnonzero(of_positive & ((self.labels == 0) | (self.draw == draw)))
            found.append((rows, np.unique(self.case[rows], return_inverse=True)[1]))
        return tuple(found)


def clean_rows(rows: FeatureRows, cohort: LabelledImages, images: Integers) -> Part:
    """Return a row for each image, by its clean view."""
    return _part(cohort, images, normalised_features(rows, images), np.zeros(images.size, dtype=np.int64))


def drawn_rows(
    rows: FeatureRows,
    cohort: LabelledImages,
    images: Integers,
    draws: int,
    dropout: float,
    generator: Generator,
) -> Part:
    """Return rows as a batch has them: a random augmented view and a dropout mask each.

    A normal image has one row, a cancer image `draws` of them.
    """
    positive = images[cohort.labels[images] == 1]
    drawn = np.concatenate([images, np.tile(positive, draws - 1)])
    draw = np.repeat(np.arange(draws), [images.size, *[positive.size] * (draws - 1)])
    first = min(1, rows.views - 1)  # the clean view where the cache has no other
    features = normalised_features(rows, drawn, generator.integers(first, rows.views, drawn.size))
    scale = np.float32(1.0 / (1.0 - dropout))
    for number in range(drawn.size):
        features[number] *= scale * (generator.random(rows.dim, dtype=np.float32) >= dropout)
    return _part(cohort, drawn, features, draw)


def _part(cohort: LabelledImages, images: Integers, features: NDArray[np.float32], draw: Integers) -> Part:
    """Return rows of images, those of cancer with the weight that they have in a batch."""
    labels = cohort.labels[images]
    positives, share = int(np.count_nonzero(labels == 1)), cohort.share
    weights = np.where(labels == 1, share / max(1, positives), (1 - share) / max(1, images.size - positives))
    _, case = np.unique(cohort.case[images], return_inverse=True)
    return Part(features, labels, case, weights, draw)
