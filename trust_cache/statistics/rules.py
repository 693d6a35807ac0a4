"""Rules that fix how many search positives a threshold may dismiss, and what each one promises.

Every rule is a rank: with C search positives it allows a(C) misses, and tau is the (a + 1)-th smallest
positive score. They differ in a(C) and so in what holds for the miss rate m of future positives.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np

from trust_cache.base.errors import InputError
from trust_cache.statistics.bounds import smallest_samples
from trust_cache.statistics.thresholds import Share, allowed_misses, exact_share

RuleName = Literal["recall", "crc", "ltt"]

PROMISES: dict[str, str] = {
    "recall": "the recall on the search subset is at least the target; no promise beyond it",
    "crc": "the expected miss rate is at most 1 - target (conformal risk control)",
    "ltt": "with confidence 1 - delta the miss rate is at most 1 - target (Learn then Test)",
}


@dataclass(frozen=True)
class Allowance:
    """What a rule allows with the positives at hand; misses None: no threshold keeps the promise."""

    misses: int | None
    needed: int | None  # positives from which the rule has a threshold; None: no number suffices


def allowance(rule: str, positives: int, recall: Share, delta: float) -> Allowance:
    """Return the misses that `rule` allows among `positives` search positives."""
    alpha = 1 - exact_share(recall)
    if rule == "recall":
        return Allowance(allowed_misses(positives, recall), needed=1)
    if rule == "crc":
        return _conformal_risk_control(positives, alpha)
    if rule == "ltt":
        return _learn_then_test(positives, alpha, delta)
    raise InputError(f"rule: expected one of {', '.join(get_args(RuleName))}, found {rule!r}")


def _conformal_risk_control(positives: int, alpha: Fraction) -> Allowance:
    """Allow the largest a with (a + 1) / (C + 1) <= alpha (Angelopoulos et al. 2022, theorem 1)."""
    if alpha == 0:
        return Allowance(None, needed=None)
    misses = math.floor(alpha * (positives + 1)) - 1
    return Allowance(misses if misses >= 0 else None, needed=math.ceil(1 / alpha) - 1)


def _learn_then_test(positives: int, alpha: Fraction, delta: float) -> Allowance:
    """Test "m(tau) > alpha" from the safest threshold on, while P(Bin(C, alpha) <= a) <= delta.

    That p-value is at most delta exactly where C >= n_min(a), and grows with a: the fixed sequence
    stops at the first a whose table entry exceeds C.
    """
    if alpha == 0:
        return Allowance(None, needed=None)
    table = smallest_samples(positives, float(alpha), delta)
    rejected = int(np.searchsorted(table, positives, side="right"))
    return Allowance(rejected - 1 if rejected else None, needed=int(table[0]))
