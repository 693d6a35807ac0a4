"""Read the outcomes of cases and count them among the decisions of a model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from trust_cache.base.csv_tables import LINE, read_text_table, restore
from trust_cache.base.errors import InputError
from trust_cache.clinic.worklist import DISMISS, WorklistRow, read_worklist


@dataclass(frozen=True)
class Outcomes:
    """The label of every case with a known outcome: 1 if any of its rows is positive."""

    labels: Mapping[str, int]
    latest: str | None  # the latest date, if the file has dates


@dataclass(frozen=True)
class FollowUp:
    """Counts of dismissed and reviewed cases, how many have an outcome, and how many are positive."""

    dismissed: int
    dismissed_followed: int
    dismissed_positives: int
    reviewed: int
    reviewed_followed: int
    reviewed_positives: int
    other_rows: int  # decided by other models: not counted
    outcomes_unmatched: int  # outcomes of cases without a counted row

    @property
    def dismissed_unknown(self) -> int:
        """Dismissed cases without an outcome."""
        return self.dismissed - self.dismissed_followed


def read_outcomes(path: Path) -> Outcomes:
    """Read case_id, label and an optional date (YYYY-MM-DD); a case may have several rows."""
    table = read_text_table(path, ("case_id", "label"), lines=True)
    dated = "date" in table.columns
    labels: dict[str, int] = {}
    latest: date | None = None
    for row in table.iter_rows(named=True):
        where, case_id = f"{path}: line {row[LINE]}", row["case_id"]
        if case_id is None:
            raise InputError(f"{where}: expected a case_id, found none")
        if row["label"] not in ("0", "1"):
            raise InputError(f"{where}, case {case_id}: expected a label of 0 or 1, found {row['label']!r}")
        case_id = restore(case_id)
        labels[case_id] = max(labels.get(case_id, 0), int(row["label"]))
        if dated and row["date"] is not None:
            try:
                latest = max(latest or date.min, date.fromisoformat(row["date"]))
            except ValueError as error:
                raise InputError(f"{where}: expected a date as YYYY-MM-DD, found {row['date']!r}") from error
    return Outcomes(labels, None if latest is None else latest.isoformat())


def follow_up(rows: Sequence[WorklistRow], outcomes: Outcomes, model_sha256: str) -> FollowUp:
    """Count the outcomes of the cases that this model decided; skip rows of other models."""
    own = [row for row in rows if row.model == model_sha256]
    dismissed = [row.case_id for row in own if row.decision == DISMISS]
    reviewed = [row.case_id for row in own if row.decision != DISMISS]
    labels = outcomes.labels
    return FollowUp(
        dismissed=len(dismissed),
        dismissed_followed=sum(case_id in labels for case_id in dismissed),
        dismissed_positives=sum(labels.get(case_id, 0) for case_id in dismissed),
        reviewed=len(reviewed),
        reviewed_followed=sum(case_id in labels for case_id in reviewed),
        reviewed_positives=sum(labels.get(case_id, 0) for case_id in reviewed),
        other_rows=len(rows) - len(own),
        outcomes_unmatched=len(set(labels) - {row.case_id for row in own}),
    )


def join_worklists(paths: Iterable[Path]) -> list[WorklistRow]:
    """Read several worklists; a case in two of them must have the same decision."""
    joined: dict[tuple[str, str], WorklistRow] = {}
    for path in paths:
        for row in read_worklist(path):
            earlier = joined.setdefault((row.case_id, row.model), row)
            if earlier.decision != row.decision:
                raise InputError(
                    f"{path}: case {row.case_id} is {row.decision} here and {earlier.decision} in another"
                    " worklist of the same model; name only the worklist that was used"
                )
    return list(joined.values())
