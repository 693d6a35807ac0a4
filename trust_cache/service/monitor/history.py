"""The looks taken so far: a small file in which each look is chained to the ones before it."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trust_cache.base.documents import json_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file

SCHEMA = 1


@dataclass(frozen=True)
class History:
    """The looks at one model's outcomes, oldest first, each a document with the digest of its predecessor."""

    model: str
    delta: float
    looks: tuple[dict[str, Any], ...] = ()

    @property
    def last_number(self) -> int:
        """The number of the last look; 0 before the first."""
        return int(self.looks[-1]["look"]["number"]) if self.looks else 0

    def repeats(self, data_sha256: str) -> dict[str, Any] | None:
        """Return the last look if it was at the very same data: looking again at them spends nothing."""
        return self.looks[-1] if self.looks and self.looks[-1]["data_sha256"] == data_sha256 else None

    def with_look(self, look: dict[str, Any]) -> "History":
        """Return the history with one more look."""
        before = self.looks[-1]["sha256"] if self.looks else self._root()
        chained = look | {"before": before}
        chained["sha256"] = _digest(chained)
        return History(self.model, self.delta, (*self.looks, chained))

    def document(self) -> dict[str, Any]:
        """Return the history as its file has it."""
        return {"schema": SCHEMA, "model": self.model, "delta": self.delta, "looks": list(self.looks)}

    def _root(self) -> str:
        return _digest({"model": self.model, "delta": self.delta})


def read_history(path: Path, model: str, delta: float) -> History:
    """Read the looks taken before, or begin with none; refuse a file of another model or a changed one."""
    if not path.exists():
        return History(model, delta)
    try:
        document = json.loads(path.read_bytes())
        schema, looks = document["schema"], tuple(document["looks"])
        found = History(document["model"], document["delta"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: expected the history of looks, found another file ({error})") from error
    if schema != SCHEMA:
        raise InputError(f"{path}: expected history schema {SCHEMA}, found {schema!r}")
    if found.model != model:
        raise InputError(
            f"{path}: holds looks at the outcomes of another model ({found.model});"
            " name another file with --history"
        )
    if found.delta != delta:
        raise InputError(
            f"{path}: these looks share a delta of {found.delta}, expected {delta};"
            " one history has one delta: name another file with --history"
        )
    for look in looks:
        found = _chained(found, look, path)
    return found


def write_history(path: Path, history: History) -> None:
    """Write the history durably, in the place of the earlier one."""
    write_file(path, json_bytes(history.document()))


def _chained(history: History, look: Any, path: Path) -> History:
    try:
        bare = {name: value for name, value in look.items() if name not in ("before", "sha256")}
        longer = history.with_look(bare)
        rising = longer.last_number > history.last_number
    except (AttributeError, KeyError, TypeError, ValueError):
        rising = False
    if not rising or longer.looks[-1] != look:
        raise InputError(
            f"{path}: was changed by hand: look {len(history.looks) + 1} does not follow from the one before;"
            " restore the file, or name another with --history and say --looks-before"
        )
    return longer


def _digest(document: object) -> str:
    return hashlib.sha256(json_bytes(document)).hexdigest()
