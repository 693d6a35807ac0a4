"""Whether new examinations score like those that the model was evaluated on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp

FEWEST = 50  # of either: below, the test sees only gross differences
LEVEL = 0.01


@dataclass(frozen=True)
class Drift:
    """Kolmogorov and Smirnov's two-sample test of case scores; None where there are too few."""

    cases: int
    reference: int
    statistic: float | None
    p_value: float | None

    @property
    def differs(self) -> bool:
        """Whether the distributions differ at the level of the test."""
        return self.p_value is not None and self.p_value < LEVEL


def compare_scores(scores: NDArray[np.float64], reference: NDArray[np.float64]) -> Drift:
    """Compare the scores of new cases with those of the evaluation."""
    if min(scores.size, reference.size) < FEWEST:
        return Drift(scores.size, reference.size, None, None)
    # The asymptotic law: the exact one gives up on some sizes, and at these both agree.
    found = ks_2samp(scores, reference, method="asymp")
    return Drift(scores.size, reference.size, float(found.statistic), float(found.pvalue))


def drift_warnings(drift: Drift) -> tuple[str, ...]:
    """Say in words that the scores differ."""
    if not drift.differs:
        return ()
    return (
        f"the scores of these {drift.cases:,} examinations are distributed otherwise than those of the"
        f" {drift.reference:,} evaluation cases (Kolmogorov-Smirnov distance {drift.statistic:.3f}, p ="
        f" {drift.p_value:.2g}): other machines, other women or another way to export; the bound is about"
        " cases like the evaluation's",
    )
