"""A figure: panels for the page, the whole for a paper, how to read it, and its data."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from trust_cache.studies.charts import colours_of, dashes_of, finish, scale_of, shapes_of

WIDE, NARROW = 640, 300  # points; on the page a panel takes the width that it gets
_LONGEST_LABEL = 170  # points of a name on an axis; the whole name is in the table and the data
_COLUMNS_ON_PAPER = 2
_LEGEND_ENTRY = 130  # points of width
_ROWS = "\0rows:"  # marks rows that are still text

View = alt.Chart | alt.LayerChart | alt.FacetChart


@dataclass(frozen=True)
class LegendEntry:
    """A name and the style that stands for it."""

    name: str
    colour: str
    dash: tuple[int, ...] = (1, 0)
    line: bool = True  # a line, or a filled patch


@dataclass(frozen=True)
class Panel:
    """One chart of a figure, without a legend."""

    title: str
    chart: View


@dataclass(frozen=True)
class Figure:
    """A figure with everything that its reader needs."""

    key: str  # its place on the page and its file name
    title: str
    reading: str  # how to read it
    alternative: str  # what it shows, for those who do not see it
    panels: tuple[Panel, ...]
    paper: Callable[[], alt.TopLevelMixin]  # the whole of it, drawn when asked for
    data: pl.DataFrame
    legend: tuple[LegendEntry, ...] = ()


def configuration_styles(names: Sequence[str], *, legend: bool) -> dict[str, Any]:
    """Return the encodings that tell configurations apart by colour, dash and shape."""
    shown = alt.Legend(orient="bottom", columns=3, title=None, symbolType="stroke") if legend else None
    return {
        "color": alt.Color("configuration:N", scale=scale_of(colours_of(names)), legend=shown),
        "strokeDash": alt.StrokeDash("configuration:N", scale=scale_of(dashes_of(names)), legend=shown),
    }


def configuration_shape(names: Sequence[str]) -> alt.Shape:
    """Return the encoding of a point's shape by configuration; the lines' legend names them."""
    return alt.Shape("configuration:N", scale=scale_of(shapes_of(names)), legend=None)


def configuration_legend(names: Sequence[str]) -> tuple[LegendEntry, ...]:
    """Return the legend of the configurations for the page; none where there is one only."""
    if len(names) == 1:
        return ()
    colours, dashes = colours_of(names), dashes_of(names)
    return tuple(LegendEntry(name, colours[name], tuple(dashes[name])) for name in names)


def percent_axis(**settings: Any) -> alt.Axis:
    """Return an axis of shares in percent."""
    return alt.Axis(format="~%", **settings)


def name_axis(**settings: Any) -> alt.Axis:
    """Return an axis of names that others chose: a long one is cut."""
    return alt.Axis(labelLimit=_LONGEST_LABEL, **settings)


def dressed(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Return a chart's specification in the common dress.

    The marks say nothing to a screen reader: the figure as a whole has its text.
    """
    spec: dict[str, Any] = _expanded(finish(chart).to_dict(validate=False))
    spec["config"] = spec["config"] | {"aria": False}
    return spec


def inline(data: pl.DataFrame) -> alt.InlineData:
    """Put the rows into the chart itself, as text until it is drawn.

    Altair copies and checks rows at every step of building a chart, which took longer than all the rest.
    """
    return alt.InlineData(values=_ROWS + json.dumps(data.to_dicts(), ensure_ascii=False, allow_nan=False))


def _expanded(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _expanded(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_expanded(value) for value in part]
    return json.loads(part.removeprefix(_ROWS)) if isinstance(part, str) and part.startswith(_ROWS) else part


def on_paper(panels: Sequence[Panel], legend: Sequence[LegendEntry] = ()) -> Callable[[], alt.TopLevelMixin]:
    """Put titled panels side by side, with a legend above where there is one."""

    def draw() -> alt.TopLevelMixin:
        titled = [
            panel.chart.properties(title=alt.TitleParams(panel.title, limit=NARROW)) for panel in panels
        ]
        whole = alt.concat(*titled, columns=_COLUMNS_ON_PAPER)
        return alt.vconcat(_legend_strip(legend), whole) if legend else whole

    return draw


def _legend_strip(legend: Sequence[LegendEntry]) -> View:
    rows = pl.DataFrame(
        [{"place": place, "name": entry.name, "colour": entry.colour} for place, entry in enumerate(legend)]
    )
    x = alt.X("place:Q", axis=None, scale=alt.Scale(domain=[0, len(legend)], nice=False))
    base = alt.Chart(inline(rows)).encode(x=x)
    return alt.layer(
        base.mark_square(size=130, opacity=0.75).encode(color=alt.Color("colour:N", scale=None)),
        base.mark_text(align="left", dx=12, fontSize=12).encode(text="name:N"),
        view=alt.ViewConfig(stroke=None),
    ).properties(width=_LEGEND_ENTRY * len(legend), height=16)


def rows_of(frame: pl.DataFrame, **named: object) -> pl.DataFrame:
    """Return a frame with constant columns in front."""
    return frame.select(*(pl.lit(value).alias(name) for name, value in named.items()), pl.all())


def legend_of(styles: Mapping[str, str], *, line: bool = False) -> tuple[LegendEntry, ...]:
    """Return a legend of names by colour."""
    return tuple(LegendEntry(name, colour, line=line) for name, colour in styles.items())
