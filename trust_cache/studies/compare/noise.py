"""What stands beside the interval: the spread of a difference over trainings, and over single splits."""

from collections.abc import Sequence

import numpy as np

from trust_cache.certificate.resplits import Resplit
from trust_cache.studies.compare.results import SplitNoise, Standing, TrainingNoise


def training_noise(reference: Standing, other: Standing) -> TrainingNoise | None:
    """Return the spread of the difference over the repeats; None where there is only the run itself."""
    differences = np.subtract(reference.repeats, other.repeats)
    if differences.size == 1:
        return None
    return TrainingNoise(
        differences=tuple(float(difference) for difference in differences),
        lowest=float(differences.min()),
        highest=float(differences.max()),
        standard_deviation=float(differences.std(ddof=1)),
        same_sign=int(np.count_nonzero(np.sign(differences) == np.sign(differences[0]))),
    )


def split_noise(
    splits: Sequence[Resplit], reference: str, other: str, target: float, difference: float
) -> SplitNoise | None:
    """Return the spread of the difference over the resplits, both configurations on the same split."""
    dismissal: dict[str | None, list[float]] = {reference: [], other: []}
    for item in splits:
        if item.point.target == target and item.point.configuration in dismissal:
            dismissal[item.point.configuration].append(item.point.dismissed / item.point.cases)
    differences = np.subtract(dismissal[reference], dismissal[other])
    if not differences.size:
        return None
    low, middle, high = (float(value) for value in np.quantile(differences, (0.05, 0.5, 0.95)))
    opposite = np.count_nonzero(np.sign(differences) == -np.sign(difference)) if difference else 0
    return SplitNoise(low, middle, high, int(opposite) / differences.size)
