"""Tables of text as Markdown and as LaTeX, with every character that means something escaped."""

from collections.abc import Sequence

from trust_cache.base.text_tables import NO_NUMBER, Table

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "τ": r"$\tau$", NO_NUMBER: "---", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_|<>[]"} | {"\n": " "})


def to_markdown(tables: Sequence[Table], remarks: Sequence[str], notes: Sequence[str]) -> str:
    """Write the tables one below the other, then a list: remarks, which are escaped, and our own notes."""
    blocks = []
    for table in tables:
        lines = [table.header, ("---",) * len(table.header)]
        body = [tuple(cell.translate(_MARKDOWN) for cell in row) for row in table.rows]
        rows = "\n".join("| " + " | ".join(row) + " |" for row in (*lines, *body))
        blocks.append(f"**{table.title}**\n\n{rows}")
        if table.legend:
            blocks.append(table.legend)
    items = (*(remark.translate(_MARKDOWN) for remark in remarks), *notes)
    blocks.append("\n".join(f"- {item}" for item in items))
    return "\n\n".join(blocks) + "\n"


def to_latex(table: Table) -> str:
    """Write one table for a paper (needs the booktabs package)."""
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}[htbp]",
        "\\centering",
        f"\\caption{{{_latex(table.title)}.}}",
        f"\\begin{{tabular}}{{l{'c' * (len(table.header) - 1)}}}",
        "\\toprule",
        _latex_row(table.header),
        "\\midrule",
        *(_latex_row(row) for row in table.rows),
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(_latex(cell) for cell in cells) + r" \\"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text.replace("\n", " "))
