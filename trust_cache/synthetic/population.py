"""A large sample of new cases of a law, each class apart: the truth about heads at thresholds and recalls."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import SFC64, Generator, SeedSequence
from numpy.typing import NDArray
from scipy.special import expit, logit

from trust_cache.manifest.cases import MAXIMUM, Aggregation, aggregate
from trust_cache.synthetic.cohort_shape import draw_cases, images_of, law_of
from trust_cache.synthetic.feature_cohort import draw_coordinates
from trust_cache.synthetic.feature_law import draw_traits
from trust_cache.synthetic.truth import LinearHeads, Truth, TruthSpan

POSITIVES, NEGATIVES = 400_000, 150_000  # cases; the low scores of positives decide a recall
_CASES_AT_ONCE = 4_000  # small blocks: a block's logits stay in the processor's cache
_NEARBY = 0.25  # of the misses: how far beside a recall the slope of dismissal is measured

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]


@dataclass(frozen=True)
class Block:
    """Cases with equally many images: what heads see [case, image, number], labels of images, kinds."""

    numbers: Singles
    image_labels: NDArray[np.bool_]  # [case, image]
    sides: NDArray[np.bool_]  # [case, image]
    kinds: NDArray[np.int64]  # of the cases' lesions


@dataclass(frozen=True)
class TruePoint:
    """What a head does at the threshold that keeps a recall, and the standard error of the dismissal."""

    recall: float
    tau: float
    dismissal: float
    false_omission_rate: float
    error: float


class Population:
    """New cases of a truth's law, of both classes apart; one draw serves all heads.

    It is exact for each head. Where heads are compared case by case, they must be `within` (see `TruthSpan`).
    """

    def __init__(
        self,
        truth: Truth,
        positives: int = POSITIVES,
        negatives: int = NEGATIVES,
        seed: int = 0,
        within: LinearHeads | None = None,
    ) -> None:
        self.prevalence = law_of(truth.like).prevalence
        self.span = TruthSpan(truth.model, within)
        self.sizes = {1: positives, 0: negatives}
        generator = Generator(SFC64(SeedSequence([seed, *b"population"])))
        self.blocks = {label: self._draw(truth.like, label, generator) for label in (1, 0)}

    def _draw(self, like: str, label: int, generator: Generator) -> list[Block]:
        drawn: dict[int, list[Block]] = {}
        for first in range(0, self.sizes[label], _CASES_AT_ONCE):
            size = min(_CASES_AT_ONCE, self.sizes[label] - first)
            shapes = draw_cases(law_of(like), size, generator, size * label)
            images = images_of(shapes)
            traits = draw_traits(self.span.model.law, shapes.positive, generator)
            coordinates = draw_coordinates(self.span.model, images, traits, generator)
            numbers = self.span.draw_numbers(coordinates, generator).astype(np.float32)
            counts = np.bincount(images.case, minlength=size)
            for count in np.unique(counts).tolist():
                chosen = (counts == count)[images.case]
                part = numbers[chosen].reshape(-1, count, numbers.shape[1])
                labels, sides = (of[chosen].reshape(-1, count) for of in (images.label, images.here))
                drawn.setdefault(count, []).append(Block(part, labels, sides, traits.kind[counts == count]))
        return [block for _, blocks in sorted(drawn.items()) for block in _joined(blocks)]

    def logits(self, heads: LinearHeads, label: int) -> Iterator[Singles]:
        """Return the case logits [case, head] of a class, without the heads' offsets, block by block."""
        coefficients = self.span.coefficients(heads).astype(np.float32)
        for block in self.blocks[label]:
            cases, images, numbers = block.numbers.shape
            logits = block.numbers.reshape(-1, numbers) @ coefficients
            yield logits.reshape(cases, images, -1).max(axis=1)

    def scores(self, heads: LinearHeads, label: int, aggregation: Aggregation) -> Iterator[Floats]:
        """Return the case scores [case, head] of a class, block by block."""
        coefficients = self.span.coefficients(heads).astype(np.float32)
        for block in self.blocks[label]:
            cases, images, numbers = block.numbers.shape
            of_image = np.repeat(np.arange(cases), images)
            scores = expit(block.numbers.reshape(-1, numbers) @ coefficients + heads.offsets)
            yield aggregate(scores.T, of_image, aggregation, 2 * of_image + block.sides.ravel()).T

    def kinds(self, label: int) -> NDArray[np.int64]:
        """Return the kinds of lesion of the cases of a class, in the order of `logits`."""
        return np.concatenate([block.kinds for block in self.blocks[label]])

    def dismissed(self, heads: LinearHeads, taus: Floats, aggregation: Aggregation = MAXIMUM) -> Floats:
        """Return the shares [label, threshold, head] of cases below `taus` [threshold, head]."""
        limits = (logit(taus) - heads.offsets).astype(np.float32) if aggregation == MAXIMUM else taus
        shares = np.zeros((2, *limits.shape))
        for label in (0, 1):
            for values in self._ordered(heads, label, aggregation):
                for place, limit in enumerate(limits):
                    shares[label, place] += np.count_nonzero(values < limit, axis=0)
            shares[label] /= self.sizes[label]
        return shares

    def _ordered(
        self, heads: LinearHeads, label: int, aggregation: Aggregation
    ) -> Iterator[Singles] | Iterator[Floats]:
        """Return what orders the cases [case, head] as their scores do: logits, where those are enough."""
        if aggregation == MAXIMUM:
            return self.logits(heads, label)
        return self.scores(heads, label, aggregation)

    def points(
        self, heads: LinearHeads, recall: float, aggregation: Aggregation = MAXIMUM
    ) -> list[TruePoint]:
        """Return what each head does at the largest threshold that keeps this recall.

        The standard error adds the binomial errors of the recall, through the slope of dismissal along it,
        and of the dismissal.
        """
        positives, negatives = (
            np.sort(np.concatenate(list(self._ordered(heads, label, aggregation))), axis=0)
            for label in (1, 0)
        )
        miss, near = 1.0 - recall, _NEARBY * (1.0 - recall)
        points = []
        for head, offset in enumerate(heads.offsets):
            places = [round(share * len(positives)) for share in (miss - near, miss, miss + near)]
            taus = positives[np.minimum(places, len(positives) - 1), head]
            low, spared, high = np.searchsorted(negatives[:, head], taus) / len(negatives)
            missed = places[1] / len(positives)
            dismissal = self.prevalence * missed + (1.0 - self.prevalence) * spared
            slope = (high - low) / (2 * near)
            error = np.hypot(
                slope * np.sqrt(miss * recall / len(positives)),
                np.sqrt(spared * (1.0 - spared) / len(negatives)),
            )
            rate = self.prevalence * missed / dismissal if dismissal > 0 else 0.0
            tau = float(expit(taus[1] + offset) if aggregation == MAXIMUM else taus[1])
            points.append(TruePoint(recall, tau, float(dismissal), float(rate), float(error)))
        return points


def _joined(blocks: list[Block]) -> Iterator[Block]:
    """Join blocks of equal shape and cut them to equal parts."""
    numbers = np.concatenate([block.numbers for block in blocks])
    labels = np.concatenate([block.image_labels for block in blocks])
    sides = np.concatenate([block.sides for block in blocks])
    kinds = np.concatenate([block.kinds for block in blocks])
    parts = -(-len(numbers) // _CASES_AT_ONCE)
    arrays = (np.array_split(array, parts) for array in (numbers, labels, sides, kinds))
    for part in zip(*arrays, strict=True):
        yield Block(*part)
