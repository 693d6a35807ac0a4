"""Numbers behind the figures of a run: exact curves, shares by class, observed rates by score."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
BINS = 40  # of a histogram
RELIABILITY_BINS = 10
RELIABILITY_DELTA = 0.025  # on each side, for 95 % intervals


@dataclass(frozen=True)
class Counter:
    """Counts the cases below many thresholds at once."""

    scores: Floats  # sorted, NaN last
    positive_scores: Floats  # of complete cases, sorted

    @classmethod
    def of(cls, scores: Floats, labels: Integers) -> "Counter":
        """Sort the scores of one subset; those of incomplete cases, NaN, are below no threshold."""
        return cls(np.sort(scores), np.sort(scores[(labels == 1) & ~np.isnan(scores)]))

    def dismissed(self, taus: Floats) -> Integers:
        """Count the cases strictly below each threshold."""
        return np.searchsorted(self.scores, taus, side="left").astype(np.int64)

    def missed(self, taus: Floats) -> Integers:
        """Count the positives strictly below each threshold."""
        return np.searchsorted(self.positive_scores, taus, side="left").astype(np.int64)

    @property
    def cases(self) -> int:
        """The number of cases."""
        return self.scores.size

    @property
    def positives(self) -> int:
        """The number of complete positives: recall is over them."""
        return self.positive_scores.size


def operating_curve(scores: Floats, labels: Integers) -> pl.DataFrame:
    """Return every possible recall with the largest dismissal at that recall.

    A threshold can rise to the next positive's score without dismissing a further positive: one row per
    positive gives the complete curve, however many cases there are.
    """
    counter = Counter.of(scores, labels)
    taus = np.unique(counter.positive_scores)
    complete = counter.scores[~np.isnan(counter.scores)]
    taus = np.append(taus, np.nextafter(complete[-1], np.inf))
    dismissed, missed = counter.dismissed(taus), counter.missed(taus)
    negatives = complete.size - counter.positives
    return pl.DataFrame(
        {
            "tau": taus,
            "dismissed": dismissed,
            "positives_dismissed": missed,
            "dismissal": dismissed / counter.cases,
            "recall": 1.0 - missed / counter.positives,
            "false_positive_rate": (
                1.0 - (dismissed - missed) / negatives if negatives else np.zeros(taus.size)
            ),
        }
    )


def class_shares(scores: Floats, labels: Integers, edges: Floats) -> pl.DataFrame:
    """Return one histogram per class: the share of its cases in every bin."""
    parts = []
    for label in (0, 1):
        of_class = scores[labels == label]
        counts, _ = np.histogram(of_class, edges)
        parts.append(
            pl.DataFrame(
                {
                    "label": label,
                    "low": edges[:-1],
                    "high": edges[1:],
                    "cases": counts.astype(np.int64),
                    "share": counts / of_class.size if of_class.size else np.zeros(counts.size),
                }
            )
        )
    return pl.concat(parts)


def histogram_edges(scores: tuple[Floats, ...]) -> Floats:
    """Return the bin edges that all configurations share."""
    low = min(float(part.min()) for part in scores)
    high = max(float(part.max()) for part in scores)
    return np.linspace(low, high if high > low else low + 1.0, BINS + 1)


def reliability(scores: Floats, labels: Integers) -> pl.DataFrame:
    """Return the observed rate of positives in ten equal groups of cases by score.

    Equal scores stay in one group, so there can be fewer than ten.
    """
    order = np.argsort(scores, kind="stable")
    ranked, positive = scores[order], labels[order]
    cuts = ranked[[(part * ranked.size) // RELIABILITY_BINS for part in range(1, RELIABILITY_BINS)]]
    starts = np.unique(np.searchsorted(ranked, np.concatenate([ranked[:1], cuts]), side="left"))
    cases = np.diff(np.append(starts, ranked.size))
    positives = np.add.reduceat(positive, starts).astype(np.int64)
    return pl.DataFrame(
        {
            "mean_score": np.add.reduceat(ranked, starts) / cases,
            "lowest_score": ranked[starts],
            "cases": cases,
            "positives": positives,
            "rate": positives / cases,
            "lower": clopper_pearson_lower(positives, cases, RELIABILITY_DELTA),
            "upper": clopper_pearson_upper(positives, cases, RELIABILITY_DELTA),
        }
    )
