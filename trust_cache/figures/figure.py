"""A figure: its panels for the page, its drawing for a paper, its caption and its data."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from trust_cache.base.files import write_file
from trust_cache.figures.chart_style import (
    colours_of,
    dashes_of,
    finish,
    inline,
    render_spec,
    require_chart_name,
    scale_of,
    spec_of,
    with_rows,
)

WIDE, NARROW = 640, 300  # points; on the page a panel takes the available width
_LONGEST_LABEL = 170  # points of a name on an axis; the full name is in the table and the data
_COLUMNS_ON_PAPER = 2
_LEGEND_ENTRY = 130  # points of width
_NOTE_WIDTH = 110  # characters

View = alt.Chart | alt.LayerChart | alt.FacetChart


@dataclass(frozen=True)
class LegendEntry:
    """A name with its line or patch in the legend."""

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

    key: str  # its anchor on the page and its file name
    title: str
    reading: str  # how to read it
    alternative: str  # a text for readers who cannot see it
    panels: tuple[Panel, ...]
    data: pl.DataFrame
    legend: tuple[LegendEntry, ...] = ()
    notes: str = ""  # printed above the panels on paper, with the title
    paper: Callable[[], alt.TopLevelMixin] | None = None  # draws it on paper; None: panels side by side


def configuration_styles(names: Sequence[str], *, legend: bool) -> dict[str, Any]:
    """Return the encodings that tell configurations apart by colour and dash."""
    shown = alt.Legend(orient="bottom", columns=3, title=None, symbolType="stroke") if legend else None
    return {
        "color": alt.Color("configuration:N", scale=scale_of(colours_of(names)), legend=shown),
        "strokeDash": alt.StrokeDash("configuration:N", scale=scale_of(dashes_of(names)), legend=shown),
    }


def configuration_legend(names: Sequence[str]) -> tuple[LegendEntry, ...]:
    """Return the page's legend of the configurations; a single one needs none."""
    if len(names) == 1:
        return ()
    colours, dashes = colours_of(names), dashes_of(names)
    return tuple(LegendEntry(name, colours[name], tuple(dashes[name])) for name in names)


def percent_axis(**settings: Any) -> alt.Axis:
    """Return an axis of shares in percent."""
    return alt.Axis(format="~%", **settings)


def name_axis(**settings: Any) -> alt.Axis:
    """Return an axis of names that users chose; long ones are cut."""
    return alt.Axis(labelLimit=_LONGEST_LABEL, **settings)


def styled_spec(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Return a chart's specification in the common style.

    Single marks have no text for screen readers: the figure has one as a whole.
    """
    spec = spec_of(finish(chart))
    spec["config"] = spec["config"] | {"aria": False}
    return spec


def draw(figure: Figure) -> alt.TopLevelMixin:
    """Return a figure as one chart in the common style, as on paper."""
    return with_rows(finish(_side_by_side(figure) if figure.paper is None else figure.paper()))


def figure_files(figure: Figure, stem: str) -> dict[str, bytes]:
    """Return a figure as SVG and PNG by file name."""
    spec = _on_paper(figure)
    return {f"{stem}{suffix}": render_spec(spec, suffix) for suffix in (".svg", ".png")}


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure atomically in the format of the file's suffix."""
    require_chart_name(path)
    write_file(path, render_spec(_on_paper(figure), path.suffix))


def _on_paper(figure: Figure) -> dict[str, Any]:
    return styled_spec(_side_by_side(figure) if figure.paper is None else figure.paper())


def _side_by_side(figure: Figure) -> alt.TopLevelMixin:
    titled = [
        panel.chart.properties(title=alt.TitleParams(panel.title, limit=NARROW)) for panel in figure.panels
    ]
    chart: alt.ConcatChart | alt.VConcatChart = alt.concat(*titled, columns=_COLUMNS_ON_PAPER).resolve_scale(
        color="independent"
    )
    if figure.legend:
        chart = alt.vconcat(_legend_strip(figure.legend), chart)
    if not figure.notes:
        return chart
    notes = textwrap.wrap(figure.notes, _NOTE_WIDTH)
    return chart.properties(title=alt.TitleParams(figure.title, subtitle=notes, offset=14))


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


def legend_of(styles: Mapping[str, str]) -> tuple[LegendEntry, ...]:
    """Return a legend of patches by colour."""
    return tuple(LegendEntry(name, colour, line=False) for name, colour in styles.items())
