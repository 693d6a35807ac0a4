"""Decide about each case, and write and read the worklist: one row per case, safe in a spreadsheet.

`NAME.record.json` beside a worklist NAME has the digest of each of its rows: an edited one is refused.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from trust_cache.base.csv_tables import LINE, read_text_table, restore, write_rows
from trust_cache.base.digests import rows_sha256
from trust_cache.base.documents import Document, read_json, sealed_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file, write_keeping
from trust_cache.clinic.model_folder import StoredModel

SCHEMA = 1
Decision = Literal["dismiss", "review", "audit"]
DISMISS: Decision = "dismiss"
REVIEW: Decision = "review"
AUDIT: Decision = "audit"  # may be dismissed, but was drawn to be read anyway
UNCERTIFIED = "not certified"


@dataclass(frozen=True)
class ScoredCase:
    """The score of a case, and every problem that keeps it from being dismissed."""

    case_id: str
    score: float | None  # of its images, as the model aggregates them; None: no image could be scored
    image_id: str | None  # the highest image; None: the aggregation has no deciding image
    problems: tuple[str, ...]
    failed: bool  # an image could not be scored
    sketches: dict[str, str] = field(default_factory=dict)  # of its pictures, by image


@dataclass(frozen=True)
class WorklistRow:
    """The decision about one case, the image that sets its score, and why it may not be dismissed."""

    case_id: str
    score: float | None  # None: it could not be scored
    decision: Decision
    image_id: str | None  # the image with the highest score; None: the aggregation has no deciding image
    tau: float | None
    complete: bool  # it fulfils the model's protocol
    reason: str | None  # why it may not be dismissed, apart from its score
    certified: bool
    model: str  # the digest of the model's record

    def __post_init__(self) -> None:
        """Refuse a dismissal that is not allowed: the last guard, independent of `decide`."""
        allowed = (
            self.complete
            and self.score is not None
            and self.tau is not None
            and math.isfinite(self.score)
            and self.score < self.tau
        )
        if self.decision != REVIEW and not allowed:
            raise AssertionError(f"case {self.case_id} may not be dismissed: {self}")


COLUMNS = tuple(column.name for column in fields(WorklistRow))


def decide(scored: ScoredCase, stored: StoredModel, *, uncertified: bool) -> WorklistRow:
    """Return the row of a case. Dismiss only a complete case below tau of a certified model.

    With `uncertified`, a model without a certificate may dismiss too; each row says that it is not certified.
    """
    model, tau = stored.model, stored.model.threshold.tau
    score = scored.score if scored.score is not None and math.isfinite(scored.score) else None
    complete = score is not None and not scored.problems and not scored.failed
    allowed = complete and (model.certified or uncertified)
    reasons = [*scored.problems]
    if not model.certified:
        reasons.append(UNCERTIFIED)
    if scored.score is not None and score is None:
        reasons.append("the score is not a number")
    return WorklistRow(
        case_id=scored.case_id,
        score=score,
        decision=DISMISS if allowed and tau is not None and score is not None and score < tau else REVIEW,
        image_id=scored.image_id,
        tau=tau,
        complete=complete,
        reason="; ".join(reasons) or None,
        certified=model.certified,
        model=stored.sha256,
    )


class WorklistRecord(Document, frozen=True, kw_only=True):
    """What `triage` decided: the digest of each row by case."""

    schema: int = SCHEMA
    rows: dict[str, str]
    runtime: str | None  # of the encoder, with its version
    probe_difference: float | None  # of the encoder's features from those of the model's training


def record_of(worklist: Path) -> Path:
    """Return the place of a worklist's record."""
    return worklist.with_name(f"{worklist.name}.record.json")


def write_worklist(
    out: Path,
    rows: Iterable[WorklistRow],
    *,
    runtime: str | None = None,
    probe_difference: float | None = None,
) -> Path | None:
    """Write the rows sorted by case_id, and their record with what made the features.

    Return where another worklist in this place was kept with its record, if any.
    """
    ordered = sorted(rows, key=lambda row: row.case_id)
    kept = write_keeping(out, write_rows(COLUMNS, map(asdict, ordered), neutral=True), private=True)
    record = record_of(out)
    if kept is not None and record.exists():
        record.rename(record_of(kept))
    # As they are read again: white space around a text and lone surrogates do not come back.
    made = WorklistRecord(
        rows={row.case_id: _digest(row) for _, row in _rows_in(out)},
        runtime=runtime,
        probe_difference=probe_difference,
    )
    write_file(record, sealed_bytes(made.as_document()), private=True)
    return kept


def _digest(row: WorklistRow) -> str:
    return rows_sha256([list(asdict(row).values())])


def read_worklist(path: Path) -> list[WorklistRow]:
    """Read a worklist; a row that is invalid or not the recorded one is refused by its line or case."""
    rows: dict[str, WorklistRow] = {}
    for line, row in _rows_in(path):
        if row.case_id in rows:
            raise InputError(f"{path}: line {line}: case {row.case_id} occurs twice")
        rows[row.case_id] = row
    _require_recorded(path, rows)
    return list(rows.values())


def _rows_in(path: Path) -> Iterator[tuple[int, WorklistRow]]:
    """Yield the rows of a file with their lines."""
    table = read_text_table(path, COLUMNS, lines=True)
    for cells in table.select(LINE, *COLUMNS).iter_rows(named=True):
        line = cells.pop(LINE)
        try:
            yield line, _row_of(cells)
        except (ValueError, AssertionError) as error:
            raise InputError(f"{path}: line {line}: not a row of a worklist ({error})") from error


def _require_recorded(path: Path, rows: Mapping[str, WorklistRow]) -> None:
    """Refuse rows that differ from the record; a worklist without one has nothing to differ from."""
    if not record_of(path).exists():
        return
    what = "the record of a worklist"
    recorded = read_json(record_of(path), WorklistRecord, what=what, schema=SCHEMA, sealed=True).rows
    for case_id in sorted({*recorded, *rows}):
        if case_id not in rows:
            problem = "is missing"
        elif case_id not in recorded:
            problem = "was added"
        elif recorded[case_id] != _digest(rows[case_id]):
            problem = "was changed"
        else:
            continue
        raise InputError(
            f"{path}: case {case_id}: by {record_of(path).name} its row {problem} since `trust-cache triage`"
            " wrote it; restore both files, or triage again"
        )


def read_added(path: Path, column: str, *, required: bool) -> list[str | None]:
    """Return each row's cell in a column that was added to a worklist; None for all where there is none."""
    table = read_text_table(path, ("case_id", column) if required else ("case_id",), lines=True)
    if column not in table.columns:
        return [None] * table.height
    for line, cell in table.select(LINE, column).iter_rows():
        if cell is None and required:
            raise InputError(f"{path}: line {line}: expected a {column}, found none")
    return table[column].to_list()


def _row_of(cells: Mapping[str, str | None]) -> WorklistRow:
    values: dict[str, Any] = {
        name: None if cell is None else _PARSERS.get(name, str)(restore(cell)) for name, cell in cells.items()
    }
    for name in ("case_id", "decision", "complete", "certified", "model"):
        if values[name] is None:
            raise ValueError(f"expected a value in {name}, found none")
    return WorklistRow(**values)


def _decision(text: str) -> str:
    if text not in (DISMISS, REVIEW, AUDIT):
        raise ValueError(f"expected the decision {DISMISS}, {REVIEW} or {AUDIT}, found {text!r}")
    return text


def _truth(text: str) -> bool:
    # Spreadsheets write TRUE and FALSE.
    if text.lower() not in ("true", "false"):
        raise ValueError(f"expected true or false, found {text!r}")
    return text.lower() == "true"


_PARSERS: dict[str, Callable[[str], Any]] = {
    "score": float,
    "tau": float,
    "decision": _decision,
    "complete": _truth,
    "certified": _truth,
}
