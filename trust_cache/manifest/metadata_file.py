"""Read a metadata file as text, and the meaning of its cells.

Every cell is kept exactly as it is in the file, with the line it is on.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.base.places import is_url, read_bytes

_NAMES_SHOWN = 20
_NO_VALUE = ("", "nan", "none", "null", "na", "n/a")
_LATERALITIES = {"l": "L", "left": "L", "r": "R", "right": "R"}
_LABELS = {"false": 0, "true": 1}


@dataclass(frozen=True)
class Metadata:
    """The cells of a CSV file, null where empty; `lines` are numbered as in an editor."""

    table: pl.DataFrame
    lines: pl.Series
    source: str


def read_metadata(path: Path | str) -> Metadata:
    """Read a CSV file in UTF-8 without interpreting any cell; only the header is stripped of spaces.

    Rows without any text are dropped. The reader of the standard library is used because it knows the
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
    columns = zip(header, zip(*rows, strict=True), strict=True)
    table = pl.DataFrame([pl.Series(name, cells, dtype=pl.String) for name, cells in columns])
    table = table.with_columns(pl.when(pl.all() != "").then(pl.all()).name.keep())
    return Metadata(table, pl.Series("line", lines, dtype=pl.Int64), str(path))


def require_columns(metadata: Metadata, required: Sequence[str], hint: str = "") -> None:
    """Refuse metadata without these columns; `hint` says what to do unless the separator is wrong."""
    header = metadata.table.columns
    missing = [name for name in required if name not in header]
    if not missing:
        return
    for separator, word in ((";", "semicolons"), ("\t", "tabs")):
        if any(separator in name for name in header):
            hint = f"; the file seems to be separated by {word}, commas are expected"
    raise InputError(
        f"{metadata.source}: missing column {', '.join(missing)};"
        f" found {', '.join(header[:_NAMES_SHOWN])}{hint}"
    )


def read_images(metadata: Metadata, *, ages: Sequence[str] = (), **columns: str) -> pl.DataFrame:
    """Return columns of the metadata under new names, stripped, with the `line` of each row.

    `label_text` and `laterality_text` must be among the new names: `label` (0 or 1) and `laterality` (L or
    R) are read from them, null where they mean neither. `age` is added from the first of the columns `ages`
    that the metadata have.
    """
    images = metadata.table.select(_stripped(source).alias(name) for name, source in columns.items())
    side = value("laterality_text")
    images = images.with_columns(
        metadata.lines, side, label=_label_of(pl.col("label_text")), laterality=laterality_of(side)
    )
    for name in ages:
        if name in metadata.table.columns:
            return images.with_columns(metadata.table.select(_age_of(name).alias("age")))
    return images


def value(column: str) -> pl.Expr:
    """Return the cells without the words that programs write for a missing value (nan, None, NA)."""
    text = _stripped(column)
    return pl.when(~text.str.to_lowercase().is_in(_NO_VALUE)).then(text)


def laterality_of(text: pl.Expr) -> pl.Expr:
    """Return L or R for the texts that mean it (also left, Right), null for all others."""
    return text.str.to_lowercase().replace_strict(_LATERALITIES, default=None, return_dtype=pl.String)


def _stripped(column: str) -> pl.Expr:
    text = pl.col(column).str.strip_chars()
    return pl.when(text != "").then(text)


def _label_of(text: pl.Expr) -> pl.Expr:
    """Return 0 or 1 for the texts that mean it (also 1.0, True), null for all others."""
    number = text.cast(pl.Float64, strict=False)
    whole = pl.when(number.is_in([0.0, 1.0])).then(number).cast(pl.Int8)
    words = text.str.to_lowercase().replace_strict(_LABELS, default=None, return_dtype=pl.Int8)
    return pl.coalesce(whole, words)


def _age_of(column: str) -> pl.Expr:
    """Return one text per age: 61, 61.0 and DICOM's 061Y are equal."""
    text = value(column)
    number = text.str.strip_suffix("Y").cast(pl.Float64, strict=False)
    whole = pl.when(number == number.floor()).then(number.cast(pl.Int64, strict=False).cast(pl.String))
    return pl.coalesce(whole, number.cast(pl.String), text)


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
        raise InputError(f"{path}: column {shown} occurs more than once in the header")
    return header
