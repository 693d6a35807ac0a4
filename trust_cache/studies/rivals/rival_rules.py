"""Apply every rule to every score model: tau from the search subset, points on the evaluation subset."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trust_cache.base.errors import InputError, check_fraction, check_least, did_you_mean
from trust_cache.certificate.certification import check_delta, check_targets
from trust_cache.certificate.points import POINT_KEYS, Point, Terms, as_threshold, evaluate, usable_search
from trust_cache.certificate.score_table import Cohort
from trust_cache.certificate.split import Split
from trust_cache.heads.folds import FOLDS
from trust_cache.manifest.protocol import PAPER, Protocol
from trust_cache.statistics.rules import RULES, Choice, MissRule
from trust_cache.statistics.thresholds import allowed_misses, exact_share

PAPER_HEADS = ("ce", "closed-loop")
LOGISTIC, SELECTIVE, CONFORMAL = "logistic-regression", "selectivenet", "conformal-risk-training"
MODELS = (*PAPER_HEADS, LOGISTIC, SELECTIVE, CONFORMAL)


@dataclass(frozen=True)
class RivalSettings:
    """`targets` are recalls, `level` a cancer rate among the dismissed, `delta` one minus the confidence.

    `limit` is the largest acceptable bound (None: the prevalence of the evaluation cases), `protocol` what a
    case must be to be dismissed.
    """

    targets: tuple[float, ...] = (0.98, 0.95)
    level: float = 0.01
    delta: float = 0.01
    seed: int = 0
    models: tuple[str, ...] = MODELS
    rules: tuple[str, ...] = field(default_factory=lambda: tuple(RULES))
    epochs: int = 20  # of the paper's heads
    limit: float | None = None
    protocol: Protocol = PAPER

    def __post_init__(self) -> None:
        check_targets(self.targets)
        check_delta(self.delta)
        check_fraction("level", self.level)
        check_least("seed", self.seed)
        if self.limit is not None:
            check_fraction("limit", self.limit)
        check_names("models", self.models, MODELS)
        check_names("rules", self.rules, tuple(RULES))

    @property
    def bars(self) -> list[tuple[str, float]]:
        """Every rule with each value it must keep: the targets, or the level."""
        return [
            (rule, bar)
            for rule in self.rules
            for bar in (self.targets if isinstance(RULES[rule], MissRule) else (self.level,))
        ]

    @property
    def linear_fits(self) -> int:
        """How many linear models are fitted, for a progress bar."""
        each = {LOGISTIC: 1, SELECTIVE: 1, CONFORMAL: len(self.targets)}
        return FOLDS * sum(each.get(name, 0) for name in self.models)

    @property
    def steps(self) -> int:
        """The steps of a progress bar: epochs of the paper's heads by fold, and linear fits."""
        heads = FOLDS * self.epochs if set(self.models) & set(PAPER_HEADS) else 0
        return heads + self.linear_fits


def check_names(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Check that there are names, all known and all different."""
    if not names:
        raise InputError(f"{what}: expected at least one of {', '.join(known)}, found none")
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise InputError(f"{what}: expected {', '.join(known)}, found {name!r}{hint}")
    if len(set(names)) < len(names):
        raise InputError(f"{what}: expected different names, found {', '.join(names)}")


_ALL = 1.0  # the target of a point without one; its verdict is not used
_OWN_KEYS = ("score_model", "rule", "risk", "level", "kept", "feasible", "needed", "needed_of")
RESULT_KEYS = (*_OWN_KEYS, *(key for key in POINT_KEYS if key != "configuration"))


@dataclass(frozen=True)
class RivalOutcome:
    """A rule on a score model: the threshold, its point, and whether evaluation kept the promise."""

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
        """Return the outcome with a point's keys; a rule without a recall target has no `met` or status."""
        row = self.point.as_document() | {name: getattr(self, name) for name in _OWN_KEYS if name != "risk"}
        row |= {"risk": RULES[self.rule].risk, "target": self.target, "reason": self.reason}
        if self.target is None:
            row |= {"met": None, "status": None}
        return {key: row[key] for key in RESULT_KEYS}


def find_outcomes(cohort: Cohort, split: Split, settings: RivalSettings) -> tuple[RivalOutcome, ...]:
    """Apply all rules to all score models, rule by rule."""
    bars = settings.bars
    compared = len(bars) * len(cohort.configurations)
    return tuple(
        _outcome(cohort, split, index, rule, bar, Terms(rule, settings.delta, compared, limit=settings.limit))
        for rule, bar in bars
        for index in range(len(cohort.configurations))
    )


def _outcome(cohort: Cohort, split: Split, index: int, rule: str, bar: float, terms: Terms) -> RivalOutcome:
    found = RULES[rule]
    on_misses = isinstance(found, MissRule)
    chosen = usable_search(cohort, split, index, independent=found.promises)
    choice = found.choose(cohort.scores[index][chosen], cohort.labels[chosen], bar, terms.delta)
    threshold = as_threshold(cohort, split, index, bar if on_misses else _ALL, choice, chosen)
    point = evaluate(cohort, split, index, threshold, terms)
    kept, reason = _verdict(choice, point, bar, on_misses=on_misses)
    return RivalOutcome(
        score_model=cohort.configurations[index] or "scores",
        rule=rule,
        target=bar if on_misses else None,
        level=None if on_misses else bar,
        kept=kept,
        needed=choice.needed,
        needed_of=found.needed_of,
        reason=reason,
        point=point,
    )


def _verdict(choice: Choice, point: Point, bar: float, *, on_misses: bool) -> tuple[bool | None, str | None]:
    """Compare the rate on evaluation with the promise, in integers."""
    if choice.tau is None:
        return None, choice.reason
    if on_misses:
        return point.met, None if point.met else point.reason
    allowed = allowed_misses(point.dismissed, 1 - exact_share(bar, "level"))
    if point.positives_dismissed <= allowed:
        return True, None
    return False, (
        f"{point.positives_dismissed} of {point.dismissed} dismissed on evaluation have cancer,"
        f" {allowed} at a rate of {bar:.6g}"
    )
