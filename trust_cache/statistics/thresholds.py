"""Dismissal thresholds that keep a number of positives: a unit is dismissed iff score < tau."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trust_cache.base.errors import InputError

Share = float | str | Decimal | Fraction


def exact_share(value: Share, name: str = "target") -> Fraction:
    """Return a share in (0, 1] as the fraction its shortest decimal writes: 0.9 is 9/10."""
    try:
        share = value if isinstance(value, Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(f"{name}: expected a fraction such as 0.98, found {value!r}") from error
    if not 0 < share <= 1:
        hint = f"; for {value} % write {float(share / 100):g}" if 1 < share <= 100 else ""  # noqa: PLR2004
        raise InputError(f"{name}: expected a fraction above 0 and at most 1, found {value}{hint}")
    return share


def allowed_misses(positives: int, recall: Share) -> int:
    """Return how many of `positives` may be dismissed at this recall: floor(C (1 - r)), exactly."""
    return math.floor(positives * (1 - exact_share(recall)))


def select_threshold(scores: ArrayLike, labels: ArrayLike, recall: Share) -> float:
    """Return the largest threshold whose recall on these units is at least `recall`."""
    values, positive = checked_columns(scores, labels)
    if not np.any(positive):
        raise InputError("labels: expected at least one positive, found none")
    return threshold_allowing(values[positive], allowed_misses(int(np.count_nonzero(positive)), recall))


def threshold_allowing(positive_scores: NDArray[np.float64], misses: int) -> float:
    """Return the largest threshold that dismisses at most `misses` of these positives.

    That is the (misses + 1)-th smallest positive score: equal scores stay together above it.
    """
    return float(np.partition(positive_scores, misses)[misses])


def checked_columns(scores: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return scores and which are positive, having checked that scores are finite and labels 0 or 1."""
    values = np.asarray(scores, dtype=np.float64)
    classes = np.asarray(labels)
    if values.shape != classes.shape or values.ndim != 1:
        raise InputError(
            f"scores and labels: expected two columns of one length, found shapes {values.shape}"
            f" and {classes.shape}"
        )
    if not np.all(np.isfinite(values)):
        raise InputError("scores: expected finite numbers, found NaN or infinity")
    positive = classes == 1
    if not np.all(positive | (classes == 0)):
        raise InputError("labels: expected 0 or 1 only")
    return values, np.asarray(positive)
