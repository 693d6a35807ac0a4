"""The history of a model: what triage scored and what monitor found, one line each, beside the model folder.

`NAME.history.jsonl` belongs to the model folder NAME, whatever worklists are named and in which order. A line
has the digest of the line before, so that an edited one, or one removed from the middle, is noticed.
`NAME.history.end.json` has the digest of the last line, so that lines missing at the end are noticed too. A
line that a killed process left unfinished at the end is dropped by the next writer.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from trust_cache.base.documents import (
    SEAL,
    Document,
    parse_json,
    read_json,
    seal,
    sealed_bytes,
    typed,
    unseal,
)
from trust_cache.base.errors import InputError
from trust_cache.base.files import open_private, refusals_in_words, sync, write_file
from trust_cache.base.locks import FileLock
from trust_cache.clinic.worklist import REVIEW, Decision, WorklistRow

SCHEMA = 1


class ScoredDigest(msgspec.Struct, frozen=True, array_like=True):
    """A digest that recognises a complete case, its score and its decision."""

    digest: str
    score: float
    decision: Decision


class TriageEntry(Document, frozen=True, kw_only=True, tag_field="kind", tag="triage"):
    """A triage: the complete cases that no earlier one has, sorted by case_id."""

    schema: int = SCHEMA
    model: str
    day: str
    worklist: str  # the name of the file
    audit: float | None  # the share
    audit_key: str | None  # a digest of the key
    cases: tuple[ScoredDigest, ...]
    before: str = ""  # set when it is appended


class MonitorEntry(Document, frozen=True, kw_only=True, tag_field="kind", tag="monitor"):
    """What monitor found on a day."""

    schema: int = SCHEMA
    model: str
    as_of: str
    data_sha256: str
    result: dict[str, Any]
    before: str = ""


Entry = TriageEntry | MonitorEntry


class HistoryEnd(Document, frozen=True, kw_only=True):
    """The number of lines of a history, and the digest of the last of them."""

    schema: int = SCHEMA
    lines: int
    last: str


@dataclass(frozen=True)
class ModelHistory:
    """The entries of a history, oldest first, and what the next one must name."""

    entries: tuple[Entry, ...]
    last_digest: str
    size: int  # of the whole lines, in bytes

    def triages(self, model: str) -> tuple[TriageEntry, ...]:
        """Return the triages by one model."""
        return tuple(item for item in self.entries if isinstance(item, TriageEntry) and item.model == model)

    def monitorings(self, model: str) -> tuple[MonitorEntry, ...]:
        """Return what monitor found about one model."""
        return tuple(item for item in self.entries if isinstance(item, MonitorEntry) and item.model == model)

    def scores(self, model: str) -> dict[str, float]:
        """Return the scores of all complete cases that a model triaged, by digest, in their order."""
        return {case.digest: case.score for entry in self.triages(model) for case in entry.cases}

    def below_tau(self, model: str) -> int:
        """Return how many cases a model dismissed or drew for an audit."""
        return sum(case.decision != REVIEW for entry in self.triages(model) for case in entry.cases)


def history_file(model: Path) -> Path:
    """Return the place of the history of a model folder."""
    place = model.resolve()
    return place.with_name(f"{place.name}.history.jsonl")


def read_history(path: Path) -> ModelHistory:
    """Read a history, empty where there is none; refuse one that was changed by hand."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        _require_end(path, [])
        return ModelHistory((), "", 0)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    whole, _, _ = content.rpartition(b"\n")  # what follows is the line of a killed process
    entries: list[Entry] = []
    digests: list[str] = []
    before = ""
    for number, line in enumerate(whole.split(b"\n") if whole else [], start=1):
        found, fits = _parse(line)
        if not fits or found.get("before") != before:
            raise InputError(
                f"{path}: was changed by hand: line {number} does not follow from the one before; restore the"
                " file, or name another place with --history"
            )
        kind: Any = Entry
        entries.append(typed(found, kind, where=path, what="an entry of a model's history", schema=SCHEMA))
        before = seal(found)[SEAL]
        digests.append(before)
    _require_end(path, digests)
    return ModelHistory(tuple(entries), before, len(whole) + 1 if whole else 0)


def _end_file(path: Path) -> Path:
    return path.with_suffix(".end.json")


def _require_end(path: Path, digests: Sequence[str]) -> None:
    """Refuse a history without its last lines; one more line is that of a killed process."""
    try:
        end = read_json(_end_file(path), HistoryEnd, what="the end of a history", schema=SCHEMA, sealed=True)
    except FileNotFoundError:
        return
    if end.lines > len(digests) or digests[end.lines - 1] != end.last:
        raise InputError(
            f"{path}: was changed by hand: expected {end.lines} lines, as {_end_file(path).name} says, found"
            f" {len(digests)} or others; restore the file, or name another place with --history"
        )


def append_entry(path: Path, entry: Entry) -> ModelHistory:
    """Append an entry durably, unless all its cases are known; return the history with it."""
    lock = FileLock(path.with_name(f".{path.name}.lock"), str(path)).wait()
    try:
        past = read_history(path)
        if isinstance(entry, TriageEntry):
            known = past.scores(entry.model)
            new = tuple(case for case in entry.cases if case.digest not in known)
            if not new:
                return past
            entry = msgspec.structs.replace(entry, cases=new)
        entry = msgspec.structs.replace(entry, before=past.last_digest)
        sealed = seal(entry.as_document())
        line = json.dumps(sealed, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        with refusals_in_words(str(path)):
            if path.exists():
                os.truncate(path, past.size)
            with open_private(path, "ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            sync(path.parent)
        end = HistoryEnd(lines=len(past.entries) + 1, last=sealed[SEAL])
        write_file(_end_file(path), sealed_bytes(end.as_document()), private=True)
        return ModelHistory((*past.entries, entry), sealed[SEAL], past.size + len(line))
    finally:
        lock.release()


def digests_of(rows: Sequence[WorklistRow]) -> tuple[ScoredDigest, ...]:
    """Return the complete cases of a worklist as the history has them, sorted by case_id.

    The digest binds the case to its score, so that the same case of two sites counts twice and a repeated
    triage once. It recognises a case; it does not hide it from anyone who can guess the case_id.
    """
    found = []
    for row in sorted(rows, key=lambda row: row.case_id):
        if row.complete and row.score is not None:
            text = json.dumps([row.case_id, row.image_id, repr(row.score)]).encode()
            found.append(
                ScoredDigest(hashlib.blake2b(text, digest_size=16).hexdigest(), row.score, row.decision)
            )
    return tuple(found)


def _parse(line: bytes) -> tuple[dict[str, Any], bool]:
    try:
        found, fits = unseal(parse_json(line))
    except ValueError:
        return {}, False
    return (found, fits) if isinstance(found, dict) else ({}, False)
