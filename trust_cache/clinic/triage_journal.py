"""Record each scored case of a triage on disk, so that an interrupted triage resumes.

A case is known by the content of its files: by the digests of the very bytes that were scored. A file that
changes afterwards does not fit its entry, and its case is scored again.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trust_cache.base.documents import Document, parse_json, seal, typed, unseal
from trust_cache.base.errors import InputError
from trust_cache.base.files import open_private, refusals_in_words, sync
from trust_cache.base.locks import FileLock
from trust_cache.clinic.worklist import ScoredCase
from trust_cache.images.folders.folder_cases import IncomingCase
from trust_cache.images.image_bytes import image_digest
from trust_cache.images.image_failures import ImageError

SCHEMA = 1


class JournalIdentity(Document, frozen=True, kw_only=True):
    """The journal's first line: everything besides the files that scores depend on."""

    schema: int = SCHEMA
    model: str
    weights: str
    device: str
    runtime: str
    threads: int  # their number changes the last bits of features


class JournalEntry(Document, frozen=True, kw_only=True):
    """A line for each scored case."""

    key: str
    scored: ScoredCase


def places_of_journal(out: Path) -> tuple[Path, Path]:
    """Return the journal's folder and its lock beside a worklist."""
    return out.with_name(f".{out.name}.work"), out.with_name(f".{out.name}.lock")


class Journal:
    """The scored cases of one triage, in a folder beside its worklist; one process at a time."""

    def __init__(self, out: Path, identity: JournalIdentity) -> None:
        self.folder, lock = places_of_journal(out)
        self._lock = FileLock(lock, str(out))
        self._identity = identity
        self._file = self.folder / "journal.jsonl"
        self._done: dict[str, JournalEntry] = {}  # by case
        self._new = False

    def __enter__(self) -> "Journal":
        with refusals_in_words(str(self.folder.parent)):
            self.folder.parent.mkdir(parents=True, exist_ok=True)
        self._lock.acquire()
        try:
            self._new = not self._file.exists()
            if not self._new:
                self._read()
            else:
                with refusals_in_words(str(self.folder)):
                    self.folder.mkdir(exist_ok=True)
                    self._append(self._identity)
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._new and not self._done:  # nothing was scored: there is nothing to resume
            self.discard()
        self._lock.release()

    def finished(self, case: IncomingCase) -> ScoredCase | None:
        """Return the result of an earlier start, if the files of the case have the same content.

        They are read only where there is such a result.
        """
        entry = self._done.get(case.case_id)
        if entry is None:
            return None
        digests = {image.location: _digest(image.location) for image in case.images if image.decodable}
        return entry.scored if entry.key == key_of(case, digests) else None

    def enter(self, case: IncomingCase, scored: ScoredCase, digests: Mapping[str, str | None]) -> None:
        """Record a scored case durably, by the digests of the bytes that were scored, by location."""
        entry = JournalEntry(key=key_of(case, digests), scored=scored)
        with refusals_in_words(str(self.folder)):
            self._append(entry)
        self._done[case.case_id] = entry

    def discard(self) -> None:
        """Remove the journal once the worklist is written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _append(self, record: Document) -> None:
        with open_private(self._file, "ab") as file:
            # A kill may have left half a line; the next record must not become part of it.
            start = b"" if file.tell() == 0 else b"\n"
            file.write(start + json.dumps(seal(record.as_document())).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        sync(self.folder)

    def _read(self) -> None:
        documents: list[Any] = []
        for line in self._file.read_bytes().splitlines():
            with suppress(ValueError):  # half a line
                found, unchanged = unseal(parse_json(line))
                documents += [found] if unchanged else []  # else the case is scored again
        if not documents:
            self._file.unlink()
            self._append(self._identity)
            return
        first = typed(documents[0], JournalIdentity, where=self._file, what="a triage journal", schema=SCHEMA)
        for name in JournalIdentity.__struct_fields__:
            expected, found = getattr(self._identity, name), getattr(first, name)
            if found != expected:
                raise InputError(
                    f"{self.folder}: holds an interrupted triage with another {name} (expected {expected!r},"
                    f" found {found!r}); finish that triage, or remove the folder"
                )
        for document in documents[1:]:
            try:
                entry = typed(document, JournalEntry, where=self._file, what="a scored case")
            except InputError:  # a damaged line: the case is scored again
                continue
            self._done[entry.scored.case_id] = entry


def key_of(case: IncomingCase, digests: Mapping[str, str | None]) -> str:
    """Return the digest of a case's problems, its headers and the digests of its decodable files."""
    images = [
        [
            *(image.image_id, image.laterality, image.projection, image.problem, image.findings),
            digests.get(image.location),
        ]
        for image in case.images
    ]
    text = json.dumps([case.case_id, list(case.problems), images])
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(location: str) -> str | None:
    """Return the digest of a file's content; None for one that cannot be read."""
    try:
        return image_digest(location)
    except ImageError:
        return None
