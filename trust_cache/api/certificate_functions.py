"""The functions of the commands certify and plan."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from trust_cache.api.result import Frame, PlottedResult, as_polars, lifted, shown_files
from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_existing
from trust_cache.base.text_tables import confidence, percent, whole_percent
from trust_cache.certificate import certified_folder
from trust_cache.certificate.attempts import record_attempt
from trust_cache.certificate.certification import Certification
from trust_cache.certificate.certify import certify as certify_scores
from trust_cache.certificate.planning.plan import DISMISSALS, Need, Reach, plan_cases, plan_reach
from trust_cache.certificate.planning.plan_tables import assurance_in_words
from trust_cache.certificate.planning.watch_plan import AssurancePlan, WatchPlan, plan_assurance, plan_watch
from trust_cache.certificate.point_tables import name_of
from trust_cache.certificate.points import Point
from trust_cache.certificate.score_table import COLUMNS, Scores
from trust_cache.manifest.protocol import PAPER, Protocol

if TYPE_CHECKING:
    from trust_cache.figures.figure import Figure

TARGETS = (0.98, 0.95)
# Of a point's columns, those that a notebook shows.
SHOWN = (
    "configuration", "target", "tau", "cases", "dismissed", "positives_dismissed", "bound", "status",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class CertifyResult(PlottedResult, Certification):
    """A certification (`points`, `subgroups`, `resplits`, `warnings`, ...), and where it was written."""

    folder: Path | None = None

    def to_polars(self) -> pl.DataFrame:
        """Return one row per point, with the columns of points.csv."""
        return point_table(self.points)

    def _shown(self) -> pl.DataFrame:
        return self.to_polars().select(SHOWN)

    def _lines(self) -> Iterator[str]:
        cohort = self.cohort
        yield f"Certification of {cohort.cases:,} cases, {cohort.positives:,} positive"
        yield from map(describe_point, self.points)
        yield from shown_files(self.folder)

    def _figure(self) -> "Figure":
        from trust_cache.certificate.evidence import evidence_of
        from trust_cache.figures.curve_figures import recall_figure

        return recall_figure(evidence_of(self))


def point_table(points: Sequence[Point]) -> pl.DataFrame:
    """Return points as a table, one row each."""
    return pl.DataFrame([point.as_document() for point in points], infer_schema_length=None)


def describe_point(point: Point) -> str:
    """Describe a point in one line."""
    name = f"{name_of(point.configuration)} at {whole_percent(point.target)} recall"
    if point.tau is None:
        return f"{name}: {point.explained}"
    return (
        f"{name}: {point.status}, tau {point.tau:.6g}, {point.dismissed:,} of {point.cases:,} dismissed"
        f" ({percent(point.dismissal)}), {point.positives_dismissed:,} of them positive, bound"
        f" {percent(point.bound)}"
    )


def certify(
    scores: Frame | Scores | Path | str,
    out: Path | str | None = None,
    *,
    targets: Sequence[float] = TARGETS,
    delta: float = 0.01,
    seed: int = 0,
    split: Path | str | None = None,
    by: str | Sequence[str] | None = None,
    prevalence: float | None = None,
    resplits: int = 0,
    rule: str = "recall",
    limit: float | None = None,
    protocol: Protocol | Path | str = PAPER,
    case: str = COLUMNS.case,
    label: str = COLUMNS.label,
    score: str = COLUMNS.score,
    patient: str = COLUMNS.patient,
    positive: str | None = None,
    band: bool = False,
    overwrite: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> CertifyResult:
    """Choose a threshold per recall target on 20 % of the cases and certify it on the rest.

    `scores` is a data frame or a file (CSV, Parquet, Excel) with case_id, label and score, one row per image
    or case, or a run folder; ids are texts, with their leading zeros. `case`, `label`, `score` and `patient`
    are other names of these columns, `positive` is the label of cancer where labels are not 0 and 1. With
    `out` the certified folder is written and, for a file or folder of scores, the attempt is recorded beside
    it; a folder that exists is refused unless `overwrite` is set. `targets` are recalls, `delta` is one minus
    the confidence, `limit` the largest bound that counts as certified (default: the prevalence), `split` a
    split.csv to reuse, `by` columns to group by (`age=50,60,70`: bands). `advance` is called after each
    resplit.

    Examples:
        >>> import polars as pl, trust_cache as tc
        >>> labels = [int(i % 20 == 0) for i in range(2000)]
        >>> shares = [(i * 7919 % 1000) / 1000 + labels[i] for i in range(2000)]
        >>> ids = [f"{i:04d}" for i in range(2000)]
        >>> scores = pl.DataFrame({"case_id": ids, "label": labels, "score": shares})
        >>> tc.certify(scores, targets=[0.95]).points[0].status
        'certified'
    """
    options: dict[str, Any] = {
        "targets": targets, "delta": delta, "seed": seed, "split": split, "by": by, "prevalence": prevalence,
        "resplits": resplits, "rule": rule, "limit": limit, "protocol": protocol, "case": case,
        "label": label, "score": score, "patient": patient, "positive": positive, "band": band,
        "advance": advance,
    }  # fmt: skip
    if out is not None:
        refuse_existing(Path(out), own=certified_folder.OWN, overwrite=overwrite)
    source = scores if isinstance(scores, Scores | Path | str) else as_polars(scores)
    found = certify_scores(source, **options)
    if out is None:
        return lifted(CertifyResult, found)
    if isinstance(scores, Path | str):
        found = record_attempt(found, Path(scores))
    certified_folder.write_certification(found, Path(out), overwrite=overwrite)
    return lifted(CertifyResult, found, folder=Path(out))


@dataclass(frozen=True, repr=False)
class PlanResult(PlottedResult):
    """What a bound needs, and when monitoring answers; or the assurance of a study; or a cohort's reach."""

    need: Need | None = None
    watch: WatchPlan | None = None
    assurance: AssurancePlan | None = None
    reach: Reach | None = None

    def as_document(self) -> dict[str, Any]:
        """Return the plan, ready for JSON, without the curves of its figure."""
        if self.reach is not None:
            return asdict(self.reach)
        if self.assurance is not None:
            return dict(_without_curves(asdict(self.assurance)))
        watching = {} if self.watch is None else {"watching": _without_curves(asdict(self.watch))}
        return ({} if self.need is None else asdict(self.need)) | watching

    def to_polars(self) -> pl.DataFrame:
        """Return the bounds that a cohort can reach, one row each, else the plan as one row."""
        if self.reach is None:
            row = {name: value for name, value in self.as_document().items() if name != "watching"}
            return pl.DataFrame([row])
        best = [{"target": None, **asdict(item)} for item in self.reach.bounds]
        others = [{"target": row.target, **asdict(item)} for row in self.reach.targets for item in row.bounds]
        return pl.DataFrame([*best, *others], schema_overrides={"target": pl.Float64})

    def _lines(self) -> Iterator[str]:
        if self.need is not None:
            need = self.need
            yield f"A bound of {whole_percent(need.bound)} at {confidence(need.delta)} confidence needs"
            yield f"{need.dismissed:,} dismissed cases, {need.misses} of them positive"
            yield f"{need.cases:,} cases in all at a dismissal of {whole_percent(need.dismissal)}"
        if self.assurance is not None:
            yield assurance_in_words(self.assurance)
        if self.reach is not None:
            reach = self.reach
            yield f"{reach.cases:,} cases with {reach.positives:,} positive can reach"
            yield f"a bound of {percent(reach.best_bound, 4)} at best"
            for row in reach.targets:
                chance = percent(row.rules[0].chance_met, 0)
                yield f"{whole_percent(row.target)} recall on evaluation in {chance} of all splits"

    def _figure(self) -> "Figure":
        from trust_cache.figures.monitoring_figures import assurance_figure, watch_figure
        from trust_cache.figures.plan_figures import reach_figure

        if self.reach is not None:
            return reach_figure(self.reach)
        if self.assurance is not None:
            return assurance_figure(self.assurance)
        if self.watch is not None:
            return watch_figure(self.watch)
        raise InputError("expected a plan to draw, found an empty one")

    def figure(self) -> "Figure":
        """Return the figure of the plan, to be saved in any format."""
        return self._figure()


def _without_curves(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: _without_curves(value) for name, value in document.items() if name != "curve"}
    return [_without_curves(item) for item in document] if isinstance(document, list | tuple) else document


_COHORT, _ASSURANCE, _BOUND = {"cases", "positives"}, {"rate", "limit", "dismissal"}, {"bound", "dismissal"}


def plan(
    *,
    bound: float | None = None,
    dismissal: float | None = None,
    misses: int | None = None,
    cases: int | None = None,
    positives: int | None = None,
    rate: float | None = None,
    limit: float | None = None,
    assurance: float | None = None,
    audit: float | None = None,
    targets: Sequence[float] | None = None,
    delta: float = 0.01,
) -> PlanResult:
    """Return how many cases a bound needs, which bounds a cohort can reach, or how likely a bound is.

    Give `bound` and `dismissal` (and `misses`) for the cases that a bound needs, and for how soon monitoring
    confirms it or raises the alarm (`audit`: from audited cases alone). Give `cases` and `positives` (and
    `targets`) for what a cohort can reach. Give `rate`, `limit` and `dismissal` with `cases` for the
    assurance, the chance of a bound below the limit, or with `assurance` for the cases that it needs.

    Examples:
        >>> import trust_cache as tc
        >>> tc.plan(bound=0.01, dismissal=0.2, misses=2)
        A bound of 1% at 99% confidence needs
          838 dismissed cases, 2 of them positive
          5,238 cases in all at a dismissal of 20%
    """
    named = {
        "bound": bound, "dismissal": dismissal, "misses": misses, "cases": cases, "positives": positives,
        "rate": rate, "limit": limit, "assurance": assurance, "audit": audit, "targets": targets,
    }  # fmt: skip
    given = {name for name, value in named.items() if value is not None}
    if _ASSURANCE <= given <= _ASSURANCE | {"cases", "assurance"}:
        found = plan_assurance(
            rate=rate or 0.0, limit=limit or 0.0, dismissal=dismissal or 0.0, cases=cases, wanted=assurance,
            delta=delta,
        )  # fmt: skip
        return PlanResult(assurance=found)
    if _COHORT <= given <= _COHORT | {"dismissal", "targets"}:
        dismissals = DISMISSALS if dismissal is None else (dismissal,)
        wanted = tuple(targets or TARGETS)
        reach = plan_reach(
            cases=cases or 0, positives=positives or 0, targets=wanted, delta=delta, dismissals=dismissals
        )
        return PlanResult(reach=reach)
    if _BOUND <= given <= _BOUND | {"misses", "audit", "rate"}:
        level, missed = bound or 0.0, misses or 0
        need = plan_cases(bound=level, dismissal=dismissal or 0.0, misses=missed, delta=delta)
        watch = plan_watch(bound=level, misses=missed, audit=audit, delta=delta, rate=rate)
        return PlanResult(need=need, watch=watch)
    raise InputError(
        "plan: expected --bound and --dismissal (with --misses, --audit, --rate), or --cases and --positives"
        " (with --target, --dismissal), or --rate, --limit and --dismissal with --cases or --assurance"
    )
