"""The log of attempts: every certification of the same scores, kept beside what was certified.

Choosing a seed, a target or a rule after seeing the results of another is a search that no bound corrects
for. So each certification is written to `NAME.attempts.json` beside the run folder, the scores file or the
model folder NAME before its result is shown, and every certificate lists the attempts of that log. The log
knows only what was certified in its place: not copies of the scores, and not calls from Python.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from trust_cache.base.documents import Document, json_bytes, read_sealed, sealed_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file
from trust_cache.base.locks import FileLock
from trust_cache.certificate.certification import Attempt, Certification
from trust_cache.certificate.point_tables import name_of
from trust_cache.certificate.points import CERTIFIED, Point
from trust_cache.heads.run_folder import RECORD, SCORES

SCHEMA = 1
LOG_ENDING = ".attempts.json"
_RESTORE = "restore the file. Without it, certificates know of no earlier attempt"


class LoggedAttempt(Attempt, frozen=True, kw_only=True):
    """An attempt in the log; `before` is the digest of the previous one, `sha256` that of the other keys."""

    before: str
    sha256: str = ""

    def digest(self) -> str:
        """Return the digest of all keys but `sha256`."""
        document = self.as_document()
        del document["sha256"]
        return hashlib.sha256(json_bytes(document)).hexdigest()

    @property
    def attempt(self) -> Attempt:
        """The attempt without the digests of the log."""
        return Attempt(**{name: getattr(self, name) for name in Attempt.__struct_fields__})


class AttemptLog(Document, frozen=True, kw_only=True):
    """All attempts in one place, oldest first."""

    schema: int = SCHEMA
    attempts: tuple[LoggedAttempt, ...] = ()

    @property
    def last_digest(self) -> str:
        """The digest that the next attempt must name; nothing before the first."""
        return self.attempts[-1].sha256 if self.attempts else ""

    def with_attempt(self, attempt: Attempt) -> "AttemptLog":
        """Return the log with one more attempt."""
        entry = LoggedAttempt(**msgspec.structs.asdict(attempt), before=self.last_digest)
        entry = msgspec.structs.replace(entry, sha256=entry.digest())
        return msgspec.structs.replace(self, attempts=(*self.attempts, entry))


def log_file(certified: Path) -> Path:
    """Return the place of the log of a run folder, a scores file or a model folder."""
    place = certified.resolve()
    if place.name == SCORES and (place.parent / RECORD).is_file():
        place = place.parent  # the scores of a run folder
    return place.with_name(f"{place.name}{LOG_ENDING}")


def read_attempts(log: Path) -> tuple[Attempt, ...]:
    """Return the attempts of a log, none where there is no log; refuse one that was changed by hand."""
    return tuple(entry.attempt for entry in _read(log).attempts)


def record_attempt(certification: Certification, certified: Path) -> Certification:
    """Write a certification to the log of what was certified; return it with all attempts of the log.

    The same settings on the same scores again are the same attempt. Where the log cannot be written, the
    certification has a warning instead.
    """
    log, attempt = log_file(certified), attempt_of(certification)
    if not os.access(log.parent, os.W_OK):
        warning = (
            f"{log}: cannot be written, so this attempt is not recorded, and the certificates do not know of"
            " earlier ones"
        )
        return replace(certification, warnings=(*certification.warnings, warning))
    lock = FileLock(log.with_name(f".{log.name}.lock"), str(log)).wait()
    try:
        past = _read(log)
        if attempt not in (entry.attempt for entry in past.attempts):
            past = past.with_attempt(attempt)
            write_file(log, sealed_bytes(past.as_document()))
    finally:
        lock.release()
    attempts = tuple(entry.attempt for entry in past.attempts)
    earlier = [item for item in attempts if item != attempt]
    warnings = (*certification.warnings, *_warnings(earlier, attempt, log))
    return replace(certification, attempts=attempts, warnings=warnings)


def attempt_of(certification: Certification) -> Attempt:
    """Return what the log keeps of a certification."""
    settings = certification.settings
    return Attempt(
        scores_sha256=certification.scores.sha256,
        split_sha256=certification.split.sha256,
        split_origin="given" if certification.split.given else "drawn",
        seed=settings.seed,
        rule=settings.rule,
        targets=settings.targets,
        delta=settings.delta,
        limit=settings.limit,
        protocol=settings.protocol,
        statuses={point_name(point): point.status for point in certification.points},
    )


def point_name(point: Point) -> str:
    """Name a point as its certificate's file."""
    return f"{name_of(point.configuration)}@{point.target!r}"


def describe_attempts(attempts: Sequence[Attempt], scores_sha256: str) -> list[str]:
    """Describe each attempt in a few words, oldest first."""
    found = []
    for item in attempts:
        split = f"seed {item.seed}" if item.split_origin == "drawn" else "a given split"
        statuses = list(item.statuses.values())
        found.append(
            f"{split}, targets {', '.join(map(repr, item.targets))}, rule {item.rule}, protocol"
            f" {item.protocol.name}: {statuses.count(CERTIFIED)} of {len(statuses)} points certified"
            + ("" if item.scores_sha256 == scores_sha256 else " (other scores)")
        )
    return found


def _warnings(earlier: Sequence[Attempt], attempt: Attempt, log: Path) -> tuple[str, ...]:
    if not earlier:
        return ()
    same = sum(item.scores_sha256 == attempt.scores_sha256 for item in earlier)
    of_others = f", {len(earlier) - same} of them on other scores" if same < len(earlier) else ""
    return (
        f"this is not the first attempt: {len(earlier)} with other settings or another split went before"
        f"{of_others} (the last: {describe_attempts(earlier, attempt.scores_sha256)[-1]}). To choose among"
        f" attempts by their results is a search that no bound here corrects for. The certificates list all"
        f" {len(earlier) + 1}. Log: {log}",
    )


def _read(log: Path) -> AttemptLog:
    try:
        found, unchanged = read_sealed(log, AttemptLog, what="a log of attempts", schema=SCHEMA)
    except FileNotFoundError:
        return AttemptLog()
    before = ""
    for number, entry in enumerate(found.attempts, start=1):
        if entry.before != before or entry.sha256 != entry.digest():
            raise InputError(
                f"{log}: was changed by hand: attempt {number} does not follow from the one before;"
                f" {_RESTORE}"
            )
        before = entry.sha256
    if not unchanged:
        raise InputError(
            f"{log}: was changed by hand: its {len(found.attempts)} attempts are not all of them; {_RESTORE}"
        )
    return found
