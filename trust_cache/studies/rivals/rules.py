"""Threshold rules by name: what each promises, and the threshold it chooses on the search subset."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.statistics.omission_rules import (
    OmissionThreshold,
    bonferroni,
    fixed_sequence,
    guaranteed_risk,
)
from trust_cache.statistics.rules import PROMISES, Allowance, allowance
from trust_cache.statistics.thresholds import positives_of, threshold_allowing

Risk = Literal["miss rate", "cancer among the dismissed"]
MISS: Risk = "miss rate"
OMISSION: Risk = "cancer among the dismissed"


@dataclass(frozen=True)
class Rule:
    """A rule's name, the rate it is about, and its promise in one sentence."""

    name: str
    risk: Risk
    promise: str


@dataclass(frozen=True)
class Choice:
    """A rule's threshold, or None with what it would need: an undefined threshold is a state."""

    tau: float | None
    needed: int | None  # positives, or dismissed cases without a cancer; None: no number suffices
    reason: str | None  # why there is no threshold
    allowance: Allowance  # in positives; without a number where the rule does not count those


_CONFIDENT = "with confidence 1 - delta at most `level` of the dismissed have cancer"
_MONOTONE = "where the risk grows with the score"

RULES = {
    rule.name: rule
    for rule in (
        Rule("recall", MISS, PROMISES["recall"] + " (the paper's rule)"),
        Rule("crc", MISS, PROMISES["crc"]),
        Rule("rcps", MISS, "with confidence 1 - delta the miss rate is at most 1 - target (RCPS)"),
        Rule("ltt", MISS, PROMISES["ltt"]),
        Rule("ltt-for-bonferroni", OMISSION, f"{_CONFIDENT} (Learn then Test, Bonferroni)"),
        Rule("ltt-for-sequence", OMISSION, f"{_CONFIDENT}, {_MONOTONE} (Learn then Test, fixed sequence)"),
        Rule("sgr", OMISSION, f"{_CONFIDENT}, {_MONOTONE} (SGR)"),
    )
}
# The miss rate grows with the threshold, and the exact binomial p-value is at most delta exactly where the
# Clopper-Pearson bound is at most 1 - target: RCPS with that bound and Learn then Test with that p-value stop
# at the same threshold. Tests derive both from their own definitions.
_SAME_ALLOWANCE = {"rcps": "ltt"}
_OMISSION_RULES = {
    "ltt-for-bonferroni": bonferroni,
    "ltt-for-sequence": fixed_sequence,
    "sgr": guaranteed_risk,
}


def choose(
    rule: str, scores: NDArray[np.float64], labels: NDArray[np.int64], bar: float, delta: float
) -> Choice:
    """Apply a rule to search cases; `bar` is the target recall, or the rate allowed among the dismissed."""
    if rule not in RULES:
        raise InputError(f"rules: expected {', '.join(RULES)}, found {rule!r}")
    if RULES[rule].risk == MISS:
        return _by_misses(_SAME_ALLOWANCE.get(rule, rule), positives_of(scores, labels), bar, delta)
    return _by_omission(_OMISSION_RULES[rule](scores, labels, bar, delta), scores.size)


def _by_misses(rule: str, positive_scores: NDArray[np.float64], target: float, delta: float) -> Choice:
    allowed = allowance(rule, positive_scores.size, target, delta)
    if allowed.misses is not None:
        return Choice(threshold_allowing(positive_scores, allowed.misses), allowed.needed, None, allowed)
    if allowed.needed is None:
        return Choice(None, None, "no number of positives suffices for a recall of 1", allowed)
    reason = f"needs {allowed.needed} positives, found {positive_scores.size}"
    return Choice(None, allowed.needed, reason, allowed)


def _by_omission(found: OmissionThreshold, cases: int) -> Choice:
    nothing = Allowance(None, None)
    if found.tau is not None:
        return Choice(found.tau, found.needed, None, nothing)
    if found.dismissed:
        seen = f"{found.positives_dismissed} of {found.dismissed} positive"
    elif cases < found.needed:
        seen = f"found {cases}"
    else:
        seen = "equal scores leave fewer"
    return Choice(None, found.needed, f"needs {found.needed} dismissed, {seen}", nothing)
