"""What all charts share: colours that colour-blind readers can tell apart, a plain dress, saving offline."""

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
GREY = "#8c8c8c"  # of what stands back: reference lines, single folds

NEGATIVE, POSITIVE = BLUE, VERMILLION  # the classes, wherever they stand side by side

# A preset has the same colour in every figure.
PRESET_COLOURS: Mapping[str, str] = MappingProxyType(
    {"ce": BLACK, "ce-brier": SKY, "ce-focal": GREEN, "fixed-tau": VERMILLION, "closed-loop": BLUE}
)
_OTHERS = (PURPLE, ORANGE, SKY, GREEN, VERMILLION, BLUE, BLACK)
# Dashes and shapes say it again, for print without colour and where colours come round a second time.
_PRESET_STYLES = {
    "ce": ([1, 0], "circle"),
    "ce-brier": ([8, 3], "square"),
    "ce-focal": ([2, 2], "diamond"),
    "fixed-tau": ([6, 2, 2, 2], "triangle-up"),
    "closed-loop": ([1, 0], "triangle-down"),
}
_OTHER_STYLES = (([5, 3], "cross"), ([1, 0], "triangle-right"), ([2, 3], "triangle-left"), ([9, 2], "stroke"))

ChartType = TypeVar("ChartType", bound=alt.TopLevelMixin)
_Style = TypeVar("_Style")

PNG_SCALE = 2.0  # pixels to a point: sharp on any screen


def colours_of(configurations: Sequence[str]) -> dict[str, str]:
    """Return a colour for each configuration: the presets' own, and for others ones not yet taken."""
    taken = {PRESET_COLOURS[name] for name in configurations if name in PRESET_COLOURS}
    others = [colour for colour in _OTHERS if colour not in taken] or list(_OTHERS)
    return _assign(configurations, PRESET_COLOURS, others)


def dashes_of(configurations: Sequence[str]) -> dict[str, list[int]]:
    """Return a dash pattern for each configuration."""
    presets = {name: dash for name, (dash, _) in _PRESET_STYLES.items()}
    return _assign(configurations, presets, [dash for dash, _ in _OTHER_STYLES])


def shapes_of(configurations: Sequence[str]) -> dict[str, str]:
    """Return the shape of a point for each configuration."""
    presets = {name: shape for name, (_, shape) in _PRESET_STYLES.items()}
    return _assign(configurations, presets, [shape for _, shape in _OTHER_STYLES])


def scale_of(styles: Mapping[str, Any]) -> alt.Scale:
    """Return the scale that gives each name its colour, dash or shape."""
    return alt.Scale(domain=list(styles), range=list(styles.values()))


def inline(data: pl.DataFrame) -> alt.Data:
    """Put the rows into the chart itself: no row limit, nothing to fetch, no name made from a digest."""
    return alt.Data(values=data.to_dicts())  # type: ignore[no-untyped-call]


def finish(chart: ChartType) -> ChartType:
    """Give a chart the plain dress of all: white ground, fonts that each machine has."""
    dressed: ChartType = (
        chart.configure(background="white", font="sans-serif", padding=10)
        .configure_view(stroke="#bbbbbb")
        .configure_axis(gridColor="#e6e6e6", labelFontSize=11, titleFontSize=12, titleFontWeight="normal")
        .configure_title(fontSize=13, subtitleFontSize=11, anchor="start")
        .configure_header(labelFontSize=12, titleFontSize=12)
        .configure_legend(labelFontSize=12, titleFontSize=12, labelLimit=320, symbolSize=70)
    )
    return dressed


def render_chart(chart: alt.TopLevelMixin, suffix: str) -> bytes:
    """Return a chart as .svg, .png, .html (one file, works offline) or .json (Vega-Lite).

    The same chart gives the same bytes, and nothing is fetched from anywhere.
    """
    return render_spec(chart.to_dict(), suffix)


def render_spec(spec: dict[str, Any], suffix: str) -> bytes:
    """Return a chart's Vega-Lite specification in one of those forms."""
    known = ", ".join(_RENDERERS)
    if suffix.lower() not in _RENDERERS:
        raise InputError(f"a figure: expected a name that ends in {known}, found {suffix!r}")
    return _RENDERERS[suffix.lower()](spec)


def save_chart(chart: alt.TopLevelMixin, path: Path) -> None:
    """Write a chart in the form that the file's name ends in: whole, or not at all."""
    write_file(path, render_chart(chart, path.suffix))


def require_chart_name(path: Path) -> None:
    """Refuse a file whose name ends in no form of a chart, before any work is done for it."""
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


def _svg(spec: dict[str, Any]) -> bytes:
    drawn = vl_convert.vegalite_to_svg(spec, vl_version=_VERSION, allowed_base_urls=[])
    # Vega counts its clip paths and gradients through the life of a process. Numbered by their order here and
    # named after the chart, they are the same every time, and several charts can share a page.
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
