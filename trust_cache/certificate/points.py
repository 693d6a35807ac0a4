"""An operating point: what a threshold fixed on the search subset does on the evaluation subset."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.documents import Document
from trust_cache.certificate.score_table import Cohort, Images
from trust_cache.certificate.split import Split
from trust_cache.manifest.cases import ABOVE_IMAGES
from trust_cache.statistics.auroc import auroc
from trust_cache.statistics.bounds import clopper_pearson_upper
from trust_cache.statistics.prevalence import omission_at_prevalence
from trust_cache.statistics.rules import Choice, find_rule
from trust_cache.statistics.thresholds import allowed_misses, exact_share

Status = Literal[
    "infeasible", "no positives", "nothing dismissed", "target missed", "bound not below limit", "certified"
]
CERTIFIED: Status = "certified"


@dataclass(frozen=True)
class Terms:
    """What a point depends on besides the scores and the split."""

    rule: str
    delta: float
    compared: int  # how many points share delta
    assumed_prevalence: float | None = None
    limit: float | None = None  # the largest acceptable bound; None: the prevalence of the drawn cases


@dataclass(frozen=True)
class Counts:
    """The integers behind a point; everything else about it follows from them."""

    cases: int
    positives: int
    incomplete: int
    incomplete_positives: int
    dismissed: int
    positives_dismissed: int

    @property
    def complete_positives(self) -> int:
        """The positives behind recall: incomplete ones are reviewed whatever the threshold."""
        return self.positives - self.incomplete_positives


class Point(Document, frozen=True, kw_only=True):
    """An operating point with the keys of its files; None where a quantity is not defined."""

    configuration: str | None
    target: float
    tau: float | None  # None: the rule has no threshold, nothing is dismissed
    search_cases: int
    search_positives: int
    cases: int
    positives: int
    incomplete: int  # evaluation cases that do not fulfil the protocol: reviewed
    incomplete_positives: int
    dismissed: int
    positives_dismissed: int
    dismissal: float | None
    false_omission_rate: float | None
    recall: float | None
    recall_lower: float | None
    recall_lower_corrected: float | None
    bound: float
    bound_corrected: float
    compared: int
    delta: float
    limit: float | None  # None: the cohort has no cases
    prevalence: float | None
    met: bool | None
    status: Status
    reason: str | None
    auroc_case: float | None
    auroc_image: float | None
    image_dismissal: float | None
    search_incomplete_positives: int  # left out of the search for tau
    patients: int  # of the evaluation cases
    set_aside: int  # evaluation cases that the bound leaves out: further cases of a patient
    bound_cases: int  # the counts behind the bounds
    bound_positives: int
    bound_incomplete_positives: int
    bound_dismissed: int
    bound_positives_dismissed: int
    assumed_prevalence: float | None
    assumed_false_omission_rate_upper: float | None
    assumed_false_omission_rate_upper_corrected: float | None
    assumed_missed_per_1000_upper: float | None
    assumed_missed_per_1000_upper_corrected: float | None

    @property
    def certified(self) -> bool:
        """Whether the word "certified" may be said."""
        return self.status == CERTIFIED

    @property
    def explained(self) -> str:
        """The status, with the reason where it is not certified."""
        if self.reason is None or self.reason.startswith(self.status):
            return self.reason or self.status
        return f"{self.status}: {self.reason}"


POINT_KEYS = Point.__struct_fields__


@dataclass(frozen=True)
class SubgroupPoint:
    """The same threshold on the evaluation cases of one subgroup."""

    column: str
    group: str
    point: Point

    def __repr__(self) -> str:
        point = self.point
        return (
            f"SubgroupPoint({self.column}={self.group}, configuration={point.configuration},"
            f" target={point.target}, cases={point.cases}, positives={point.positives},"
            f" dismissed={point.dismissed}, positives_dismissed={point.positives_dismissed},"
            f" bound={point.bound:.6g}, status={point.status!r})"
        )


@dataclass(frozen=True)
class Threshold:
    """A threshold, the search cases that it was chosen on, and what the rule needs."""

    configuration: str | None
    target: float
    tau: float | None
    search_cases: int
    search_positives: int
    search_incomplete_positives: int
    needed: int | None  # search positives from which the rule has a threshold; None: no number suffices
    found: int  # search positives that the rule could use


def choose_threshold(cohort: Cohort, split: Split, index: int, target: float, terms: Terms) -> Threshold:
    """Apply the rule to the complete search cases of one configuration.

    A rule with a promise gets one case per patient, and shares delta among the points compared.
    """
    rule = find_rule(terms.rule)
    chosen = usable_search(cohort, split, index, independent=rule.promises)
    delta = terms.delta / terms.compared
    if np.any(cohort.labels[chosen]):
        choice = rule.choose(cohort.scores[index][chosen], cohort.labels[chosen], target, delta)
    else:
        choice = Choice(None, rule.allow(0, 1 - exact_share(target), delta).needed, reason=None)
    return as_threshold(cohort, split, index, target, choice, chosen)


def usable_search(cohort: Cohort, split: Split, index: int, *, independent: bool) -> NDArray[np.bool_]:
    """Mark the complete search cases, with `independent` one of each patient."""
    chosen = split.search & cohort.complete(index)
    return chosen & split.drawn if independent else chosen


def as_threshold(
    cohort: Cohort, split: Split, index: int, target: float, choice: Choice, chosen: NDArray[np.bool_]
) -> Threshold:
    """Return a rule's choice on the `chosen` search cases as a threshold."""
    positives = cohort.labels[split.search] == 1
    return Threshold(
        configuration=cohort.configurations[index],
        target=target,
        tau=choice.tau,
        search_cases=int(positives.size),
        search_positives=int(np.count_nonzero(positives)),
        search_incomplete_positives=int(np.count_nonzero(positives & ~cohort.complete(index)[split.search])),
        needed=choice.needed,
        found=int(np.count_nonzero(cohort.labels[chosen])),
    )


def evaluate(
    cohort: Cohort,
    split: Split,
    index: int,
    threshold: Threshold,
    terms: Terms,
    group: NDArray[np.bool_] | None = None,
) -> Point:
    """Apply a fixed threshold once to the evaluation cases, or to those of them in a group."""
    members = split.evaluation if group is None else split.evaluation & group
    complete = members & cohort.complete(index)
    scores, labels = cohort.scores[index][complete], cohort.labels[complete]
    images = cohort.images[index]
    auroc_image, image_dismissal = (
        (None, None) if images is None else _image_level(images, cohort, members, index, threshold.tau)
    )
    return describe(
        count(cohort, index, members, threshold.tau),
        count(cohort, index, members & split.drawn, threshold.tau),
        threshold,
        terms,
        patients=int(np.unique(cohort.patients[members]).size),
        auroc_case=auroc(scores, labels),
        auroc_image=auroc_image,
        image_dismissal=image_dismissal,
    )


def count(cohort: Cohort, index: int, members: NDArray[np.bool_], tau: float | None) -> Counts:
    """Count the cases marked in `members`: positives, incomplete cases, and those below tau."""
    positive = cohort.labels[members] == 1
    scores = cohort.scores[index][members]
    below, incomplete = _dismissed(scores, tau), np.isnan(scores)
    return Counts(
        cases=int(positive.size),
        positives=int(np.count_nonzero(positive)),
        incomplete=int(np.count_nonzero(incomplete)),
        incomplete_positives=int(np.count_nonzero(incomplete & positive)),
        dismissed=int(np.count_nonzero(below)),
        positives_dismissed=int(np.count_nonzero(below & positive)),
    )


def describe(
    counts: Counts,
    drawn: Counts,
    threshold: Threshold,
    terms: Terms,
    *,
    patients: int | None = None,
    auroc_case: float | None = None,
    auroc_image: float | None = None,
    image_dismissal: float | None = None,
) -> Point:
    """Derive a point from its integers: `drawn` counts one case per patient, for everything with a bound."""
    positives = counts.complete_positives
    recall = 1.0 - counts.positives_dismissed / positives if positives else None
    met = _met(counts, threshold)
    prevalence = counts.positives / counts.cases if counts.cases else None
    # A bound is about a random case of a random patient, and so is the limit.
    limit = (drawn.positives / drawn.cases if drawn.cases else None) if terms.limit is None else terms.limit
    shared = terms.delta / terms.compared
    corrected = clopper_pearson_upper(drawn.positives_dismissed, drawn.dismissed, shared)
    status = _status(counts, threshold, met, corrected, limit)
    return Point(
        configuration=threshold.configuration,
        target=threshold.target,
        tau=threshold.tau,
        search_cases=threshold.search_cases,
        search_positives=threshold.search_positives,
        search_incomplete_positives=threshold.search_incomplete_positives,
        **vars(counts),
        dismissal=counts.dismissed / counts.cases if counts.cases else None,
        false_omission_rate=counts.positives_dismissed / counts.dismissed if counts.dismissed else None,
        recall=recall,
        recall_lower=_recall_lower(drawn, terms.delta),
        recall_lower_corrected=_recall_lower(drawn, shared),
        bound=clopper_pearson_upper(drawn.positives_dismissed, drawn.dismissed, terms.delta),
        bound_corrected=corrected,
        compared=terms.compared,
        delta=terms.delta,
        limit=limit,
        prevalence=prevalence,
        met=met,
        status=status,
        reason=_reason(status, counts, threshold, corrected, limit),
        auroc_case=auroc_case,
        auroc_image=auroc_image,
        image_dismissal=image_dismissal,
        patients=drawn.cases if patients is None else patients,
        set_aside=counts.cases - drawn.cases,
        **{f"bound_{name}": value for name, value in vars(drawn).items() if name != "incomplete"},
        **_assumed(drawn, terms),
    )


def _recall_lower(drawn: Counts, delta: float) -> float | None:
    """Return one minus the upper bound on the miss rate."""
    positives = drawn.complete_positives
    return 1.0 - clopper_pearson_upper(drawn.positives_dismissed, positives, delta) if positives else None


def _met(counts: Counts, threshold: Threshold) -> bool | None:
    if threshold.tau is None:
        return False
    positives = counts.complete_positives
    return counts.positives_dismissed <= allowed_misses(positives, threshold.target) if positives else None


def _status(
    counts: Counts, threshold: Threshold, met: bool | None, corrected: float, limit: float | None
) -> Status:
    """Return the first status that applies."""
    checks: tuple[tuple[bool, Status], ...] = (
        (threshold.tau is None, "infeasible"),
        (met is None, "no positives"),
        (not counts.dismissed, "nothing dismissed"),
        (not met, "target missed"),
        (limit is None or corrected >= limit, "bound not below limit"),
    )
    return next((status for applies, status in checks if applies), CERTIFIED)


def _reason(
    status: Status, counts: Counts, threshold: Threshold, corrected: float, limit: float | None
) -> str | None:
    """Explain a status other than certified."""
    missed, positives = counts.positives_dismissed, counts.complete_positives
    reason: str | None = None
    if status == "infeasible":
        needs = (
            f": no number of positives suffices for a target of {threshold.target:g}"
            if threshold.needed is None
            else f", needs {threshold.needed}"
        )
        reason = f"infeasible with {threshold.found} positive{'' if threshold.found == 1 else 's'}{needs}"
    elif status == "no positives":
        reason = f"no {'complete ' if counts.positives else ''}positives here: recall is not defined"
    elif status == "nothing dismissed":
        reason = f"no case is below the threshold {threshold.tau:.6g}"
    elif status == "target missed":
        reason = (
            f"recall on evaluation is {1.0 - missed / positives:.2%}, below the target"
            f" {threshold.target:.6g}: {missed} of {positives} positives dismissed,"
            f" {allowed_misses(positives, threshold.target)} allowed"
        )
    elif status != CERTIFIED:
        reason = (
            f"the corrected bound {100 * corrected:.4g}% is not below the limit {100 * (limit or 0.0):.4g}%"
        )
    return reason


def _assumed(drawn: Counts, terms: Terms) -> dict[str, Any]:
    """Return the bounds at the assumed prevalence; None without one."""
    found: dict[str, Any] = {"assumed_prevalence": terms.assumed_prevalence}
    counts = {
        name: getattr(drawn, name) for name in ("cases", "positives", "dismissed", "positives_dismissed")
    }
    for ending, delta in (("", terms.delta), ("_corrected", terms.delta / terms.compared)):
        rate = missed = None
        if terms.assumed_prevalence is not None:
            omission = omission_at_prevalence(**counts, prevalence=terms.assumed_prevalence, delta=delta)
            rate, missed = omission.false_omission_rate_upper, omission.missed_per_1000_upper
        found[f"assumed_false_omission_rate_upper{ending}"] = rate
        found[f"assumed_missed_per_1000_upper{ending}"] = missed
    return found


def _image_level(
    images: Images, cohort: Cohort, members: NDArray[np.bool_], index: int, tau: float | None
) -> tuple[float | None, float | None]:
    """Return the AUROC by image over complete cases, and the share of images below the case threshold.

    Where a case scores at least as much as each of its images, it is dismissed only if all of them are. An
    image of a dismissed case above the threshold would mean that cases and images are not of one cohort.
    With another aggregation the case threshold says nothing about an image, and there is no share.
    """
    chosen = members[images.case]
    if not np.any(chosen):
        return None, None
    complete = (members & cohort.complete(index))[images.case]
    by_image = auroc(images.scores[complete], images.labels[complete])
    if cohort.aggregation(index) not in ABOVE_IMAGES:
        return by_image, None
    below = _dismissed(images.scores[chosen], tau)
    case_below = members & _dismissed(cohort.scores[index], tau)
    of_dismissed_cases = case_below[images.case[chosen]]
    if np.any(of_dismissed_cases & ~below):
        raise AssertionError("an image of a dismissed case is above the threshold")
    return by_image, int(np.count_nonzero(below)) / int(below.size)


def _dismissed(scores: NDArray[np.float64], tau: float | None) -> NDArray[np.bool_]:
    return np.zeros(scores.shape, dtype=np.bool_) if tau is None else scores < tau
