"""Bound the false omission rate at another prevalence, from the class-conditional rates."""

from dataclasses import dataclass

from trust_cache.base.errors import check_fraction
from trust_cache.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper

ASSUMPTION = "holds if scores within each class are distributed as here (label shift only)"


@dataclass(frozen=True)
class Omission:
    """Upper bounds at an assumed prevalence, jointly valid with confidence 1 - delta."""

    false_omission_rate_upper: float
    missed_per_1000_upper: float


def omission_at_prevalence(
    *,
    cases: int,
    positives: int,
    dismissed: int,
    positives_dismissed: int,
    prevalence: float,
    delta: float,
) -> Omission:
    """Bound cancer among the dismissed where a share `prevalence` of the cases has cancer.

    Half of delta goes to the miss rate among positives, half to the share of negatives dismissed.
    """
    check_fraction("prevalence", prevalence)
    missed = clopper_pearson_upper(positives_dismissed, positives, delta / 2)
    spared = clopper_pearson_lower(dismissed - positives_dismissed, cases - positives, delta / 2)
    omitted = prevalence * missed
    return Omission(
        false_omission_rate_upper=omitted / (omitted + (1.0 - prevalence) * spared),
        missed_per_1000_upper=1000.0 * omitted,
    )
