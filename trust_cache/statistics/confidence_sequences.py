"""Bounds on a rate that hold at every moment of a growing sample (beta-binomial mixture).

The wealth M_n(p) = B(a + k, b + n - k) / B(a, b) / (p^k (1 - p)^(n - k)) is a martingale if p is the true
rate, so by Ville's inequality it reaches 1 / delta at any time with a chance of at most delta. The rates for
which it has not are a confidence sequence: both ends hold at all times together with confidence 1 - delta,
and nothing is spent by looking. The prior (a, b) must be fixed before the first case.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trust_cache.base.errors import InputError, check_fraction, check_least
from trust_cache.statistics.bounds import integer_counts, scalar_or_array

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_A = 0.5
_FARTHEST = 700.0  # logit; beyond it a rate or its complement underflows
_HALVINGS = 64  # of that range: the last bit of the logit
_NEAR = 0.5  # relative difference below which log1p keeps digits that log would lose
_STIRLING_FROM = 16.0  # from here four terms of the series are exact to the last bit
_HALF_LOG_2PI = 0.5 * np.log(2.0 * np.pi)
_LARGEST_SAMPLE = 2**52


@dataclass(frozen=True)
class MixturePrior:
    """A beta distribution of rates that the mixture bets on."""

    a: float
    b: float

    def __post_init__(self) -> None:
        for name, value in (("a", self.a), ("b", self.b)):
            if not 0.0 < value < np.inf:
                raise InputError(f"prior {name}: expected a positive number, found {value}")

    @property
    def mean(self) -> float:
        """The mean rate."""
        return self.a / (self.a + self.b)


def prior_of(positives_dismissed: int, dismissed: int) -> MixturePrior:
    """Return the prior that a certificate fixes: a = 0.5 with mean (k + 0.5) / (n + 1)."""
    mean = (positives_dismissed + 0.5) / (dismissed + 1)
    return MixturePrior(_A, _A * (1.0 - mean) / mean)


def sequence_upper(k: ArrayLike, n: ArrayLike, prior: MixturePrior, delta: float = 0.01) -> Any:
    """Return the upper end of the confidence sequence after k positives among n; 1 where k = n."""
    positives, cases = integer_counts(k, n)
    ends = _solve(positives, cases, _room(positives, cases, prior, delta), above=True)
    return scalar_or_array(np.where(positives < cases, ends, 1.0))


def sequence_lower(k: ArrayLike, n: ArrayLike, prior: MixturePrior, delta: float = 0.01) -> Any:
    """Return the lower end of the confidence sequence after k positives among n; 0 where k = 0."""
    positives, cases = integer_counts(k, n)
    ends = _solve(positives, cases, _room(positives, cases, prior, delta), above=False)
    return scalar_or_array(np.where(positives > 0, ends, 0.0))


def log_wealth(k: ArrayLike, n: ArrayLike, rate: float, prior: MixturePrior) -> Any:
    """Return log M_n(rate), the evidence against this rate: log(1 / delta) rejects it at level delta."""
    positives, cases = integer_counts(k, n)
    check_fraction("rate", rate)
    return scalar_or_array(_log_wealth(positives, cases, rate, prior))


def confirming_samples(largest_k: int, level: float, prior: MixturePrior, delta: float = 0.01) -> Integers:
    """Return n(0..largest_k): k positives put the upper end at or below the level exactly where n >= n(k).

    The prior's mean must be below the level; then more cases without cancer always lower the upper end.
    """
    k = _table_of(largest_k, level, prior, delta)
    reached = k.copy()
    # The posterior mean is below the level from here on, and the wealth against the level grows with n.
    beyond = np.maximum(np.ceil(k / level).astype(np.int64), k + 1)
    while np.any(open_ := ~_rejects(k, beyond, level, prior, delta)):
        if beyond.max() > _LARGEST_SAMPLE:
            raise InputError(f"level: expected one that some sample can show, found {level}")
        reached, beyond = np.where(open_, beyond, reached), np.where(open_, 2 * beyond, beyond)
    while np.any(inside := beyond - reached > 1):
        middle = np.where(inside, (reached + beyond) // 2, beyond)
        good = _rejects(k, middle, level, prior, delta) & (k < middle * level)
        beyond = np.where(inside & good, middle, beyond)
        reached = np.where(inside & ~good, middle, reached)
    return beyond


def alarming_samples(largest_k: int, level: float, prior: MixturePrior, delta: float = 0.01) -> Integers:
    """Return n(0..largest_k): k positives put the lower end above the level exactly where k <= n <= n(k).

    0 where k positives never suffice. The prior's mean must be below the level.
    """
    k = _table_of(largest_k, level, prior, delta)
    # Up to the sample whose posterior mean is the level, the wealth against the level falls with n; beyond it
    # no rate above the level was seen.
    last = np.floor((prior.a + k) / level - prior.a - prior.b).astype(np.int64)
    possible = (k > 0) & (last >= k) & _rejects(k, np.maximum(k, 1), level, prior, delta)
    low = np.where(possible, k, 0)
    high = np.where(possible, last + 1, 1)
    while np.any(inside := high - low > 1):
        middle = np.where(inside, (low + high) // 2, np.maximum(low, 1))
        good = _rejects(np.minimum(k, middle), middle, level, prior, delta)
        low = np.where(inside & good, middle, low)
        high = np.where(inside & ~good, middle, high)
    return low


def _table_of(largest_k: int, level: float, prior: MixturePrior, delta: float) -> Integers:
    check_least("largest_k", largest_k)
    check_fraction("level", level)
    check_fraction("delta", delta)
    if prior.mean >= level:
        raise InputError(f"prior: expected a mean below the level {level}, found {prior.mean}")
    return np.arange(largest_k + 1, dtype=np.int64)


def _rejects(k: Integers, n: Integers, level: float, prior: MixturePrior, delta: float) -> NDArray[np.bool_]:
    return np.asarray(_log_wealth(k, n, level, prior) >= -np.log(delta))


def _room(k: Integers, n: Integers, prior: MixturePrior, delta: float) -> Floats:
    """Return how far the log likelihood may fall below its maximum inside the sequence."""
    check_fraction("delta", delta)
    return np.asarray(-np.log(delta) - _log_mixture(k, n, prior))


def _log_wealth(k: Integers, n: Integers, rate: float, prior: MixturePrior) -> Floats:
    fall = _deviance(k, n * rate) + _deviance(n - k, n * (1.0 - rate))
    return np.asarray(_log_mixture(k, n, prior) + fall)


def _log_mixture(k: Integers, n: Integers, prior: MixturePrior) -> Floats:
    """Return log[B(a + k, b + n - k) / B(a, b)] minus the largest log likelihood of k of n.

    Both are of the order of n; written as deviances (Loader 2000), their difference keeps all digits.
    """
    x, y = prior.a + k, prior.b + (n - k)
    total = x + y
    fall = _deviance(k, n * (x / total)) + _deviance(n - k, n * (y / total))
    beta = prior.a * np.log(x / total) + prior.b * np.log(y / total) - fall + _rest_of_log_beta(x, y)
    a, b = np.float64(prior.a), np.float64(prior.b)
    whole = a * np.log(a / (a + b)) + b * np.log(b / (a + b)) + _rest_of_log_beta(a, b)
    return np.asarray(beta - whole)


def _rest_of_log_beta(x: Any, y: Any) -> Any:
    """Return log B(x, y) - x log(x / (x + y)) - y log(y / (x + y))."""
    root = _HALF_LOG_2PI + 0.5 * (np.log(x + y) - np.log(x) - np.log(y))
    return root + _stirling_error(x) + _stirling_error(y) - _stirling_error(x + y)


def _stirling_error(z: Any) -> Any:
    """Return log gamma(z) minus Stirling's formula."""
    from scipy.special import gammaln  # noqa: PLC0415 - 0.1 s that most starts save

    large = np.maximum(z, _STIRLING_FROM)
    w = 1.0 / (large * large)
    series = (1.0 / 12 - w * (1.0 / 360 - w * (1.0 / 1260 - w * (1.0 / 1680 - w / 1188)))) / large
    small = np.minimum(z, _STIRLING_FROM)
    direct = gammaln(small) - ((small - 0.5) * np.log(small) - small + _HALF_LOG_2PI)
    return np.where(z < _STIRLING_FROM, direct, series)


def _deviance(count: Any, expected: Any) -> Any:
    """Return count log(count / expected) + expected - count, without cancellation where they are near."""
    least = np.maximum(count, 1)
    excess = np.where(count > 0, (expected - least) / least, 0.0)
    near = np.abs(excess) < _NEAR
    ratio = np.where(near | (count == 0), 1.0, expected / least)
    logarithm = np.where(near, np.log1p(np.where(near, excess, 0.0)), np.log(ratio))
    return np.where(count > 0, least * (excess - logarithm), expected)


def _solve(k: Integers, n: Integers, room: Floats, *, above: bool) -> Floats:
    """Return the rate above (or below) k / n whose log likelihood is `room` below the largest one."""
    from scipy.special import expit  # noqa: PLC0415 - 0.1 s that most starts save

    odds = np.log(np.maximum(k, 1)) - np.log(np.maximum(n - k, 1))
    inner = np.where(k == 0, -_FARTHEST, np.where(k == n, _FARTHEST, odds))
    outer = np.full(inner.shape, _FARTHEST if above else -_FARTHEST)
    for _ in range(_HALVINGS):
        middle = 0.5 * (inner + outer)
        fallen = _deviance(k, n * expit(middle)) + _deviance(n - k, n * expit(-middle))
        inside = fallen < room
        inner, outer = np.where(inside, middle, inner), np.where(inside, outer, middle)
    return np.asarray(expit(outer))
