"""Monitor a model: compare the outcomes of dismissed cases with its certificate.

Each look is corrected for all looks, and recorded in the history before it is shown.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from trust_cache.base.digests import rows_sha256
from trust_cache.base.documents import Document, json_bytes, read_sealed, sealed_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file
from trust_cache.base.locks import FileLock
from trust_cache.base.text_tables import confidence, percent
from trust_cache.certificate.certification import check_delta
from trust_cache.clinic.model_folder import read_model
from trust_cache.clinic.outcomes import FollowUp, Outcomes, follow_up, join_worklists, read_outcomes
from trust_cache.clinic.worklist import WorklistRow
from trust_cache.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper, spent_delta

SCHEMA = 1
DELTA = 0.01
_RESTORE = (
    "restore the file, or name another one with --history and give the number of looks with --looks-before"
)

Status = Literal["confirmed", "contradicted", "open", "uncertified"]


@dataclass(frozen=True)
class MonitorLook:
    """The bounds of one look; those of all looks hold together with confidence 1 - delta."""

    number: int
    delta: float  # over all looks
    delta_spent: float  # by this one
    bound_complete: float  # upper bound among dismissed cases with an outcome
    bound_worst: float  # upper bound if every dismissed case without an outcome has cancer
    rate_lower: float  # lower bound if none of those has
    certified_bound: float | None
    holds_complete: bool | None  # bound_complete is at most the certificate's bound
    status: Status


def take_look(counts: FollowUp, certified_bound: float | None, delta: float, number: int) -> MonitorLook:
    """Bound the cancer rate among the dismissed cases at this look's share of delta.

    The certificate is confirmed if even `bound_worst` is within its bound, and contradicted if even
    `rate_lower` is above it. For any true rate only one of the two is an error, so the probability of an
    error in any look is at most delta.
    """
    spent = spent_delta(delta, number)
    positives, unknown = counts.dismissed_positives, counts.dismissed_unknown
    complete = float(clopper_pearson_upper(positives, counts.dismissed_followed, spent))
    worst = float(clopper_pearson_upper(positives + unknown, counts.dismissed, spent))
    lower = float(clopper_pearson_lower(positives, counts.dismissed, spent))
    holds: bool | None = None
    status: Status = "uncertified"
    if certified_bound is not None:
        holds = complete <= certified_bound
        contradicted = lower > certified_bound
        status = "confirmed" if worst <= certified_bound else "contradicted" if contradicted else "open"
    return MonitorLook(number, delta, spent, complete, worst, lower, certified_bound, holds, status)


class LookRecord(Document, frozen=True, kw_only=True):
    """A look in the history; `before` is the digest of the previous one, `sha256` that of the other keys."""

    data_sha256: str
    counts: FollowUp
    look: MonitorLook
    before: str
    sha256: str = ""

    def digest(self) -> str:
        """Return the digest of all keys but `sha256`."""
        document = self.as_document()
        del document["sha256"]
        return _digest(document)


class History(Document, frozen=True, kw_only=True):
    """The looks at one model's outcomes, oldest first; one delta for all of them."""

    schema: int = SCHEMA
    model: str
    delta: float
    looks: tuple[LookRecord, ...] = ()

    @property
    def last_number(self) -> int:
        """The number of the last look; 0 before the first."""
        return self.looks[-1].look.number if self.looks else 0

    @property
    def last_digest(self) -> str:
        """The digest that the next look must name."""
        return self.looks[-1].sha256 if self.looks else _digest({"model": self.model, "delta": self.delta})

    def with_look(self, data_sha256: str, counts: FollowUp, look: MonitorLook) -> "History":
        """Return the history with one more look."""
        record = LookRecord(data_sha256=data_sha256, counts=counts, look=look, before=self.last_digest)
        record = msgspec.structs.replace(record, sha256=record.digest())
        return msgspec.structs.replace(self, looks=(*self.looks, record))


def read_history(path: Path, model: str, delta: float) -> History:
    """Read the earlier looks, if any; refuse a history that is of another model or was changed."""
    try:
        stated = check_history(path)
    except FileNotFoundError:
        return History(model=model, delta=delta)
    if stated.model != model:
        raise InputError(
            f"{path}: holds looks at the outcomes of another model ({stated.model});"
            " name another file with --history"
        )
    if stated.delta != delta:
        raise InputError(
            f"{path}: these looks share a delta of {stated.delta}, expected {delta};"
            " one history has one delta: name another file with --history"
        )
    return stated


def check_history(path: Path) -> History:
    """Read a history; refuse one that was changed, and name the first look that does not follow."""
    stated, unchanged = read_sealed(path, History, what="a history of looks", schema=SCHEMA)
    for position, record in enumerate(stated.looks):
        past = msgspec.structs.replace(stated, looks=stated.looks[:position])
        follows = record.before == past.last_digest and record.look.number > past.last_number
        if not follows or record.sha256 != record.digest():
            raise InputError(
                f"{path}: was changed by hand: look {position + 1} does not follow from the one before;"
                f" {_RESTORE}"
            )
    if not unchanged:
        raise InputError(
            f"{path}: was changed by hand: its {len(stated.looks)} looks are not all of them; {_RESTORE}"
        )
    return stated


def _digest(document: object) -> str:
    return hashlib.sha256(json_bytes(document)).hexdigest()


@dataclass(frozen=True)
class Monitoring:
    """The result of a look, and the file that records it."""

    model: str
    counts: FollowUp
    look: MonitorLook
    latest: str | None
    history: Path
    repeated: bool  # the same data as at the last look: nothing more was spent
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
    """Look at the outcomes of the cases that a model dismissed, and record the look.

    `delta` is over all looks (default: the certificate's). `looks_before` is the number of looks that are
    not in the history. The default history is beside the first worklist.
    """
    if not worklists:
        raise InputError("worklists: expected at least one, found none")
    if looks_before < 0:
        raise InputError(f"looks_before: expected 0 or more, found {looks_before}")
    stored = read_model(model)
    certificate = stored.model.certificate
    delta = delta if delta is not None else (DELTA if certificate is None else certificate.delta)
    check_delta(delta)
    known = read_outcomes(outcomes)
    rows = join_worklists(worklists)
    counts = follow_up(rows, known, stored.sha256)
    if not counts.dismissed + counts.reviewed:
        raise InputError(
            f"{stored.folder}: expected rows that this model decided ({stored.sha256[:12]}...), found none"
            f" among {counts.other_rows} rows of the worklists; name the model that made them"
        )
    path = history if history is not None else worklists[0].with_name(f"{worklists[0].stem}.looks.json")
    bound = None if certificate is None else certificate.bound
    data = _data_sha256(rows, known, stored.sha256)
    with FileLock(path.with_name(f".{path.name}.lock"), str(path)):
        past = read_history(path, stored.sha256, delta)
        repeated = bool(past.looks) and past.looks[-1].data_sha256 == data
        number = past.last_number if repeated else max(past.last_number, looks_before) + 1
        look = take_look(counts, bound, delta, number)
        if not repeated:
            content = sealed_bytes(past.with_look(data, counts, look).as_document())
            write_file(path, content, private=True)
    return Monitoring(stored.sha256, counts, look, known.latest, path, repeated, _warnings(counts, look))


def sentences(found: Monitoring) -> list[str]:
    """Return the result of a look in plain words."""
    counts, look = found.counts, found.look
    sure = confidence(look.delta)
    text = [
        f"Of {counts.dismissed:,} dismissed cases, {counts.dismissed_followed:,} have an outcome,"
        f" and {counts.dismissed_positives:,} of these have cancer; {counts.dismissed_unknown:,} have no"
        f" outcome yet. Of {counts.reviewed:,} reviewed cases, {counts.reviewed_followed:,} have an outcome,"
        f" and {counts.reviewed_positives:,} of these have cancer.",
        f"With {sure} confidence over all looks (this is look {look.number}), at most"
        f" {percent(look.bound_complete)} of dismissed cases have cancer if those without an outcome"
        f" are like the others, and at most {percent(look.bound_worst)} if each of those has cancer.",
    ]
    certified = f"the certificate's {percent(look.certified_bound)}"
    verdict = {
        "confirmed": f"The bound holds even if every dismissed case without an outcome has cancer:"
        f" {percent(look.bound_worst)} is within {certified}.",
        "contradicted": f"The bound does not hold: at least {percent(look.rate_lower)} of the dismissed cases"
        f" have cancer, more than {certified}. Stop dismissing with this model.",
        "open": f"The bound holds among the cases with an outcome (within {certified}), but not yet for all"
        " dismissed cases: too many have no outcome."
        if look.holds_complete
        else f"Neither confirmed nor contradicted: there are too few outcomes to confirm {certified}.",
        "uncertified": "The model has no certificate, so there is no bound to compare with.",
    }
    return [*text, verdict[look.status]]


def _warnings(counts: FollowUp, look: MonitorLook) -> tuple[str, ...]:
    other, unmatched = counts.other_rows, counts.outcomes_unmatched
    possible = {
        f"{other} rows were decided by other models and are not counted": other > 0,
        f"{unmatched} outcomes belong to cases without a counted row": unmatched > 0,
        "no case was dismissed: the bound is 1": not counts.dismissed,
        "the certificate's bound is contradicted by these outcomes": look.status == "contradicted",
    }
    return tuple(text for text, applies in possible.items() if applies)


def _data_sha256(rows: Sequence[WorklistRow], outcomes: Outcomes, model: str) -> str:
    decided = sorted(["row", row.case_id, row.decision] for row in rows if row.model == model)
    known = sorted(["outcome", case_id, str(label)] for case_id, label in outcomes.labels.items())
    return rows_sha256([*decided, *known])
