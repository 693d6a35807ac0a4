"""Compute the numbers of the operating point explorer; the browser computes none."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.text_tables import NO_NUMBER, confidence, percent, whole_percent
from trust_cache.certificate.evidence import Evidence
from trust_cache.certificate.point_tables import name_of
from trust_cache.certificate.points import Terms, choose_threshold
from trust_cache.certificate.score_table import Cohort
from trust_cache.figures.curves import Counter
from trust_cache.statistics.bounds import clopper_pearson_upper
from trust_cache.statistics.prevalence import omission_at_prevalence

Floats = NDArray[np.float64]
OTHER_STOPS = 200  # at even ranks, in addition to those at positives
_LOWEST_TARGET_STEP, _TARGET_STEPS = 160, 200  # targets from 80 % to 100 % in steps of half a percent


def slider_stops(cohort: Cohort, index: int, certified: Sequence[float]) -> Floats:
    """Return the thresholds where the slider stops, ascending.

    These are every positive's score (the last threshold that keeps it), the next score above (the first that
    dismisses it), every certified threshold, both ends, and others at even ranks.
    """
    scores = np.unique(cohort.scores[index])
    above_all = np.nextafter(scores[-1], np.inf)
    positives = np.unique(cohort.scores[index][cohort.labels == 1])
    following = np.append(scores, above_all)[np.searchsorted(scores, positives, side="right")]
    ranks = np.linspace(0, scores.size - 1, min(OTHER_STOPS, scores.size)).astype(np.int64)
    return np.unique(np.concatenate([scores[ranks], positives, following, certified, [above_all]]))


def explorer_targets(certified: Sequence[float]) -> list[float]:
    """Return the recall targets of the slider, ascending, with the certified ones."""
    even = (step / _TARGET_STEPS for step in range(_LOWEST_TARGET_STEP, _TARGET_STEPS + 1))
    return sorted({*even, *certified})


def explorer_document(evidence: Evidence) -> dict[str, Any]:
    """Return the explorer's numbers of one cohort for all configurations."""
    cohort, split = evidence.cohort, evidence.certification.split
    labels = {"search": cohort.labels[split.search], "evaluation": cohort.labels[split.evaluation]}
    targets = explorer_targets(evidence.certification.settings.targets)
    assumed = evidence.terms.assumed_prevalence
    return {
        "name": evidence.name,
        "kind": evidence.kind,
        "confidence": confidence(evidence.terms.delta),
        "prevalence": percent(float(labels["evaluation"].mean())),
        "assumed": None if assumed is None else whole_percent(assumed),
        "targets": [whole_percent(target) for target in targets],
        "parts": {
            part: _by_misses(int(np.count_nonzero(of_part)), of_part.size, evidence.terms.delta)
            for part, of_part in labels.items()
        },
        "series": [_series(evidence, index, targets) for index in range(len(cohort.configurations))],
    }


def _by_misses(positives: int, cases: int, delta: float) -> dict[str, Any]:
    """Return the numbers that depend only on how many cancers are missed."""
    misses = np.arange(positives + 1)
    lower = 1.0 - np.asarray(clopper_pearson_upper(misses, positives, delta))
    return {
        "cases": f"{cases:,}",
        "size": cases,
        "positives": f"{positives:,}",
        "recall": [percent(float(1.0 - k / positives)) for k in misses],
        "recall_lower": [percent(float(value)) for value in lower],
        "missed_per_1000": [f"{1000 * int(k) / cases:.2f}" for k in misses],
    }


def _series(evidence: Evidence, index: int, targets: Sequence[float]) -> dict[str, Any]:
    cohort, terms, split = evidence.cohort, evidence.terms, evidence.certification.split
    name = cohort.configurations[index]
    points = [point for point in evidence.certification.points if point.configuration == name]
    stops = slider_stops(cohort, index, [point.tau for point in points if point.tau is not None])
    search, evaluation = (
        Counter.of(cohort.scores[index][members], cohort.labels[members])
        for members in (split.search, split.evaluation)
    )
    dismissed, missed = evaluation.dismissed(stops), evaluation.missed(stops)
    bound = np.asarray(clopper_pearson_upper(missed, dismissed, terms.delta))
    searched = search.dismissed(stops)
    document = {
        "name": name_of(name),
        "tau": stops.tolist(),
        "tau_text": [f"{tau:.6g}" for tau in stops],
        "search_dismissed": searched.tolist(),
        "search_missed": search.missed(stops).tolist(),
        "search_dismissal": _shares(searched, search.cases),
        "dismissed": dismissed.tolist(),
        "missed": missed.tolist(),
        "dismissal": _shares(dismissed, evaluation.cases),
        "saved": [f"{1000 * int(n) / evaluation.cases:.1f}" for n in dismissed],
        "reviewed": [f"{1000 * (evaluation.cases - int(n)) / evaluation.cases:.1f}" for n in dismissed],
        "omission": [
            percent(int(k) / int(n)) if n else NO_NUMBER for k, n in zip(missed, dismissed, strict=True)
        ],
        "bound": bound.tolist(),
        "bound_text": [percent(float(value)) for value in bound],
        "image_dismissal": _image_dismissal(evidence, index, stops),
        "targets": _target_stops(evidence, index, targets, stops),
        "certified": [
            {
                "stop": None if point.tau is None else int(np.searchsorted(stops, point.tau)),
                "target": whole_percent(point.target),
                "met": bool(point.met),
                "reason": point.reason,
            }
            for point in points
        ],
    }
    return document | _assumed(evaluation, dismissed, missed, terms)


def _shares(counts: NDArray[np.int64], of: int) -> list[str]:
    return [percent(int(count) / of) for count in counts]


def _image_dismissal(evidence: Evidence, index: int, stops: Floats) -> list[str] | None:
    images = evidence.cohort.images[index]
    if images is None:
        return None
    scores = np.sort(images.scores[evidence.certification.split.evaluation[images.case]])
    return _shares(np.searchsorted(scores, stops, side="left").astype(np.int64), scores.size)


def _target_stops(
    evidence: Evidence, index: int, targets: Sequence[float], stops: Floats
) -> list[int | None]:
    """Return the stop of the rule's threshold for each target; None where it has no threshold."""
    chosen = (
        choose_threshold(evidence.cohort, evidence.certification.split, index, target, evidence.terms).tau
        for target in targets
    )
    return [None if tau is None else int(np.searchsorted(stops, tau)) for tau in chosen]


def _assumed(
    evaluation: Counter, dismissed: NDArray[np.int64], missed: NDArray[np.int64], terms: Terms
) -> dict[str, Any]:
    """Return the bounds at the assumed prevalence, if one is set."""
    if terms.assumed_prevalence is None:
        return {}
    omissions = [
        omission_at_prevalence(
            cases=evaluation.cases,
            positives=evaluation.positives,
            dismissed=int(n),
            positives_dismissed=int(k),
            prevalence=terms.assumed_prevalence,
            delta=terms.delta,
        )
        for n, k in zip(dismissed, missed, strict=True)
    ]
    return {
        "assumed_omission": [percent(item.false_omission_rate_upper, 4) for item in omissions],
        "assumed_missed": [f"{item.missed_per_1000_upper:.4g}" for item in omissions],
    }
