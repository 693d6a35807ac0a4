"""An operating point: what a threshold fixed on the search subset does on the evaluation subset."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.documents import Document
from trust_cache.certificate.score_table import Cohort, Images
from trust_cache.certificate.split import Split
from trust_cache.statistics.auroc import auroc
from trust_cache.statistics.bounds import clopper_pearson_upper
from trust_cache.statistics.prevalence import omission_at_prevalence
from trust_cache.statistics.rules import find_rule
from trust_cache.statistics.thresholds import allowed_misses


@dataclass(frozen=True)
class Terms:
    """What a bound depends on besides the counts."""

    rule: str
    delta: float
    compared: int  # configurations x targets x subgroups
    assumed_prevalence: float | None = None


@dataclass(frozen=True)
class Counts:
    """The integers behind a point; everything else about it follows from them."""

    cases: int
    positives: int
    dismissed: int
    positives_dismissed: int


class Point(Document, frozen=True, kw_only=True):
    """An operating point with the keys of its files; None where a quantity is not defined."""

    configuration: str | None
    target: float
    tau: float | None  # None: the rule has no threshold, nothing is dismissed
    search_cases: int
    search_positives: int
    cases: int
    positives: int
    dismissed: int
    positives_dismissed: int
    dismissal: float | None
    recall: float | None
    recall_lower: float | None
    bound: float
    bound_corrected: float
    compared: int
    delta: float
    prevalence: float | None
    met: bool | None
    reason: str | None
    auroc_case: float | None
    auroc_image: float | None
    image_dismissal: float | None
    false_omission_rate: float | None
    assumed_prevalence: float | None
    assumed_false_omission_rate_upper: float | None
    assumed_missed_per_1000_upper: float | None


POINT_KEYS = Point.__struct_fields__


@dataclass(frozen=True)
class SubgroupPoint:
    """The same threshold on the evaluation cases of one subgroup."""

    column: str
    group: str
    point: Point


@dataclass(frozen=True)
class Threshold:
    """A threshold, the search cases that it was chosen on, and what the rule needs."""

    configuration: str | None
    target: float
    tau: float | None
    search_cases: int
    search_positives: int
    needed: int | None  # search positives from which the rule has a threshold; None: no number suffices


def choose_threshold(cohort: Cohort, split: Split, index: int, target: float, terms: Terms) -> Threshold:
    """Apply the rule to the search subset of one configuration."""
    labels = cohort.labels[split.search]
    choice = find_rule(terms.rule).choose(cohort.scores[index][split.search], labels, target, terms.delta)
    return Threshold(
        configuration=cohort.configurations[index],
        target=target,
        tau=choice.tau,
        search_cases=int(labels.size),
        search_positives=int(np.count_nonzero(labels)),
        needed=choice.needed,
    )


def evaluate(
    cohort: Cohort, members: NDArray[np.bool_], index: int, threshold: Threshold, terms: Terms
) -> Point:
    """Apply a fixed threshold once to the evaluation cases marked in `members`."""
    scores = cohort.scores[index][members]
    labels = cohort.labels[members]
    images = cohort.images[index]
    auroc_image, image_dismissal = (
        (None, None) if images is None else _image_level(images, members, scores, threshold.tau)
    )
    return describe(
        count(scores, labels, threshold.tau),
        threshold,
        terms,
        auroc_case=auroc(scores, labels),
        auroc_image=auroc_image,
        image_dismissal=image_dismissal,
    )


def count(scores: NDArray[np.float64], labels: NDArray[np.int64], tau: float | None) -> Counts:
    """Count cases, positives, and those of each below tau."""
    below = _dismissed(scores, tau)
    return Counts(
        cases=int(labels.size),
        positives=int(np.count_nonzero(labels)),
        dismissed=int(np.count_nonzero(below)),
        positives_dismissed=int(np.count_nonzero(below & (labels == 1))),
    )


def describe(
    counts: Counts,
    threshold: Threshold,
    terms: Terms,
    *,
    auroc_case: float | None = None,
    auroc_image: float | None = None,
    image_dismissal: float | None = None,
) -> Point:
    """Derive a point from its integers."""
    missed, dismissed = counts.positives_dismissed, counts.dismissed
    recall = 1.0 - missed / counts.positives if counts.positives else None
    met, reason = _verdict(counts, threshold, recall)
    return Point(
        configuration=threshold.configuration,
        target=threshold.target,
        tau=threshold.tau,
        search_cases=threshold.search_cases,
        search_positives=threshold.search_positives,
        **vars(counts),
        dismissal=dismissed / counts.cases if counts.cases else None,
        recall=recall,
        # One minus the upper bound on the miss rate.
        recall_lower=1.0 - clopper_pearson_upper(missed, counts.positives, terms.delta)
        if counts.positives
        else None,
        bound=clopper_pearson_upper(missed, dismissed, terms.delta),
        bound_corrected=clopper_pearson_upper(missed, dismissed, terms.delta / terms.compared),
        compared=terms.compared,
        delta=terms.delta,
        prevalence=counts.positives / counts.cases if counts.cases else None,
        met=met,
        reason=reason,
        auroc_case=auroc_case,
        auroc_image=auroc_image,
        image_dismissal=image_dismissal,
        false_omission_rate=missed / dismissed if dismissed else None,
        **_assumed(counts, terms),
    )


def _verdict(counts: Counts, threshold: Threshold, recall: float | None) -> tuple[bool | None, str | None]:
    if threshold.tau is None:
        found = f"infeasible with {threshold.search_positives} positives"
        if threshold.needed is not None:
            return False, f"{found}, needs {threshold.needed}"
        return False, f"{found}: no number of positives suffices for a target of {threshold.target:g}"
    if recall is None:
        return None, "no positives here: recall is not defined"
    allowed = allowed_misses(counts.positives, threshold.target)
    if counts.positives_dismissed <= allowed:
        return True, None
    return False, (
        f"recall on evaluation is {recall:.2%}, below the target {threshold.target:.6g}:"
        f" {counts.positives_dismissed} of {counts.positives} positives dismissed, {allowed} allowed"
    )


def _assumed(counts: Counts, terms: Terms) -> dict[str, Any]:
    """Return the bounds at the assumed prevalence; None without one."""
    rate = missed = None
    if terms.assumed_prevalence is not None:
        omission = omission_at_prevalence(
            **vars(counts), prevalence=terms.assumed_prevalence, delta=terms.delta
        )
        rate, missed = omission.false_omission_rate_upper, omission.missed_per_1000_upper
    return {
        "assumed_prevalence": terms.assumed_prevalence,
        "assumed_false_omission_rate_upper": rate,
        "assumed_missed_per_1000_upper": missed,
    }


def _image_level(
    images: Images, members: NDArray[np.bool_], case_scores: NDArray[np.float64], tau: float | None
) -> tuple[float | None, float | None]:
    """Return the AUROC by image and the share of images below the case threshold.

    A case is dismissed only if all its images are. An image of a dismissed case above the threshold would
    mean that cases and images are not of one cohort.
    """
    chosen = members[images.case]
    if not np.any(chosen):
        return None, None
    below = _dismissed(images.scores[chosen], tau)
    case_below = np.zeros(members.size, dtype=np.bool_)
    case_below[members] = _dismissed(case_scores, tau)
    of_dismissed_cases = case_below[images.case[chosen]]
    if np.any(of_dismissed_cases & ~below):
        raise AssertionError("an image of a dismissed case is above the threshold")
    share = int(np.count_nonzero(below)) / int(below.size)
    return auroc(images.scores[chosen], images.labels[chosen]), share


def _dismissed(scores: NDArray[np.float64], tau: float | None) -> NDArray[np.bool_]:
    return np.zeros(scores.shape, dtype=np.bool_) if tau is None else scores < tau
