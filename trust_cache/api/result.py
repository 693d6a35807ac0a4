"""What the functions of this package return: records with a short text, a table and, for some, a chart."""

import html
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import narwhals as nw
import numpy as np
import polars as pl
from narwhals.typing import IntoDataFrame

from trust_cache.base.errors import InputError

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from trust_cache.figures.figure import Figure

_LINES = 12  # of a repr
R = TypeVar("R", bound="Result")
Frame: TypeAlias = IntoDataFrame  # a data frame of pandas, polars, Arrow or another that narwhals knows


class Result:
    """A record for people: `repr` is a few lines, the whole content is in the fields and in the table."""

    def to_polars(self) -> pl.DataFrame:
        """Return the result as a polars table."""
        raise NotImplementedError

    def to_pandas(self) -> "pd.DataFrame":
        """Return the same table for pandas, which must be installed."""
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise InputError("pandas is not installed: pip install pandas, or use to_polars()") from error
        table = self.to_polars()
        return pd.DataFrame({name: table[name].to_list() for name in table.columns})

    def _shown(self) -> pl.DataFrame:
        """Return the part of the table that a notebook shows."""
        return self.to_polars()

    def _lines(self) -> Iterator[str]:
        """Describe the result: a title, then a line for each thing worth reading."""
        raise NotImplementedError

    def __repr__(self) -> str:
        title, *lines = self._lines()
        more = [f"... and {len(lines) - _LINES} more"] if len(lines) > _LINES else []
        return "\n  ".join([title, *lines[:_LINES], *more])

    def _repr_html_(self) -> str:
        title, *lines = map(html.escape, repr(self).split("\n  "))
        items = "".join(f"<li>{line}</li>" for line in lines)
        shown = f"<ul>{items}</ul>" if items else ""
        return f"<div><b>{title}</b>{shown}{self._shown()._repr_html_()}</div>"


class PlottedResult(Result):
    """A result with a chart."""

    def _figure(self) -> "Figure":
        raise NotImplementedError

    def plot(self) -> "alt.TopLevelMixin":
        """Return the result as an Altair chart; `.save("chart.svg")` writes it."""
        from trust_cache.figures.figure import draw

        return draw(self._figure())


def lifted(kind: type[R], record: Any, **more: Any) -> R:
    """Return a record of the library as a result: a subclass with the same fields and some more."""
    return kind(**{field.name: getattr(record, field.name) for field in fields(record)}, **more)


def as_polars(table: Frame) -> pl.DataFrame:
    """Return any data frame as polars; what pandas writes as NaN is an absent value."""
    if isinstance(table, pl.LazyFrame):
        return table.collect()
    if isinstance(table, pl.DataFrame):
        return table
    try:
        frame = nw.from_native(table, eager_only=True)
    except TypeError as error:
        raise InputError(
            "expected a path or a data frame (pandas, polars, Arrow), found an object of the type"
            f" {type(table).__name__}"
        ) from error
    # Lists need neither pandas' nor polars' optional Arrow support.
    columns = {name: frame[name].to_list() for name in frame.columns}
    return pl.DataFrame(
        {name: [_plain(value) for value in cells] for name, cells in columns.items()}, strict=False
    )


def _plain(value: Any) -> Any:
    """Return a cell of a data frame: an array as a list, NaN and the like as None."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if value != value else value  # noqa: PLR0124


def path_or_polars(table: Frame | Path | str) -> pl.DataFrame | Path:
    """Return the path of a file or folder, or a data frame as polars."""
    return Path(table) if isinstance(table, Path | str) else as_polars(table)


def shown_files(folder: Path | None) -> Iterator[str]:
    """Say where a result was written."""
    if folder is not None:
        yield f"written to {folder}"
