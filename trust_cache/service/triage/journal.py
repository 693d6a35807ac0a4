"""What is finished of a triage: a line for each examination, on the disk before the next is begun."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trust_cache.base.documents import parse_json
from trust_cache.base.durable import refusals_in_words, sync
from trust_cache.base.errors import InputError
from trust_cache.base.locks import FileLock
from trust_cache.service.triage.decisions import Scored
from trust_cache.service.triage.examinations import Examination

SCHEMA = 1


class Journal:
    """The finished examinations of one triage in a folder beside its worklist; one process at a time."""

    def __init__(self, out: Path, identity: Mapping[str, Any]) -> None:
        self.folder = out.with_name(f".{out.name}.work")
        self._lock = FileLock(out.with_name(f".{out.name}.lock"), str(out))
        self._identity = {"schema": SCHEMA, **identity}
        self._file = self.folder / "journal.jsonl"
        self._done: dict[str, Scored] = {}

    def __enter__(self) -> "Journal":
        with refusals_in_words(str(self.folder.parent)):
            self.folder.parent.mkdir(parents=True, exist_ok=True)
        self._lock.acquire()
        try:
            if self._file.exists():
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
        self._lock.release()

    def finished(self, examination: Examination) -> Scored | None:
        """Return what an earlier start found, if the examination's files are the same still."""
        return self._done.get(key_of(examination))

    def enter(self, examination: Examination, scored: Scored) -> None:
        """Record a finished examination durably."""
        with refusals_in_words(str(self.folder)):
            self._append({"key": key_of(examination), "scored": asdict(scored)})

    def discard(self) -> None:
        """Remove the journal: the worklist has everything."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _append(self, document: Mapping[str, Any]) -> None:
        with self._file.open("ab") as file:
            # A kill may have left half a line behind; what follows must not become part of it.
            line = b"" if file.tell() == 0 else b"\n"
            file.write(line + json.dumps(document).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        sync(self.folder)

    def _read(self) -> None:
        documents = [found for line in self._file.read_bytes().splitlines() if (found := _parsed(line))]
        if not documents:
            self._file.unlink()
            self._append(self._identity)
            return
        first, *rest = documents
        for name, value in self._identity.items():
            if first.get(name) != value:
                raise InputError(
                    f"{self.folder}: holds an interrupted triage with another {name} (expected {value!r},"
                    f" found {first.get(name)!r}); finish that one, or remove the folder"
                )
        for document in rest:
            try:
                fields = document["scored"] | {"problems": tuple(document["scored"]["problems"])}
                self._done[document["key"]] = Scored(**fields)
            except (KeyError, TypeError):  # a line that is none of ours: the examination is done again
                continue


def key_of(examination: Examination) -> str:
    """Return the digest of what an examination's scores depend on: its files, unchanged by size and time."""
    pictures = [
        [
            picture.image_id,
            picture.laterality,
            picture.projection,
            *_state(picture.location),
        ]
        for picture in examination.pictures
    ]
    text = json.dumps([examination.case_id, list(examination.problems), pictures])
    return hashlib.sha256(text.encode()).hexdigest()


def _state(location: str) -> tuple[str, int | None, int | None]:
    """Return where a file lies, however it was named, with its size and the time of its last change."""
    try:
        place = Path(location).resolve()
        found = place.stat()
    except (OSError, ValueError):
        return location, None, None
    return str(place), found.st_size, found.st_mtime_ns


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        document = parse_json(line)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
