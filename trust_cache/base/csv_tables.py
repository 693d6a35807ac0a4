"""Read and write CSV files: cells are read as text, floats are written with all digits."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from trust_cache.base.errors import InputError, first_line

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
_GZIP = b"\x1f\x8b"
_LONGEST_LINE = 100_000  # bytes
LINE = "\0line"  # the column of line numbers; no file can have a column of that name


def read_text_table(
    path: Path, required: Sequence[str], *, lines: bool = False, separator: str = ","
) -> pl.DataFrame:
    """Read a CSV file as columns of text (so that 007 stays 007), with at least `required`.

    Blank lines are dropped, empty cells are null, and cells are stripped of white space. With `lines` the
    column LINE has each row's line number as in an editor (a cell with line breaks counts as one line).
    """
    if path.is_dir():
        raise InputError(f"{path}: expected a CSV file, found a folder")
    try:
        _refuse_binary(path)
        table = pl.read_csv(_with_line_feeds(path), infer_schema=False, glob=False, separator=separator)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except pl.exceptions.NoDataError as error:
        expected = ", ".join(required) or "a header and rows"
        raise InputError(f"{path}: the file is empty; expected {expected}") from error
    except pl.exceptions.PolarsError as error:
        hint = _hint(path) or f" ({first_line(error)})"
        raise InputError(f"{path}: not a readable CSV file in UTF-8 with commas{hint}") from error
    header = [name.strip() for name in table.columns]
    _check_header(path, header, required)
    table.columns = header
    stripped = pl.all().str.strip_chars()
    table = table.with_columns(pl.when(stripped == "").then(None).otherwise(stripped).name.keep())
    table = number_lines(table)
    table = table if lines else table.drop(LINE)
    if table.is_empty():
        raise InputError(f"{path}: the file has a header and no rows")
    return table


def number_lines(table: pl.DataFrame) -> pl.DataFrame:
    """Number the rows as the lines of a file with a header (column LINE), then drop those without a cell."""
    table = table.with_columns(pl.int_range(2, pl.len() + 2, dtype=pl.Int64).alias(LINE))
    return table.filter(~pl.all_horizontal(pl.exclude(LINE).is_null()))


def rows_of_cases(
    table: pl.DataFrame, case_ids: pl.Series, path: Path, *, of: str, what: str
) -> pl.DataFrame:
    """Return the rows of these cases in their order; a case without a row is refused.

    `of` and `what` name the owner of the cases and the file's content for the message.
    """
    cases = pl.DataFrame({"case_id": case_ids})
    missing = cases.join(table, on="case_id", how="anti", maintain_order="left")
    if missing.height:
        raise InputError(
            f"{path}: case {missing['case_id'][0]} of the {of} is missing from the {what}"
            f" ({missing.height} cases in all)"
        )
    return cases.join(table, on="case_id", how="left", maintain_order="left")


def write_rows(
    columns: Sequence[str], rows: Iterable[Mapping[str, object]], *, neutral: bool = False
) -> bytes:
    """Return the rows as a CSV file: floats by repr, null empty, booleans true and false.

    With `neutral`, a spreadsheet takes no text in the file for a formula.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[column], neutral=neutral) for column in columns] for row in rows)
    # A file name that is not UTF-8 has lone surrogates, which cannot be encoded.
    return text.getvalue().encode(errors="backslashreplace")


def neutralise(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would take for a formula.

    A text that begins with an apostrophe gets one too, so that `restore` can undo it.
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


def restore(text: str) -> str:
    """Undo `neutralise`."""
    return text.removeprefix("'")


def restored(column: pl.Expr) -> pl.Expr:
    """Undo `neutralise` in a column."""
    return column.str.strip_prefix("'")


def _cell(value: object, *, neutral: bool) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return neutralise(value) if neutral and isinstance(value, str) else value


def _check_header(path: Path, found: Sequence[str], required: Sequence[str]) -> None:
    missing = [name for name in required if name not in found]
    if missing:
        raise InputError(
            f"{path}: missing column {', '.join(missing)}; found {', '.join(found[:20])}{_hint(path)}"
        )
    # The reader renames the second of two equal names, but not of those that differ in spaces.
    twice = sorted({name for name in found if f"{name}_duplicated_0" in found or found.count(name) > 1})
    if twice:
        raise InputError(f"{path}: column {', '.join(twice)} occurs twice in the header")


def _with_line_feeds(path: Path) -> Path | io.BytesIO:
    """Return the file, or its content with line feeds where its lines end in carriage returns alone."""
    with path.open("rb") as file:
        first = file.read(_LONGEST_LINE)
    if b"\n" in first or b"\r" not in first or first.startswith(_GZIP):
        return path
    content = path.read_bytes()
    return path if b"\n" in content else io.BytesIO(content.replace(b"\r", b"\n"))


def _refuse_binary(path: Path) -> None:
    """Refuse a file that is no text, by its name: its bytes would only spoil the terminal."""
    with path.open("rb") as file:
        first = file.read(4096)
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{path}: expected a CSV file in UTF-8, found one in UTF-16; save it as UTF-8")
    if first.startswith(_GZIP):
        return  # compressed text is read as it is
    if b"\0" in first or first.startswith(b"PK\x03\x04"):
        raise InputError(f"{path}: expected a CSV file, found a binary file; save the table as CSV in UTF-8")


def _hint(path: Path) -> str:
    with path.open("rb") as file:
        first = file.readline(10_000)
    for separator, word in ((b";", "semicolons"), (b"\t", "tabs")):
        if separator in first:
            return f"; the file seems to be separated by {word}, commas are expected"
    return ""
