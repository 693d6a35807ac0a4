"""Detect drift of scores while they arrive: a conformal test martingale on smoothed ranks.

Each new score is ranked among the reference scores and all earlier new ones. As long as all of them are
exchangeable the smoothed ranks are independent and uniform, whatever their distribution, and the wealth of a
gambler who bets against that reaches 100 at any time with a chance of at most 1 % (Ville's inequality). The
reference alone would not do: its own randomness makes ranks among it dependent.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ALARM = 100.0  # the wealth that says drift: by chance in at most 1 % of streams of any length
_TILTS = (0.25, 0.5, 1.0, 1.8)  # of bets; 2 would be ruin at the ends
_SHARES = (0.0, 0.001, 0.01)  # of the wealth that moves between bets at each step, to follow late changes


@dataclass(frozen=True)
class ShiftSize:
    """How far scores moved: the chance that a new score is above a reference score, and that in SD."""

    superiority: float  # 0.5: no shift
    standard_deviations: float | None  # of a normal shift with this chance; None where it is infinite


def smoothed_ranks(reference: Floats, scores: Floats, ties: Floats) -> Floats:
    """Return the rank in (0, 1) of each score among the reference and all earlier scores, itself included.

    `ties` are uniform numbers that place a score among its equals. O(n log n).
    """
    if ties.shape != scores.shape:
        raise InputError(f"ties: expected {scores.size} numbers, one for each score, found {ties.size}")
    everything = np.concatenate([reference, scores])
    if not np.all(np.isfinite(everything)):
        raise InputError("scores: expected finite numbers, found others")
    _, dense = np.unique(everything, return_inverse=True)
    below, equal = _earlier(dense.astype(np.int64))
    first = reference.size
    place = np.arange(first, everything.size)
    return np.asarray((below[first:] + ties * (equal[first:] + 1)) / (place + 1))


def log_wealth_path(ranks: Floats) -> Floats:
    """Return the log wealth after each rank; ranks [step] or [stream, step].

    The gambler divides the wealth over tilted bets (scores move up or down, spread or gather) and over speeds
    at which wealth moves between them. No bet can lose everything, so the wealth is always positive.
    """
    streams = np.atleast_2d(ranks)
    tilts = np.array([sign * tilt for tilt in _TILTS for sign in (1, -1)])
    speeds = np.array(_SHARES)
    bets = 2 * tilts.size + 1  # the last one keeps its wealth
    wealth = np.full((streams.shape[0], speeds.size, bets), 1.0 / (speeds.size * bets))
    log_total = np.zeros(streams.shape[0])
    path = np.empty(streams.shape)
    factors = np.ones((streams.shape[0], 1, bets))
    for step in range(streams.shape[1]):
        centred = streams[:, step] - 0.5
        factors[:, 0, : tilts.size] = 1.0 + np.multiply.outer(centred, tilts)
        spread = 6.0 * centred * centred - 0.5  # from -0.5 to 1, with mean 0
        factors[:, 0, tilts.size : -1] = 1.0 + np.multiply.outer(spread, 0.5 * tilts)
        wealth *= factors
        wealth += speeds[:, None] * (wealth.mean(axis=2, keepdims=True) - wealth)
        total = wealth.sum(axis=(1, 2))
        wealth /= total[:, None, None]
        log_total += np.log(total)
        path[:, step] = log_total
    return path[0] if np.ndim(ranks) == 1 else path


def shift_size(reference: Floats, scores: Floats) -> ShiftSize | None:
    """Return how far scores are above or below the reference; None where one of them is empty."""
    from scipy.special import ndtri  # noqa: PLC0415 - it takes 0.1 s

    if not reference.size or not scores.size:
        return None
    ordered = np.sort(reference)
    below = np.searchsorted(ordered, scores, side="left") + np.searchsorted(ordered, scores, side="right")
    chance = float(below.mean() / (2 * ordered.size))
    distance = float(np.sqrt(2.0) * ndtri(chance))
    return ShiftSize(chance, distance if np.isfinite(distance) else None)


def _earlier(dense: Integers) -> tuple[Integers, Integers]:
    """Return for each value how many earlier ones are smaller and how many are equal.

    The values are sorted by one bit after the other, from the highest (a wavelet tree): among values that
    agree in all higher bits, those with a 0 before a 1 are the earlier smaller ones.
    """
    size = dense.size
    order, below = np.arange(size), np.zeros(size, dtype=np.int64)
    place = np.arange(size)
    starts = np.zeros(1, dtype=np.int64)  # of the groups of values that agree in all higher bits
    for bit in reversed(range(int(dense.max(initial=0)).bit_length())):
        ones = (dense[order] >> bit) & 1 == 1
        zeros_before = np.cumsum(~ones) - ~ones
        sizes = np.diff(starts, append=size)
        before = zeros_before - np.repeat(zeros_before[starts], sizes)  # zeros of the same group
        below[order[ones]] += before[ones]
        zeros = np.add.reduceat(~ones, starts, dtype=np.int64)
        group = np.repeat(starts, sizes)
        target = np.where(ones, place + np.repeat(zeros, sizes) - before, group + before)
        sorted_order = np.empty(size, dtype=np.int64)
        sorted_order[target] = order
        order = sorted_order
        starts = np.unique(np.concatenate([starts, (starts + zeros)[zeros < sizes]]))
    equal = np.empty(size, dtype=np.int64)
    equal[order] = place - np.repeat(starts, np.diff(starts, append=size))
    return below, equal
