"""The closed-loop threshold: the largest whose dismissed calibration images have a low enough bound."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trust_cache.statistics.bounds import smallest_samples
from trust_cache.statistics.thresholds import checked_columns

Floats = NDArray[np.float64]
_smallest_samples = lru_cache(maxsize=256)(smallest_samples)


@dataclass(frozen=True)
class Dismissal:
    """A threshold and the number of images strictly below it."""

    tau: float
    dismissed: int
    positives_dismissed: int


def closed_loop_threshold(
    scores: ArrayLike, labels: ArrayLike, level: float = 0.01, delta: float = 0.05
) -> float:
    """Return the largest tau whose dismissed images (score < tau) have a bound of at most `level`; 0 if none.

    The bound is the one-sided Clopper-Pearson upper bound at confidence 1 - delta on the positive rate among
    the dismissed. If all images qualify, tau is just above the largest score.
    """
    values, positive = checked_columns(scores, labels)
    return closed_loop_of_sorted(np.sort(values[~positive]), np.sort(values[positive]), level, delta).tau


def closed_loop_of_sorted(negatives: Floats, positives: Floats, level: float, delta: float) -> Dismissal:
    """Return the closed-loop threshold from the sorted scores of either class.

    Only the scores of positives and the number just above all scores are candidates: a threshold between two
    positives, raised to the upper one, dismisses as many positives and no fewer images, so its bound does not
    rise.
    """
    if not negatives.size + positives.size:
        return Dismissal(0.0, 0, 0)
    largest = max(float(part[-1]) for part in (negatives, positives) if part.size)
    candidates = np.append(positives, math.nextafter(largest, math.inf))
    k = np.searchsorted(positives, candidates, side="left")
    n = np.searchsorted(negatives, candidates, side="left") + k
    qualified = np.flatnonzero(n >= _smallest_samples(positives.size, level, delta)[k])
    if not qualified.size:
        return Dismissal(0.0, 0, 0)
    best = qualified[-1]
    return Dismissal(float(candidates[best]), int(n[best]), int(k[best]))


def dismissal_of_sorted(negatives: Floats, positives: Floats, tau: float) -> Dismissal:
    """Count what a given threshold dismisses, from the sorted scores of either class."""
    k = int(np.searchsorted(positives, tau, side="left"))
    return Dismissal(tau, int(np.searchsorted(negatives, tau, side="left")) + k, k)
