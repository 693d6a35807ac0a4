"""Group cases by a column of their images: by its values, or by bands of its numbers."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.errors import InputError

MISSING = "missing"  # no image of the case has a value
CONFLICTING = "conflicting"  # the images of the case have different values


@dataclass(frozen=True)
class GroupColumn:
    """A column to group by; with `edges`, its numbers are divided into bands."""

    text: str  # as the user wrote it
    column: str
    edges: tuple[float, ...] = ()

    @property
    def bands(self) -> tuple[str, ...]:
        """The names of the bands, lowest first: an edge belongs to the band above it."""
        first, last = f"below {self.edges[0]:g}", f"{self.edges[-1]:g} and above"
        return (first, *(f"{low:g} to below {high:g}" for low, high in pairwise(self.edges)), last)


@dataclass(frozen=True)
class Grouping:
    """The groups of a column in order, and each case's group by position."""

    column: str  # as the user wrote it: age=50,60 for bands
    names: tuple[str, ...]
    group: NDArray[np.int64]

    @property
    def all_conflicting(self) -> bool:
        """Whether every case has images with different values: the column says nothing about cases."""
        return self.names == (CONFLICTING,)


def parse_groups(text: str, columns: Collection[str]) -> GroupColumn:
    """Read `column`, or `column=50,60,70` for bands; a column that is named so as a whole comes first."""
    column, equals, edges = text.rpartition("=")
    if text in columns or not equals:
        return GroupColumn(text, text)
    try:
        numbers = tuple(float(edge) for edge in edges.split(","))
    except ValueError as error:
        raise InputError(
            f"by: expected COLUMN or COLUMN=50,60,70 (edges of bands), found {text!r}"
        ) from error
    if not np.all(np.isfinite(numbers)) or any(low >= high for low, high in pairwise(numbers)):
        raise InputError(f"by: expected finite edges in ascending order, found {text!r}")
    return GroupColumn(text, column, numbers)


def find_groups(images: pl.DataFrame, case_ids: pl.Series, by: GroupColumn, source: str) -> Grouping:
    """Give each case the one value of its images; `conflicting` if there are several, `missing` if none."""
    column = images[by.column]
    if by.edges:
        value = _bands(images, by, source)
    else:
        text = column.cast(pl.String)
        # A value that equals one of these two words gets quotation marks.
        quoted = pl.select(
            pl.when(text.is_in([MISSING, CONFLICTING])).then(pl.format('"{}"', text)).otherwise(text)
        )
        value = quoted.to_series()
    of_images = pl.DataFrame({"case_id": images["case_id"], "value": value}).drop_nulls("value")
    by_case = of_images.group_by("case_id").agg(
        values=pl.col("value").n_unique(), value=pl.col("value").first()
    )
    name = pl.when(pl.col("values") > 1).then(pl.lit(CONFLICTING)).otherwise(pl.col("value"))
    named = (
        pl.DataFrame({"case_id": case_ids})
        .join(by_case.select("case_id", name=name), on="case_id", how="left", maintain_order="left")["name"]
        .fill_null(MISSING)
    )
    order = {band: position for position, band in enumerate(by.bands)} if by.edges else {}
    found = sorted(
        named.unique().to_list(),
        key=lambda group: (group in {MISSING, CONFLICTING}, order.get(group, 0), group),
    )
    positions = {group: position for position, group in enumerate(found)}
    numbers = named.replace_strict(positions, return_dtype=pl.Int64).to_numpy()
    return Grouping(by.text, tuple(found), numbers)


def _bands(images: pl.DataFrame, by: GroupColumn, source: str) -> pl.Series:
    """Return the band of each image; null where the cell is empty, refused where it is no number."""
    text = images[by.column].cast(pl.String)
    numbers = text.cast(pl.Float64, strict=False).fill_nan(None)
    wrong = images.select("case_id", cell=text).filter(numbers.is_null() & text.is_not_null())
    if wrong.height:
        case_id, cell = wrong.row(0)
        raise InputError(
            f"{source}: {by.text}: expected numbers or nothing in {by.column}, found {cell!r} of case"
            f" {case_id} ({wrong.height} such rows); empty these cells, or group without bands"
        )
    known = numbers.is_not_null().to_numpy()
    bands = np.searchsorted(by.edges, numbers.fill_null(0.0).to_numpy(), side="right")
    names = np.array(by.bands, dtype=object)[bands]
    return pl.Series([name if has else None for name, has in zip(names, known, strict=True)], dtype=pl.String)
