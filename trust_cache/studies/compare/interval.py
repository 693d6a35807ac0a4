"""The interval of a difference in dismissal: cases resampled within their class, both columns on the same.

A resample is weights: how often each case was drawn. Thresholds come from the positives' weights.
Given both thresholds the negatives fall into cells (below the first alone, below the second alone, the
rest), and their resampled counts are multinomial with the observed cells' shares; so no negative is
ever copied, and a resample costs as much as its positives do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trust_cache.studies.compare.pairs import Floats, Integers, Pair, dismiss

RESOLVED_FROM = 3  # positives below a threshold; the bootstrap of fewer is that of a sample minimum
LEVEL = 0.95
_WEIGHTS_AT_ONCE = 2_000_000  # bounds the memory of the resamples under way


@dataclass(frozen=True)
class Interval:
    """The middle 95 % of the resampled differences."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether all of it lies on one side of zero."""
        return self.low > 0.0 or self.high < 0.0


def difference_intervals(
    pair: Pair, misses: Sequence[int], resamples: int, seed: int
) -> list[Interval | None]:
    """Return the percentile interval at each number of allowed misses; None: not resolvable."""
    tails = (0.5 * (1.0 - LEVEL), 0.5 * (1.0 + LEVEL))
    rows = resampled_differences(pair, misses, resamples, seed)
    return [
        Interval(*(float(end) for end in np.quantile(differences, tails)))
        if resolvable(pair, allowed)
        else None
        for differences, allowed in zip(rows, misses, strict=True)
    ]


def resolvable(pair: Pair, misses: int) -> bool:
    """Tell whether enough positives lie below both thresholds."""
    return all(
        dismiss(pair.positives[:, column], pair.negatives[:, column], misses).positives_dismissed
        >= RESOLVED_FROM
        for column in (0, 1)
    )


def resampled_differences(pair: Pair, misses: Sequence[int], resamples: int, seed: int) -> Floats:
    """Return the difference in dismissal, first column minus second: [number of misses, resample]."""
    # A stream of its own for each: what one target finds does not depend on the others asked for.
    streams = [_generator(seed, 3, allowed) for allowed in misses]
    parts = [
        [
            _differences(pair, weights, allowed, stream)
            for allowed, stream in zip(misses, streams, strict=True)
        ]
        for weights in resample_weights(len(pair.positives), resamples, seed)
    ]
    return np.concatenate(parts, axis=1)


def resample_weights(cases: int, resamples: int, seed: int) -> Iterator[Integers]:
    """Yield how often each case is drawn in each resample of as many cases: [resample, case], in parts."""
    generator = _generator(seed, 2)
    step = max(1, _WEIGHTS_AT_ONCE // cases)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        yield generator.multinomial(cases, np.full(cases, 1.0 / cases), size=size)


def weighted_thresholds(scores: Floats, weights: Integers, misses: int) -> tuple[Floats, Integers]:
    """Return the largest threshold of each resample that dismisses at most `misses`, and its misses."""
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    cumulative = np.cumsum(weights[:, order], axis=1)
    taus = ordered[np.count_nonzero(cumulative <= misses, axis=1)]
    first_equal = np.searchsorted(ordered, taus, side="left")  # equal scores stay above together
    before = cumulative[np.arange(len(weights)), first_equal - 1]
    return taus, np.where(first_equal > 0, before, 0)


def _differences(pair: Pair, weights: Integers, misses: int, generator: np.random.Generator) -> Floats:
    (taus, missed), (other_taus, other_missed) = (
        weighted_thresholds(pair.positives[:, column], weights, misses) for column in (0, 1)
    )
    excess = missed - other_missed
    total = len(pair.negatives)
    if total:
        alone, other_alone = cells(pair.negatives, taus, other_taus)
        shares = np.stack([alone, other_alone, total - alone - other_alone], axis=1) / total
        drawn = generator.multinomial(total, shares)
        excess = excess + drawn[:, 0] - drawn[:, 1]
    return np.asarray(excess / pair.cases)


def cells(negatives: Floats, taus: Floats, other_taus: Floats) -> tuple[Integers, Integers]:
    """Count for each pair of thresholds the negatives below the first alone and below the second alone."""
    levels, level = np.unique(taus, return_inverse=True)
    other_levels, other_level = np.unique(other_taus, return_inverse=True)
    # A negative is below levels[j] iff at most j of the levels are at or below it.
    bins = np.searchsorted(levels, negatives[:, 0], side="right")
    other_bins = np.searchsorted(other_levels, negatives[:, 1], side="right")
    shape = (len(levels) + 1, len(other_levels) + 1)
    table = np.bincount(bins * shape[1] + other_bins, minlength=shape[0] * shape[1]).reshape(shape)
    below = table.cumsum(axis=0).cumsum(axis=1)
    both = below[level, other_level]
    return below[level, -1] - both, below[-1, other_level] - both


def _generator(seed: int, *stream: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=stream))
