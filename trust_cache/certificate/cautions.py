"""Warnings about the input of a certification, and the limits of any certificate."""

from collections.abc import Iterable, Sequence

import numpy as np

from trust_cache.base.text_tables import whole_percent
from trust_cache.certificate.points import Point
from trust_cache.certificate.score_table import Cohort, Scores, known_columns, repeated_projections
from trust_cache.certificate.stopped_cases import OTHER, stopped_cases
from trust_cache.manifest.case_groups import CONFLICTING, Grouping
from trust_cache.manifest.cases import FEATURE_TAIL, WARNING
from trust_cache.manifest.protocol import Protocol
from trust_cache.statistics.rules import RULES
from trust_cache.statistics.thresholds import allowed_misses

_FEW_POSITIVES = 30
_MANY_GROUPS = 20
_WRITERS = {WARNING: "preprocess", FEATURE_TAIL: "fit-heads"}
_STOPPED_BY = {WARNING: "a warning about a picture", FEATURE_TAIL: "the feature gate"}
_CHANCE = 0.5  # the AUROC of a score that says nothing

_EXACTNESS = {
    "external": "Exact here: the model never saw these cases (an external run).",
    "out-of-fold": (
        "Approximate for out-of-fold scores: evaluation cases helped to train the other folds'"
        " models, and none of these is the model that is refitted on all cases."
    ),
    "unknown": (
        "Exact only if the model never saw the evaluation cases; for out-of-fold scores it is approximate."
    ),
}


_PATIENTS = (
    "Some patients have several cases here. The bound uses one case of each, drawn at random: it holds for a"
    " random case of a random patient."
)


def exactness(kind: str) -> str:
    """Say how exact a bound is for scores of this kind."""
    return _EXACTNESS[kind]


def limits(kind: str, *, patients: bool = False, rule: str = "recall") -> tuple[str, ...]:
    """Return what a certificate does not say, for scores of this kind; `patients` have several cases."""
    met = (
        "That a target is met is a point estimate: the paper's threshold rule meets its target on"
        " evaluation about half the time (`trust-cache plan` computes how often for a cohort,"
        " `--resplits` shows it)."
        if rule == "recall"
        else "That a target is met is a point estimate. What the rule"
        f" {rule} promises is: {RULES[rule].promise}."
    )
    return (
        "The bound holds for cancer among dismissed cases like the evaluation cases, at a threshold"
        " fixed beforehand. It does not promise future safety, and the labels do not contain cancers"
        " that nobody has found yet.",
        exactness(kind),
        met,
        "Reading only the points that met their target is a selection: among those the error rate can"
        " reach delta / P(met).",
        "Choosing the best of several by these results invalidates the bound. Use bound_corrected"
        " instead, which divides delta by the number compared, or choose on the search subset.",
        *((_PATIENTS,) if patients else ()),
    )


def score_warnings(cohort: Cohort) -> list[str]:
    """Warn of scores outside [0, 1], and of scores that are all equal."""
    warnings = []
    for index, name in enumerate(cohort.configurations):
        of = f" of {name}" if name is not None else ""
        scores = cohort.scores[index][cohort.complete(index)]
        if not scores.size:
            warnings.append(f"no case{of} is complete: nothing can be dismissed")
            continue
        low, high = float(scores.min()), float(scores.max())
        outside = int(np.count_nonzero((scores < 0.0) | (scores > 1.0)))
        if outside:
            warnings.append(
                f"{outside} case scores{of} are outside [0, 1] (from {low:g} to {high:g});"
                " only their order matters here, but a head gives scores inside it"
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
        f"few positives: the search subset has {search_positives}, so recall changes there in steps"
        f" of {step:.2%} and every target above {1.0 - step:.2%} gives the same threshold: the lowest"
        " score of a positive"
    )
    # Name two targets, the user's or one percent below them, that both allow no miss here.
    candidates = dict.fromkeys([*targets, *(round(target - 0.01, 6) for target in targets)])
    strict = [
        f"{100 * one:g} %" for one in candidates if one > 0 and not allowed_misses(search_positives, one)
    ]
    alike = f" ({strict[0]} and {strict[1]} give the same threshold)" if len(strict) > 1 else ""
    return [text + alike]


def certification_warnings(
    cohort: Cohort, targets: Sequence[float], groupings: Sequence[Grouping], points: Sequence[Point]
) -> list[str]:
    """Return all warnings about the input and the outcome of a certification."""
    found = points[0].search_positives - points[0].search_incomplete_positives
    warnings = score_warnings(cohort) + (resolution_warnings(targets, found) if found else [])
    warnings += incomplete_warnings(cohort) + stopped_warnings(cohort)
    warnings += reversed_warnings(points) + limit_warnings(points)
    warnings += status_warnings(points)
    warnings += group_warnings(groupings)
    if not any(point.met for point in points):
        warnings.append("every point is N/A: no configuration met its target on the evaluation subset")
    elif not any(point.certified for point in points):
        warnings.append("no point is certified: see the status of each")
    return warnings


def group_warnings(groupings: Sequence[Grouping]) -> list[str]:
    """Warn of a column with many groups, and of one that is about images, not cases."""
    warnings = []
    for grouping in groupings:
        if grouping.all_conflicting:
            warnings.append(
                f"--by {grouping.column}: the images of every case differ in this column, so all cases are"
                f" `{CONFLICTING}` and there are no groups to compare; choose a column about cases"
            )
        elif len(grouping.names) > _MANY_GROUPS:
            warnings.append(
                f"--by {grouping.column}: {len(grouping.names)} groups: each bound is wide and the correction"
                " is large; put numbers into bands (--by age=50,60,70)"
            )
    return warnings


def incomplete_warnings(cohort: Cohort) -> list[str]:
    """Say how many cases are incomplete and how many of those are positive, once for equal configurations."""
    warnings: dict[str, list[str]] = {}
    for index, name in enumerate(cohort.configurations):
        incomplete = ~cohort.complete(index)
        cases, positives = int(np.count_nonzero(incomplete)), int(np.count_nonzero(cohort.labels[incomplete]))
        if cases:
            text = (
                f"{cases:,} of {cohort.cases:,} cases are incomplete, {positives:,} of them positive: they"
                " are reviewed whatever their score (incomplete.csv lists them)"
            )
            warnings.setdefault(text, []).append("scores" if name is None else name)
    if len(warnings) == 1 and len(next(iter(warnings.values()))) == len(cohort.configurations):
        return list(warnings)
    return [f"{', '.join(names)}: {text}" for text, names in warnings.items()]


def stopped_warnings(cohort: Cohort) -> list[str]:
    """Say how many cases each check of pictures, headers and features stops, and how many of them alone."""
    found = [item for item in stopped_cases(cohort) if item.check != OTHER]
    if not found:
        return []
    listed = ", ".join(f"{item.check} {len(item.cases):,} ({len(item.alone):,} alone)" for item in found)
    share = sum(len(item.alone) for item in found) / cohort.cases
    return [
        f"cases that checks of pictures, headers and features stop: {listed}; with a single such check as the"
        f" only reason {share:.2%} of all cases"
    ]


def protocol_warnings(scores: Scores, protocol: Protocol) -> list[str]:
    """Name repeated projections, which are allowed; warn if nothing is known about warnings it asks for."""
    warnings = []
    if protocol.projections and (repeats := repeated_projections(scores)):
        warnings.append(
            f"protocol {protocol.name}: {len(repeats):,} cases have several images of a projection (the"
            f" first: {repeats[0]}); the highest score counts"
        )
    return warnings + column_warnings(known_columns(scores), protocol)


def column_warnings(columns: Iterable[str], protocol: Protocol) -> list[str]:
    """Warn if there is no column of what a protocol asks for about pictures and features."""
    asked = {WARNING: protocol.review_warnings, FEATURE_TAIL: protocol.feature_tail > 0}
    known = set(columns)
    unknown = [name for name, on in asked.items() if on and name not in known]
    return [
        f"protocol {protocol.name}: there is no column `{name}` (`{_WRITERS[name]}` writes one): no case"
        f" was stopped by {_STOPPED_BY[name]}, as `triage` would"
        for name in unknown
    ]


def limit_warnings(points: Sequence[Point]) -> list[str]:
    """Warn of a limit above the prevalence: dismissing at random could be certified."""
    first = points[0]
    if first.limit is None or first.prevalence is None or not first.bound_cases:
        return []
    prevalence = first.bound_positives / first.bound_cases
    if first.limit <= prevalence:
        return []
    return [
        f"the limit {first.limit:.4g} is above the prevalence {prevalence:.4g}: a bound between the two is no"
        " better than dismissing cases at random"
    ]


def status_warnings(points: Sequence[Point]) -> list[str]:
    """Warn of points that dismiss nothing, and of met targets whose bound is not below the limit."""
    meanings = {
        "nothing dismissed": "no evaluation case is below the threshold: the bound says nothing",
        "bound not below limit": "the target is met, but so few cases are dismissed that the corrected bound"
        " is not below the limit (by default the prevalence): no better than dismissing cases at random",
    }
    return [
        f"{status}: {', '.join(found)}: {meaning}"
        for status, meaning in meanings.items()
        if (found := [_name(point) for point in points if point.status == status])
    ]


def _name(point: Point) -> str:
    name = "" if point.configuration is None else f"{point.configuration} "
    return f"{name}at {whole_percent(point.target)}"


def reversed_warnings(points: Sequence[Point]) -> list[str]:
    """Warn of a case AUROC at or below one half."""
    found = {point.configuration: point.auroc_case for point in points}
    return [
        f"the case AUROC{f' of {name}' if name is not None else ''} is {value:.3f}: at or below 0.5 the"
        " scores say nothing about cancer, or are reversed (a high score must mean cancer)"
        for name, value in found.items()
        if value is not None and value <= _CHANCE
    ]
