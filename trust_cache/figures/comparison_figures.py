"""The figure of a comparison: each difference in dismissal with its interval."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import altair as alt
import polars as pl

from trust_cache.base.text_tables import whole_percent
from trust_cache.figures.chart_style import BLACK, BLUE, GREY, VERMILLION, inline, scale_of
from trust_cache.figures.figure import NARROW, Figure, Panel, View, legend_of, name_axis, percent_axis

_VERDICTS = {"different": BLUE, "cannot tell": BLACK, "not resolvable": VERMILLION}
_SHAPES = {"different": "square", "cannot tell": "circle", "not resolvable": "cross"}
_ROW, _LOWEST = 30, 60  # points of height
_TITLE = "difference in dismissal (percentage points)"


@dataclass(frozen=True)
class DrawnDifference:
    """One column minus another at a target; None where a number is not defined."""

    label: str  # of its line
    reference: str
    other: str
    target: float
    difference: float
    low: float | None
    high: float | None
    split_low: float | None
    split_high: float | None
    p_adjusted: float | None
    verdict: str
    trainings: tuple[float, ...] = ()  # the difference in each training, where there are several


def comparison_figure(differences: Sequence[DrawnDifference], what: str) -> Figure:
    """One panel per target, one line per comparison; `what` says in words what is subtracted from what."""
    data = pl.DataFrame(
        [
            {name: value for name, value in asdict(item).items() if name != "trainings"}
            for item in differences
        ],
        infer_schema_length=None,
        schema_overrides=dict.fromkeys(("low", "high", "split_low", "split_high", "p_adjusted"), pl.Float64),
    )
    trainings = pl.DataFrame(
        [(item.label, item.target, value) for item in differences for value in item.trainings],
        schema={"label": pl.String, "target": pl.Float64, "difference": pl.Float64},
        orient="row",
    )
    panels = [
        Panel(f"at {whole_percent(target)} recall", _intervals(rows, trainings.filter(target=target)))
        for (target,), rows in data.group_by("target", maintain_order=True)
    ]
    ticks = " Grey ticks: single trainings; the interval does not include their noise."
    lines = (
        "Thick lines: 95 % intervals over cases. Thin grey lines: the range over single search/evaluation"
        " splits (5 to 95 %)." + (ticks if trainings.height else "")
    )
    return Figure(
        key="comparison-intervals",
        title="Differences in dismissal, with intervals",
        reading=f"The difference in dismissal at the same recall, on all cases: {what}. Right of zero the"
        f" first dismisses more. {lines} Where an interval contains zero, the data cannot tell the two"
        " apart.",
        alternative=f"Differences in dismissal, {what}: "
        + "; ".join(
            f"{row['label']} at {whole_percent(row['target'])} {100 * row['difference']:+.2f} points,"
            f" {row['verdict']}"
            for row in data.iter_rows(named=True)
        )
        + ".",
        panels=tuple(panels),
        data=data,
        legend=legend_of(_VERDICTS),
        notes=f"Difference in dismissal on all cases: {what}. {lines}",
    )


def _intervals(rows: pl.DataFrame, trainings: pl.DataFrame) -> View:
    x = alt.X("difference:Q", title=_TITLE, axis=percent_axis(tickCount=5))
    y = alt.Y("label:N", title=None, sort=rows["label"].to_list(), axis=name_axis())
    color = alt.Color("verdict:N", scale=scale_of(_VERDICTS), legend=None)
    shape = alt.Shape("verdict:N", scale=scale_of(_SHAPES), legend=None)
    tooltip = [
        alt.Tooltip("reference:N", title="first"),
        alt.Tooltip("other:N", title="second"),
        alt.Tooltip("difference:Q", format="+.2%", title="difference"),
        alt.Tooltip("low:Q", format="+.2%", title="95 % from"),
        alt.Tooltip("high:Q", format="+.2%", title="to"),
        alt.Tooltip("p_adjusted:Q", format=".3~g", title="p, adjusted"),
        alt.Tooltip("verdict:N", title="verdict"),
    ]
    zero = alt.Chart(inline(pl.DataFrame({"zero": [0.0]}))).mark_rule(strokeDash=[4, 3], color=BLACK)
    layers: list[alt.Chart] = [zero.encode(x=alt.X("zero:Q", title=_TITLE))]
    splits, known = (rows.drop_nulls(column) for column in ("split_low", "low"))
    if splits.height:
        lines = alt.Chart(inline(splits)).mark_rule(color=GREY, strokeWidth=1)
        layers.append(lines.encode(x=alt.X("split_low:Q", title=_TITLE), x2="split_high:Q", y=y))
    if trainings.height:
        ticks = alt.Chart(inline(trainings)).mark_tick(color=GREY, thickness=1.5, size=16)
        layers.append(ticks.encode(x=x, y=y))
    if known.height:
        lines = alt.Chart(inline(known)).mark_rule(strokeWidth=3)
        layers.append(lines.encode(x=alt.X("low:Q", title=_TITLE), x2="high:Q", y=y, color=color))
    dots = alt.Chart(inline(rows)).mark_point(filled=True, size=80, opacity=1)
    layers.append(dots.encode(x=x, y=y, color=color, shape=shape, tooltip=tooltip))
    return alt.layer(*layers).properties(width=NARROW, height=max(_ROW * rows.height, _LOWEST))
