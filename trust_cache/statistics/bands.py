"""Bounds on cancer among the dismissed that hold at all thresholds at once.

A pointwise bound holds for one threshold fixed beforehand. Someone who looks at many thresholds and takes the
best needs bounds that hold together. This module fixes a few ranks from the number of cases alone and gives
each an exact bound at an equal share of delta.

Assumption: the cases are independent draws from one population (one case per patient), scored by a model that
never saw them. Why the bounds hold then:

1. At a rank. The threshold of rank m is the score that has m scores before it in ascending order. Given that
   threshold and the number n strictly below it, the n cases below it are independent draws from the part of
   the population below it, with or without ties (David and Nagaraja 2003, Order Statistics, section 2.5).
   Their cancers are binomial, and the bound of Clopper and Pearson (1934) at a share of delta fails with a
   chance of at most that share. Ranks and shares depend on the number of cases only, so by Boole's inequality
   all ranks hold together with confidence 1 - delta.
2. A free threshold that is lowered to the rank below it is a rank.
3. A free threshold t that is kept dismisses no more cancers than the next higher rank. That rank dismisses n
   cases and has the bound U; t dismisses n_t. Given the scores, cancers are independent, each with the chance
   that belongs to its score. The bound of Clopper and Pearson also covers the mean of unequal chances
   (Hoeffding 1956, Annals of Mathematical Statistics 27, 713-721; for k <= n - 2, and beyond that up to a
   relative error of one share). Hence the chances of the n cases sum to at most n U, those of the n_t cases
   sum to no more, and their mean is at most n U / n_t, for all t at once.

Point 3 is about the expected cancers among the dismissed cases at hand. For the population's rate below t the
ratio n / n_t is an estimate. For one t fixed beforehand n U / n_t covers that rate too: it is never below the
pointwise bound at t at the same share. For a freely chosen t there is no proof; docs/choosing.md simulates
it with laws made to break it.

The bound of the rank below an unlowered threshold is no bound: it does not see the cancers between the two.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trust_cache.base.errors import check_fraction, check_least
from trust_cache.statistics.bounds import Floats, Integers, clopper_pearson_upper
from trust_cache.statistics.thresholds import checked_columns

LARGEST_RANKS = 18  # from all cases down to 4.5 % of them
_STEP, _OF = 5, 6  # each rank is about 5/6 of the next higher one


@dataclass(frozen=True)
class Rank:
    """A threshold of the band: the cases strictly below it, the cancers among them, and the bound."""

    threshold: float
    dismissed: int
    positives_dismissed: int
    bound: float
    share: float  # of delta


@dataclass(frozen=True)
class Band:
    """Bounds that hold at all thresholds at once with confidence 1 - delta."""

    delta: float
    positives: int
    ranks: tuple[Rank, ...]  # by ascending threshold
    scores: Floats  # of all cases, ascending

    @property
    def cases(self) -> int:
        """The number of cases."""
        return int(self.scores.size)

    def lower(self, tau: float) -> Rank | None:
        """Return the highest rank whose threshold is at most `tau`; None: every rank is above it.

        Whoever uses that rank's threshold in place of `tau` has its bound.
        """
        place = int(np.searchsorted(self._thresholds, tau, side="right"))
        return self.ranks[place - 1] if place else None

    def keep(self, taus: ArrayLike) -> Floats:
        """Return the bound at each threshold as it is, from the next higher rank: min(1, n U / n_t).

        It is 1 above the highest rank and where nothing is dismissed.
        """
        thresholds = np.asarray(taus, dtype=np.float64)
        below = np.searchsorted(self.scores, thresholds, side="left")
        place = np.searchsorted(self._thresholds, thresholds, side="left")
        bounds = np.array([*(rank.bound for rank in self.ranks), 1.0])[place]
        dismissed = np.array([*(rank.dismissed for rank in self.ranks), self.cases])[place]
        # The ratio comes first: at a rank it is exactly 1.
        kept = np.minimum(1.0, bounds * (dismissed / np.maximum(below, 1)))
        return np.where(below > 0, kept, 1.0)

    def rows(self) -> Iterator[dict[str, float | int]]:
        """Yield each rank as a row: threshold, dismissed, positives_dismissed, bound, share."""
        for rank in self.ranks:
            yield {
                "threshold": rank.threshold,
                "dismissed": rank.dismissed,
                "positives_dismissed": rank.positives_dismissed,
                "bound": rank.bound,
                "share": rank.share,
            }

    @property
    def _thresholds(self) -> Floats:
        return np.array([rank.threshold for rank in self.ranks], dtype=np.float64)


def band_ranks(cases: int) -> Integers:
    """Return the ranks of a band, ascending: how many scores come before the score that is the threshold.

    The highest is the rank of the largest score. The others are that rank times powers of 5/6, rounded down,
    to 4.5 % of the cases or to 1. People choose thresholds that dismiss 5 % to 60 % of the cases: there finer
    ranks lose more by smaller shares than they gain, and coarser ranks lose by the cancers between them.
    """
    check_least("cases", cases)
    ranks = {(cases - 1) * _STEP**step // _OF**step for step in range(LARGEST_RANKS)}
    return np.array(sorted(rank for rank in ranks if rank > 0), dtype=np.int64)


def simultaneous_band(scores: ArrayLike, labels: ArrayLike, delta: float = 0.01) -> Band:
    """Return bounds at the ranks of the scores that hold together with confidence 1 - delta.

    `scores` and `labels` are those of complete evaluation cases, one per patient. Where M configurations are
    shown pass delta / M. Equal scores stay together: ranks that fall on one score are one rank. Without two
    different scores there is no rank, and every bound is 1.
    """
    values, positive = checked_columns(scores, labels)
    check_fraction("delta", delta)
    ranks = band_ranks(values.size)
    ordered = np.sort(values)
    thresholds = np.unique(ordered[ranks])
    dismissed = np.searchsorted(ordered, thresholds, side="left")
    missed = np.searchsorted(np.sort(values[positive]), thresholds, side="left")
    share = delta / max(ranks.size, 1)
    bounds = clopper_pearson_upper(missed, dismissed, share)
    rows = zip(thresholds.tolist(), dismissed.tolist(), missed.tolist(), bounds.tolist(), strict=True)
    return Band(
        delta=delta,
        positives=int(np.count_nonzero(positive)),
        ranks=tuple(Rank(*row, share=share) for row in rows if row[1] > 0),
        scores=ordered,
    )
