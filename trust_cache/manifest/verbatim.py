"""Metadata files as text: every cell exactly as it stands in the file, with the line it stands on."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.base.places import is_url, read_bytes

_NAMES_SHOWN = 20


@dataclass(frozen=True)
class Metadata:
    """The cells of a CSV file, an empty one as null; `lines` are those an editor shows."""

    table: pl.DataFrame
    lines: pl.Series
    source: str


def read_metadata(path: Path | str) -> Metadata:
    """Read a CSV file in UTF-8 without interpreting any cell; only the header is stripped of spaces.

    Rows without any text are dropped. The reader of the standard library is used because it tells the
    line of each row and refuses broken quotes, where faster ones guess.
    """
    reader = csv.reader(io.StringIO(_read_text(path), newline=""), strict=True)
    header: list[str] | None = None
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        line = 1
        for row in reader:
            if any(cell and not cell.isspace() for cell in row):
                if header is None:
                    header = _checked_header(path, row)
                elif len(row) != len(header):
                    raise InputError(
                        f"{path}, line {line}: expected {len(header)} cells as in the header,"
                        f" found {len(row)}"
                    )
                else:
                    rows.append(row)
                    lines.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not a readable CSV file ({error})") from error
    if header is None:
        raise InputError(f"{path}: the file is empty; expected a CSV file with a header")
    if not rows:
        raise InputError(f"{path}: the file has a header and no rows")
    return Metadata(_table(header, rows), pl.Series("line", lines, dtype=pl.Int64), str(path))


def separator_hint(header: Sequence[str]) -> str:
    """Tell of another separator than commas where the header looks like it, else nothing."""
    for separator, word in ((";", "semicolons"), ("\t", "tabs")):
        if any(separator in name for name in header):
            return f"; the file seems to be separated by {word}, commas are expected"
    return ""


def _read_text(path: Path | str) -> str:
    if not is_url(str(path)) and Path(path).is_dir():
        raise InputError(f"{path}: expected a CSV file, found a folder")
    try:
        text = read_bytes(str(path)).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not text in UTF-8 (byte {error.start}); expected a CSV file, saved in UTF-8"
        ) from error
    if "\0" in text:  # UTF-16 without its mark, or no text at all; no cache could hold it either
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{path}, line {line}: a NUL character; expected a CSV file, saved in UTF-8")
    return text


def _checked_header(path: Path | str, row: Sequence[str]) -> list[str]:
    header = [name.strip() for name in row]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        shown = ", ".join(repr(name) for name in twice[:_NAMES_SHOWN])
        raise InputError(f"{path}: column {shown} stands more than once in the header")
    return header


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> pl.DataFrame:
    columns = zip(header, zip(*rows, strict=True), strict=True)
    table = pl.DataFrame([pl.Series(name, cells, dtype=pl.String) for name, cells in columns])
    return table.with_columns(pl.when(pl.all() != "").then(pl.all()).name.keep())
