"""The worklist: one row an examination, safe to open in a spreadsheet, and read back as it was meant."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from trust_cache.base.errors import InputError
from trust_cache.base.tables import LINE, read_text_table, restore, write_rows

Decision = Literal["dismiss", "review"]
DISMISS: Decision = "dismiss"
REVIEW: Decision = "review"


@dataclass(frozen=True)
class WorklistRow:
    """An examination's row: what was decided about it, by which image, or why it could not be scored."""

    case_id: str
    score: float | None  # None: it could not be scored
    decision: Decision
    image_id: str | None  # the image with the largest score
    tau: float | None
    complete: bool  # the required views and nothing else, all of them scored
    reason: str | None  # what keeps it from being dismissed, besides its score
    certified: bool
    model: str  # the digest of the model's record

    def __post_init__(self) -> None:
        if self.decision == DISMISS and not self._may_be_dismissed():
            raise AssertionError(f"case {self.case_id}: a {self} may not be dismissed")

    def _may_be_dismissed(self) -> bool:
        """Tell whether everything that a dismissal needs is there: the last guard, whatever came before."""
        return (
            self.complete
            and self.score is not None
            and self.tau is not None
            and math.isfinite(self.score)
            and self.score < self.tau
        )


COLUMNS = tuple(field.name for field in fields(WorklistRow))


def worklist_bytes(rows: Iterable[WorklistRow]) -> bytes:
    """Return the worklist as a CSV file, sorted by case_id."""
    ordered = sorted(rows, key=lambda row: row.case_id)
    return write_rows(COLUMNS, map(asdict, ordered), neutral=True)


def read_worklist(path: Path) -> list[WorklistRow]:
    """Read a worklist back; whatever may not be there is refused with its line."""
    table = read_text_table(path, COLUMNS, lines=True)
    rows: dict[str, WorklistRow] = {}
    for cells in table.select(LINE, *COLUMNS).iter_rows(named=True):
        line = cells.pop(LINE)
        try:
            row = _row_of(cells)
        except (ValueError, AssertionError, KeyError) as error:
            raise InputError(f"{path}: line {line}: not a row of a worklist ({error})") from error
        if row.case_id in rows:
            raise InputError(f"{path}: line {line}: case {row.case_id} stands twice")
        rows[row.case_id] = row
    return list(rows.values())


def _row_of(cells: dict[str, Any]) -> WorklistRow:
    text = {name: None if cell is None else restore(cell) for name, cell in cells.items()}
    if text["case_id"] is None or text["model"] is None:
        raise ValueError("expected a case_id and a model")
    decision = text["decision"]
    if decision not in (DISMISS, REVIEW):
        raise ValueError(f"expected the decision {DISMISS} or {REVIEW}, found {decision!r}")
    return WorklistRow(
        case_id=text["case_id"],
        score=_number(text["score"]),
        decision=decision,
        image_id=text["image_id"],
        tau=_number(text["tau"]),
        complete=_truth(text["complete"]),
        reason=text["reason"],
        certified=_truth(text["certified"]),
        model=text["model"],
    )


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def _truth(text: str | None) -> bool:
    # A spreadsheet that saved the file writes TRUE and FALSE.
    if text is None or text.lower() not in ("true", "false"):
        raise ValueError(f"expected true or false, found {text!r}")
    return text.lower() == "true"
