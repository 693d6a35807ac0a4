"""Read a metadata file as text, and the meaning of its cells.

Every cell is kept exactly as it is in the file, with the line it is on.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from trust_cache.base.errors import InputError, did_you_mean
from trust_cache.base.places import is_url, read_bytes

_NAMES_SHOWN = 20
_LONGEST_HEADER = 100_000  # characters
_ROWS = 50_000  # held as Python texts at a time: a table of 480,000 files has 150 columns
_NO_VALUE = ("", "nan", "none", "null", "na", "n/a")
SIDES = ("L", "R", "Left", "Right")  # the words of laterality_of
_LATERALITIES = {"l": "L", "left": "L", "r": "R", "right": "R"}
_LABELS = {"false": 0, "true": 1}
_ZIP, _OLD_EXCEL = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"


@dataclass(frozen=True)
class Metadata:
    """The cells of a CSV file, null where empty; `lines` are numbered as in an editor."""

    table: pl.DataFrame
    lines: pl.Series
    source: str
    header: tuple[str, ...] = ()  # the names of all columns of the file, where the table has some of them


def read_metadata(
    path: Path | str, *, separators: str = ",", wanted: Callable[[str], bool] | None = None
) -> Metadata:
    """Read a CSV file in UTF-8 without interpreting any cell; only the header is stripped of spaces.

    The one of the `separators` that divides the header into most columns counts, the first among equals.
    Only the columns whose names are `wanted` are kept, by default all: some tables have hundreds.

    Rows without any text are dropped. Lines may end in any way. The reader of the standard library is used
    because it knows the line of each row and refuses broken quotes, where faster ones guess.
    """
    content = _read_content(path)
    separator = _separator_of(content, separators)
    # The bytes are decoded as they are read: the text of a large table would need several times its size.
    text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="")
    reader = csv.reader(text, delimiter=separator, strict=True)
    chosen: list[int] = []
    header: list[str] | None = None
    rows: list[list[str]] = []
    lines: list[int] = []
    parts: list[pl.DataFrame] = []
    try:
        line = 1
        for row in reader:
            if any(cell and not cell.isspace() for cell in row):
                if header is None:
                    header = _checked_header(path, row)
                    chosen = [at for at, name in enumerate(header) if wanted is None or wanted(name)]
                elif len(row) != len(header):
                    raise InputError(
                        f"{path}, line {line}: expected {len(header)} cells as in the header,"
                        f" found {len(row)}{_separator_hint(header)}"
                    )
                else:
                    rows.append([row[at] for at in chosen])
                    lines.append(line)
                    if len(rows) == _ROWS:
                        parts.append(_as_texts([header[at] for at in chosen], rows))
                        rows = []
            line = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}, line {_first_not_utf8(content)}: not text in UTF-8; expected a CSV file, saved in UTF-8"
        ) from error
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not a readable CSV file ({error})") from error
    if header is None:
        raise InputError(f"{path}: the file is empty; expected a CSV file with a header")
    if not lines:
        raise InputError(f"{path}: the file has a header and no rows")
    names = [header[at] for at in chosen]
    table = pl.concat([*parts, *([_as_texts(names, rows)] if rows else [])])
    return Metadata(table, pl.Series("line", lines, dtype=pl.Int64), str(path), tuple(header))


def _separator_of(content: bytes, separators: str) -> str:
    """Return the separator that divides the header into most columns; the first where none can be read."""
    start = content[:_LONGEST_HEADER].decode("utf-8-sig", errors="ignore").lstrip()

    def columns(mark: str) -> int:
        try:
            return len(next(csv.reader(io.StringIO(start, newline=""), delimiter=mark), []))
        except csv.Error:  # what is wrong with the header is said when it is read
            return 0

    return max(separators, key=columns)


def _first_not_utf8(content: bytes) -> int:
    """Return the first line that is not in UTF-8: a decoder that reads in pieces does not tell its place."""
    lines = content.splitlines()
    return 1 + next(at for at, line in enumerate(lines) if line.decode(errors="ignore").encode() != line)


def _as_texts(header: Sequence[str], rows: Sequence[Sequence[str]]) -> pl.DataFrame:
    """Return rows as a table, null where a cell is empty."""
    columns = zip(header, zip(*rows, strict=True), strict=True)
    table = pl.DataFrame([pl.Series(name, cells, dtype=pl.String) for name, cells in columns])
    return table.with_columns(pl.when(pl.all() != "").then(pl.all()).name.keep())


def require_columns(metadata: Metadata, required: Sequence[str], hint: str = "", nearest: str = "") -> None:
    """Refuse metadata without these columns; `hint` says what to do unless the separator is wrong.

    `nearest` names the known table that fits best.
    """
    missing = [name for name in required if name not in metadata.table.columns]
    if not missing:
        return
    header = list(metadata.header or metadata.table.columns)
    hint = _separator_hint(header) or f"{hint or did_you_mean(missing[0], header)}{nearest}"
    more = f" and {len(header) - _NAMES_SHOWN} more" if len(header) > _NAMES_SHOWN else ""
    raise InputError(
        f"{metadata.source}: missing column {', '.join(missing)};"
        f" found {', '.join(header[:_NAMES_SHOWN])}{more}{hint}"
    )


def _separator_hint(header: Sequence[str]) -> str:
    for separator, word in ((";", "semicolons"), ("\t", "tabs")):
        if any(separator in name for name in header):
            return f"; the file seems to be separated by {word}, commas are expected"
    return ""


def require_shared(
    shared: pl.Expr, images: pl.DataFrame, metadata: Metadata, other: Metadata, ids: str
) -> None:
    """Refuse two tables without any of their `ids` in common; `shared` tells where an image has one."""
    if not images.select(shared.any()).item():
        raise InputError(
            f"{metadata.source}: expected {ids} of {other.source}, found none of them in"
            f" {images.height:,} images; use two tables of one release, as downloaded"
        )


def read_images(metadata: Metadata, *, ages: Sequence[str] = (), **columns: str) -> pl.DataFrame:
    """Return columns of the metadata under new names, stripped, with the `line` of each row.

    `label_text` and `laterality_text` must be among the new names: `label` (0 or 1) and `laterality` (L or
    R) are read from them, null where they mean neither. `age` is added from the first of the columns `ages`
    that the metadata have.
    """
    images = metadata.table.select(
        (value if name == "projection" else _stripped)(source).alias(name) for name, source in columns.items()
    )
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


def id_of(column: str) -> pl.Expr:
    """Return ids as text; a program that wrote them as numbers with a fraction (123.0) is corrected."""
    return value(column).str.replace(r"^(\d+)\.0+$", "$1")


def code_of(column: str) -> pl.Expr:
    """Return the numbers of a coded column (1, 1.0), null where a cell is empty or no whole number."""
    number = value(column).cast(pl.Float64, strict=False)
    return pl.when(number == number.floor()).then(number).cast(pl.Int64, strict=False)


def require_codes(metadata: Metadata, column: str, codes: Sequence[str], words: str = "") -> None:
    """Refuse a coded column with a cell that is no code: it must not be taken for another.

    Empty cells, capitals and a fraction of zero (1.0) do not matter; `words` name the codes in a message.
    """
    text = value(column).str.replace(r"^(\d+)\.0+$", "$1")
    known = text.str.to_uppercase().is_in([code.upper() for code in codes])
    wrong = metadata.table.select(metadata.lines, found=text, known=known).filter(~pl.col("known"))
    if wrong.height:
        expected = words or ", ".join(codes)
        more = f" ({wrong.height:,} rows in all)" if wrong.height > 1 else ""
        raise InputError(
            f"{metadata.source}, line {wrong['line'][0]}: expected a {column} of {expected} or nothing,"
            f" found {wrong['found'][0]!r}{more}"
        )


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


def _read_content(path: Path | str) -> bytes:
    if not is_url(str(path)) and Path(path).is_dir():
        raise InputError(f"{path}: expected a CSV file, found a folder")
    try:
        content = read_bytes(str(path))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if content.startswith((_ZIP, _OLD_EXCEL)):
        raise InputError(
            f"{path}: expected a CSV file, found an Excel workbook or an archive; save the table as CSV"
            " in UTF-8"
        )
    nul = content.find(b"\0")  # UTF-16, or no text at all; no cache could hold it either
    if nul >= 0:
        line = content.count(b"\n", 0, nul) + 1
        raise InputError(f"{path}, line {line}: a NUL character; expected a CSV file, saved in UTF-8")
    return content


def _checked_header(path: Path | str, row: Sequence[str]) -> list[str]:
    header = [name.strip() for name in row]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        shown = ", ".join(repr(name) for name in twice[:_NAMES_SHOWN])
        raise InputError(f"{path}: column {shown} occurs more than once in the header")
    return header
