"""The figure of a sweep: search dismissal over the axes, as a line, a map or dots."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from trust_cache.base.text_tables import percent, whole_percent
from trust_cache.figures.chart_style import BLUE, VERMILLION, inline
from trust_cache.figures.figure import NARROW, Figure, Panel, View, name_axis, percent_axis

Axes = Mapping[str, Sequence[float | str | None]]

_HEIGHT = 170  # points
_CELL, _LOWEST = 30, 60  # points of height
_MOST_CELLS = 15  # values of an axis that a map can name
_WIDE_RANGE = 20  # highest over lowest value: from here on a logarithmic scale
_SEARCH = "Search cases only, mean over repeats: nothing of the evaluation subset is shown."
_READINGS = {
    1: "Each dot is a setting, higher where its threshold dismisses more; the orange dot is the winner. Bars"
    " run from the lowest to the highest of all folds and repeats: they are not confidence intervals.",
    2: "Each cell is a setting, darker where its threshold dismisses more; the winner has an orange frame.",
    3: "Each dot is a setting, higher where its threshold dismisses more; the orange dot is the winner.",
}


def sweep_figure(axes: Axes, results: pl.DataFrame, folds: pl.DataFrame) -> Figure | None:
    """Return one panel per target, or per target and axis; None where nothing varies or all diverged.

    `results` has one row per setting, repeat and target (setting, the axes, target, search_dismissal,
    winner), `folds` one row per fold as well (setting, target, search_cases, search_dismissed).
    """
    means = _means(axes, results)
    if not axes or means.is_empty():
        return None
    as_map = len(axes) == 2 and all(len(values) <= _MOST_CELLS for values in axes.values())  # noqa: PLR2004
    panels = []
    for (target,), rows in means.group_by("target", maintain_order=True):
        name = f"target {whole_percent(target)}"
        if len(axes) == 1:
            panels.append(Panel(name, _line(axes, rows, folds.filter(target=target))))
        elif as_map:
            panels.append(Panel(name, _map(axes, rows)))
        else:
            dots = {axis: alt.layer(*_settings(*_base(axes, axis, rows))) for axis in axes}
            panels += [
                Panel(f"{name}: {axis}", chart.properties(width=NARROW, height=_HEIGHT))
                for axis, chart in dots.items()
            ]
    best = means.group_by("target", maintain_order=True).agg(pl.all().top_k_by("search_dismissal", 1).first())
    reading = _READINGS[1 if len(axes) == 1 else 2 if as_map else 3]
    return Figure(
        key="sweep-dismissal",
        title="Search dismissal over the axes of the sweep",
        reading=f"{reading} {_SEARCH} The winner was chosen by these numbers, so its own number is too good;"
        " its certificate gives the result on the evaluation subset.",
        alternative=f"Search dismissal of {means['setting'].n_unique()} settings over {', '.join(axes)}: "
        + "; ".join(
            f"best at {whole_percent(row['target'])}: {row['setting']}, {percent(row['search_dismissal'])}"
            for row in best.iter_rows(named=True)
        )
        + ".",
        panels=tuple(panels),
        data=means.select("setting", *axes, "target", "search_dismissal"),
        notes=f"{reading} {_SEARCH}",
    )


def _means(axes: Axes, results: pl.DataFrame) -> pl.DataFrame:
    """Return the mean over repeats for each setting and target, without settings that diverged."""
    finite = results.filter(pl.col("search_dismissal").is_not_null().all().over("setting", "target"))
    return finite.group_by("setting", *axes, "target", maintain_order=True).agg(
        pl.col("search_dismissal").mean(), winner=pl.col("winner").any()
    )


def show_value(value: float | str | None) -> str:
    """Write a value of an axis with few digits; an absent one is "none"."""
    try:
        return f"{float(value):.4g}" if value is not None else "none"
    except ValueError:
        return str(value)


def _line(axes: Axes, rows: pl.DataFrame, folds: pl.DataFrame) -> View:
    (axis,) = axes
    share = (pl.col("search_dismissed") / pl.col("search_cases")).fill_nan(None)
    spread = folds.group_by("setting").agg(low=share.min(), high=share.max())
    base, x = _base(axes, axis, rows.join(spread, on="setting", how="left", maintain_order="left"))
    return alt.layer(
        base.mark_rule(color=BLUE, opacity=0.6).encode(x=x, y=_share("low"), y2="high:Q"),
        base.mark_line(color=BLUE).encode(x=x, y=_share("search_dismissal")),
        *_settings(base, x),
    ).properties(width=NARROW, height=_HEIGHT)


def _settings(base: alt.Chart, x: alt.X) -> list[alt.Chart]:
    dots = base.mark_point(filled=True, size=40, opacity=0.6, color=BLUE)
    winner = base.transform_filter("datum.winner").mark_point(
        filled=True, size=90, opacity=1, color=VERMILLION
    )
    return [mark.encode(x=x, y=_share("search_dismissal")) for mark in (dots, winner)]


def _share(column: str) -> alt.Y:
    return alt.Y(f"{column}:Q", title="search dismissal", scale=alt.Scale(zero=False), axis=percent_axis())


def _base(axes: Axes, axis: str, rows: pl.DataFrame) -> tuple[alt.Chart, alt.X]:
    """Return a chart of the settings and a horizontal axis: a scale for numbers, else one tick per value."""
    values = axes[axis]
    numbers = [value for value in values if isinstance(value, float)]
    shown = _named(axes, rows).with_columns(rows[axis].cast(pl.Float64, strict=False).alias("x"))
    base = alt.Chart(inline(shown)).encode(tooltip=_tooltip(axes))
    if len(numbers) < len(values):
        return base, _value_axis(axis, values)
    wide = numbers[0] > 0 and numbers[-1] / numbers[0] >= _WIDE_RANGE
    scale: dict[str, Any] = {"type": "log"} if wide else {"zero": False}
    ticks = {"values": numbers} if len(numbers) <= _MOST_CELLS else {"tickCount": 4}
    return base, alt.X(
        "x:Q",
        title=axis,
        scale=alt.Scale(nice=False, padding=12, **scale),
        axis=alt.Axis(format="~g", labelOverlap=True, **ticks),
    )


def _value_axis(axis: str, values: Sequence[float | str | None]) -> alt.X:
    ticks = [show_value(value) for value in values]
    return alt.X(f"{axis}:O", title=axis, sort=ticks, axis=alt.Axis(labelAngle=0, labelLimit=80))


def _map(axes: Axes, rows: pl.DataFrame) -> View:
    (across, columns), (down, lines) = axes.items()
    middle = (rows["search_dismissal"].min() + rows["search_dismissal"].max()) / 2  # type: ignore[operator]
    y = alt.Y(f"{down}:O", title=down, sort=[show_value(value) for value in lines][::-1], axis=name_axis())
    base = alt.Chart(inline(_named(axes, rows))).encode(
        x=_value_axis(across, columns), y=y, tooltip=_tooltip(axes)
    )
    shade = alt.Color("search_dismissal:Q", scale=alt.Scale(scheme="blues"), legend=None)
    ink = alt.condition(f"datum.search_dismissal >= {middle}", alt.value("#fefefe"), alt.value("#1a1a1a"))
    frame = base.transform_filter("datum.winner").mark_rect(filled=False, stroke=VERMILLION, strokeWidth=3)
    numbers = base.mark_text(fontSize=11).encode(text=alt.Text("search_dismissal:Q", format=".1%"), color=ink)
    return alt.layer(base.mark_rect().encode(color=shade), frame, numbers).properties(
        width=NARROW, height=max(_CELL * len(lines), _LOWEST)
    )


def _named(axes: Axes, rows: pl.DataFrame) -> pl.DataFrame:
    """Write the values of the axes as text."""
    return rows.with_columns(
        pl.col(axis).map_elements(show_value, return_dtype=pl.String, skip_nulls=False) for axis in axes
    )


def _tooltip(axes: Axes) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("setting:N", title="setting"),
        *(alt.Tooltip(f"{axis}:N", title=axis) for axis in axes),
        alt.Tooltip("search_dismissal:Q", format=".2%", title="search dismissal"),
    ]
