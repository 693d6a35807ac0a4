"""The binormal model of case scores: cohorts to draw, and the truth about them in closed form."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtr, ndtri


@dataclass(frozen=True)
class Binormal:
    """Negatives score N(0, 1), positives N(shift, 1), before a sigmoid that keeps the order."""

    prevalence: float
    auroc: float

    @property
    def shift(self) -> float:
        """The distance of the means that gives this AUROC."""
        return float(np.sqrt(2.0) * ndtri(self.auroc))

    def draw(
        self, cases: int, generator: np.random.Generator, positives: int | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw scores in (0, 1) and labels, with a given or a binomial number of positives."""
        if positives is None:
            labels = (generator.random(cases) < self.prevalence).astype(np.int64)
        else:
            labels = generator.permutation(np.arange(cases) < positives).astype(np.int64)
        latent = generator.standard_normal(cases) + self.shift * labels
        return np.asarray(expit(latent)), labels

    def miss_rate(self, tau: ArrayLike) -> NDArray[np.float64]:
        """Return P(score < tau | cancer)."""
        return np.asarray(ndtr(logit(tau) - self.shift))

    def spared_rate(self, tau: ArrayLike) -> NDArray[np.float64]:
        """Return P(score < tau | no cancer)."""
        return np.asarray(ndtr(logit(tau)))

    def omission_rate(self, tau: ArrayLike) -> NDArray[np.float64]:
        """Return P(cancer | score < tau), the rate that a certificate bounds."""
        omitted = self.prevalence * self.miss_rate(tau)
        return np.asarray(omitted / (omitted + (1.0 - self.prevalence) * self.spared_rate(tau)))
