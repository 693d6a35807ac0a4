"""Every rule on every score model: thresholds from the search subset, points on the evaluation subset."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trust_cache.certificate.cohort import Cohort
from trust_cache.certificate.points import POINT_KEYS, Point, Terms, Threshold, evaluate
from trust_cache.certificate.split import Split
from trust_cache.statistics.thresholds import allowed_misses, exact_share
from trust_cache.studies.rivals.rules import MISS, RULES, Choice, choose
from trust_cache.studies.rivals.settings import RivalSettings

_ALL = 1.0  # the recall target of a point that has none; its verdict is not used
_OWN_KEYS = ("score_model", "rule", "risk", "level", "kept", "feasible", "needed", "needed_of")
RESULT_KEYS = (*_OWN_KEYS, *(key for key in POINT_KEYS if key != "configuration"))


@dataclass(frozen=True)
class Outcome:
    """A rule on a score model: the threshold, its point, and whether evaluation bears the promise out."""

    score_model: str
    rule: str
    target: float | None  # of rules on the miss rate
    level: float | None  # of rules on cancer among the dismissed
    kept: bool | None  # None: no threshold, nothing was promised
    needed: int | None
    needed_of: str
    reason: str | None
    point: Point

    @property
    def feasible(self) -> bool:
        """Whether the rule has a threshold."""
        return self.point.tau is not None

    def row(self) -> dict[str, Any]:
        """Return the outcome with a point's keys; a rule without a recall target has no `met`."""
        own = {
            "score_model": self.score_model,
            "rule": self.rule,
            "risk": RULES[self.rule].risk,
            "level": self.level,
            "kept": self.kept,
            "feasible": self.feasible,
            "needed": self.needed,
            "needed_of": self.needed_of,
        }
        point = asdict(self.point)
        del point["configuration"]
        verdict = {"target": self.target, "reason": self.reason}
        if self.target is None:
            verdict["met"] = None
        return own | point | verdict


def find_outcomes(cohort: Cohort, split: Split, settings: RivalSettings) -> tuple[Outcome, ...]:
    """Apply all rules to all score models, rule by rule."""
    bars = settings.bars
    compared = len(bars) * len(cohort.configurations)
    return tuple(
        _outcome(cohort, split, index, rule, bar, Terms(rule, settings.delta, compared))
        for rule, bar in bars
        for index in range(len(cohort.configurations))
    )


def _outcome(cohort: Cohort, split: Split, index: int, rule: str, bar: float, terms: Terms) -> Outcome:
    labels = cohort.labels[split.search]
    choice = choose(rule, cohort.scores[index][split.search], labels, bar, terms.delta)
    on_misses = RULES[rule].risk == MISS
    threshold = Threshold(
        configuration=cohort.configurations[index],
        target=bar if on_misses else _ALL,
        tau=choice.tau,
        search_cases=int(labels.size),
        search_positives=int(labels.sum()),
        allowance=choice.allowance,
    )
    point = evaluate(cohort, split.evaluation, index, threshold, terms)
    kept, reason = _verdict(choice, point, bar, on_misses=on_misses)
    return Outcome(
        score_model=cohort.configurations[index] or "scores",
        rule=rule,
        target=bar if on_misses else None,
        level=None if on_misses else bar,
        kept=kept,
        needed=choice.needed,
        needed_of="positives" if on_misses else "dismissed",
        reason=reason,
        point=point,
    )


def _verdict(choice: Choice, point: Point, bar: float, *, on_misses: bool) -> tuple[bool | None, str | None]:
    """Compare what evaluation observed with what was promised, in integers."""
    if choice.tau is None:
        return None, choice.reason
    if on_misses:
        return point.met, point.reason
    allowed = allowed_misses(point.dismissed, 1 - exact_share(bar, "level"))
    if point.positives_dismissed <= allowed:
        return True, None
    return False, (
        f"{point.positives_dismissed} of {point.dismissed} dismissed on evaluation have cancer,"
        f" {allowed} at a rate of {bar:.6g}"
    )


def rows_of(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return the rows of results.csv."""
    return [outcome.row() for outcome in outcomes]
