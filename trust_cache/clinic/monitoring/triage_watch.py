"""What a triage does for later monitoring: check the last day, draw the audit, record scores and drift."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from trust_cache.base.digests import bytes_blake3
from trust_cache.base.errors import InputError
from trust_cache.clinic.model_folder import StoredModel
from trust_cache.clinic.monitoring.audit import key_file, make_or_read_key, mark_audited
from trust_cache.clinic.monitoring.drift import Drift, measure_drift
from trust_cache.clinic.monitoring.model_history import (
    TriageEntry,
    append_entry,
    digests_of,
    history_file,
    read_history,
)
from trust_cache.clinic.worklist import WorklistRow

_KEY_DIGITS = 16


@dataclass(frozen=True)
class TriageWatch:
    """The model's history and the key of the audit, checked before the first case is scored."""

    stored: StoredModel
    history: Path
    today: date
    share: float | None  # None: no audit
    key: bytes | None
    warnings: tuple[str, ...]

    @classmethod
    def open(
        cls,
        stored: StoredModel,
        *,
        share: float | None,
        key: Path | None,
        history: Path | None,
        expired: bool,
        today: date | None = None,
    ) -> "TriageWatch":
        """Refuse an expired model and a changed history; read or make the key of an audit."""
        today = today or date.today()
        if stored.model.expired(today) and not expired:
            raise InputError(
                f"{stored.folder}: the model was valid until {stored.model.valid_until}; certify and export"
                " it again, or apply it with --expired, which every row records"
            )
        place = history if history is not None else history_file(stored.folder)
        read_history(place)
        warnings, found = [], None
        if share is not None:
            path = key if key is not None else key_file(stored.folder)
            found, made = make_or_read_key(path)
            if made:
                warnings.append(
                    f"{path}: made a key for the audit; keep it: only with it the draw can be checked"
                )
        elif key is not None:
            raise InputError("audit key: expected it together with a share (--audit SHARE)")
        return cls(stored, place, today, share, found, tuple(warnings))

    def mark(self, rows: Sequence[WorklistRow]) -> tuple[WorklistRow, ...]:
        """Return the rows with the audited ones marked, and with the last day of an expired model."""
        if self.key is not None and self.share is not None:
            rows = mark_audited(rows, self.key, self.share)
        if self.stored.model.expired(self.today):
            text = f"the model was valid until {self.stored.model.valid_until}"
            rows = [replace(row, reason="; ".join(filter(None, (row.reason, text)))) for row in rows]
        return tuple(rows)

    def record(self, rows: Sequence[WorklistRow], worklist: Path) -> tuple[Drift, tuple[str, ...]]:
        """Append the scores to the model's history; return the drift over all of it, and warnings."""
        entry = TriageEntry(
            model=self.stored.sha256,
            day=self.today.isoformat(),
            worklist=worklist.name,
            audit=self.share,
            audit_key=None if self.key is None else bytes_blake3(self.key)[:_KEY_DIGITS],
            cases=digests_of(rows),
        )
        warnings = self.warnings
        if os.access(self.history.parent, os.W_OK):
            past = append_entry(self.history, entry)
            scores = past.scores(self.stored.sha256)
        else:
            warnings = (
                *warnings,
                f"{self.history}: cannot be written, so later runs do not know these scores",
            )
            known = read_history(self.history).scores(self.stored.sha256)
            scores = known | {case.digest: case.score for case in entry.cases}
        drift = measure_drift(self.stored, scores)
        return drift, (*warnings, *drift.warnings)
