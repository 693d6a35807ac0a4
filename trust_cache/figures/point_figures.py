"""Figures of the certified points: case against image level, and bounds by subgroup."""

import altair as alt
import polars as pl

from trust_cache.base.text_tables import confidence, percent, whole_percent
from trust_cache.certificate.evidence import Evidence
from trust_cache.certificate.point_tables import column_name, name_of
from trust_cache.figures.chart_style import BLACK, BLUE, GREY, ORANGE, inline, scale_of
from trust_cache.figures.curve_figures import point_rows
from trust_cache.figures.figure import NARROW, WIDE, Figure, Panel, View, legend_of, name_axis, percent_axis

_LEVELS = {"cases": BLUE, "images": ORANGE}
_ROW = 22  # points of height
_MOST_GROUPS = 40
_SHOWN = (
    "cases", "positives", "dismissed", "positives_dismissed", "false_omission_rate", "bound",
    "bound_corrected",
)  # fmt: skip


def level_figure(evidence: Evidence) -> Figure | None:
    """Draw the dismissal of cases and of images at the same thresholds; None for scores by case."""
    points = point_rows(evidence).filter(pl.col("image_dismissal").is_not_null())
    if points.is_empty():
        return None
    panels = [
        Panel(f"target {whole_percent(target)}", _levels(rows))
        for (target,), rows in points.group_by("target", maintain_order=True)
    ]
    data = points.select("configuration", "target", "tau", "dismissal", "image_dismissal", "status")
    return Figure(
        key="case-image",
        title="Case against image level",
        reading="The share dismissed at the same threshold, counted in cases and in images. A case is"
        " dismissed only if all of its images score below the threshold, so the image share is never smaller."
        " Only the case level has a bound: images of one case are not independent.",
        alternative="Dismissal by case and by image: "
        + "; ".join(
            f"{row['configuration']} at {whole_percent(row['target'])} {percent(row['dismissal'])} of cases,"
            f" {percent(row['image_dismissal'])} of images"
            for row in data.iter_rows(named=True)
        )
        + ".",
        panels=tuple(panels),
        data=data,
        legend=legend_of(_LEVELS),
    )


def _levels(points: pl.DataFrame) -> View:
    y = alt.Y("configuration:N", title=None, sort=None, axis=name_axis())
    x = alt.X("share:Q", title="dismissed", scale=alt.Scale(zero=True), axis=percent_axis(tickCount=5))
    long = points.unpivot(
        ["dismissal", "image_dismissal"], index=["configuration"], variable_name="level", value_name="share"
    ).with_columns(pl.col("level").replace_strict({"dismissal": "cases", "image_dismissal": "images"}))
    bars = alt.Chart(inline(points.select("configuration", "dismissal", "image_dismissal")))
    tooltip = [
        alt.Tooltip("configuration:N", title="configuration"),
        alt.Tooltip("level:N", title="level"),
        alt.Tooltip("share:Q", format=".2%", title="dismissed"),
    ]
    return alt.layer(
        bars.mark_rule(color=GREY, strokeWidth=2).encode(
            x=alt.X("dismissal:Q", title="dismissed"), x2="image_dismissal:Q", y=y
        ),
        alt.Chart(inline(long))
        .mark_point(filled=True, size=70, opacity=1)
        .encode(x=x, y=y, color=alt.Color("level:N", scale=scale_of(_LEVELS), legend=None), tooltip=tooltip),
    ).properties(width=NARROW, height=_ROW * points.height)


def subgroup_figure(evidence: Evidence) -> Figure | None:
    """Draw the leading configuration's bounds by subgroup as a forest plot; None without subgroups."""
    found = evidence.certification.subgroups
    if not found:
        return None
    data = pl.DataFrame(
        [
            {
                "configuration": name_of(item.point.configuration),
                "target": item.point.target,
                "column": item.column,
                "group": item.group,
                **{name: getattr(item.point, name) for name in _SHOWN},
            }
            for item in found
        ],
        infer_schema_length=None,
        schema_overrides={"false_omission_rate": pl.Float64},
    )
    leading = evidence.configurations[evidence.leading]
    shown = data.filter(pl.col("configuration") == leading)
    rank = pl.col("cases").rank("ordinal", descending=True).over("column", "target")
    largest = shown.filter(rank <= _MOST_GROUPS)
    few = ""
    if largest.height < shown.height:
        few = f" The {_MOST_GROUPS} largest groups of {shown['group'].n_unique()} are shown."
    shown = largest
    columns = [column_name(name) for name in shown["column"].unique(maintain_order=True)]
    panels = [
        Panel(
            f"{column_name(column)}, target {whole_percent(target)}"
            if columns[1:]
            else f"target {whole_percent(target)}",
            _forest(rows),
        )
        for (column, target), rows in shown.group_by("column", "target", maintain_order=True)
    ]
    level = confidence(evidence.terms.delta)
    return Figure(
        key="subgroups",
        title=f"Bounds by {' and '.join(columns)}",
        reading=f"The same threshold ({leading}) on the evaluation cases of each group. The dot is the"
        f" observed cancer rate among the dismissed, the bar ends at its {level} bound, the thin line at the"
        " bound corrected for all comparisons. A small group has a long bar because there are few"
        " cases, not because it is at higher risk." + few,
        alternative=f"Forest plot of the {level} bounds by {' and '.join(columns)}: "
        + "; ".join(
            f"{row['group']} at {whole_percent(row['target'])} at most {percent(row['bound'])}"
            for row in shown.iter_rows(named=True)
        )
        + ".",
        panels=tuple(panels),
        data=data,
    )


def _forest(rows: pl.DataFrame) -> View:
    y = alt.Y("group:N", title=None, sort=None, axis=name_axis())
    title = "cancer among the dismissed"
    scale = alt.Scale(domain=[0, float(rows["bound_corrected"].max())], nice=True)  # type: ignore[arg-type]
    base = alt.Chart(inline(rows.with_columns(zero=pl.lit(0.0)))).encode(
        y=y,
        tooltip=[
            alt.Tooltip("group:N", title="group"),
            alt.Tooltip("dismissed:Q", format=",", title="dismissed"),
            alt.Tooltip("positives_dismissed:Q", format=",", title="with cancer"),
            alt.Tooltip("bound:Q", format=".2%", title="bound"),
            alt.Tooltip("bound_corrected:Q", format=".2%", title="corrected"),
        ],
    )
    x = alt.X("bound:Q", title=title, scale=scale, axis=percent_axis(tickCount=5))
    return alt.layer(
        base.mark_rule(color=GREY, strokeWidth=1).encode(
            x=alt.X("zero:Q", title=title), x2="bound_corrected:Q"
        ),
        base.mark_rule(color=BLUE, strokeWidth=3).encode(x=alt.X("zero:Q", title=title), x2="bound:Q"),
        base.mark_tick(color=BLUE, thickness=2, size=12).encode(x=x),
        base.mark_point(color=BLACK, filled=True, size=45, opacity=1).encode(
            x=alt.X("false_omission_rate:Q", title=title)
        ),
    ).properties(width=NARROW if rows.height else WIDE, height=_ROW * rows.height)
