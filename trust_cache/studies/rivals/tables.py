"""The one table of a study of rivals: dismissal, recall, bound, promise kept, feasible or what is needed."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from trust_cache.base.text_tables import NO_NUMBER, Table, confidence, percent, whole_percent
from trust_cache.certificate.tables import bound_name
from trust_cache.studies.rivals.outcomes import Outcome
from trust_cache.studies.rivals.rules import RULES
from trust_cache.studies.rivals.study import Study


def rivals_table(study: Study) -> Table:
    """Return a row a rule, bar and score model."""
    settings, first = study.settings, study.outcomes[0].point
    name = bound_name(settings.delta)
    header = (
        "Rule", "Promised", "Score model", "Dismissal", "Recall", "FOR", name,
        f"{name} corrected", "Promise", "Feasible",
    )  # fmt: skip
    title = (
        f"Rivals on the evaluation subset: {first.cases:,} cases, {first.positives:,} positive"
        f" ({percent(first.prevalence)}); thresholds from {first.search_cases:,} search cases,"
        f" {first.search_positives:,} positive"
    )
    legend = (
        "FOR: false omission rate, cancer among the dismissed."
        f" {name}: its one-sided {confidence(settings.delta)} Clopper-Pearson upper bound;"
        f" corrected: for the {first.compared} rows compared. Promise: whether the rate observed on"
        " evaluation is within what was promised (an observation, not a proof; the paper's rule promises"
        " nothing there and crc an average, so both may miss it in a single split). Feasible, or what"
        " the rule needs: positives in the search subset, or cases dismissed there without a cancer."
    )
    return Table(title, header, tuple(_rows(study)), legend)


def promises(study: Study) -> list[str]:
    """Return what each rule of the study promises."""
    return [f"{name}: {RULES[name].promise}" for name in study.settings.rules]


def _rows(study: Study) -> Iterator[tuple[str, ...]]:
    """Yield the rows; a rule that is infeasible for one reason whatever the model takes a single one."""
    for _, group in groupby(study.outcomes, key=lambda item: (item.rule, item.target, item.level)):
        outcomes = list(group)
        reasons = {None if item.feasible else item.reason for item in outcomes}
        if len(outcomes) > 1 and len(reasons) == 1 and None not in reasons:
            outcomes = [replace(outcomes[0], score_model=f"all {len(outcomes)}")]
        yield from map(_row, outcomes)


def _row(outcome: Outcome) -> tuple[str, ...]:
    point = outcome.point
    promised = (
        f"recall {whole_percent(outcome.target)}"
        if outcome.target is not None
        else f"FOR {whole_percent(outcome.level or 0.0)}"
    )
    head = (outcome.rule, promised, outcome.score_model)
    if not outcome.feasible:
        return (*head, *(NO_NUMBER,) * 6, outcome.reason or NO_NUMBER)
    return (
        *head,
        percent(point.dismissal),
        percent(point.recall),
        percent(point.false_omission_rate),
        percent(point.bound),
        percent(point.bound_corrected),
        "kept" if outcome.kept else "not kept",
        "feasible",
    )
