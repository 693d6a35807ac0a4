"""Figures of a sweep: search dismissal over the axes, as a line, a heat map or parallel coordinates."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from trust_cache.base.text_tables import whole_percent
from trust_cache.studies.charts import BLUE, VERMILLION, finish, inline, render_chart
from trust_cache.studies.sweep.axes import Value

Axes = Mapping[str, Sequence[Value | None]]

_WIDTH, _HEIGHT = 420, 260
_WIDE = 110  # between two of the parallel axes
_DECADES = 20  # a range of values wider than this is drawn on a logarithmic scale
_FEW_CELLS = 60  # whose figures can be read in their cells
_FEW_TICKS = 8  # values that can be read along one of the parallel axes
_SHARE = alt.Axis(format=".0%")
_MEAN = "Mean over repeats; the winner in orange. Nothing of the evaluation subset is shown."
_SUBTITLES = {
    1: [_MEAN, "Bars: from the lowest to the highest of all folds and repeats, not a confidence interval."],
    2: [_MEAN],
    3: [_MEAN, "A line is a setting; values stand at their rank on each axis."],
}


def draw_figures(axes: Axes, results: pl.DataFrame, folds: pl.DataFrame) -> dict[str, bytes]:
    """Return the figures by file name: one chart with a panel for each target; none where nothing varies."""
    if not axes or results["search_dismissal"].null_count() == results.height:
        return {}
    chart = finish(draw_chart(axes, results, folds))
    return {f"figures/dismissal{suffix}": render_chart(chart, suffix) for suffix in (".svg", ".png")}


def draw_chart(axes: Axes, results: pl.DataFrame, folds: pl.DataFrame) -> alt.VConcatChart:
    """Return the chart that the number of axes calls for; all of it is search dismissal, none evaluation."""
    means = _means(results, axes)
    panels = []
    for target in means["target"].unique().sort(descending=True):
        part = means.filter(pl.col("target") == target)
        if len(axes) == 1:
            panel = _line(next(iter(axes)), axes, part, folds.filter(pl.col("target") == target))
        elif len(axes) == 2:  # noqa: PLR2004
            panel = _heat_map(axes, part)
        else:
            panel = _parallel(axes, part)
        title = f"Dismissed search cases at a search recall of {whole_percent(target)}"
        panels.append(panel.properties(title=alt.Title(title, subtitle=_SUBTITLES[min(len(axes), 3)])))
    stacked: alt.VConcatChart = alt.vconcat(*panels).resolve_scale(color="independent")
    return stacked


def _means(results: pl.DataFrame, axes: Axes) -> pl.DataFrame:
    """Return the mean over repeats for each setting and target, without settings that diverged."""
    whole = results.filter(pl.col("search_dismissal").is_not_null().all().over("setting", "target"))
    return (
        whole.group_by("setting", "target", *axes, maintain_order=True)
        .agg(dismissal=pl.col("search_dismissal").mean(), winner=pl.col("winner").any())
        .with_columns(pl.col(name).alias(f"{name}_value") for name in axes)
        .with_columns(pl.col(name).map_elements(show_value, return_dtype=pl.String) for name in axes)
    )


def show_value(value: Value | None) -> str:
    """Write a value as a tick: few digits, and a word where there is none."""
    try:
        return f"{float(value):.4g}" if value is not None else "none"
    except ValueError:
        return str(value)


def _ticks(values: Sequence[Value | None]) -> list[str]:
    return [show_value(value) for value in values]


def _line(name: str, axes: Axes, means: pl.DataFrame, folds: pl.DataFrame) -> alt.LayerChart:
    """One axis: the mean over repeats, and from the lowest to the highest of all folds and repeats."""
    share = (pl.col("search_dismissed") / pl.col("search_cases")).fill_nan(None)
    spread = folds.group_by("setting").agg(low=share.min(), high=share.max())
    data = inline(means.join(spread, on="setting", how="left", maintain_order="left"))
    x = alt.X(**_channel(name, axes), axis=alt.Axis(labelAngle=0))
    y = alt.Y("dismissal:Q", title="dismissed search cases", axis=_SHARE)
    base = alt.Chart(data, width=_WIDTH, height=_HEIGHT)
    return _layered(
        base.mark_errorbar(color=BLUE, opacity=0.6, ticks=True).encode(
            x=x, y=alt.Y("low:Q", title="dismissed search cases", axis=_SHARE), y2="high:Q"
        ),
        base.mark_line(color=BLUE).encode(x=x, y=y),
        base.mark_point(filled=True, opacity=1, size=60).encode(x=x, y=y, color=_winner_colour()),
    )


def _channel(name: str, axes: Axes) -> dict[str, Any]:
    """Return a scale for numbers, logarithmic where they span decades, or else a tick for each value."""
    values = axes[name]
    numbers = [value for value in values if isinstance(value, float)]
    if len(numbers) < len(values):
        return {"shorthand": f"{name}:O", "title": name, "sort": _ticks(values)}
    wide = numbers[0] > 0 and numbers[-1] / numbers[0] >= _DECADES
    scale = alt.Scale(nice=False, padding=12, **({"type": "log"} if wide else {"zero": False}))
    return {"shorthand": f"{name}_value:Q", "title": name, "scale": scale}


def _heat_map(axes: Axes, means: pl.DataFrame) -> alt.LayerChart:
    """Two axes: a cell for each pair of a whole grid, a point for each draw."""
    first, second = axes
    whole = means.height == len(axes[first]) * len(axes[second])
    data = inline(means)
    base = alt.Chart(data, width=_WIDTH, height=_HEIGHT)
    colour = _dismissal_colour()
    if not whole:
        x, y = alt.X(**_channel(first, axes)), alt.Y(**_channel(second, axes))
        points = base.mark_point(filled=True, size=110, opacity=1).encode(x=x, y=y, color=colour)
        ring = base.transform_filter("datum.winner").mark_point(size=240, color=VERMILLION, strokeWidth=2)
        return _layered(points, ring.encode(x=x, y=y))
    grid = {
        "x": alt.X(f"{first}:O", sort=_ticks(axes[first]), title=first, axis=alt.Axis(labelAngle=0)),
        "y": alt.Y(f"{second}:O", sort=_ticks(axes[second])[::-1], title=second),
    }
    cells = base.mark_rect().encode(**grid, color=colour)
    frame = base.transform_filter("datum.winner").mark_rect(
        filled=False, stroke=VERMILLION, strokeWidth=3, color=VERMILLION
    )
    layers: list[alt.Chart] = [cells, frame.encode(**grid)]
    if len(axes[first]) * len(axes[second]) <= _FEW_CELLS:
        middle = (means["dismissal"].min() + means["dismissal"].max()) / 2  # type: ignore[operator]
        words = base.mark_text(fontSize=11).encode(
            **grid,
            text=alt.Text("dismissal:Q", format=".1%"),
            color=alt.condition(f"datum.dismissal > {middle}", alt.value("white"), alt.value("#222222")),
        )
        layers.append(words)
    return _layered(*layers)


def _parallel(axes: Axes, means: pl.DataFrame) -> alt.LayerChart:
    """More axes: a line for each setting through the places of its values, the winner's on top."""
    names = list(axes)
    ticks = {name: _ticks(values) for name, values in axes.items()}
    rows: list[dict[str, Any]] = [
        {
            "setting": setting["setting"],
            "axis": name,
            "place": _place(ticks[name], setting[name]),
            "dismissal": setting["dismissal"],
            "winner": setting["winner"],
        }
        for setting in means.iter_rows(named=True)
        for name in names
    ]
    base = alt.Chart(inline(pl.DataFrame(rows)), width=_WIDE * len(names), height=_HEIGHT)
    x = alt.X("axis:N", sort=names, title=None, axis=alt.Axis(labelAngle=0, domain=False, grid=True))
    y = alt.Y("place:Q", axis=None, scale=alt.Scale(domain=[-0.06, 1.06]))
    lines = base.mark_line(opacity=0.75).encode(
        x=x, y=y, detail="setting:N", color=_dismissal_colour(), order=alt.Order("dismissal:Q")
    )
    winner = base.transform_filter("datum.winner").mark_line(
        color=VERMILLION, strokeWidth=3, strokeDash=[6, 3]
    )
    labels = [
        {"axis": name, "value": value, "place": _place(ticks[name], value)}
        for name in names
        for value in _readable(ticks[name])
    ]
    words = alt.Chart(inline(pl.DataFrame(labels))).encode(x=x, y=y, text="value:N")
    halo = words.mark_text(align="left", dx=6, stroke="white", strokeWidth=4)
    return _layered(
        lines, winner.encode(x=x, y=y, detail="setting:N"), halo, words.mark_text(align="left", dx=6)
    )


def _place(ticks: Sequence[str], value: str) -> float:
    """Return where a value stands on its axis: the lowest at 0, the highest at 1."""
    return ticks.index(value) / (len(ticks) - 1)


def _readable(ticks: Sequence[str]) -> list[str]:
    """Return as many values as can be read along an axis, the first and the last among them."""
    shown = min(len(ticks), _FEW_TICKS)
    return [ticks[round(i * (len(ticks) - 1) / (shown - 1))] for i in range(shown)]


def _layered(*layers: alt.Chart) -> alt.LayerChart:
    return alt.LayerChart(layer=list(layers))


def _dismissal_colour() -> alt.Color:
    return alt.Color(
        "dismissal:Q", scale=alt.Scale(scheme="blues"), legend=alt.Legend(title="dismissed", format=".1%")
    )


def _winner_colour() -> alt.Color:
    scale = alt.Scale(domain=[True, False], range=[VERMILLION, BLUE])
    return alt.Color("winner:N", scale=scale, legend=None)
