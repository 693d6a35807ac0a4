"""The area under the ROC curve: the chance that a positive outscores a negative, ties half."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class AurocInterval:
    """An estimate with its two-sided interval."""

    value: float
    lower: float
    upper: float
    confidence: float


@dataclass(frozen=True)
class PairedAurocs:
    """Two AUROCs of the same cases, their difference with its interval, and the test that it is zero."""

    first: float
    second: float
    difference: AurocInterval
    p: float  # two-sided, by the normal law


def auroc(scores: NDArray[np.float64], labels: NDArray[np.integer]) -> float | None:
    """Return the AUROC, or None where one of the classes is empty."""
    positives, negatives = scores[labels == 1], scores[labels == 0]
    if not positives.size or not negatives.size:
        return None
    return float(int(twice_below(negatives, positives).sum()) / (2 * positives.size * negatives.size))


def auroc_interval(
    scores: NDArray[np.float64], labels: NDArray[np.integer], confidence: float = 0.95
) -> AurocInterval | None:
    """Return the AUROC with DeLong's interval, or None where a class has fewer than two."""
    found = _placements(scores, labels)
    return None if found is None else _interval(*found, confidence, within=(0.0, 1.0))


def auroc_difference(
    scores: NDArray[np.float64],
    others: NDArray[np.float64],
    labels: NDArray[np.integer],
    confidence: float = 0.95,
) -> AurocInterval | None:
    """Return by how much the AUROC of `scores` exceeds that of `others` on the same cases (DeLong's, paired).

    None where a class has fewer than two.
    """
    found = compare_aurocs(scores, others, labels, confidence)
    return None if found is None else found.difference


def compare_aurocs(
    scores: NDArray[np.float64],
    others: NDArray[np.float64],
    labels: NDArray[np.integer],
    confidence: float = 0.95,
) -> PairedAurocs | None:
    """Test whether two columns of scores of the same cases have the same AUROC (DeLong's, paired).

    The placements come from sorted scores, as in Sun and Xu (2014), so the cost is that of sorting. None
    where a class has fewer than two.
    """
    one, other = _placements(scores, labels), _placements(others, labels)
    if one is None or other is None:
        return None
    parts = (one[0] - other[0], one[1] - other[1])
    difference = _interval(*parts, confidence, within=(-1.0, 1.0))
    error = _standard_error(*parts)
    # Without any variance the difference is what it is: nothing, or certain.
    p = math.erfc(abs(difference.value) / error / math.sqrt(2)) if error else float(difference.value == 0.0)
    return PairedAurocs(float(one[0].mean()), float(other[0].mean()), difference, p)


def _placements(
    scores: NDArray[np.float64], labels: NDArray[np.integer]
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return each positive's share of negatives below it and each negative's of positives above it."""
    positives, negatives = scores[labels == 1], scores[labels == 0]
    if min(positives.size, negatives.size) < 2:  # noqa: PLR2004  # a variance needs two
        return None
    below_positives = twice_below(negatives, positives) / (2 * negatives.size)
    return below_positives, 1.0 - twice_below(positives, negatives) / (2 * positives.size)


def _interval(
    of_positives: NDArray[np.float64],
    of_negatives: NDArray[np.float64],
    confidence: float,
    within: tuple[float, float],
) -> AurocInterval:
    """Return the mean placement with the variance of DeLong, DeLong and Clarke-Pearson (1988)."""
    centre = float(of_positives.mean())
    half = -NormalDist().inv_cdf((1.0 - confidence) / 2.0) * _standard_error(of_positives, of_negatives)
    return AurocInterval(centre, max(centre - half, within[0]), min(centre + half, within[1]), confidence)


def _standard_error(of_positives: NDArray[np.float64], of_negatives: NDArray[np.float64]) -> float:
    return float(np.sqrt(sum(part.var(ddof=1) / part.size for part in (of_positives, of_negatives))))


def twice_below(scores: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return for each value twice the number of scores below it, ties half."""
    ordered = np.sort(scores)
    return np.searchsorted(ordered, values, side="left") + np.searchsorted(ordered, values, side="right")
