"""Read a table that a user gives: CSV with commas, semicolons or tabs, Parquet or Excel.

The file's first bytes decide what it is, not its name. Cells of a CSV file are text, so that 007 stays 007;
columns of the other formats keep their types. `take_columns` and `as_labels` settle names and labels.
"""

import csv
import gzip
import logging
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from trust_cache.base.csv_tables import LINE, number_lines, read_text_table
from trust_cache.base.errors import InputError, did_you_mean, first_line

_PARQUET, _ZIP, _OLD_EXCEL, _GZIP = b"PAR1", b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"\x1f\x8b"
_LONGEST_HEADER = 100_000  # bytes
_SEPARATORS = (",", ";", "\t")
_WORKBOOK = "xl/workbook.xml"
_TRUTH = {"true": 1.0, "false": 0.0}
_LABELS_SHOWN, _COLUMNS_SHOWN = 5, 20
_COMMA_NUMBER = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$"


@dataclass(frozen=True)
class TableFile:
    """The rows of a file with their line numbers (column LINE), and what its format did to them."""

    table: pl.DataFrame
    format: str  # CSV, Parquet or Excel
    warnings: tuple[str, ...] = ()


def read_table_file(path: Path) -> TableFile:
    """Read a table of any of the formats; anything else is refused by name."""
    if path.is_dir():
        raise InputError(f"{path}: expected a file with a table, found a folder")
    try:
        with path.open("rb") as file:
            first = file.read(len(_ZIP))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if first == _PARQUET:
        return TableFile(_read_parquet(path), "Parquet")
    if first in (_ZIP, _OLD_EXCEL):
        return _read_excel(path)
    separator = _find_separator(path, first)
    table = read_text_table(path, (), lines=True, separator=separator)
    return TableFile(_with_points(table) if separator == ";" else table, "CSV")


def _find_separator(path: Path, first: bytes) -> str:
    """Return the separator that divides the header into most columns; a comma among equals."""
    with gzip.open(path) if first.startswith(_GZIP) else path.open("rb") as file:
        header = file.readline(_LONGEST_HEADER).partition(b"\r")[0].decode("utf-8-sig", errors="replace")
    counts = {mark: len(next(csv.reader([header], delimiter=mark), [])) for mark in _SEPARATORS}
    return max(_SEPARATORS, key=counts.__getitem__)


def _with_points(table: pl.DataFrame) -> pl.DataFrame:
    """Replace decimal commas by points in columns that have them and no number with a point.

    Spreadsheets that separate by semicolons do so because the comma is their decimal mark.
    """
    changed = []
    for name in table.columns:
        column = table[name]
        if column.dtype != pl.String:
            continue
        commas = column.str.contains(_COMMA_NUMBER).fill_null(value=False)
        numbers = commas | column.is_null() | column.str.contains(r"^[+-]?\d+([eE][+-]?\d+)?$")
        if commas.any() and numbers.all():
            changed.append(pl.col(name).str.replace(",", ".", literal=True))
    return table.with_columns(changed)


def _read_parquet(path: Path) -> pl.DataFrame:
    try:
        return _checked(path, pl.read_parquet(path, glob=False))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: not a readable Parquet file ({first_line(error)})") from error


def _read_excel(path: Path) -> TableFile:
    """Read the first sheet of a workbook."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if _WORKBOOK not in archive.namelist():
                raise InputError(
                    f"{path}: expected a table, found a zip archive; unpack it and name the file inside"
                )
    try:
        import fastexcel  # noqa: PLC0415  (optional)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{path}: an Excel file, which needs the package fastexcel:"
            ' pip install "trust-cache[excel]"; or save it as CSV in UTF-8'
        ) from error
    try:
        logging.getLogger("fastexcel").setLevel(logging.ERROR)  # it tells of empty columns
        book = fastexcel.read_excel(path)
        names = book.sheet_names
        sheet = book.load_sheet(0, schema_sample_rows=None)
        table = pl.DataFrame(sheet)
    except (OSError, fastexcel.FastExcelError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: not a readable Excel file ({first_line(error)})") from error
    warnings = []
    if len(names) > 1:
        warnings.append(f"{path}: has {len(names)} sheets; the first, {names[0]!r}, was read")
    return TableFile(_checked(path, table), "Excel", tuple(warnings))


def _checked(path: Path, table: pl.DataFrame) -> pl.DataFrame:
    """Return a typed table with stripped names and line numbers, without empty rows."""
    header = [name.strip() for name in table.columns]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InputError(f"{path}: column {', '.join(twice)} occurs twice in the header")
    table.columns = header
    stripped = pl.col(pl.String).str.strip_chars()
    table = table.with_columns(pl.when(stripped != "").then(stripped).name.keep())
    table = number_lines(table)
    if table.is_empty():
        raise InputError(f"{path}: the table has no rows")
    return table


def id_warnings(read: TableFile, source: str, names: Mapping[str, str]) -> list[str]:
    """Say what became of ids that the file has as numbers; `names` are the columns and what they hold."""
    if read.format == "CSV":
        return []
    held = {name.casefold(): what for name, what in names.items()}
    numeric = [
        name for name in read.table.columns if name.casefold() in held and read.table[name].dtype.is_numeric()
    ]
    lost = (
        "leading zeros are lost, and digits after the 15th; format the column as text to keep them"
        if read.format == "Excel"
        else "they are read as their digits, without leading zeros"
    )
    return [
        f"{source}: the column {name} holds {held[name.casefold()]} as numbers, not as text: {lost}"
        for name in numeric
    ]


def as_ids(column: pl.Series, source: str) -> pl.Series:
    """Return ids as text; whole numbers as their digits. A fraction is refused."""
    if not column.dtype.is_float():
        return column.cast(pl.String)
    whole = column.fill_nan(None)
    wrong = whole.filter(whole.is_not_null() & (whole != whole.floor()))
    if wrong.len():
        raise InputError(f"{source}: column {column.name}: expected ids, found the number {wrong[0]}")
    return whole.cast(pl.Int64).cast(pl.String)


def take_columns(
    table: pl.DataFrame, given: Mapping[str, str], source: str, options: Mapping[str, str]
) -> pl.DataFrame:
    """Return the table with each given column under its own name (name -> given).

    Capitals do not matter unless two columns differ in them alone. A column that is not there is an error
    only if the user named it; `options` are the names of the columns' options, for messages.
    """
    found = {name: _find_column(table, name, word, source, options.get(name)) for name, word in given.items()}
    taken = {column: name for name, column in found.items() if column is not None}
    if len(taken) < sum(column is not None for column in found.values()):
        twice = next(column for name, column in found.items() if column and taken[column] != name)
        raise InputError(f"{source}: expected different columns, found {twice!r} named twice")
    unused = [name for name in taken.values() if name in table.columns and name not in taken]
    return table.drop(unused).rename(taken)


def _find_column(table: pl.DataFrame, name: str, given: str, source: str, option: str | None) -> str | None:
    columns = [column for column in table.columns if column != LINE]
    if given in columns:
        return given
    alike = [column for column in columns if column.casefold() == given.casefold()]
    if len(alike) > 1:
        hint = f"; name one with {option}" if option else ""
        raise InputError(f"{source}: expected one column {given}, found {' and '.join(alike)}{hint}")
    if not alike and given != name:
        raise InputError(
            f"{source}: {option or name}: expected a column {given!r}, found"
            f" {', '.join(columns[:_COLUMNS_SHOWN])}{did_you_mean(given, columns)}"
        )
    return alike[0] if alike else None


def as_labels(column: pl.Series, positive: str | None, source: str) -> pl.Series:
    """Return labels as numbers, null where a cell is none: 0 and 1, true and false, or `positive` and others.

    With `positive`, equal cells are 1 and all others 0; an empty cell stays null.
    """
    text = column.cast(pl.String).str.strip_chars()
    if positive is None:
        return text.str.to_lowercase().replace_strict(_TRUTH, default=text.cast(pl.Float64, strict=False))
    try:
        number: float | None = float(positive)
    except ValueError:
        number = None
    equal = text == positive.strip()
    if number is not None:
        equal |= (text.cast(pl.Float64, strict=False) == number).fill_null(value=False)
    if not equal.any():
        values = text.drop_nulls().unique().sort().to_list()
        shown = ", ".join(map(repr, values[:_LABELS_SHOWN])) + (", ..." if values[_LABELS_SHOWN:] else "")
        raise InputError(
            f"{source}: expected the label {positive!r} of --positive in the column, found"
            f" {shown or 'no label'}{did_you_mean(positive, values)}"
        )
    return equal.cast(pl.Float64)
