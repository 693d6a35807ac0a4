"""The area under the ROC curve: the chance that a positive outscores a negative, ties half."""

import numpy as np
from numpy.typing import NDArray


def auroc(scores: NDArray[np.float64], labels: NDArray[np.integer]) -> float | None:
    """Return the AUROC, or None where one of the classes is empty."""
    positives = scores[labels == 1]
    negatives = np.sort(scores[labels == 0])
    if not positives.size or not negatives.size:
        return None
    below = int(np.searchsorted(negatives, positives, side="left").sum())
    below_or_equal = int(np.searchsorted(negatives, positives, side="right").sum())
    return float((below + below_or_equal) / (2 * positives.size * negatives.size))
