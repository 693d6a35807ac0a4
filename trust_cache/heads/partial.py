"""The folds of an unfinished run, kept beside its folder until the run is whole."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trust_cache.base.documents import json_bytes, parse_json
from trust_cache.base.durable import refusals_in_words
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file
from trust_cache.base.locks import FileLock
from trust_cache.heads.results import FoldResult, read_result, write_result


class PartialRun:
    """A hidden folder beside `out` with what makes the run what it is, and a file for each finished fold."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = out.with_name(f".{out.name}.partial")

    @property
    def exists(self) -> bool:
        """Whether an earlier run was interrupted."""
        return self._identity_file.exists()

    def lock(self) -> FileLock:
        """Return the lock that keeps a second run from the same place."""
        with refusals_in_words(str(self.out)):
            self.out.absolute().parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self.out.with_name(f".{self.out.name}.lock"), str(self.out))

    def begin(self, identity: Mapping[str, Any], *, resume: bool) -> None:
        """Start afresh, or go on with an interrupted run."""
        if not (resume and self.exists):
            self.discard()
            write_file(self._identity_file, json_bytes(identity))

    def require_same(self, identity: Mapping[str, Any]) -> None:
        """Refuse to go on with an interrupted run of another identity."""
        if not self.exists:
            return
        try:
            found = parse_json(self._identity_file.read_bytes())
        except ValueError as error:
            raise InputError(f"{self._identity_file}: damaged; start over with --overwrite") from error
        expected = parse_json(json_bytes(identity))
        found = found if isinstance(found, dict) else {}
        differing = [key for key in expected if found.get(key) != expected[key]]
        if differing:
            raise InputError(
                f"{self.out}: the interrupted run differs in {', '.join(differing)};"
                " resume it with the same options and cache, or start over with --overwrite"
            )

    def finished(self, repeat: int, fold: str) -> FoldResult | None:
        """Return a fold's result if it is there."""
        path = self._file(repeat, fold)
        return read_result(path) if path.exists() else None

    def keep(self, repeat: int, fold: str, result: FoldResult) -> None:
        """Write a fold's result."""
        write_result(result, self._file(repeat, fold))

    def discard(self) -> None:
        """Remove the folder."""
        if self.folder.exists():
            shutil.rmtree(self.folder)

    @property
    def _identity_file(self) -> Path:
        return self.folder / "identity.json"

    def _file(self, repeat: int, fold: str) -> Path:
        return self.folder / f"repeat-{repeat}-fold-{fold}.safetensors"
