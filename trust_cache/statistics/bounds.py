"""Exact binomial confidence bounds from integer counts (Clopper and Pearson 1934)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trust_cache.base.errors import InputError, check_fraction, check_least

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_LARGEST_SAMPLE = 2**52  # beyond it a count is no longer exact in the floating point of the tail


def clopper_pearson_upper(k: ArrayLike, n: ArrayLike, delta: float = 0.01) -> Any:
    """Return U(k, n; delta): with confidence 1 - delta the rate behind k of n is at most this.

    U is 1 where n = 0 or k = n, else the 1 - delta quantile of Beta(k + 1, n - k). Counts are
    integers, broadcast against each other; a float where both are scalars, else an array.
    """
    from scipy.special import betainccinv  # noqa: PLC0415 - 0.1 s that most starts save

    positives, cases = integer_counts(k, n)
    check_fraction("delta", delta)
    defined = positives < cases
    # The complement's inverse takes delta itself: 1 - delta would round it.
    inner = betainccinv(np.where(defined, positives + 1, 1), np.where(defined, cases - positives, 1), delta)
    return scalar_or_array(np.where(defined, inner, 1.0))


def clopper_pearson_lower(k: ArrayLike, n: ArrayLike, delta: float = 0.01) -> Any:
    """Return L(k, n; delta): with confidence 1 - delta the rate behind k of n is at least this.

    L is 0 where k = 0 (n = 0 included), else the delta quantile of Beta(k, n - k + 1).
    """
    from scipy.special import betaincinv  # noqa: PLC0415 - 0.1 s that most starts save

    positives, cases = integer_counts(k, n)
    check_fraction("delta", delta)
    defined = positives > 0
    inner = betaincinv(np.where(defined, positives, 1), np.where(defined, cases - positives + 1, 1), delta)
    return scalar_or_array(np.where(defined, inner, 0.0))


def smallest_samples(largest_k: int, level: float, delta: float) -> Integers:
    """Return the table n_min(0..largest_k): U(k, n; delta) <= level exactly where n >= n_min(k).

    For given k the bound falls with n, so one integer per k decides every candidate. The bound is at
    most the level exactly where k or fewer of n at rate `level` have a chance of at most delta.
    """
    check_least("largest_k", largest_k)
    return _smallest(np.arange(largest_k + 1, dtype=np.int64), level, delta)


def smallest_sample(k: int, level: float, delta: float) -> int:
    """Return n_min(k) alone."""
    check_least("k", k)
    return int(_smallest(np.array([k], dtype=np.int64), level, delta)[0])


def _smallest(k: Integers, level: float, delta: float) -> Integers:
    """Find the smallest n for each k by doubling and halving, all at once."""
    check_fraction("level", level)
    check_fraction("delta", delta)
    too_few = k.copy()  # n = k never suffices: U(k, k) = 1
    enough = k + 1
    while np.any(open_ := ~_suffices(k, enough, level, delta)):
        if enough.max() > _LARGEST_SAMPLE:
            raise InputError(f"level: expected one that some sample can show, found {level}")
        too_few = np.where(open_, enough, too_few)
        enough = np.where(open_, 2 * enough, enough)
    while np.any(enough - too_few > 1):
        middle = (too_few + enough) // 2
        inside = (enough - too_few) > 1
        good = _suffices(k, np.where(inside, middle, enough), level, delta)
        enough = np.where(inside & good, middle, enough)
        too_few = np.where(inside & ~good, middle, too_few)
    return enough


def _suffices(k: Integers, n: Integers, level: float, delta: float) -> NDArray[np.bool_]:
    """P(Bin(n, level) <= k) <= delta, the left side being 1 - I_level(k + 1, n - k)."""
    from scipy.special import betaincc  # noqa: PLC0415 - 0.1 s that most starts save

    return np.asarray(betaincc(k + 1, n - k, level) <= delta)


def integer_counts(k: ArrayLike, n: ArrayLike) -> tuple[Integers, Integers]:
    """Return counts as integer arrays of one shape; refuse rates and k > n."""
    arrays = {"k": np.asarray(k), "n": np.asarray(n)}
    for name, array in arrays.items():
        if array.dtype.kind not in "iu":
            raise InputError(
                f"{name}: expected integer counts, found {array.dtype};"
                " carry the counts themselves, a rate times n rounds to the wrong count"
            )
    positives, cases = np.broadcast_arrays(*(array.astype(np.int64) for array in arrays.values()))
    wrong = (positives < 0) | (positives > cases)
    if np.any(wrong):
        raise InputError(
            f"counts: expected 0 <= k <= n, found k = {positives[wrong].flat[0]}, n = {cases[wrong].flat[0]}"
        )
    return positives, cases


def scalar_or_array(values: Floats) -> Any:
    """Return a float for a single value, else the array."""
    return float(values) if values.ndim == 0 else values
