"""Colours, styles and saving that all charts share.

Colour-blind readers can distinguish the colours. Saving needs no network.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import altair as alt
import polars as pl
import vl_convert

from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file

# Okabe and Ito's colours without yellow, which is too light for lines on white.
BLACK, BLUE, VERMILLION, GREEN = "#333333", "#0072B2", "#D55E00", "#009E73"
SKY, PURPLE, ORANGE = "#56B4E9", "#CC79A7", "#E69F00"
GREY = "#8c8c8c"  # for the background: reference lines, single folds

NEGATIVE, POSITIVE = BLUE, VERMILLION  # the two classes in every figure

# A preset has the same colour in every figure.
PRESET_COLOURS: Mapping[str, str] = MappingProxyType(
    {"ce": BLACK, "ce-brier": SKY, "ce-focal": GREEN, "fixed-tau": VERMILLION, "closed-loop": BLUE}
)
_OTHERS = (PURPLE, ORANGE, SKY, GREEN, VERMILLION, BLUE, BLACK)
# Dashes and shapes repeat the distinction, for print without colour and where colours are used twice.
_PRESET_DASHES = dict(zip(PRESET_COLOURS, ([1, 0], [8, 3], [2, 2], [6, 2, 2, 2], [1, 0]), strict=True))
_PRESET_SHAPES = dict(
    zip(PRESET_COLOURS, ("circle", "square", "diamond", "triangle-up", "triangle-down"), strict=True)
)
_OTHER_DASHES = ([5, 3], [1, 0], [2, 3], [9, 2])
_OTHER_SHAPES = ("cross", "triangle-right", "triangle-left", "stroke")

ChartType = TypeVar("ChartType", bound=alt.TopLevelMixin)
_Style = TypeVar("_Style")

PNG_SCALE = 2.0  # pixels per point: sharp on any screen
_ROWS = "\0rows:"  # marks rows that are still text


def colours_of(configurations: Sequence[str]) -> dict[str, str]:
    """Return a colour for each configuration; presets have fixed ones, others get colours still free."""
    taken = {PRESET_COLOURS[name] for name in configurations if name in PRESET_COLOURS}
    others = [colour for colour in _OTHERS if colour not in taken] or list(_OTHERS)
    return _assign(configurations, PRESET_COLOURS, others)


def dashes_of(configurations: Sequence[str]) -> dict[str, list[int]]:
    """Return a dash pattern for each configuration."""
    return _assign(configurations, _PRESET_DASHES, _OTHER_DASHES)


def shapes_of(configurations: Sequence[str]) -> dict[str, str]:
    """Return the shape of a point for each configuration."""
    return _assign(configurations, _PRESET_SHAPES, _OTHER_SHAPES)


def scale_of(styles: Mapping[str, Any]) -> alt.Scale:
    """Return the scale that gives each name its colour, dash or shape."""
    return alt.Scale(domain=list(styles), range=list(styles.values()))


def inline(data: pl.DataFrame) -> alt.InlineData:
    """Put the rows into the chart itself, as text until it is drawn.

    Altair copies and checks rows at every step of building a chart, which took longer than all the rest.
    """
    return alt.InlineData(values=_ROWS + json.dumps(data.to_dicts(), ensure_ascii=False, allow_nan=False))


def spec_of(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Return a chart's Vega-Lite specification with its rows."""
    spec: dict[str, Any] = _expanded(chart.to_dict(validate=False))
    return spec


def with_rows(chart: alt.TopLevelMixin) -> alt.TopLevelMixin:
    """Return a chart with its rows as Altair expects them, for people who change or show it themselves."""
    whole: alt.TopLevelMixin = type(chart).from_dict(spec_of(chart), validate=False)  # type: ignore[attr-defined]
    return whole


def finish(chart: ChartType) -> ChartType:
    """Give a chart the common style: white background, fonts that every machine has."""
    styled: ChartType = (
        chart.configure(background="white", font="sans-serif", padding=10)
        .configure_view(stroke="#bbbbbb")
        .configure_axis(gridColor="#e6e6e6", labelFontSize=11, titleFontSize=12, titleFontWeight="normal")
        .configure_title(fontSize=13, subtitleFontSize=11, anchor="start")
        .configure_header(labelFontSize=12, titleFontSize=12)
        .configure_legend(labelFontSize=12, titleFontSize=12, labelLimit=320, symbolSize=70)
    )
    return styled


def render_chart(chart: alt.TopLevelMixin, suffix: str) -> bytes:
    """Return a chart as .svg, .png, .html (one file, works offline) or .json (Vega-Lite).

    The same chart gives the same bytes, and nothing is fetched from the network.
    """
    return render_spec(spec_of(chart), suffix)


def render_spec(spec: dict[str, Any], suffix: str) -> bytes:
    """Return a chart's Vega-Lite specification in one of those formats."""
    known = ", ".join(_RENDERERS)
    if suffix.lower() not in _RENDERERS:
        raise InputError(f"a figure: expected a name that ends in {known}, found {suffix!r}")
    return _RENDERERS[suffix.lower()](spec)


def save_chart(chart: alt.TopLevelMixin, path: Path) -> None:
    """Write a chart atomically in the format of the file's suffix."""
    write_file(path, render_chart(chart, path.suffix))


def require_chart_name(path: Path) -> None:
    """Refuse a file name without a chart's suffix, before any work is done."""
    if path.suffix.lower() not in _RENDERERS:
        raise InputError(f"{path}: expected a name that ends in {', '.join(_RENDERERS)}")
    if path.is_dir():
        raise InputError(f"{path}: expected the name of a file, found a folder")


def _assign(
    names: Sequence[str], presets: Mapping[str, _Style], others: Sequence[_Style]
) -> dict[str, _Style]:
    unknown = [name for name in dict.fromkeys(names) if name not in presets]
    cycle = {name: others[number % len(others)] for number, name in enumerate(unknown)}
    return {name: presets[name] if name in presets else cycle[name] for name in dict.fromkeys(names)}


def _expanded(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _expanded(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_expanded(value) for value in part]
    return json.loads(part.removeprefix(_ROWS)) if isinstance(part, str) and part.startswith(_ROWS) else part


def _svg(spec: dict[str, Any]) -> bytes:
    drawn = vl_convert.vegalite_to_svg(spec, vl_version=_VERSION, allowed_base_urls=[])
    # Vega numbers clip paths and gradients over the life of a process. Numbered by their order in this chart
    # and named after its digest, they are the same every time, and several charts can share a page.
    names = list(dict.fromkeys(_COUNTED.findall(drawn)))
    digest = hashlib.sha256(_json(spec)).hexdigest()[:8]
    numbers = {name: f"c{digest}-{number}" for number, name in enumerate(names)}
    return _COUNTED.sub(lambda found: numbers[found[0]], drawn).encode()


def _png(spec: dict[str, Any]) -> bytes:
    return vl_convert.vegalite_to_png(spec, vl_version=_VERSION, scale=PNG_SCALE, allowed_base_urls=[])


def _html(spec: dict[str, Any]) -> bytes:
    return vl_convert.vegalite_to_html(spec, vl_version=_VERSION, bundle=True).encode()


def _json(spec: dict[str, Any]) -> bytes:
    return f"{json.dumps(spec, indent=1, ensure_ascii=False)}\n".encode()


_COUNTED = re.compile(r'(?<=id=")(?:clip|gradient_)\d+(?=")|(?<=url\(#)(?:clip|gradient_)\d+(?=\))')
_VERSION = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])  # the one that altair writes
_RENDERERS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    ".svg": _svg, ".png": _png, ".html": _html, ".json": _json,
}  # fmt: skip
