"""A finding: one thing looked at, its state, and what mends it."""

from dataclasses import dataclass
from typing import Literal

State = Literal["good", "note", "missing"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `mend` is a command or a step, given wherever something is missing."""

    topic: str
    name: str
    state: State
    found: str
    mend: str | None = None


def good(topic: str, name: str, found: str) -> Finding:
    """Return a finding in order."""
    return Finding(topic, name, "good", found)
