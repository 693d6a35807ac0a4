"""How likely a study or a monitored model reaches its aim, exactly, before it starts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError, check_fraction, check_least
from trust_cache.statistics.bounds import smallest_samples
from trust_cache.statistics.confidence_sequences import MixturePrior, alarming_samples, confirming_samples

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LARGEST_WATCHED = 1_000_000  # cases; the chances of each moment are computed one after the other
_MOST_MISSES = 100_000
_NEGLIGIBLE = 1e-12


def assurance(dismissed: int, rate: float, limit: float, delta: float) -> float:
    """Return the chance that the bound of this many dismissed cases is at most the limit, at a true rate."""
    from scipy.special import bdtr  # noqa: PLC0415 - 0.1 s that most starts save

    check_least("dismissed", dismissed)
    _check_rates(rate, limit)
    enough = smallest_samples(_misses_to_try(dismissed, limit), limit, delta)
    allowed = int(np.searchsorted(enough, dismissed, side="right")) - 1
    return float(bdtr(allowed, dismissed, rate)) if allowed >= 0 else 0.0


def dismissed_for_assurance(rate: float, limit: float, wanted: float, delta: float) -> int:
    """Return the number of dismissed cases from which on the assurance is at least as wanted.

    The assurance rises where one more miss becomes allowed and falls in between; from this number on it never
    falls below what is wanted.
    """
    from scipy.special import bdtr  # noqa: PLC0415 - 0.1 s that most starts save

    _check_rates(rate, limit)
    check_fraction("assurance", wanted)
    if rate >= limit:
        raise InputError(f"rate: expected one below the limit {limit}, found {rate}")
    most = 32
    while most <= _MOST_MISSES:
        enough = smallest_samples(most, limit, delta)
        # The worst sample with k misses allowed is the last before k + 1 are.
        worst = bdtr(np.arange(most, dtype=np.float64), enough[1:] - 1, rate)
        short = np.flatnonzero(worst < wanted)
        last = int(short[-1]) if short.size else -1
        if most > 2 * last + 16:
            return int(enough[last + 1])
        most *= 2
    raise InputError(
        f"rate: {rate} is so near the limit {limit} that more than {_MOST_MISSES} misses would have"
        " to be counted"
    )


@dataclass(frozen=True)
class SequenceBoundaries:
    """At each number of followed cases 0..N, the counts of cancers at which a confidence sequence decides."""

    confirms: Integers  # this count or fewer; -1: none does
    alarms: Integers  # this count or more; larger than the number of cases: none does


def sequence_boundaries(
    largest: int, level: float, prior: MixturePrior, delta: float = 0.01
) -> SequenceBoundaries:
    """Return the counts that confirm the level or raise its alarm after each case up to the largest."""
    if not 1 <= largest <= LARGEST_WATCHED:
        raise InputError(f"cases: expected 1 to {LARGEST_WATCHED}, found {largest}")
    sizes = np.arange(largest + 1)
    confirming = confirming_samples(int(largest * level) + 1, level, prior, delta)
    confirms = np.searchsorted(confirming, sizes, side="right") - 1
    most = 64 + int(largest * level)
    while (alarming := alarming_samples(most, level, prior, delta))[-1] < largest:
        most *= 2
    alarms = np.searchsorted(alarming, sizes, side="left")
    alarms[0] = 1  # nothing was followed
    return SequenceBoundaries(confirms.astype(np.int64), alarms.astype(np.int64))


def crossing_chances(rate: float, boundary: Integers, *, confirms: bool) -> Floats:
    """Return the chance that cancers at this rate have reached the boundary by each number of cases.

    The state is the number of cancers; paths that reached the boundary leave it. Exact but for a chance of
    1e-12.
    """
    from scipy.special import bdtrik  # noqa: PLC0415 - 0.1 s that most starts save

    check_fraction("rate", rate)
    last = boundary.size - 1
    most = int(bdtrik(1.0 - _NEGLIGIBLE, last, rate)) + 3 if confirms else int(boundary.max()) + 1
    alive = np.zeros(most + 1)
    alive[0] = 1.0
    reached = np.zeros(boundary.size)
    total = 0.0
    for cases in range(1, boundary.size):
        found = alive[:-1] * rate
        alive *= 1.0 - rate
        alive[1:] += found
        part = alive[: boundary[cases] + 1] if confirms else alive[boundary[cases] :]
        total += float(part.sum())
        part[:] = 0.0
        reached[cases] = total
    return reached


def cases_until(chances: Floats, chance: float) -> int | None:
    """Return the smallest number of cases with at least this chance; None where it is never reached."""
    found = np.flatnonzero(chances >= chance)
    return int(found[0]) if found.size else None


def _misses_to_try(dismissed: int, limit: float) -> int:
    return min(int(dismissed * limit) + 1, _MOST_MISSES)


def _check_rates(rate: float, limit: float) -> None:
    check_fraction("limit", limit)
    if not 0.0 <= rate < 1.0:
        raise InputError(f"rate: expected 0 or a fraction below 1, found {rate}")
