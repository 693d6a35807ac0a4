"""The interval and the test of a difference in dismissal between two columns of scores of the same cases.

The interval resamples cases within their class. A resample is a row of weights: how often each case was
drawn. Thresholds come from the positives' weights. Given both thresholds, the negatives fall into cells
(below the first alone, below the second alone, the rest), and their resampled counts are multinomial with
the observed shares of the cells. So no negative is copied, and the cost of a resample depends on the
positives alone. The test exchanges the two columns' ranks within random cases.

A case that is incomplete in either column is reviewed in both: it counts in the number of cases and nowhere
else. Where patients have several cases, whole patients are resampled and exchanged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.statistics.auroc import twice_below
from trust_cache.statistics.thresholds import checked_columns, exact_share, threshold_allowing
from trust_cache.studies.compare.comparison_results import LEVEL, RESOLVED_FROM

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Pair:
    """Two columns of scores by class, positives first; a row is one complete case."""

    positives: Floats  # [case, 2]
    negatives: Floats
    incomplete: int = 0  # cases without a score in either column: reviewed in both
    patients: Integers | None = None  # of the complete cases, positives first; None: each case has its own

    @property
    def complete(self) -> int:
        """The number of cases with both scores."""
        return len(self.positives) + len(self.negatives)

    @property
    def cases(self) -> int:
        """The number of cases."""
        return self.complete + self.incomplete


@dataclass(frozen=True)
class Pooled:
    """What one column dismisses on the same cases that its threshold comes from."""

    tau: float
    dismissed: int
    positives_dismissed: int


def make_pair(
    first: Sequence[float] | Floats,
    second: Sequence[float] | Floats,
    labels: Integers,
    patients: Integers | None = None,
) -> Pair:
    """Pair two columns of scores, NaN for an incomplete case; there must be complete positives."""
    both = np.stack([np.asarray(column, dtype=np.float64) for column in (first, second)], axis=1)
    complete = ~np.isnan(both).any(axis=1)
    classes = np.asarray(labels)[complete]
    columns = [checked_columns(column, classes) for column in both[complete].T]
    positive = columns[0][1]
    if not np.any(positive):
        raise InputError("labels: expected at least one complete positive, found none")
    kept = np.stack([values for values, _ in columns], axis=1)
    numbers = None
    if patients is not None:
        members = patients[complete]
        _, numbers = np.unique(np.concatenate([members[positive], members[~positive]]), return_inverse=True)
        numbers = None if numbers.max() + 1 == numbers.size else numbers
    return Pair(kept[positive], kept[~positive], int(np.count_nonzero(~complete)), numbers)


def dismiss(positives: Floats, negatives: Floats, misses: int) -> Pooled:
    """Choose the largest threshold that dismisses at most `misses` positives and count below it."""
    tau = threshold_allowing(positives, misses)
    missed = int(np.count_nonzero(positives < tau))
    return Pooled(tau, missed + int(np.count_nonzero(negatives < tau)), missed)


def _dismiss_both(pair: Pair, misses: int) -> tuple[Pooled, Pooled]:
    first, second = (dismiss(pair.positives[:, c], pair.negatives[:, c], misses) for c in (0, 1))
    return first, second


def excess(pair: Pair, misses: int) -> int:
    """Return the cases that the first column dismisses minus those of the second."""
    first, second = _dismiss_both(pair, misses)
    return first.dismissed - second.dismissed


_WEIGHTS_AT_ONCE = 2_000_000  # bounds the memory


@dataclass(frozen=True)
class DifferenceInterval:
    """The middle 95 % of the resampled differences."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether zero is outside the interval."""
        return self.low > 0.0 or self.high < 0.0


def difference_intervals(
    pair: Pair, misses: Sequence[int], resamples: int, seed: int
) -> list[DifferenceInterval | None]:
    """Return the percentile interval at each number of allowed misses; None: not resolvable."""
    rows = resampled_differences(pair, misses, resamples, seed)
    return [
        _percentiles(differences) if resolvable(pair, allowed) else None
        for differences, allowed in zip(rows, misses, strict=True)
    ]


def _percentiles(differences: Floats) -> DifferenceInterval:
    tails = (0.5 * (1.0 - LEVEL), 0.5 * (1.0 + LEVEL))
    return DifferenceInterval(*(float(end) for end in np.quantile(differences, tails)))


def resolvable(pair: Pair, misses: int) -> bool:
    """Return whether enough positives are below both thresholds, of as many patients."""
    for column in (0, 1):
        scores = pair.positives[:, column]
        below = scores < threshold_allowing(scores, misses)
        units = below.nonzero()[0] if pair.patients is None else pair.patients[: below.size][below]
        if np.unique(units).size < RESOLVED_FROM:
            return False
    return True


def patient_intervals(
    pair: Pair, targets: Sequence[float], resamples: int, seed: int
) -> list[DifferenceInterval | None]:
    """Return the percentile interval at each target from resamples of whole patients; None: not resolvable.

    The patients with a positive case and the others are resampled separately. A resample has its own number
    of positives, hence of allowed misses, and its own number of cases.
    """
    rows = patient_differences(pair, targets, resamples, seed)
    return [
        _percentiles(differences)
        if resolvable(pair, int(_allowed(np.array([len(pair.positives)]), target)[0]))
        else None
        for differences, target in zip(rows, targets, strict=True)
    ]


def patient_differences(pair: Pair, targets: Sequence[float], resamples: int, seed: int) -> Floats:
    """Return the difference in dismissal over resamples of whole patients: [target, resample]."""
    numbers = np.arange(pair.complete) if pair.patients is None else pair.patients
    positives = len(pair.positives)
    parts = []
    for weights in patient_weights(numbers, positives, resamples, seed):
        of_cases = weights[:, numbers]
        drawn, others = of_cases[:, :positives], of_cases[:, positives:]
        cases = of_cases.sum(axis=1) + pair.incomplete
        rows = []
        for target in targets:
            misses = _allowed(drawn.sum(axis=1), target)
            counts = []
            for column in (0, 1):
                taus, missed = weighted_thresholds(pair.positives[:, column], drawn, misses)
                below = pair.negatives[:, column] < taus[:, np.newaxis]
                counts.append(missed + np.where(below, others, 0).sum(axis=1))
            rows.append((counts[0] - counts[1]) / cases)
        parts.append(rows)
    return np.concatenate(parts, axis=1)


def patient_weights(numbers: Integers, positives: int, resamples: int, seed: int) -> Iterator[Integers]:
    """Yield how often each patient is drawn in each resample: [resample, patient], in parts."""
    generator = _generator(seed, 4)
    with_positive = np.zeros(int(numbers.max()) + 1, dtype=np.bool_)
    with_positive[numbers[:positives]] = True
    step = max(1, _WEIGHTS_AT_ONCE // numbers.size)
    for start in range(0, resamples, step):
        weights = np.empty((min(step, resamples - start), with_positive.size), dtype=np.int64)
        for stratum in (with_positive, ~with_positive):
            size = int(np.count_nonzero(stratum))
            if size:
                weights[:, stratum] = generator.multinomial(size, np.full(size, 1.0 / size), len(weights))
        yield weights


def _allowed(positives: Integers, target: float) -> Integers:
    """Return the allowed misses of each number of positives, exactly (`thresholds.allowed_misses`)."""
    missed = 1 - exact_share(target)
    return np.asarray(positives * missed.numerator // missed.denominator)


def resampled_differences(pair: Pair, misses: Sequence[int], resamples: int, seed: int) -> Floats:
    """Return the difference in dismissal, first column minus second: [number of misses, resample]."""
    # One random stream per target, so that a result does not depend on the other targets.
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


def weighted_thresholds(scores: Floats, weights: Integers, misses: int | Integers) -> tuple[Floats, Integers]:
    """Return the largest threshold of each resample that dismisses at most `misses`, and its misses."""
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    cumulative = np.cumsum(weights[:, order], axis=1)
    taus = ordered[np.count_nonzero(cumulative <= np.reshape(misses, (-1, 1)), axis=1)]
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


Ranks = NDArray[np.int32]
Masks = NDArray[np.bool_]
SWAPS_AT_ONCE = 50  # masks of all cases held in memory together
_BITS = 64


@dataclass(frozen=True)
class Contest:
    """What the exchanges can change at one number of allowed misses.

    A case below every possible threshold counts in both columns, one above all of them in neither. So the
    difference depends on the open cases alone.
    """

    misses: int
    open_cases: Integers
    ranks: Ranks  # [2, open case]


def swap_test(pair: Pair, misses: Sequence[int], swaps: int, seed: int) -> list[float]:
    """Return a two-sided p-value for each number of allowed misses: (1 + as extreme) / (1 + swaps).

    All cases of a patient are exchanged together.
    """
    observed = [abs(excess(pair, allowed)) for allowed in misses]
    extreme = [0] * len(misses)
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(1,)))
    ranks = midranks(pair)
    positive = ranks[:, : len(pair.positives)]
    contests = [make_contest(ranks, len(pair.positives), allowed) for allowed in misses]
    units = pair.complete if pair.patients is None else int(pair.patients.max()) + 1
    for start in range(0, swaps, SWAPS_AT_ONCE):
        masks = draw_masks(bits, min(SWAPS_AT_ONCE, swaps - start), units)
        masks = masks if pair.patients is None else masks[:, pair.patients]
        for index, contest in enumerate(contests):
            found = swapped_excess(contest, positive, masks)
            extreme[index] += int(np.count_nonzero(np.abs(found) >= observed[index]))
    return [(1 + count) / (1 + swaps) for count in extreme]


def midranks(pair: Pair) -> Ranks:
    """Return twice the mid-rank of every score within its column: [2, case], positives first."""
    columns = np.concatenate([pair.positives, pair.negatives]).T
    return np.stack([twice_below(values, values) + 1 for values in columns]).astype(np.int32)


def make_contest(ranks: Ranks, positives: int, misses: int) -> Contest:
    """Find the cases that an exchange can move across a threshold."""
    lower, upper = ranks.min(axis=0), ranks.max(axis=0)
    least = np.partition(lower[:positives], misses)[misses]
    most = np.partition(upper[:positives], misses)[misses]
    open_cases = np.flatnonzero((lower < most) & (upper >= least))
    return Contest(misses, open_cases, np.ascontiguousarray(ranks[:, open_cases]))


def swapped_excess(contest: Contest, positive: Ranks, masks: Masks) -> Integers:
    """Return the excess of the first column for each mask, with the ranks of marked cases exchanged."""
    of_positives = masks[:, : positive.shape[1]]
    of_open = masks.take(contest.open_cases, axis=1)
    counts = []
    for one, other in ((0, 1), (1, 0)):
        column = np.where(of_positives, positive[other], positive[one])
        column.partition(contest.misses, axis=1)
        tau = column[:, contest.misses, np.newaxis]
        below = np.where(of_open, contest.ranks[other] < tau, contest.ranks[one] < tau)
        counts.append(np.count_nonzero(below, axis=1))
    return np.asarray(counts[0] - counts[1], dtype=np.int64)


def draw_masks(bits: np.random.PCG64, masks: int, cases: int) -> Masks:
    """Mark each case or patient with chance one half, from raw bits, which numpy keeps stable."""
    words = -(-cases // _BITS)
    raw = np.asarray(bits.random_raw(masks * words), dtype="<u8").view(np.uint8).reshape(masks, -1)
    return np.unpackbits(raw, axis=1, count=cases, bitorder="little").astype(np.bool_)


def adjust(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's method, which bounds the chance of any false alarm among all."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(p.size)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, np.arange(p.size, 0, -1) * p[order]))
    return adjusted.tolist()
