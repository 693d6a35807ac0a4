"""CSV files in and out: cells stay text until a room gives them a meaning, floats keep all digits."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from trust_cache.base.errors import InputError

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
LINE = "\0line"  # the name of a column of line numbers: no file can have a column of that name


def read_text_table(path: Path, required: Sequence[str], *, lines: bool = False) -> pl.DataFrame:
    """Read a CSV file as columns of text (so that 007 stays 007), with at least `required`.

    Blank lines are dropped; empty cells are null; text is stripped of white space around it. With `lines`
    the column LINE says where a row stood, as an editor counts (a cell with line breaks counts as one line).
    """
    if path.is_dir():
        raise InputError(f"{path}: expected a CSV file, found a folder")
    try:
        table = pl.read_csv(path, infer_schema=False, glob=False)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except pl.exceptions.NoDataError as error:
        raise InputError(f"{path}: the file is empty; expected {_listed(required)}") from error
    except pl.exceptions.PolarsError as error:
        first = str(error).splitlines()[0]
        hint = _hint(path) or f" ({first})"
        raise InputError(f"{path}: not a readable CSV file in UTF-8 with commas{hint}") from error
    table = table.rename({name: name.strip() for name in table.columns})
    _check_header(path, table.columns, required)
    stripped = pl.all().str.strip_chars()
    table = table.with_columns(pl.when(stripped == "").then(None).otherwise(stripped).name.keep())
    blank = pl.all_horizontal(pl.all().is_null())
    if lines:
        table = table.with_columns(pl.int_range(2, pl.len() + 2, dtype=pl.Int64).alias(LINE))
        blank = pl.all_horizontal(pl.exclude(LINE).is_null())
    table = table.filter(~blank)
    if table.is_empty():
        raise InputError(f"{path}: the file has a header and no rows")
    return table


def write_rows(
    columns: Sequence[str], rows: Iterable[Mapping[str, object]], *, neutral: bool = False
) -> bytes:
    """Return the rows as a CSV file: floats by repr, null empty, booleans true and false.

    `neutral` is for files that people open in a spreadsheet: no text of theirs is taken for a formula.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    cell = _neutral_cell if neutral else _cell
    writer.writerows([cell(row[column]) for column in columns] for row in rows)
    # A lone surrogate, of a file name that is not UTF-8, cannot be written as it is.
    return text.getvalue().encode(errors="backslashreplace")


def neutralise(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: with an apostrophe before what would begin one.

    A text that begins with an apostrophe gets one too, so that `restore` finds every text again.
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


def restore(text: str) -> str:
    """Return the text that was neutralised."""
    return text.removeprefix("'")


def _neutral_cell(value: object) -> object:
    return neutralise(value) if isinstance(value, str) else _cell(value)


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def _check_header(path: Path, found: Sequence[str], required: Sequence[str]) -> None:
    missing = [name for name in required if name not in found]
    if missing:
        raise InputError(
            f"{path}: missing column {_listed(missing)}; found {_listed(found[:20])}{_hint(path)}"
        )
    # The reader renames the second of two equal names.
    twice = [name for name in found if f"{name}_duplicated_0" in found]
    if twice:
        raise InputError(f"{path}: column {_listed(twice)} stands twice in the header")


def _hint(path: Path) -> str:
    """Guess from the first line what else the file may be."""
    with path.open("rb") as file:
        first = file.readline(10_000)
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "; the file seems to be in UTF-16, save it as UTF-8"
    for separator, word in ((b";", "semicolons"), (b"\t", "tabs")):
        if separator in first:
            return f"; the file seems to be separated by {word}, commas are expected"
    return ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
