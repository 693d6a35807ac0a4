"""Outcomes of examinations as they become known, joined with what a model decided about them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from trust_cache.base.errors import InputError
from trust_cache.base.tables import LINE, read_text_table, restore
from trust_cache.service.worklists import DISMISS, WorklistRow


@dataclass(frozen=True)
class Outcomes:
    """The label of every case with a known outcome: 1 if any row of it says cancer."""

    labels: Mapping[str, int]
    latest: str | None  # the newest date, where the file has dates


@dataclass(frozen=True)
class FollowUp:
    """The integers of a look: what was dismissed and reviewed, and what became known of it."""

    dismissed: int
    dismissed_followed: int
    dismissed_positives: int
    reviewed: int
    reviewed_followed: int
    reviewed_positives: int
    other_rows: int  # of worklists, decided by other models: not counted
    outcomes_elsewhere: int  # outcomes of cases that no counted row speaks of

    @property
    def dismissed_unknown(self) -> int:
        """Dismissed cases without an outcome."""
        return self.dismissed - self.dismissed_followed


def read_outcomes(path: Path) -> Outcomes:
    """Read case_id, label and, if there, date (YYYY-MM-DD); a case may have several rows."""
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
            latest = max(latest or date.min, _date(row["date"], where))
    return Outcomes(labels, None if latest is None else latest.isoformat())


def follow_up(rows: Iterable[WorklistRow], outcomes: Outcomes, model_sha256: str) -> FollowUp:
    """Count the outcomes of what this model decided; rows of other models do not enter."""
    every = list(rows)
    own = [row for row in every if row.model == model_sha256]
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
        other_rows=len(every) - len(own),
        outcomes_elsewhere=len(set(labels) - {row.case_id for row in own}),
    )


def join_worklists(worklists: Iterable[tuple[Path, list[WorklistRow]]]) -> list[WorklistRow]:
    """Return the rows of several worklists; a case in two of them must have been decided alike."""
    joined: dict[tuple[str, str], WorklistRow] = {}
    for path, rows in worklists:
        for row in rows:
            earlier = joined.setdefault((row.case_id, row.model), row)
            if earlier.decision != row.decision:
                raise InputError(
                    f"{path}: case {row.case_id} is {row.decision} here and {earlier.decision} in another"
                    " worklist of the same model; name only the one that was acted on"
                )
    return list(joined.values())


def _date(text: str, where: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{where}: expected a date as YYYY-MM-DD, found {text!r}") from error
