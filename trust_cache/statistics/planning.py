"""What a cohort can reach, and how often, before any model is trained."""

from scipy.stats import betabinom

from trust_cache.statistics.bounds import smallest_sample
from trust_cache.statistics.rules import allowance
from trust_cache.statistics.thresholds import Share, allowed_misses


def dismissed_needed(bound: float, misses: int, delta: float) -> int:
    """Return how many dismissed cases with `misses` cancers give U <= bound."""
    return smallest_sample(misses, bound, delta)


def chance_target_met(
    rule: str, search_positives: int, positives: int, target: Share, delta: float
) -> float | None:
    """Return the chance that evaluation meets the target at the rule's threshold; None: infeasible.

    With a misses allowed among C search positives, the share of positives below the (a + 1)-th smallest
    score is Beta(a + 1, C - a) whatever the model, for scores without ties; the misses among further
    positives are therefore Beta-binomial.
    """
    misses = allowance(rule, search_positives, target, delta).misses
    if misses is None:
        return None
    law = betabinom(positives, misses + 1, search_positives - misses)
    return float(law.cdf(allowed_misses(positives, target)))
