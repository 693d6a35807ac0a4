"""Laws of cancer by score, some made to break bounds, and how often a freely chosen bound fails."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.binormal import Binormal
from trust_cache.statistics.bands import LARGEST_RANKS, simultaneous_band
from trust_cache.statistics.bounds import clopper_pearson_upper

Floats = NDArray[np.float64]
MOST_POINTWISE = 1_000  # cohorts: the pointwise bound at every threshold is slow, and it fails often


@dataclass(frozen=True)
class RiskLaw:
    """The risk of cancer by the score's quantile: constant between edges. Scores are their own quantiles."""

    edges: Floats
    risk: Floats

    @classmethod
    def of_binormal(cls, model: Binormal) -> "RiskLaw":
        """Return the law of a binormal model, its risk made constant on 4,000 small intervals."""
        taus = np.linspace(1e-6, 1 - 1e-6, 4_001)
        cancers = model.prevalence * model.miss_rate(taus)
        below = cancers + (1 - model.prevalence) * model.spared_rate(taus)
        edges = np.concatenate([[0.0], below[1:-1], [1.0]])
        mass = np.concatenate([[0.0], cancers[1:-1], [model.prevalence]])
        return cls(edges, np.diff(mass) / np.diff(edges))

    def draw(self, cases: int, generator: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
        """Draw scores in ascending order, and labels."""
        scores = np.sort(generator.random(cases))
        piece = np.searchsorted(self.edges, scores, side="right") - 1
        labels = (generator.random(cases) < self.risk[piece]).astype(np.int64)
        return scores, labels

    def rate_below(self, taus: Floats) -> Floats:
        """Return P(cancer | score < tau), the rate that a bound is about."""
        mass = np.concatenate([[0.0], np.cumsum(self.risk * np.diff(self.edges))])
        return np.interp(taus, self.edges, mass) / taus


def just_above_each_rank(prevalence: float) -> RiskLaw:
    """Return a hard law for a kept threshold: all cancers between two ranks are at the lower end."""
    starts = np.concatenate([[0.0], (5 / 6) ** np.arange(LARGEST_RANKS)[::-1]])
    inner = starts[:-1] + 0.1 * np.diff(starts)
    edges = np.concatenate([np.stack([starts[:-1], inner], axis=1).ravel(), [1.0]])
    return RiskLaw(edges, np.tile([10 * prevalence, 0.0], LARGEST_RANKS))


# Law, cases in a cohort. The first has the size and prevalence of NLBS.
RISK_LAWS = {
    "binormal": (RiskLaw.of_binormal(Binormal(0.0248, 0.72)), 4_797),
    "sharp": (RiskLaw.of_binormal(Binormal(0.05, 0.995)), 1_200),
    "uninformative": (RiskLaw(np.array([0.0, 1.0]), np.array([0.05])), 1_200),
    "crossing": (RiskLaw(np.array([0.0, 0.1, 0.7, 1.0]), np.array([0.1, 0.01, 0.15])), 1_200),
    "reversed": (RiskLaw(np.array([0.0, 0.04, 1.0]), np.array([0.5, 0.01])), 1_200),
    "just above each rank": (just_above_each_rank(0.05), 1_200),
    "just above each rank, frequent": (just_above_each_rank(0.095), 1_200),
}


@dataclass(frozen=True)
class Failures:
    """In how many cohorts the bound of some threshold was below the truth: no adversary fails more often."""

    cohorts: int
    lowered: int  # a threshold lowered to a rank
    kept: int  # a kept threshold
    rank_below: int  # the wrong use: the rank below gives the bound of an unlowered threshold
    pointwise: int
    pointwise_cohorts: int


def count_failures(name: str, delta: float, cohorts: int, seed: int) -> Failures:
    """Draw cohorts of a law and count those in which some threshold's bound is below the true rate."""
    law, cases = RISK_LAWS[name]
    generator = np.random.default_rng([seed, cases, list(RISK_LAWS).index(name)])
    counts = np.zeros(4, dtype=np.int64)
    tried = min(cohorts, MOST_POINTWISE)
    for cohort in range(cohorts):
        scores, labels = law.draw(cases, generator)
        counts[:3] += _failures(law, scores, labels, delta)
        if cohort < tried:
            bounds = clopper_pearson_upper(np.cumsum(labels), np.arange(1, cases + 1), delta)
            counts[3] += np.any(bounds < law.rate_below(scores))
    lowered, kept, rank_below, pointwise = counts.tolist()
    return Failures(cohorts, lowered, kept, rank_below, pointwise, tried)


def _failures(law: RiskLaw, scores: Floats, labels: NDArray[np.int64], delta: float) -> list[bool]:
    """Tell for each of the three uses of a band whether some threshold's bound is below the true rate.

    Just above a score the true rate is that at the score, and one more case is dismissed.
    """
    band = simultaneous_band(scores, labels, delta)
    thresholds = np.array([rank.threshold for rank in band.ranks])
    bounds = np.array([1.0, *(rank.bound for rank in band.ranks)])
    rates = law.rate_below(scores)
    kept = np.minimum(band.keep(scores), band.keep(np.nextafter(scores, np.inf)))
    below = bounds[np.searchsorted(thresholds, scores, side="right")]
    pairs = ((bounds[1:], law.rate_below(thresholds)), (kept, rates), (below, rates))
    return [bool(np.any(bound < rate)) for bound, rate in pairs]
