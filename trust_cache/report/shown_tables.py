"""Tables as the page shows them: every N/A with its reason, and the same table as md, tex and csv."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trust_cache.base.tables import neutralise
from trust_cache.base.text_tables import Table, whole_percent
from trust_cache.certificate.markup import to_latex, to_markdown
from trust_cache.certificate.points import Point
from trust_cache.certificate.tables import NOT_AVAILABLE, name_of, target_header
from trust_cache.report.embedding import Link, download

TARGET = "Target"  # the column that names a row's target, where there is one

Reasons = Mapping[tuple[str, str], str]  # by configuration and target, as the tables write them


@dataclass(frozen=True)
class Cell:
    """The text of a cell and, where it is not available, why."""

    text: str
    note: int | None = None
    anchor: str = ""
    why: str = ""


@dataclass(frozen=True)
class Note:
    """A footnote."""

    anchor: str
    text: str


@dataclass(frozen=True)
class ShownTable:
    """A table ready for the page."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[Note, ...]
    legend: str
    links: tuple[Link, ...]


def reasons_of(points: Sequence[Point]) -> dict[tuple[str, str], str]:
    """Return why a point prints N/A, by the names that tables give it."""
    return {
        (name_of(point.configuration), whole_percent(point.target)): point.reason
        for point in points
        if point.reason is not None
    }


def show_table(table: Table, key: str, reasons: Reasons) -> ShownTable:
    """Make a table ready for the page; `key` starts its anchors and file names."""
    notes: dict[str, int] = {}
    rows = []
    for row in table.rows:
        cells = []
        for position, text in enumerate(row):
            why = _why(table, row, position, reasons) if text == NOT_AVAILABLE else None
            if why is None:
                cells.append(Cell(text))
                continue
            note = notes.setdefault(why, len(notes) + 1)
            cells.append(Cell(text, note, _anchor(key, note), why))
        rows.append(tuple(cells))
    files = table_files(table, key)
    return ShownTable(
        title=table.title,
        header=table.header,
        rows=tuple(rows),
        notes=tuple(Note(_anchor(key, number), f"{NOT_AVAILABLE}: {why}.") for why, number in notes.items()),
        legend=table.legend,
        links=tuple(download(name, content, name.rpartition(".")[2]) for name, content in files.items()),
    )


def table_files(table: Table, key: str) -> dict[str, bytes]:
    """Return a table as Markdown, LaTeX and CSV by file name."""
    return {
        f"{key}.md": to_markdown([table], [], []).encode(),
        f"{key}.tex": to_latex(table).encode(),
        f"{key}.csv": _csv(table),
    }


def _csv(table: Table) -> bytes:
    text = io.StringIO()
    rows = ([neutralise(cell) for cell in row] for row in (table.header, *table.rows))
    csv.writer(text, lineterminator="\n").writerows(rows)  # opened in a spreadsheet
    return text.getvalue().encode()


def _why(table: Table, row: Sequence[str], position: int, reasons: Reasons) -> str | None:
    """Find the point that a cell is about: by the row's target, or by the nearest header that names one."""
    if TARGET in table.header:
        return reasons.get((row[0], row[table.header.index(TARGET)]))
    headers = {target_header(target): target for _, target in reasons}
    for name in reversed(table.header[: position + 1]):
        if name in headers:
            return reasons.get((row[0], headers[name]))
    return None


def _anchor(key: str, note: int) -> str:
    return f"{key}-note-{note}"
