"""Tables of text for the terminal, Markdown and LaTeX, and how numbers are written in them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

NO_NUMBER = "—"


@dataclass(frozen=True)
class Table:
    """A title, a header and rows, all text; `legend` explains the header's short names.

    The first `keys` columns name a row: a narrow terminal repeats them before each part of the others.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    legend: str = ""
    keys: int = 1

    def parts(self, width: int, gap: int) -> tuple["Table", ...]:
        """Return the table, or its columns in several tables, of at most `width` characters, `gap` per gap.

        No cell is cut; in several tables a header may wrap between its words. A row whose key alone is too
        wide is left so.
        """
        columns = [[row[number] for row in self.rows] for number in range(len(self.header))]
        cells = [max(map(len, column), default=0) for column in columns]
        if sum(max(cell, len(name)) + gap for cell, name in zip(cells, self.header, strict=True)) <= width:
            return (self,)
        needed = [
            max(cell, *map(len, name.split()), 1) + gap for cell, name in zip(cells, self.header, strict=True)
        ]
        base, chosen = sum(needed[: self.keys]), list[list[int]]()
        used = width
        for column in range(self.keys, len(self.header)):
            if used + needed[column] > width or not chosen:
                chosen.append([])
                used = base
            chosen[-1].append(column)
            used += needed[column]
        return tuple(self._columns((*range(self.keys), *columns)) for columns in chosen)

    def _columns(self, columns: tuple[int, ...]) -> "Table":
        header = tuple(self.header[column] for column in columns)
        rows = tuple(tuple(row[column] for column in columns) for row in self.rows)
        return Table(self.title, header, rows, keys=self.keys)


def describe_views(augmented: int) -> str:
    """Say how many views there are: 1 clean + 8 augmented views."""
    if not augmented:
        return "1 clean view"
    return f"1 clean + {augmented} augmented view{'s' if augmented > 1 else ''}"


def percent(value: float | None, digits: int = 2) -> str:
    """Write a share as a percentage, or a dash where it is not defined."""
    return NO_NUMBER if value is None else f"{100 * value:.{digits}f}%"


def confidence(delta: float) -> str:
    """Write one minus delta as a percentage, exactly: 0.01 is 99%, 1e-6 is 99.9999%."""
    return f"{(100 - 100 * Decimal(str(delta))).normalize():f}%"


def whole_percent(share: float) -> str:
    """Write a share such as a target or a confidence without needless digits: 0.98 is 98%."""
    return f"{100 * share:.6g}%"


_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "τ": r"$\tau$", NO_NUMBER: "---", "<": r"\textless{}", ">": r"\textgreater{}",
})  # fmt: skip
_NUMBER = re.compile(r"^Table \d+\. ")
_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_|<>[]"} | {"\n": " "})


def to_markdown(tables: Sequence[Table], warnings: Sequence[str], notes: Sequence[str]) -> str:
    """Write the tables, then a list of warnings (which are escaped) and of notes (which are not)."""
    blocks = []
    for table in tables:
        body = [[cell.translate(_MARKDOWN) for cell in row] for row in table.rows]
        lines = (table.header, ["---"] * len(table.header), *body)
        rows = "\n".join("| " + " | ".join(row) + " |" for row in lines)
        blocks.append(f"**{table.title}**\n\n{rows}")
        if table.legend:
            blocks.append(table.legend)
    items = (*(text.translate(_MARKDOWN) for text in warnings), *notes)
    blocks.append("\n".join(f"- {item}" for item in items))
    return "\n\n".join(blocks) + "\n"


def to_latex(table: Table) -> str:
    """Write one table for a paper (needs the booktabs package); LaTeX gives it a number of its own."""
    legend = _latex(table.legend)
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}[htbp]",
        "\\centering",
        f"\\caption{{{_latex(_NUMBER.sub('', table.title))}.}}",
        f"\\begin{{tabular}}{{l{'c' * (len(table.header) - 1)}}}",
        "\\toprule",
        _latex_row(table.header),
        "\\midrule",
        *map(_latex_row, table.rows),
        "\\bottomrule",
        "\\end{tabular}",
        *([f"\\par\\smallskip\\parbox{{\\linewidth}}{{\\footnotesize {legend}}}"] if legend else []),
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(text: str) -> str:
    return text.replace("\n", " ").translate(_LATEX)
