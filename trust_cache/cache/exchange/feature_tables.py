"""Features as a table in a Parquet or Arrow file, a row for each image and view: reading and writing.

Columns: `image_id`; `view`, the number of the view (0 is clean), where an image has several; `features`, a
list of numbers, empty for an image without features; and, in a table that `cache export` wrote, the
manifest's columns. Features may also be in numbered columns (`feature_0`, `feature_1`, ...).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.io.plugins import register_io_source

from trust_cache.base.errors import InputError, did_you_mean, first_line
from trust_cache.cache.layout import Features

IMAGE_ID, VIEW, FEATURES = "image_id", "view", "features"
# Columns of a manifest whose names are taken get others in the table.
_RENAMED = {name: f"manifest.{name}" for name in (VIEW, FEATURES)}
_PARQUET, _ARROW, _STREAM, _OLD_FEATHER = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"FEA1"
_BATCH, _ROW_GROUP = 1_024, 2_048  # rows that are read at once, and written together
_SHOWN = 12  # names of columns in a message
PARQUET_SUFFIXES, ARROW_SUFFIXES = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")


T = TypeVar("T")


@dataclass(frozen=True)
class FeatureTable:
    """A table of features that is read batch by batch."""

    rows: pl.LazyFrame
    source: str
    columns: tuple[str, ...]  # one column of lists, or the numbered columns in their order
    has_views: bool

    def keys(self) -> pl.DataFrame:
        """Return the image_id and the view of every row."""
        names = (IMAGE_ID, VIEW) if self.has_views else (IMAGE_ID,)
        found = _readable(self.rows.select(names).collect, self.source)
        return found if self.has_views else found.with_columns(pl.lit(0, pl.Int64).alias(VIEW))

    def manifest(self) -> pl.DataFrame:
        """Return the manifest's columns of the rows of view 0."""
        rows = self.rows.filter(pl.col(VIEW) == 0).drop(VIEW) if self.has_views else self.rows
        table = _readable(rows.drop(*self.columns).collect, self.source)
        return table.rename({new: old for old, new in _RENAMED.items()}, strict=False)

    def batches(self) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.floating]]]:
        """Yield for each batch of rows which of them have features, and the features [row, dim] of those.

        A number that is missing in a row is NaN.
        """
        rows = self.rows.select(self.columns)
        batches = _readable(lambda: rows.collect_batches(chunk_size=_BATCH, maintain_order=True), self.source)
        start = 0
        while (batch := _readable(lambda: next(batches, None), self.source)) is not None:
            lists = len(self.columns) == 1
            yield self._of_lists(batch.to_series(), start) if lists else _of_numbers(batch)
            start += batch.height

    def _of_lists(self, cells: pl.Series, start: int) -> tuple[NDArray[np.bool_], NDArray[np.floating]]:
        present = cells.is_not_null()
        lists = cells.filter(present)
        if isinstance(cells.dtype, pl.List) and lists.len():
            lengths = cells.list.len().to_numpy()
            first = int(lengths[present.to_numpy()][0])
            other = np.flatnonzero(present.to_numpy() & ((lengths != first) | (lengths == 0)))
            if other.size:
                raise InputError(
                    f"{self.source}: row {start + other[0] + 1}: expected as many features as in the rows"
                    f" before ({first}), found {int(lengths[other[0]])}"
                )
        flat = lists.explode().to_numpy()
        return present.to_numpy(), flat.reshape(lists.len(), -1) if lists.len() else np.empty((0, 0))


def _of_numbers(batch: pl.DataFrame) -> tuple[NDArray[np.bool_], NDArray[np.floating]]:
    present = ~batch.select(pl.all_horizontal(pl.all().is_null())).to_series()
    return present.to_numpy(), batch.filter(present).fill_null(np.nan).to_numpy()


def open_table(given: Path | pl.DataFrame, column: str) -> FeatureTable | None:
    """Open a table of features; None for a file of another kind. `column` holds the features."""
    if isinstance(given, pl.DataFrame):
        rows, source = given.lazy(), "features"
    else:
        scanned = _scan(given)
        if scanned is None:
            return None
        rows, source = scanned, str(given)
    schema = _readable(rows.collect_schema, source)
    if IMAGE_ID not in schema:
        raise InputError(
            f"{source}: expected a column {IMAGE_ID}, found {_listed(list(schema))}"
            f"{did_you_mean(IMAGE_ID, list(schema))}"
        )
    if VIEW in schema and not schema[VIEW].is_integer():
        raise InputError(
            f"{source}: expected numbers in the column {VIEW} (0 is clean, 1, 2, ... are augmented), found"
            f" {schema[VIEW]}; rename the column if it holds something else"
        )
    return FeatureTable(rows, source, _feature_columns(schema, column, source), VIEW in schema)


def _scan(path: Path) -> pl.LazyFrame | None:
    try:
        with path.open("rb") as file:
            first = file.read(len(_ARROW))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if first.startswith(_PARQUET):
        return pl.scan_parquet(path, glob=False)
    if first.startswith(_ARROW):
        return pl.scan_ipc(path, glob=False)
    if first.startswith(_STREAM):
        return _readable(lambda: pl.read_ipc_stream(path), str(path)).lazy()
    if first.startswith(_OLD_FEATHER):
        raise InputError(f"{path}: expected a Feather file of version 2, found version 1; write it again")
    return None


def _feature_columns(schema: pl.Schema, column: str, source: str) -> tuple[str, ...]:
    """Return the column of lists, or the numbered columns whose names start with `column` or alike."""
    lists = [name for name, kind in schema.items() if isinstance(kind, pl.List | pl.Array)]
    if column in lists:
        kind = schema[column]
        if not kind.inner.is_float():  # type: ignore[attr-defined]
            raise InputError(f"{source}: expected floating-point features in {column}, found {kind}")
        return (column,)
    numbered = _numbered(schema)
    if column != FEATURES and column not in numbered:
        raise InputError(
            f"{source}: expected a column of lists {column!r}, or numbered columns {column}0, {column}1, ...,"
            f" found {_listed(list(schema))}"
        )
    chosen = [column] if column in numbered else list(numbered)
    if len(chosen) == 1 and not lists:
        return numbered[chosen[0]]
    known = [*lists, *(f"{prefix}0, {prefix}1, ..." for prefix in numbered)]
    raise InputError(
        f"{source}: expected a column of lists {column!r}, or one set of numbered columns, found"
        f" {_listed(known) if known else _listed(list(schema))}; name the column or the start of the numbered"
        " ones with --array"
    )


def _numbered(schema: pl.Schema) -> dict[str, tuple[str, ...]]:
    """Return the columns of numbers whose names end in 0, 1, 2, ... or 1, 2, ..., by what is before these."""
    found: dict[str, dict[int, str]] = {}
    for name, kind in schema.items():
        parts = re.fullmatch(r"(.*?)(\d+)", name)
        if parts and kind.is_float():
            found.setdefault(parts[1], {})[int(parts[2])] = name
    return {
        prefix: tuple(names[number] for number in sorted(names))
        for prefix, names in found.items()
        if len(names) > 1 and set(names) in (set(range(len(names))), set(range(1, len(names) + 1)))
    }


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _readable(read: Callable[[], T], source: str) -> T:
    try:
        return read()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{source}: not a readable Parquet or Arrow file ({first_line(error)})") from error


Part = tuple[pl.DataFrame, Features, NDArray[np.bool_]]  # rows of a manifest, features, which have them


def write_table(
    path: Path, suffix: str, parts: Callable[[], Iterator[Part]], columns: Sequence[str], dim: int
) -> None:
    """Write a table of features part by part; `columns` are those of the manifest.

    Features are float32: every program reads it, it holds float16 exactly, and Parquet compresses the zeros.
    """
    types = {_RENAMED.get(name, name): pl.Int8 if name == "label" else pl.String for name in columns}
    schema = types | {VIEW: pl.Int32(), FEATURES: pl.Array(pl.Float32, dim)}

    def rows(
        chosen: list[str] | None, _where: object, _rows: object, _size: object
    ) -> Iterator[pl.DataFrame]:
        for part in parts():
            table = _rows_of(*part, schema)
            yield table if chosen is None else table.select(chosen)

    table = register_io_source(rows, schema=schema)
    # By an open file: polars may create a file of a name after an error has been raised.
    with path.open("wb") as file:
        if suffix in PARQUET_SUFFIXES:
            table.sink_parquet(file, row_group_size=_ROW_GROUP, statistics=False)
        else:  # older readers of Arrow do not know polars' own kind of text
            table.sink_ipc(file, record_batch_size=_ROW_GROUP, compat_level=pl.CompatLevel.oldest())


def _rows_of(
    manifest: pl.DataFrame, features: Features, present: NDArray[np.bool_], schema: Mapping[str, Any]
) -> pl.DataFrame:
    """Return a row for each image and view; the features of an image without any are null."""
    images, views, dim = features.shape
    row_of = np.repeat(np.arange(images), views)
    numbers = np.where(present[row_of, np.newaxis], features.reshape(-1, dim), np.float16(0))
    table = manifest.rename(_RENAMED, strict=False)[row_of].with_columns(
        pl.Series(VIEW, np.tile(np.arange(views, dtype=np.int32), images)),
        pl.Series(FEATURES, numbers.astype(np.float32), dtype=schema[FEATURES]),
    )
    filled = pl.when(pl.Series(present[row_of])).then(FEATURES).alias(FEATURES)
    return table.with_columns(filled).select(*schema)
