"""Tables of the page: every N/A has its reason, and each table is also md, tex and csv."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trust_cache.base.csv_tables import neutralise
from trust_cache.base.text_tables import NO_NUMBER, Table, to_latex, to_markdown, whole_percent
from trust_cache.certificate.point_tables import NOT_AVAILABLE, name_of, target_header
from trust_cache.certificate.points import Point
from trust_cache.heads.head_settings import NATURAL, TunedChoice
from trust_cache.heads.run_folder import RunRecord
from trust_cache.report.embedding import Link, download

TARGET = "Target"  # the column of a row's target

Reasons = Mapping[tuple[str, str], str]  # by configuration and target, as printed in the tables


@dataclass(frozen=True)
class Cell:
    """The text of a cell; an N/A has its reason."""

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
    """Return the reasons of the points that are N/A, by the names in the tables."""
    return {
        (name_of(point.configuration), whole_percent(point.target)): point.reason
        for point in points
        if point.reason is not None
    }


def show_table(table: Table, key: str, reasons: Reasons) -> ShownTable:
    """Prepare a table for the page; its anchors and file names start with `key`."""
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


def choice_tables(record: RunRecord | None) -> list[Table]:
    """Return what each fold of a tuned configuration chose, and how far the folds agree."""
    if record is None:
        return []
    header = (
        "Fold",
        "Features",
        "Best penalty",
        "Averaged",
        "Held-out cross-entropy",
        "Held-out case AUROC",
        "Images",
        "Positive",
    )
    tables = []
    for name, by_fold in record.choices.items():
        rows = [
            (
                fold,
                choice.scaling,
                f"{choice.best:.3g}",
                _averaged(choice),
                f"{choice.least_cross_entropy:.4f}" if choice.cross_entropy else NO_NUMBER,
                f"{choice.auroc:.4f}" if choice.cross_entropy else NO_NUMBER,
                f"{choice.images:,}",
                f"{choice.positive_images:,}",
            )
            for fold, choice in by_fold.items()
        ]
        tables.append(Table(f"What {name} chose in each fold", header, tuple(rows), _stability(by_fold)))
    return tables


def _stability(by_fold: Mapping[str, TunedChoice]) -> str:
    """Say how far the folds agree."""
    chosen = by_fold.values()
    (scaling, best), times = Counter((choice.scaling, choice.best) for choice in chosen).most_common(1)[0]
    low, high = (of(choice.best for choice in chosen) for of in (min, max))
    natural = [sum(choice.weights.get(NATURAL, ())) for choice in chosen]
    return (
        f"Best are {scaling} features and the penalty {best:.3g} in {times} of {len(by_fold)} folds; the best"
        f" penalty ranges from {low:.3g} to {high:.3g}, in units of the curvature of the loss. Features in"
        f" their natural scaling have {min(natural):.0%} to {max(natural):.0%} of the weight. All is chosen"
        " inside each fold."
    )


def _averaged(choice: TunedChoice) -> str:
    """Return how many regressions are averaged, and over which penalties."""
    used = [
        penalty
        for part in choice.weights.values()
        for penalty, weight in zip(choice.penalties, part, strict=True)
        if weight > 0
    ]
    return f"{len(used)}: {min(used):.3g} to {max(used):.3g}" if len(used) > 1 else f"1: {used[0]:.3g}"


def table_files(table: Table, key: str) -> dict[str, bytes]:
    """Return a table as Markdown, LaTeX and CSV by file name."""
    text = io.StringIO()
    # Spreadsheets run cells that look like formulas.
    rows = ([neutralise(cell) for cell in row] for row in (table.header, *table.rows))
    csv.writer(text, lineterminator="\n").writerows(rows)
    return {
        f"{key}.md": to_markdown([table], [], []).encode(),
        f"{key}.tex": to_latex(table).encode(),
        f"{key}.csv": text.getvalue().encode(),
    }


def _why(table: Table, row: Sequence[str], position: int, reasons: Reasons) -> str | None:
    """Find the reason of a cell's point, by the row's target or the nearest header to the left with one."""
    if TARGET in table.header:
        return reasons.get((row[0], row[table.header.index(TARGET)]))
    headers = {target_header(target): target for _, target in reasons}
    for name in reversed(table.header[: position + 1]):
        if name in headers:
            return reasons.get((row[0], headers[name]))
    return None


def _anchor(key: str, note: int) -> str:
    return f"{key}-note-{note}"
