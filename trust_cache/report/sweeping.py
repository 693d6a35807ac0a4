"""A sweep/ folder on the page: its winners, and search dismissal over the axes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from trust_cache.base.documents import parse_json
from trust_cache.base.errors import InputError
from trust_cache.base.tables import read_text_table
from trust_cache.base.text_tables import Table, percent, whole_percent
from trust_cache.certificate.points import Point
from trust_cache.certificate.tables import NOT_AVAILABLE, bound_name
from trust_cache.report.figure import NARROW, Figure, Panel, View, inline, name_axis, on_paper, percent_axis
from trust_cache.report.study import Study
from trust_cache.studies.charts import BLACK, BLUE, VERMILLION

SCHEMA = 1
_MOST_CELLS = 15  # values of an axis that a heat map can name
_CELL, _SMALLEST = 30, 60  # points of height
_MAP_AXES = 2


def read_sweep(folder: Path) -> Study:
    """Read what `sweep` found."""
    file = folder / "sweep.json"
    try:
        document = parse_json(file.read_bytes())
        if document["schema"] != SCHEMA:
            raise InputError(f"{file}: expected schema {SCHEMA}, found {document['schema']!r}; sweep again")
        if document["status"] != "finished":
            raise InputError(f"{folder}: the sweep is not finished; go on with `trust-cache sweep`")
        axes = {name: [_text(value) for value in values] for name, values in document["axes"].items()}
        results = _results(folder / "results.csv", axes)
        winners = {float(target): winner for target, winner in document["winner"].items()}
        points = {target: Point(**winner["point"]) for target, winner in winners.items()}
        return Study(
            key="sweep",
            heading="Sweep",
            sentences=tuple(_sentence(winners[target], point, axes) for target, point in points.items()),
            figures=(_figure(results, axes, winners),) if axes else (),
            tables=(_table(winners, points),) if winners else (),
            notes=tuple(document["warnings"]),
            reasons={
                (str(winners[target]["setting"]), whole_percent(target)): point.reason
                for target, point in points.items()
                if point.reason is not None
            },
        )
    except InputError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{file}: not a readable result of sweep ({error}); sweep again") from error


def _results(file: Path, axes: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Return the search dismissal of each setting and target, its mean over the repeats."""
    needed = ("setting", *axes, "target", "search_dismissal")
    table = read_text_table(file, needed).select(needed)
    numbers = table.with_columns(pl.col("target", "search_dismissal").cast(pl.Float64))
    return numbers.group_by("setting", *axes, "target", maintain_order=True).agg(
        pl.col("search_dismissal").mean()
    )


def _sentence(winner: Mapping[str, Any], point: Point, axes: Mapping[str, Sequence[str]]) -> str:
    values = ", ".join(f"{axis} {_text(winner['values'][axis])}" for axis in axes)
    result = (
        f"{percent(point.dismissal)} dismissed on evaluation, at most {percent(point.bound)} with cancer"
        f" ({percent(point.bound_corrected)} corrected for the {point.compared} points compared)"
        if point.met
        else f"{NOT_AVAILABLE}: {point.reason}"
    )
    return (
        f"At the {whole_percent(point.target)} target {winner['setting']} ({values}) dismissed most search"
        f" cases ({percent(winner['search_dismissal'])}) and was certified once: {result}."
    )


def _table(winners: Mapping[float, Mapping[str, Any]], points: Mapping[float, Point]) -> Table:
    name = bound_name(next(iter(points.values())).delta)
    header = (
        "Winner on search", "Target", "Search dismissal", "Dismissed", "Positives dismissed", "CRR", name,
        f"{name} corrected", "Verdict",
    )  # fmt: skip
    rows = tuple(
        (
            str(winners[target]["setting"]),
            whole_percent(target),
            percent(winners[target]["search_dismissal"]),
            f"{point.dismissed:,} of {point.cases:,}",
            f"{point.positives_dismissed:,} of {point.positives:,}",
            *(
                percent(value) if point.met else NOT_AVAILABLE
                for value in (point.dismissal, point.bound, point.bound_corrected)
            ),
            "met" if point.met else "not met",
        )
        for target, point in points.items()
    )
    return Table("The winners, chosen on search and certified once on evaluation", header, rows)


def _figure(
    results: pl.DataFrame, axes: Mapping[str, Sequence[str]], winners: Mapping[float, Mapping[str, Any]]
) -> Figure:
    as_map = len(axes) == _MAP_AXES and all(len(values) <= _MOST_CELLS for values in axes.values())
    panels = []
    for (target,), rows in results.group_by("target", maintain_order=True):
        of_target = f"target {whole_percent(target)}"
        marked = rows.with_columns(winner=pl.col("setting") == winners.get(target, {}).get("setting"))
        if as_map:
            panels.append(Panel(of_target, _heat_map(marked, axes)))
            continue
        panels += [Panel(f"{of_target}: {axis}", _strip(marked, axis, axes[axis])) for axis in axes]
    best = results.group_by("target", maintain_order=True).agg(
        pl.all().top_k_by("search_dismissal", 1).first()
    )
    what = (
        "Each cell is a setting, darker where its threshold dismisses more; the framed cell"
        if as_map
        else "Each dot is a setting, higher where its threshold dismisses more; the black dot"
    )
    return Figure(
        key="sweep-dismissal",
        title="Search dismissal over the axes of the sweep",
        reading=f"{what} is the winner. On the search subset alone, the mean over repeats: the winner was"
        " chosen here, so its value here flatters it; what it is worth, its certificate says.",
        alternative=f"Search dismissal of {results['setting'].n_unique()} settings over {', '.join(axes)}: "
        + "; ".join(
            f"best at {whole_percent(row['target'])}: {row['setting']}, {percent(row['search_dismissal'])}"
            for row in best.iter_rows(named=True)
        )
        + ".",
        panels=tuple(panels),
        paper=on_paper(panels),
        data=results,
    )


def _heat_map(rows: pl.DataFrame, axes: Mapping[str, Sequence[str]]) -> View:
    (across, columns), (down, lines) = axes.items()
    dark = float(rows["search_dismissal"].min() + rows["search_dismissal"].max()) / 2  # type: ignore[operator, arg-type]

    def cells(chosen: pl.DataFrame) -> alt.Chart:
        return alt.Chart(inline(chosen)).encode(
            x=alt.X(
                f"{across}:N", title=across, sort=list(columns), axis=alt.Axis(labelAngle=0, labelLimit=80)
            ),
            y=alt.Y(f"{down}:N", title=down, sort=list(lines), axis=name_axis()),
            tooltip=_tooltip(axes),
        )

    shade = alt.Color("search_dismissal:Q", scale=alt.Scale(scheme="blues"), legend=None)
    value = alt.Text("search_dismissal:Q", format=".1%")
    on_dark = pl.col("search_dismissal") >= dark
    return alt.layer(
        cells(rows).mark_rect().encode(color=shade),
        cells(rows.filter("winner")).mark_rect(filled=False, stroke=VERMILLION, strokeWidth=3),
        cells(rows.filter(on_dark)).mark_text(fontSize=11, color="#fefefe").encode(text=value),
        cells(rows.filter(~on_dark)).mark_text(fontSize=11, color="#1a1a1a").encode(text=value),
    ).properties(width=NARROW, height=max(_CELL * len(lines), _SMALLEST))


def _strip(rows: pl.DataFrame, axis: str, values: Sequence[str]) -> View:
    """Draw every setting over one axis: in the order of its values, or as numbers where they are many."""
    many = len(values) > _MOST_CELLS and rows[axis].cast(pl.Float64, strict=False).null_count() == 0
    shown = rows.with_columns(pl.col(axis).cast(pl.Float64)) if many else rows
    x = (
        alt.X(f"{axis}:Q", title=axis, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4, format="~g"))
        if many
        else alt.X(f"{axis}:N", title=axis, sort=list(values), axis=alt.Axis(labelAngle=0, labelLimit=80))
    )
    y = alt.Y(
        "search_dismissal:Q", title="search dismissal", scale=alt.Scale(zero=False), axis=percent_axis()
    )
    every, winner = (
        alt.Chart(inline(part)).encode(x=x, y=y, tooltip=_tooltip([axis]))
        for part in (shown, shown.filter("winner"))
    )
    return alt.layer(
        every.mark_point(filled=True, size=40, opacity=0.6, color=BLUE),
        winner.mark_point(filled=True, size=90, opacity=1, color=BLACK),
    ).properties(width=NARROW, height=170)


def _tooltip(axes: Mapping[str, Sequence[str]] | Sequence[str]) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("setting:N", title="setting"),
        *(alt.Tooltip(f"{axis}:N", title=axis) for axis in axes),
        alt.Tooltip("search_dismissal:Q", format=".2%", title="search dismissal"),
    ]


def _text(value: object) -> str:
    return value if isinstance(value, str) else repr(value)
