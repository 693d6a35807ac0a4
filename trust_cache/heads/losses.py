"""Losses and their derivatives by the logit: the readable reference of the kernels' formulas.

The margin t is z of a positive and -z of a negative; p = sigmoid(t) is the probability of the true class and
q = 1 - p. Both come from exp(-|t|), their logarithms from log1p of it, so that nothing overflows or loses
digits at any logit. A batch's loss is the mean over its rows, `dismiss` over its positives.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Loss:
    """A loss and its derivative by the logit, per row."""

    value: Floats
    slope: Floats


def sigmoid(logits: ArrayLike) -> Floats:
    """Return 1 / (1 + exp(-z)) in float64."""
    z = np.asarray(logits, dtype=np.float64)
    e = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, e) / (1.0 + e)


def cross_entropy(logits: ArrayLike, positive: ArrayLike) -> Loss:
    """-log p."""
    row = _Row(logits, positive)
    return row.loss(-row.log_p, -row.q)


def brier(logits: ArrayLike, positive: ArrayLike) -> Loss:
    """(score - label)^2, which is q^2."""
    row = _Row(logits, positive)
    return row.loss(row.q**2, -2 * row.p * row.q**2)


def focal(logits: ArrayLike, positive: ArrayLike, gamma: float) -> Loss:
    """-q^gamma log p."""
    row = _Row(logits, positive)
    power = np.exp(gamma * row.log_q)
    return row.loss(-power * row.log_p, power * (gamma * row.p * row.log_p - row.q))


def dismiss(logits: ArrayLike, positive: ArrayLike, floor: float) -> Loss:
    """max(0, floor - p) of a positive, 0 of a negative; floor is tau + margin, the corner has slope 0."""
    row = _Row(logits, positive)
    acts = row.positive & (row.p < floor)
    return row.loss(np.where(acts, floor - row.p, 0.0), np.where(acts, -row.p * row.q, 0.0))


class _Row:
    """p, q and their logarithms for each row."""

    def __init__(self, logits: ArrayLike, positive: ArrayLike) -> None:
        self.positive = np.asarray(positive, dtype=bool)
        self.sign = np.where(self.positive, 1.0, -1.0)
        margin = self.sign * np.asarray(logits, dtype=np.float64)
        e = np.exp(-np.abs(margin))
        self.p = np.where(margin >= 0, 1.0, e) / (1.0 + e)
        self.q = np.where(margin >= 0, e, 1.0) / (1.0 + e)
        self.log_p = np.minimum(margin, 0.0) - np.log1p(e)
        self.log_q = np.minimum(-margin, 0.0) - np.log1p(e)

    def loss(self, value: Floats, slope: Floats) -> Loss:
        return Loss(value, self.sign * slope)
