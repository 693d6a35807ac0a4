"""The rivals folder: its files, its table, and the only writer."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from trust_cache.base.csv_tables import write_rows
from trust_cache.base.digests import changed_files, digests_of
from trust_cache.base.documents import read_json, sealed_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_folder
from trust_cache.base.text_tables import NO_NUMBER, Table, confidence, percent, to_markdown, whole_percent
from trust_cache.certificate.certified_folder import INCOMPLETE, list_incomplete
from trust_cache.certificate.point_tables import BOUND, BOUND_CORRECTED, describe_cases
from trust_cache.heads.run_folder import score_columns
from trust_cache.statistics.rules import RULES
from trust_cache.studies.rivals.rival_rules import RESULT_KEYS, RivalOutcome
from trust_cache.studies.rivals.rivals import RivalsStudy


def rivals_table(study: RivalsStudy) -> Table:
    """Return one row per rule, target or level, and score model."""
    settings, first = study.settings, study.outcomes[0].point
    header = (
        "Rule", "Promised", "Score model", "Dismissal", "Recall", "FOR", BOUND,
        BOUND_CORRECTED, "Promise", "Status",
    )  # fmt: skip
    cases = describe_cases([item.point for item in study.outcomes])
    title = (
        f"Rivals on the evaluation subset: {cases}; thresholds from {first.search_cases:,} search cases,"
        f" {first.search_positives:,} positive"
    )
    legend = (
        "FOR: false omission rate, cancer among the dismissed."
        f" {BOUND}: its one-sided {confidence(settings.delta)} Clopper-Pearson upper bound;"
        f" corrected: for the {first.compared} rows compared. Promise: whether the rate observed on"
        " evaluation is within what was promised (an observation, not a proof; the paper's rule promises"
        " nothing there and crc an average, so both may miss it in a single split). Status: certified if a"
        f" recall target is met and the corrected bound is below the limit of {percent(first.limit)}; for a"
        " rule that found no threshold, what it needs: positives in the search subset, or cases dismissed"
        f" there without a cancer. Protocol {settings.protocol.name}."
    )
    return Table(title, header, tuple(_rows(study)), legend)


def promises(study: RivalsStudy) -> list[str]:
    """Return what each rule of the study promises."""
    return [f"{name}: {RULES[name].promise}" for name in study.settings.rules]


def _rows(study: RivalsStudy) -> Iterator[tuple[str, ...]]:
    """Yield the rows; a rule that is infeasible for every model for the same reason gets a single row."""
    for _, group in groupby(study.outcomes, key=lambda item: (item.rule, item.target, item.level)):
        outcomes = list(group)
        reasons = {None if item.feasible else item.reason for item in outcomes}
        if len(outcomes) > 1 and len(reasons) == 1 and None not in reasons:
            outcomes = [replace(outcomes[0], score_model=f"all {len(outcomes)}")]
        yield from map(_row, outcomes)


def _row(outcome: RivalOutcome) -> tuple[str, ...]:
    point = outcome.point
    promised = (
        f"recall {whole_percent(outcome.target)}"
        if outcome.target is not None
        else f"FOR {whole_percent(outcome.level or 0.0)}"
    )
    head = (outcome.rule, promised, outcome.score_model)
    if not outcome.feasible:
        return (*head, *(NO_NUMBER,) * 6, outcome.reason or NO_NUMBER)
    rates = (point.dismissal, point.recall, point.false_omission_rate, point.bound, point.bound_corrected)
    kept = "kept" if outcome.kept else "not kept"
    return (*head, *map(percent, rates), kept, outcome.row()["status"] or "feasible")


SCHEMA = 1
RIVALS = "rivals.json"
OWN = frozenset({"results.csv", RIVALS, "table.md", "split.csv", "folds.csv", "scores.csv", INCOMPLETE})


def write_study(study: RivalsStudy, out: Path) -> Path | None:
    """Write the folder; return where an earlier one with other results was kept, if there was one."""
    return write_folder(out, render(study), own=OWN)


def render(study: RivalsStudy) -> dict[str, bytes]:
    """Return the files of the folder by name; folds and scores only where they were made here."""
    unmet = (item for item in study.outcomes if item.reason is not None)
    reasons = (f"{item.score_model}, {item.rule}: {item.reason}" for item in unmet)
    notes = (*dict.fromkeys(reasons), *study.warnings)
    files = {
        "results.csv": write_rows(RESULT_KEYS, (outcome.row() for outcome in study.outcomes)),
        "table.md": to_markdown([rivals_table(study)], notes, (*promises(study), *study.limits)).encode(),
        "split.csv": study.split.as_csv(),
    }
    if (incomplete := list_incomplete(study.cohort)) is not None:
        files[INCOMPLETE] = incomplete
    if study.folds is not None:
        files["folds.csv"] = study.folds.write_csv().encode()
        columns = score_columns(study.scores.table)
        rows = study.scores.table.select(columns).iter_rows(named=True)
        files["scores.csv"] = write_rows(columns, rows)
    return files | {RIVALS: sealed_bytes(as_document(study) | {"files": digests_of(files)})}


class _RivalsFiles(msgspec.Struct, frozen=True):
    """What is read of rivals.json: the sha256 of the folder's other files by name."""

    files: dict[str, str]


def rivals_problems(folder: Path) -> list[str]:
    """Compare a folder with its record; return what does not fit, a sentence each."""
    fix = "run rivals again"
    try:
        record = read_json(folder / RIVALS, _RivalsFiles, what="the result of rivals", sealed=True)
        return changed_files(folder, record.files, fix)
    except InputError as error:
        return [str(error)]


def as_document(study: RivalsStudy) -> dict[str, Any]:
    """Return everything as one JSON document (rivals.json, `rivals --json`)."""
    return {
        "schema": SCHEMA,
        "results": [outcome.row() for outcome in study.outcomes],
        "promises": {name: RULES[name].promise for name in study.settings.rules},
        "settings": msgspec.to_builtins(study.settings),
        "training": study.training,
        "scores": study.scores.source,
        "scores_sha256": study.scores.sha256,
        "split": study.split.origin,
        "split_sha256": study.split.sha256,
        "warnings": list(study.warnings),
        "limits": list(study.limits),
        "versions": study.versions,
    }
