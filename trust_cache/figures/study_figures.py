"""Figures of studies: the spread over random splits, and threshold rules against each other."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import altair as alt
import polars as pl

from trust_cache.base.text_tables import percent, whole_percent
from trust_cache.certificate.evidence import Evidence
from trust_cache.certificate.point_tables import name_of
from trust_cache.figures.chart_style import BLACK, BLUE, GREY, VERMILLION, colours_of, inline, scale_of
from trust_cache.figures.figure import (
    NARROW,
    WIDE,
    Figure,
    LegendEntry,
    Panel,
    View,
    configuration_legend,
    legend_of,
    name_axis,
    percent_axis,
)

_ROW = 34  # points of height
_OUTCOMES = {"target met": BLUE, "target missed": VERMILLION}


def resplit_figure(evidence: Evidence) -> Figure | None:
    """Draw dismissal and bound over the random splits of `--resplits`; None without them."""
    if evidence.resplits is None:
        return None
    rows = evidence.resplits.with_columns(
        outcome=pl.when(pl.col("met")).then(pl.lit("target met")).otherwise(pl.lit("target missed"))
    )
    panels, chosen = [], evidence.certification.points
    for target in evidence.certification.settings.targets:
        of_target = rows.filter(pl.col("target") == target)
        for column, title in (("dismissal", "cases dismissed"), ("bound", "bound")):
            here = {name_of(p.configuration): getattr(p, column) for p in chosen if p.target == target}
            panels.append(Panel(f"target {whole_percent(target)}: {title}", _strips(of_target, column, here)))
    spreads = evidence.certification.spreads
    return Figure(
        key="resplits",
        title="The same scores over other random splits",
        reading=f"Each tick is one of {spreads[0].resplits} random splits into search and evaluation"
        " cases: what the same rule dismisses there, and its bound. Blue ticks met the target, orange ones"
        " missed it. The black line is the median, the grey diamond the split of this page. A wide row means"
        " that one split says little.",
        alternative="Strip charts of dismissal and bound over random splits: "
        + "; ".join(
            f"{name_of(item.configuration)} at {whole_percent(item.target)} met in"
            f" {percent(item.met_share, 0)}, dismissal {percent(item.dismissal['q05'])} to"
            f" {percent(item.dismissal['q95'])}"
            for item in spreads
        )
        + ".",
        panels=tuple(panels),
        data=rows,
        legend=(*legend_of(_OUTCOMES), LegendEntry("this page's split", GREY, shape="diamond")),
    )


def _strips(rows: pl.DataFrame, column: str, here: dict[str, float | None]) -> View:
    names = rows["configuration"].unique(maintain_order=True).to_list()
    y = alt.Y("configuration:N", title=None, sort=names, axis=name_axis())
    title = "dismissed" if column == "dismissal" else "bound"
    x = alt.X(f"{column}:Q", title=title, scale=alt.Scale(zero=False), axis=percent_axis(tickCount=5))
    tooltip = [
        alt.Tooltip("resplit:Q", title="split"),
        alt.Tooltip(f"{column}:Q", format=".2%", title=title),
        alt.Tooltip("outcome:N", title="outcome"),
    ]
    shown = rows.select("configuration", "resplit", "outcome", column)
    middle = rows.group_by("configuration", maintain_order=True).agg(pl.col(column).median())
    own = pl.DataFrame([{"configuration": name, column: here[name]} for name in names if name in here])
    return alt.layer(
        alt.Chart(inline(shown))
        .mark_tick(opacity=0.35, thickness=1.5, size=16)
        .encode(
            x=x, y=y, color=alt.Color("outcome:N", scale=scale_of(_OUTCOMES), legend=None), tooltip=tooltip
        ),
        alt.Chart(inline(middle)).mark_tick(color=BLACK, thickness=2.5, size=26).encode(x=x, y=y),
        alt.Chart(inline(own))
        .mark_point(shape="diamond", filled=True, color=GREY, stroke=BLACK, size=80, opacity=1)
        .encode(x=x, y=y),
    ).properties(width=NARROW, height=_ROW * len(names))


@dataclass(frozen=True)
class DrawnRival:
    """One rule on one score model, for the figure."""

    score_model: str
    rule: str
    promise: str  # recall 98%, or FOR 1%
    dismissal: float | None  # None: the rule has no threshold
    recall: float | None
    bound: float | None
    kept: bool | None


def rivals_figure(found: Sequence[DrawnRival]) -> Figure:
    """Draw what every rule dismisses with every score model, filled where evaluation kept its promise."""
    data = pl.DataFrame([asdict(item) for item in found], infer_schema_length=None)
    data = data.with_columns(row=pl.format("{}, {}", "rule", "promise"))
    models = data["score_model"].unique(maintain_order=True).to_list()
    drawn = data.filter(pl.col("dismissal").is_not_null())
    order = data["row"].unique(maintain_order=True).to_list()
    without = [row for row in order if row not in set(drawn["row"])]
    note = f" No threshold was found for {'; '.join(without)}." if without else ""
    return Figure(
        key="rivals",
        title="Threshold rules on the same split",
        reading="The share of evaluation cases that each rule dismisses with each score model. Filled: the"
        " rate on evaluation is within what the rule promises; hollow: it is not. A rule that promises more"
        f" dismisses less.{note}",
        alternative="Dot plot of dismissal by threshold rule and score model: "
        + "; ".join(
            f"{row['score_model']} by {row['row']} {percent(row['dismissal'])}"
            for row in drawn.iter_rows(named=True)
        )
        + ".",
        panels=(Panel("", _rivals(drawn, models, order)),),
        data=data.drop("row"),
        legend=configuration_legend(models),
    )


def _rivals(drawn: pl.DataFrame, models: list[str], order: list[str]) -> View:
    y = alt.Y("row:N", title=None, sort=order, scale=alt.Scale(domain=order), axis=alt.Axis(labelLimit=220))
    x = alt.X("dismissal:Q", title="cases dismissed", axis=percent_axis(tickCount=6))
    color = alt.Color("score_model:N", scale=scale_of(colours_of(models)), legend=None)
    tooltip = [
        alt.Tooltip("score_model:N", title="score model"),
        alt.Tooltip("row:N", title="rule"),
        alt.Tooltip("dismissal:Q", format=".2%", title="dismissed"),
        alt.Tooltip("recall:Q", format=".2%", title="recall"),
        alt.Tooltip("bound:Q", format=".2%", title="bound"),
    ]
    marks = []
    for kept in (True, False):
        rows = drawn.filter(pl.col("kept") == kept)
        chart = alt.Chart(inline(rows)).mark_point(filled=kept, size=80, opacity=0.85, strokeWidth=1.6)
        marks.append(chart.encode(x=x, y=y, color=color, tooltip=tooltip))
    return alt.layer(*marks).properties(width=WIDE, height=_ROW * len(order))
