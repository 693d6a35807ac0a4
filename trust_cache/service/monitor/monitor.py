"""Monitoring: worklists and outcomes in, a corrected look out, recorded before it is shown."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trust_cache.base.digests import rows_sha256
from trust_cache.base.errors import InputError
from trust_cache.base.locks import FileLock
from trust_cache.base.text_tables import confidence, percent
from trust_cache.certificate.settings import check_delta
from trust_cache.service.models.folder import StoredModel, read_model
from trust_cache.service.monitor.history import read_history, write_history
from trust_cache.service.monitor.look import Look, take_look
from trust_cache.service.monitor.outcomes import (
    FollowUp,
    Outcomes,
    follow_up,
    join_worklists,
    read_outcomes,
)
from trust_cache.service.worklists import WorklistRow, read_worklist

DELTA = 0.01


@dataclass(frozen=True)
class Monitoring:
    """What a look found, with the file that remembers it."""

    model: str
    counts: FollowUp
    look: Look
    latest: str | None
    history: Path
    repeated: bool  # the very data of the last look: no further error rate was spent
    warnings: tuple[str, ...]

    def as_document(self) -> dict[str, Any]:
        """Return it as one JSON document."""
        return {
            "model": self.model,
            **asdict(self.counts),
            "dismissed_unknown": self.counts.dismissed_unknown,
            **asdict(self.look),
            "latest": self.latest,
            "history": str(self.history),
            "repeated": self.repeated,
            "warnings": list(self.warnings),
        }


def monitor(
    worklists: Sequence[Path],
    outcomes: Path,
    model: Path,
    *,
    history: Path | None = None,
    delta: float | None = None,
    looks_before: int = 0,
) -> Monitoring:
    """Look at the outcomes of what a model dismissed and record the look.

    `delta` is over all looks (default: the certificate's). `looks_before` counts looks that the history does
    not know of. The default history lies beside the first worklist.
    """
    if not worklists:
        raise InputError("worklists: expected at least one, found none")
    if looks_before < 0:
        raise InputError(f"looks_before: expected 0 or more, found {looks_before}")
    stored = read_model(model)
    certificate = stored.model.certificate
    delta = delta if delta is not None else (DELTA if certificate is None else float(certificate["delta"]))
    check_delta(delta)
    known = read_outcomes(outcomes)
    rows = join_worklists((path, read_worklist(path)) for path in worklists)
    counts = follow_up(rows, known, stored.sha256)
    _refuse_nothing_to_see(counts, stored)
    path = history if history is not None else worklists[0].with_name(f"{worklists[0].stem}.looks.json")
    bound = None if certificate is None else float(certificate["bound"])
    data = _data_sha256(rows, known, stored.sha256)
    with FileLock(path.with_name(f".{path.name}.lock"), str(path)):
        past = read_history(path, stored.sha256, delta)
        repeated = past.repeats(data)
        number = (
            int(repeated["look"]["number"])
            if repeated is not None
            else max(past.last_number, looks_before) + 1
        )
        look = take_look(counts, bound, delta, number)
        if repeated is None:
            entry = {"data_sha256": data, "counts": asdict(counts), "look": asdict(look)}
            write_history(path, past.with_look(json.loads(json.dumps(entry))))
    return Monitoring(
        stored.sha256, counts, look, known.latest, path, repeated is not None, _warnings(counts, look)
    )


def sentences(found: Monitoring) -> list[str]:
    """Say in plain words what the look found."""
    counts, look = found.counts, found.look
    sure = confidence(look.delta)
    text = [
        f"Of {counts.dismissed:,} dismissed examinations {counts.dismissed_followed:,} have an outcome,"
        f" {counts.dismissed_positives:,} of them cancer; {counts.dismissed_unknown:,} have none yet."
        f" Of {counts.reviewed:,} reviewed ones {counts.reviewed_followed:,} have an outcome,"
        f" {counts.reviewed_positives:,} of them cancer.",
        f"With {sure} confidence over all looks (this is look {look.number}), at most"
        f" {percent(look.bound_complete)} of dismissed examinations have cancer if those without an outcome"
        f" are like the others, and at most {percent(look.bound_worst)} if each of those has cancer.",
    ]
    said = f"the certificate's {percent(look.certified_bound)}"
    verdict = {
        "confirmed": f"The bound holds: even in the worst case it stays within {said}.",
        "contradicted": f"The bound does not hold: at least {percent(look.rate_lower)} of the dismissed have"
        f" cancer, more than {said}. Stop dismissing with this model.",
        "open": _open_verdict(look, said),
        "uncertified": "The model has no certificate: there is no bound to hold.",
    }
    return [*text, verdict[look.status]]


def _open_verdict(look: Look, said: str) -> str:
    if look.holds_complete:
        return (
            f"The bound holds among those with an outcome ({said} is not exceeded), not yet for all:"
            " too many have none."
        )
    return f"Neither shown nor contradicted: the outcomes so far are too few to show {said} again."


def _refuse_nothing_to_see(counts: FollowUp, stored: StoredModel) -> None:
    if not counts.dismissed + counts.reviewed:
        raise InputError(
            f"{stored.folder}: expected rows that this model decided ({stored.sha256[:12]}...), found none"
            f" among {counts.other_rows} of the worklists; name the model that made them"
        )


def _warnings(counts: FollowUp, look: Look) -> tuple[str, ...]:
    warnings = []
    if counts.other_rows:
        warnings.append(f"{counts.other_rows} rows were decided by other models and are not counted")
    if counts.outcomes_elsewhere:
        warnings.append(f"{counts.outcomes_elsewhere} outcomes are of cases that no counted row speaks of")
    if not counts.dismissed:
        warnings.append("nothing was dismissed: the bound is 1")
    if look.status == "contradicted":
        warnings.append("the certificate's bound is contradicted by these outcomes")
    return tuple(warnings)


def _data_sha256(rows: Sequence[WorklistRow], outcomes: Outcomes, model: str) -> str:
    decided = sorted(["row", row.case_id, row.decision] for row in rows if row.model == model)
    known = sorted(["outcome", case_id, str(label)] for case_id, label in outcomes.labels.items())
    return rows_sha256([*decided, *known])
