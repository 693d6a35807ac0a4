"""What checks find: a name, how grave it is, one sentence, and the images or cases it is about."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

ITEMS_SHOWN = 5


class Severity(StrEnum):
    """How grave a finding is, and with it how the command ends."""

    ERROR = "error"  # no manifest can be made
    FAILURE = "failure"  # of single images; the manifest is made
    ODDITY = "oddity"  # worth knowing; everything is kept


@dataclass(frozen=True)
class Item:
    """One case (or one image of it) that a finding is about, with what was found there."""

    case_id: str | None
    image_id: str | None
    found: str

    def __str__(self) -> str:
        name = self.image_id if self.image_id is not None else self.case_id
        return f"{name} ({self.found})" if self.found else str(name)


@dataclass(frozen=True)
class Finding:
    """What one check found; `sentence` names the first items, `items` has all of them."""

    check: str
    severity: Severity
    sentence: str
    items: tuple[Item, ...] = ()

    def __str__(self) -> str:
        return f"{self.check}: {self.sentence}"


Findings = tuple[Finding, ...]


def finding(check: str, severity: Severity, summary: str, items: Sequence[Item]) -> Findings:
    """Return one finding about these items, or none where there are none."""
    if not items:
        return ()
    return (Finding(check, severity, f"{summary}: {listed(items)}", tuple(items)),)


def listed(items: Sequence[object]) -> str:
    """Name the first items and say how many more there are."""
    shown = ", ".join(str(item) for item in items[:ITEMS_SHOWN])
    rest = len(items) - ITEMS_SHOWN
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 case, 5,997 cases."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
