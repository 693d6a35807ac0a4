"""Convert a manifest to the columns that a cache stores, and back, with its digest."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import polars as pl

from trust_cache.base.digests import file_stems, rows_sha256
from trust_cache.base.errors import InputError
from trust_cache.cache.layout import ColumnArray
from trust_cache.manifest.manifest_file import MANIFEST_COLUMNS, REQUIRED_COLUMNS


def canonical_manifest(table: pl.DataFrame, source: str) -> pl.DataFrame:
    """Return the manifest as a cache holds it: the standard columns first, all text but the label.

    Columns that imported features lack (laterality, projection, path) are added empty. An empty text equals
    a missing one, as in a CSV file.
    """
    missing = [name for name in REQUIRED_COLUMNS if name not in table.columns]
    if missing:
        raise InputError(f"{source}: missing column {', '.join(missing)}")
    if table.is_empty():
        raise InputError(f"{source}: the manifest has no rows")
    for problem in _problems(table):
        raise InputError(f"{source}: {problem}")
    absent = [
        pl.lit(None, dtype=pl.String).alias(name) for name in MANIFEST_COLUMNS if name not in table.columns
    ]
    further = [name for name in table.columns if name not in MANIFEST_COLUMNS]
    texts = pl.col(name for name in (*MANIFEST_COLUMNS, *further) if name != "label").cast(pl.String)
    table = table.with_columns(absent).select(*MANIFEST_COLUMNS, *further).with_columns(texts)
    table = table.with_columns(pl.col("label").cast(pl.Float64).cast(pl.Int8))
    return _without_empty_texts(table)


def manifest_sha256(table: pl.DataFrame) -> str:
    """Return the digest of a canonical manifest: the header as the first row, nulls as JSON's null."""
    return rows_sha256(chain([table.columns], table.iter_rows()))


def array_names(columns: Sequence[str]) -> tuple[ColumnArray, ...]:
    """Give each column the name of its array: its own where every store and file system accepts that."""
    stems = file_stems(columns)
    names = (_array_name(name, stems[name], number) for number, name in enumerate(columns))
    return tuple(map(ColumnArray, columns, names))


def _array_name(name: str, stem: str, number: int) -> str:
    if name in MANIFEST_COLUMNS:  # always found under their own names, whatever other columns are called
        return name
    # Zarr reserves names that start with two underscores, and that of its metadata.
    return f"column-{number}" if stem.startswith("__") or stem == "zarr.json" else stem


def columns_of(table: pl.DataFrame) -> dict[str, list[str] | list[int]]:
    """Return the columns of a canonical manifest as plain values, null as the empty text."""
    return table.with_columns(pl.col(pl.String).fill_null("")).to_dict(as_series=False)


def table_of(columns: Mapping[str, Sequence[str] | Sequence[int]], source: str) -> pl.DataFrame:
    """Return a cache's columns as a table."""
    sizes = {len(column) for column in columns.values()}
    if len(sizes) > 1 or any(name not in columns for name in MANIFEST_COLUMNS):
        raise InputError(f"{source}: the columns of the manifest are damaged or incomplete")
    types = {name: pl.Int8 if name == "label" else pl.String for name in columns}
    return _without_empty_texts(pl.DataFrame(columns, schema=types))


def _without_empty_texts(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(pl.when(pl.col(pl.String) != "").then(pl.col(pl.String)).name.keep())


def _problems(table: pl.DataFrame) -> Iterator[str]:
    for name in ("image_id", "case_id"):
        text = pl.col(name).cast(pl.String)
        empty = table.filter(text.is_null() | (text == ""))
        if empty.height:
            yield f"an empty {name} on {empty.height} rows; expected one for each image"
    repeated = table.filter(pl.col("image_id").is_duplicated())
    if repeated.height:
        yield f"image_id {repeated['image_id'][0]} occurs more than once; expected one row per image"
    label = pl.col("label").cast(pl.Float64, strict=False)
    wrong = table.filter(~label.is_in([0.0, 1.0]).fill_null(value=False))
    if wrong.height:
        row = wrong.row(0, named=True)
        yield f"image {row['image_id']}: expected a label of 0 or 1, found {row['label']!r}"
    for name in table.columns:
        nul = table.filter(pl.col(name).cast(pl.String).str.contains("\0", literal=True))
        if nul.height or "\0" in name:
            yield f"column {name!r} holds a NUL character, which texts in HDF5 cannot"
