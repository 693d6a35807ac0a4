"""What a reader must know beside the numbers: warnings about this input, limits of any certificate."""

import itertools
from collections.abc import Sequence

import numpy as np

from trust_cache.certificate.cohort import Cohort
from trust_cache.certificate.points import Point
from trust_cache.certificate.subgroups import Grouping
from trust_cache.statistics.thresholds import allowed_misses

_FEW_POSITIVES = 30
_MANY_GROUPS = 20

_EXACTNESS = {
    "external": "Exact here: the model never saw these cases (an external run).",
    "out-of-fold": (
        "Approximate for out-of-fold scores: evaluation cases helped to train the other folds'"
        " models, and none of these is the model that one refits."
    ),
    "unknown": (
        "Exact only if the model never saw the evaluation cases; for out-of-fold scores it is approximate."
    ),
}


def limits(kind: str) -> tuple[str, ...]:
    """Return what a certificate does not say, for scores of this kind."""
    return (
        "The bound is on cancer among dismissed cases like the evaluation cases, at a threshold"
        " fixed beforehand. It is not a promise of future safety, and cancers that nobody has found"
        " yet are not in the labels.",
        _EXACTNESS[kind],
        "A target that is met is a point estimate: the threshold rule of the paper keeps its target"
        " on evaluation about half the time (`trust-cache plan` says how often for a cohort,"
        " `--resplits` shows it).",
        "Looking only at points that met their target selects: among those the error rate can reach"
        " delta / P(met).",
        "Choosing the best of several by these results breaks the bound; then use bound_corrected,"
        " which divides delta by the number compared, or choose on the search subset.",
    )


def score_warnings(cohort: Cohort) -> list[str]:
    """Warn of scores that a sigmoid would not give."""
    warnings = []
    for name, scores in zip(cohort.configurations, cohort.scores, strict=True):
        of = f" of {name}" if name is not None else ""
        low, high = float(scores.min()), float(scores.max())
        outside = int(np.count_nonzero((scores < 0.0) | (scores > 1.0)))
        if outside:
            warnings.append(
                f"{outside} case scores{of} lie outside [0, 1] (from {low:g} to {high:g});"
                " only their order matters here, but they are not what a head gives"
            )
        if low == high:
            warnings.append(f"all case scores{of} equal {low:g}: nothing can be dismissed and the bound is 1")
    return warnings


def resolution_warnings(targets: Sequence[float], search_positives: int) -> list[str]:
    """Warn where few search positives make different targets the same threshold."""
    finest = [target for target in targets if target < 1 and not allowed_misses(search_positives, target)]
    if search_positives >= _FEW_POSITIVES and not finest:
        return []
    step = 1.0 / search_positives
    text = (
        f"few positives: the search subset has {search_positives}, so recall moves there in steps"
        f" of {step:.2%} and every target above {1.0 - step:.2%} is the same threshold, the lowest"
        " score of a positive"
    )
    alike = _same_threshold(targets, search_positives)
    return [f"{text} ({alike})" if alike else text]


def _same_threshold(targets: Sequence[float], positives: int) -> str:
    """Name two targets, the user's or the next whole percent, that both allow no miss here."""
    candidates = dict.fromkeys([*targets, *(round(target - 0.01, 6) for target in targets)])
    strict = [one for one in candidates if one > 0 and not allowed_misses(positives, one)]
    for one, other in itertools.combinations(strict, 2):
        return f"{100 * one:g} % and {100 * other:g} % are the same threshold"
    return ""


def group_warnings(grouping: Grouping) -> list[str]:
    """Warn of a column that is a measurement rather than a grouping."""
    groups = len(grouping.names)
    if groups <= _MANY_GROUPS:
        return []
    return [
        f"column {grouping.column} has {groups} groups: each bound is wide and the correction large;"
        " put a numeric column into bands first"
    ]


def outcome_warnings(points: Sequence[Point]) -> list[str]:
    """Warn when there is nothing to print but N/A."""
    if any(point.met for point in points):
        return []
    return ["every point is N/A: no configuration met its target on the evaluation subset"]
