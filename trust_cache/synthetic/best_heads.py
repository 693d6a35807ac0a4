"""The best that linear heads can do under a law: for a recall, and for cross-entropy without end.

A head within the span of a law's directions has about a dozen free weights, so its optimum on a large
population is found by a general optimiser. What a head does is then measured on another population.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import expit

from trust_cache.synthetic.population import Population
from trust_cache.synthetic.truth import LinearHeads

BATCH_POSITIVES = 0.25  # of the images in a batch of the paper's training
_SMOOTHING = 0.15  # width of a smooth step, in standard deviations of the positives' logits
_STARTS = 6
_SEED = 0

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _FreeCases:
    """The cases of a class by what a head within the span sees, in blocks [case, image, free]."""

    blocks: tuple[Floats, ...]
    cases: int

    def highest(self, weights: Floats) -> Iterator[tuple[Floats, Floats]]:
        """Return the case logits and the free numbers of the image that sets each, block by block."""
        for block in self.blocks:
            logits = block @ weights
            image = logits.argmax(axis=1)
            rows = np.arange(len(image))
            yield logits[rows, image], block[rows, image]


def cross_entropy_head(population: Population) -> LinearHeads:
    """Return the head that cross-entropy reaches with endless training images, a quarter of them positive."""
    positive, negative = (_images(population, label) for label in (True, False))
    images = np.vstack([positive, negative])
    images = np.column_stack([images, np.ones(len(images))])
    labels = np.repeat([1.0, 0.0], [len(positive), len(negative)])
    share = np.where(labels == 1, BATCH_POSITIVES / len(positive), (1 - BATCH_POSITIVES) / len(negative))

    def loss(weights: Floats) -> tuple[float, Floats]:
        logits = images @ weights
        value = np.sum(share * (np.logaddexp(0.0, logits) - labels * logits))
        return float(value), images.T @ (share * (expit(logits) - labels))

    found = minimize(loss, np.zeros(images.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    heads = population.span.heads_within(found.x[:-1, np.newaxis])
    return LinearHeads(heads.directions, heads.offsets + found.x[-1])


def best_head(population: Population, recall: float) -> LinearHeads:
    """Return the head within the span that dismisses most at this recall, the best of several starts."""
    positive, negative = (_free_cases(population, label) for label in (1, 0))
    generator = np.random.default_rng(_SEED)
    first = _weights_of(population, cross_entropy_head(population))
    others = generator.standard_normal((_STARTS - 1, first.size))
    starts = [first, *(first / np.linalg.norm(first) + other / np.linalg.norm(other) for other in others)]

    def loss(weights: Floats) -> tuple[float, Floats]:
        return _kept(weights, positive, negative, 1.0 - recall)

    found = [minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}) for start in starts]
    best = min(found, key=lambda result: float(result.fun))
    return population.span.heads_within(best.x[:, np.newaxis])


def _kept(weights: Floats, positive: _FreeCases, negative: _FreeCases, miss: float) -> tuple[float, Floats]:
    """Return the share of normal cases that is not dismissed where `miss` of the positives are, smoothly.

    Steps at the threshold are logistic functions of a fixed width, so both have gradients; that of the
    threshold follows from the share of misses, which stays.
    """
    length = np.linalg.norm(weights)
    unit = weights / length
    logits, seen = (np.concatenate(parts) for parts in zip(*positive.highest(unit), strict=True))
    width = _SMOOTHING * float(np.std(logits))

    def excess(threshold: float) -> float:
        return float(np.mean(expit((threshold - logits) / width))) - miss

    tau = brentq(excess, logits.min() - 40 * width, logits.max() + 40 * width)
    steps = expit((tau - logits) / width)
    slopes = steps * (1.0 - steps)
    of_tau = slopes @ seen / slopes.sum()
    dismissed, gradient = 0.0, np.zeros_like(unit)
    for block, numbers in negative.highest(unit):
        steps = expit((tau - block) / width)
        slopes = steps * (1.0 - steps) / width
        dismissed += float(steps.sum())
        gradient += slopes.sum() * of_tau - slopes @ numbers
    gradient -= (gradient @ unit) * unit  # the length of a head changes nothing
    return 1.0 - dismissed / negative.cases, -gradient / (negative.cases * length)


def _free_cases(population: Population, label: int) -> _FreeCases:
    seen = population.span.free_numbers
    blocks = tuple(block.numbers @ seen for block in population.blocks[label])
    return _FreeCases(blocks, population.sizes[label])


def _images(population: Population, label: bool) -> Floats:
    """Return the images of a label, each class of cases at its share of the cohort."""
    seen = population.span.free_numbers
    if label:
        return np.concatenate([block.numbers[block.image_labels] @ seen for block in population.blocks[1]])
    return np.concatenate([block.numbers.reshape(-1, len(seen)) @ seen for block in population.blocks[0]])


def _weights_of(population: Population, heads: LinearHeads) -> Floats:
    return np.asarray(population.span.free_numbers.T @ population.span.coefficients(heads)[:, 0])
