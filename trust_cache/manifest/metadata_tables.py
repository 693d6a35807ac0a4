"""Read the tables of a data set and decide by their columns which file is which."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from trust_cache.base.csv_tables import LINE
from trust_cache.base.errors import InputError
from trust_cache.base.table_files import read_table_file
from trust_cache.manifest.datasets.dataset import Dataset, MetadataTable
from trust_cache.manifest.datasets.known_datasets import KNOWN_DATASETS, fitting_datasets
from trust_cache.manifest.metadata_file import Metadata, read_metadata, require_columns

_ZIP = b"PK"
_PLAIN_CSV = "csv"  # it has no published form
_SEPARATORS = ",;\t"  # a workbook saved as CSV has semicolons where the comma is the decimal mark


def read_tables(dataset: Dataset, paths: Sequence[Path]) -> list[Metadata]:
    """Return the table that lists the images, then the tables beside it; the files may be in any order."""
    wanted = _tables_of(dataset)
    if len(paths) != len(wanted):
        names = " and ".join(table.name for table in wanted)
        raise InputError(
            f"metadata: expected {len(wanted)} file{'s' * (len(wanted) > 1)} ({names}), found {len(paths)}:"
            f" {', '.join(map(str, paths))}"
        )
    excel = any(table.excel for table in wanted)
    left = [_read(path, excel=excel, wanted=_wanted(dataset, wanted)) for path in paths]
    found: list[Metadata] = []
    for table in wanted:
        named = [_named(read, table) for read in left]
        fitting = [read for read in named if _fits(read, table)]
        if len(fitting) > 1 and len(left) > 1:
            raise InputError(
                f"{fitting[0].source} and {fitting[1].source}: expected one {table.name}, found its columns"
                " in both files"
            )
        # The file with most of the columns is the one that lacks some, unless it is whole as another table.
        others = [other for other in wanted if other is not table]
        place = max(
            range(len(named)),
            key=lambda at: (
                _fits(named[at], table),
                not any(_fits(_named(left[at], other), other) for other in others),
                _shared(named[at], table),
            ),
        )
        best = named[place]
        header = left[place].header or left[place].table.columns
        require_columns(best, table.required, _hint(dataset, header), _nearest(header))
        found.append(best)
        left.pop(place)
    return found


def _fits(read: Metadata, table: MetadataTable) -> bool:
    return set(table.required) <= set(read.table.columns)


def _shared(read: Metadata, table: MetadataTable) -> int:
    return len(set(table.required) & set(read.table.columns))


def _named(read: Metadata, table: MetadataTable) -> Metadata:
    """Return a table with the published names of its columns, where only capitals or spaces differ."""
    header = read.table.columns
    alike: dict[str, list[str]] = {}
    for column in header:
        alike.setdefault(_plain(column), []).append(column)
    names = {}
    for name in (*table.required, *table.known):
        columns = alike.get(_plain(name), [])
        if name not in header and len(columns) == 1:
            names[columns[0]] = name
    return Metadata(read.table.rename(names), read.lines, read.source, read.header)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()


def _tables_of(dataset: Dataset) -> tuple[MetadataTable, ...]:
    return (MetadataTable(dataset.table, dataset.required, known=dataset.known), *dataset.beside)


def _read(path: Path, *, excel: bool, wanted: Callable[[str], bool] | None) -> Metadata:
    if not excel or not path.is_file() or not _is_workbook(path):
        return read_metadata(path, separators=_SEPARATORS, wanted=wanted)
    read = read_table_file(path)
    table = read.table.with_columns(pl.exclude(LINE).cast(pl.String))
    return Metadata(table.drop(LINE), table[LINE].alias("line"), str(path))


def _wanted(dataset: Dataset, tables: Sequence[MetadataTable]) -> Callable[[str], bool] | None:
    """Return which columns of the files are of use; None where all are."""
    if dataset.further is None:
        return None
    used = {name for table in tables for name in (*table.required, *table.known)}
    plain = {_plain(name) for name in (*used, *dataset.further)}
    return lambda name: _plain(name) in plain


def _is_workbook(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_ZIP)) == _ZIP


def _nearest(header: Sequence[str]) -> str:
    """Return the end of a message: the known table with the smallest share of missing columns."""
    there = {_plain(name) for name in header}
    found: tuple[float, str] | None = None
    for known in KNOWN_DATASETS:
        tables = () if known.name == _PLAIN_CSV else _tables_of(known.load())
        for table in tables:
            missing = sum(_plain(name) not in there for name in table.required)
            here, share = len(table.required) - missing, missing / len(table.required)
            if here and missing and (found is None or share < found[0]):
                words = f"{here} of the {len(table.required)} columns of {table.name} ({known.name}) are here"
                found = (share, words)
    return "" if found is None else f"; the nearest known table: {found[1]}"


def _hint(dataset: Dataset, header: Sequence[str]) -> str:
    missing = [name for name in dataset.required if name not in header]
    if not missing:
        return ""
    fitting = fitting_datasets(header)
    if fitting:
        return f". These are the columns of another kind: use `trust-cache manifest {fitting[0]}`"
    return dataset.hints.get(missing[0], "") if len(missing) == 1 else ""
