"""Compute the numbers of the operating point explorer; the browser computes none."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.text_tables import NO_NUMBER, confidence, percent, whole_percent
from trust_cache.certificate.certify import draw_bands
from trust_cache.certificate.evidence import Evidence
from trust_cache.certificate.point_tables import name_of
from trust_cache.certificate.points import Point, Terms, choose_threshold
from trust_cache.certificate.score_table import Cohort
from trust_cache.figures.curves import Counter
from trust_cache.manifest.cases import ABOVE_IMAGES
from trust_cache.statistics.bands import Band
from trust_cache.statistics.bounds import clopper_pearson_upper
from trust_cache.statistics.prevalence import omission_at_prevalence

Floats = NDArray[np.float64]
OTHER_STOPS = 200  # at even ranks, in addition to those at positives
_LOWEST_TARGET_STEP, _TARGET_STEPS = 160, 200  # targets from 80 % to 100 % in steps of half a percent


def slider_stops(cohort: Cohort, index: int, further: Sequence[float]) -> Floats:
    """Return the thresholds where the slider stops, ascending.

    These are every positive's score (the last threshold that keeps it), the next score above (the first that
    dismisses it), the `further` ones (certified thresholds and ranks of the band), both ends, and others at
    even ranks. Incomplete cases have no score.
    """
    complete = cohort.complete(index)
    scores = np.unique(cohort.scores[index][complete])
    above_all = np.nextafter(scores[-1], np.inf)
    positives = np.unique(cohort.scores[index][complete & (cohort.labels == 1)])
    following = np.append(scores, above_all)[np.searchsorted(scores, positives, side="right")]
    ranks = np.linspace(0, scores.size - 1, min(OTHER_STOPS, scores.size)).astype(np.int64)
    return np.unique(np.concatenate([scores[ranks], positives, following, further, [above_all]]))


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
            part: {"cases": f"{of_part.size:,}", "positives": f"{np.count_nonzero(of_part):,}"}
            for part, of_part in labels.items()
        },
        "series": [
            _series(evidence, index, targets, band)
            for index, band in enumerate(draw_bands(cohort, split, evidence.terms.delta))
        ],
    }


def _series(evidence: Evidence, index: int, targets: Sequence[float], band: Band) -> dict[str, Any]:
    cohort, split = evidence.cohort, evidence.certification.split
    name = cohort.configurations[index]
    points = [point for point in evidence.certification.points if point.configuration == name]
    certified = [point.tau for point in points if point.tau is not None]
    stops = slider_stops(cohort, index, [*certified, *(rank.threshold for rank in band.ranks)])
    behind = _behind_bounds(evidence)
    search, evaluation, bounded = (
        Counter.of(cohort.scores[index][members], cohort.labels[members])
        for members in (split.search, split.evaluation, behind)
    )
    document = {
        "name": name_of(name),
        "tau": stops.tolist(),
        "tau_text": [f"{tau:.6g}" for tau in stops],
        "image_dismissal": _image_dismissal(evidence, index, stops),
        "targets": _target_stops(evidence, index, targets, stops),
        "certified": [_certified(point, stops) for point in points],
    }
    return (
        document
        | {f"search_{key}": values for key, values in _counted(search, stops).items()}
        | _counted(evaluation, stops)
        | _evaluated(evaluation, stops)
        | _bounds(bounded, stops, evidence.terms)
        | _assumed(bounded, int(np.count_nonzero(cohort.labels[behind])), stops, evidence.terms)
        | _simultaneous(band, stops)
    )


def _behind_bounds(evidence: Evidence) -> NDArray[np.bool_]:
    """Mark the evaluation cases behind the bounds: one per patient."""
    split = evidence.certification.split
    return split.evaluation & split.drawn


def _certified(point: Point, stops: Floats) -> dict[str, Any]:
    return {
        "stop": None if point.tau is None else int(np.searchsorted(stops, point.tau)),
        "target": whole_percent(point.target),
        "certified": point.certified,
        "status": point.status,
        "reason": point.reason,
    }


def _counted(part: Counter, stops: Floats) -> dict[str, Any]:
    """Return what both subsets show at each stop."""
    dismissed, missed = part.dismissed(stops), part.missed(stops)
    return {
        "positives": f"{part.positives:,}",
        "dismissed": dismissed.tolist(),
        "missed": missed.tolist(),
        "dismissal": _shares(dismissed, part.cases),
        "recall": [
            percent(1.0 - k / part.positives) if part.positives else NO_NUMBER for k in missed.tolist()
        ],
    }


def _evaluated(part: Counter, stops: Floats) -> dict[str, Any]:
    """Return what the evaluation subset shows besides, without a bound."""
    dismissed, missed = part.dismissed(stops), part.missed(stops)
    return {
        "saved": [f"{1000 * int(n) / part.cases:.1f}" for n in dismissed],
        "reviewed": [f"{1000 * (part.cases - int(n)) / part.cases:.1f}" for n in dismissed],
        "missed_per_1000": [f"{1000 * int(k) / part.cases:.2f}" for k in missed],
        "omission": [
            percent(int(k) / int(n)) if n else NO_NUMBER for k, n in zip(missed, dismissed, strict=True)
        ],
    }


def _bounds(part: Counter, stops: Floats, terms: Terms) -> dict[str, Any]:
    """Return the pointwise bounds at each stop: valid for a threshold fixed beforehand."""
    dismissed, missed = part.dismissed(stops), part.missed(stops)
    bound = np.asarray(clopper_pearson_upper(missed, dismissed, terms.delta))
    most_missed = np.asarray(clopper_pearson_upper(missed, part.positives, terms.delta))
    return {
        "bound": bound.tolist(),
        "bound_text": [percent(value) for value in bound.tolist()],
        "recall_lower": [
            percent(1.0 - value) if part.positives else NO_NUMBER for value in most_missed.tolist()
        ],
    }


def _simultaneous(band: Band, stops: Floats) -> dict[str, Any]:
    """Return the bounds that hold at all stops at once, and the stop of the rank to lower each one to."""
    kept = band.keep(stops)
    lowered = [band.lower(tau) for tau in stops.tolist()]
    return {
        "simultaneous": kept.tolist(),
        "simultaneous_text": [percent(value) for value in kept.tolist()],
        "lowered": [
            None if rank is None else int(np.searchsorted(stops, rank.threshold)) for rank in lowered
        ],
    }


def _shares(counts: NDArray[np.int64], of: int) -> list[str]:
    return [percent(int(count) / of) for count in counts]


def _image_dismissal(evidence: Evidence, index: int, stops: Floats) -> list[str] | None:
    images = evidence.cohort.images[index]
    if images is None or evidence.cohort.aggregation(index) not in ABOVE_IMAGES:
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


def _assumed(part: Counter, positives: int, stops: Floats, terms: Terms) -> dict[str, Any]:
    """Return the bounds at the assumed prevalence, if one is set; `positives` counts incomplete ones too."""
    if terms.assumed_prevalence is None:
        return {}
    omissions = (
        omission_at_prevalence(
            cases=part.cases,
            positives=positives,
            dismissed=int(n),
            positives_dismissed=int(k),
            prevalence=terms.assumed_prevalence,
            delta=terms.delta,
        )
        for n, k in zip(part.dismissed(stops), part.missed(stops), strict=True)
    )
    return {"assumed_omission": [percent(item.false_omission_rate_upper, 4) for item in omissions]}
