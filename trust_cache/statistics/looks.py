"""Spending an error rate over repeated looks at data that keep arriving, however many there will be."""

from trust_cache.base.errors import InputError


def spent_delta(delta: float, look: int) -> float:
    """Return delta / (j (j + 1)), the error rate that look j = 1, 2, ... may spend.

    These sum to delta (1 - 1 / (J + 1)) over J looks, so that by Boole's inequality the chance of any wrong
    bound in any number of looks stays below delta.
    """
    if look < 1:
        raise InputError(f"look: expected 1 or more, found {look}")
    if not 0.0 < delta < 1.0:
        raise InputError(f"delta: expected a number strictly between 0 and 1, found {delta}")
    return delta / (look * (look + 1))
