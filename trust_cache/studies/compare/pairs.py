"""Two score columns of the same cases, and what each dismisses at the threshold that keeps a recall."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.statistics.thresholds import checked_columns, threshold_allowing

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Pair:
    """Two columns of scores by class, positives first; a row is one case."""

    positives: Floats  # [case, 2]
    negatives: Floats

    @property
    def cases(self) -> int:
        """The number of cases."""
        return len(self.positives) + len(self.negatives)


@dataclass(frozen=True)
class Pooled:
    """What one column dismisses on the very cases that its threshold comes from."""

    tau: float
    dismissed: int
    positives_dismissed: int


def make_pair(first: Sequence[float] | Floats, second: Sequence[float] | Floats, labels: Integers) -> Pair:
    """Pair two columns of scores; there must be positives."""
    columns = [checked_columns(column, labels) for column in (first, second)]
    positive = columns[0][1]
    if not np.any(positive):
        raise InputError("labels: expected at least one positive, found none")
    both = np.stack([values for values, _ in columns], axis=1)
    return Pair(both[positive], both[~positive])


def dismiss(positives: Floats, negatives: Floats, misses: int) -> Pooled:
    """Choose the largest threshold that dismisses at most `misses` positives and count below it."""
    tau = threshold_allowing(positives, misses)
    missed = int(np.count_nonzero(positives < tau))
    return Pooled(tau, missed + int(np.count_nonzero(negatives < tau)), missed)


def excess(pair: Pair, misses: int) -> int:
    """Return how many cases more the first column dismisses than the second."""
    first, second = (dismiss(pair.positives[:, c], pair.negatives[:, c], misses) for c in (0, 1))
    return first.dismissed - second.dismissed
