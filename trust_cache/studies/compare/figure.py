"""The figure of a comparison: each difference with its interval, and the trainings' own beside it."""

import altair as alt
import polars as pl

from trust_cache.base.text_tables import whole_percent
from trust_cache.studies.charts import BLACK, BLUE, GREY, VERMILLION, finish, inline
from trust_cache.studies.compare.results import Comparison, Contrast

_SHOWN = {"different": BLUE, "cannot tell": BLACK, "not resolvable": VERMILLION}
_SHAPES = {"different": "square", "cannot tell": "circle", "not resolvable": "cross"}


def draw(comparison: Comparison) -> alt.HConcatChart:
    """Return a panel a target, a line a configuration: points of dismissal, reference minus other."""
    panels = [
        _panel(comparison, target, first=place == 0)
        for place, target in enumerate(comparison.settings.targets)
    ]
    subtitle = "points: all cases; lines: 95 % intervals"
    if comparison.repeats > 1:
        subtitle += f"; ticks: {comparison.repeats} trainings (noise that is not in the interval)"
    title = alt.Title(
        f"Dismissal of {comparison.reference} minus that of each other configuration", subtitle=subtitle
    )
    chart: alt.HConcatChart = alt.hconcat(*panels, title=title).resolve_scale(x="shared")
    return finish(chart)


def _panel(comparison: Comparison, target: float, *, first: bool) -> alt.LayerChart:
    contrasts = [item for item in comparison.contrasts if item.target == target]
    names = [item.other for item in contrasts]
    data = inline(pl.DataFrame([_row(item) for item in contrasts], infer_schema_length=None))
    y = alt.Y("other:N", title=None, sort=names, axis=alt.Axis(labels=first, ticks=first, labelLimit=240))
    x = alt.X("difference:Q", title="difference in dismissal, percentage points")
    color = alt.Color(
        "verdict:N",
        title=None,
        scale=alt.Scale(domain=list(_SHOWN), range=list(_SHOWN.values())),
        legend=alt.Legend(orient="bottom"),
    )
    shape = alt.Shape(
        "verdict:N", title=None, scale=alt.Scale(domain=list(_SHAPES), range=list(_SHAPES.values()))
    )
    base = alt.Chart(data)
    zero = alt.Chart(inline(pl.DataFrame({"zero": [0.0]}))).mark_rule(strokeDash=[5, 4], color=GREY)
    lines = base.transform_filter("datum.low != null").mark_rule(strokeWidth=2)
    dots = base.mark_point(filled=True, size=80, opacity=1)
    layers: list[alt.Chart] = [
        zero.encode(x=alt.X("zero:Q")),
        lines.encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=color),
        dots.encode(x=x, y=y, color=color, shape=shape),
    ]
    trainings = [
        {"other": item.other, "difference": 100 * value}
        for item in contrasts
        if item.training_noise is not None
        for value in item.training_noise.differences
    ]
    if trainings:
        ticks = alt.Chart(inline(pl.DataFrame(trainings))).mark_tick(color=GREY, thickness=1.5, size=14)
        layers.insert(1, ticks.encode(x=x, y=y))
    return alt.LayerChart(
        layer=layers,
        width=320,
        height=max(60, 34 * len(names)),
        title=f"at {whole_percent(target)} recall",
    )


def _row(item: Contrast) -> dict[str, object]:
    return {
        "other": item.other,
        "verdict": item.verdict,
        "difference": 100 * item.difference,
        "low": None if item.low is None else 100 * item.low,
        "high": None if item.high is None else 100 * item.high,
    }
