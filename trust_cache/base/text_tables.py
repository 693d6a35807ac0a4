"""A table of text: what every room hands to the terminal, to Markdown and to LaTeX."""

from dataclasses import dataclass
from decimal import Decimal

NO_NUMBER = "—"


@dataclass(frozen=True)
class Table:
    """A title, a header and rows, all text, and what the header's short names mean."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    legend: str = ""


def percent(value: float | None, digits: int = 2) -> str:
    """Write a share as a percentage, or a dash where it is not defined."""
    return NO_NUMBER if value is None else f"{100 * value:.{digits}f}%"


def confidence(delta: float) -> str:
    """Write one minus delta as a percentage, exactly: 0.01 is 99%, 1e-6 is 99.9999%."""
    return f"{(100 - 100 * Decimal(str(delta))).normalize():f}%"


def whole_percent(share: float) -> str:
    """Write a share such as a target or a confidence without needless digits: 0.98 is 98%."""
    return f"{100 * share:.6g}%"
