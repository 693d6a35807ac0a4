"""Figures over all thresholds: dismissal against recall, and the ROC curve."""

import math
from collections.abc import Sequence

import altair as alt
import polars as pl

from trust_cache.base.text_tables import percent, whole_percent
from trust_cache.certificate.evidence import Evidence
from trust_cache.certificate.point_tables import name_of
from trust_cache.certificate.points import Point
from trust_cache.figures.chart_style import BLACK, GREY, inline, scale_of, target_shapes
from trust_cache.figures.curves import operating_curve
from trust_cache.figures.figure import (
    WIDE,
    Figure,
    Panel,
    View,
    configuration_legend,
    configuration_styles,
    percent_axis,
    rows_of,
    target_legend,
)

_LOWEST_RECALL = 0.8  # of the axis: no programme would operate below; the data continue
_POINT = 90  # area
_SHOWN = (
    "configuration", "target", "tau", "dismissed", "positives_dismissed", "dismissal", "recall", "bound",
    "image_dismissal", "status",
)  # fmt: skip


def recall_figure(evidence: Evidence) -> Figure:
    """Draw dismissal against recall on the evaluation subset, with the targets and the points."""
    names, curves, points = evidence.configurations, _curves(evidence), point_rows(evidence)
    low = min([_LOWEST_RECALL, *(target - 0.05 for target in evidence.certification.settings.targets)])
    low = math.floor(20 * min([low, *points["recall"].drop_nulls()])) / 20
    # One step beyond the axis, so that the line does not end inside the picture.
    shown = curves.filter(pl.col("recall") >= low - 1.5 / evidence.certification.points[0].positives)
    top = float(shown.filter(pl.col("recall") >= low)["dismissal"].max())  # type: ignore[arg-type]
    scale = alt.Scale(domain=[low, 1.0], nice=False)
    x = alt.X("recall:Q", title="recall: cancers still read", scale=scale, axis=percent_axis())
    y = alt.Y("dismissal:Q", title="cases dismissed", scale=alt.Scale(domain=[0, top]), axis=percent_axis())

    def draw(*, legend: bool) -> View:
        lines = (
            alt.Chart(inline(shown.select("configuration", "recall", "dismissal")))
            .mark_line(interpolate="step-before", strokeWidth=1.6, clip=True)
            .encode(x=x, y=y, **configuration_styles(names, legend=legend))
        )
        targets = _target_rules(evidence.certification.settings.targets, x)
        marks = _points(points, names, x, y, legend=legend)
        return alt.layer(*targets, lines, *marks).properties(width=WIDE, height=320)

    certified = points.filter(pl.col("certified"))
    return Figure(
        key="dismissal-recall",
        title="Dismissal against recall",
        reading="Each line shows the largest share of evaluation cases that a threshold could dismiss at each"
        " recall; higher is better. Marks are the points whose thresholds were chosen on the search"
        " subset, their shapes the targets: filled if certified, hollow if not. A mark to the left of its"
        " target's dashed line missed the target.",
        alternative=f"Line chart of dismissal against recall for {len(names)} configurations;"
        f" {certified.height} of {points.height} points are certified"
        + "".join(
            f"; {row['configuration']} at {whole_percent(row['target'])}: {percent(row['dismissal'])}"
            f" dismissed at recall {percent(row['recall'])}"
            for row in certified.iter_rows(named=True)
        )
        + ".",
        panels=(Panel("", draw(legend=False)),),
        paper=lambda: draw(legend=True),
        data=_data(curves.drop("false_positive_rate"), points),
        legend=(*configuration_legend(names), *target_legend(evidence.certification.settings.targets)),
    )


def roc_figure(evidence: Evidence) -> Figure:
    """Draw the ROC curve on the evaluation subset with the operating region."""
    names, curves, points = evidence.configurations, _curves(evidence), point_rows(evidence)
    lowest = min(evidence.certification.settings.targets)
    scale, title = alt.Scale(domain=[0, 1]), "cases without cancer still read (1 − specificity)"
    x = alt.X("false_positive_rate:Q", title=title, scale=scale, axis=percent_axis())
    y = alt.Y("recall:Q", title="recall (sensitivity)", scale=scale, axis=percent_axis())
    region = alt.Chart(inline(pl.DataFrame([{"low": lowest, "high": 1.0}])))
    chance = alt.Chart(inline(pl.DataFrame([{"x": 0, "y": 0}, {"x": 1, "y": 1}])))

    def draw(*, legend: bool) -> View:
        lines = (
            alt.Chart(inline(curves.select("configuration", "false_positive_rate", "recall")))
            .mark_line(interpolate="step-after", strokeWidth=1.6)
            .encode(x=x, y=y, **configuration_styles(names, legend=legend))
        )
        return alt.layer(
            region.mark_rect(color=GREY, opacity=0.22).encode(y=alt.Y("low:Q"), y2="high:Q"),
            chance.mark_line(strokeDash=[4, 4], strokeWidth=1, color=GREY).encode(x="x:Q", y="y:Q"),
            lines,
            *_points(points, names, x, y, legend=legend),
        ).properties(width=440, height=400)

    areas = {name_of(p.configuration): p.auroc_case for p in evidence.certification.points}
    return Figure(
        key="roc",
        title="ROC curve and operating region",
        reading="How well the scores rank the evaluation cases: a line closer to the top left is better, and"
        " the dashed diagonal is chance. Dismissal uses only the shaded band, where recall is at least"
        f" {whole_percent(lowest)}. The area under the whole curve says little about that band.",
        alternative="ROC curves with the region of high recall shaded; area under the curve by case: "
        + ", ".join(f"{name} {area:.4f}" for name, area in areas.items() if area is not None)
        + ".",
        panels=(Panel("", draw(legend=False)),),
        paper=lambda: draw(legend=True),
        data=_data(curves.drop("dismissed", "positives_dismissed", "dismissal"), points),
        legend=(*configuration_legend(names), *target_legend(evidence.certification.settings.targets)),
    )


def point_rows(evidence: Evidence) -> pl.DataFrame:
    """Return the certified points as rows for marks and tooltips."""
    return pl.DataFrame(
        [
            {name: getattr(point, name) for name in _SHOWN}
            | {
                "configuration": name_of(point.configuration),
                "target_text": whole_percent(point.target),
                "certified": point.certified,
                "false_positive_rate": 1.0
                - (point.dismissed - point.positives_dismissed) / max(_complete_negatives(point), 1),
            }
            for point in evidence.certification.points
        ],
        infer_schema_length=None,
        schema_overrides={"tau": pl.Float64, "image_dismissal": pl.Float64},
    )


def _complete_negatives(point: Point) -> int:
    return (point.cases - point.incomplete) - (point.positives - point.incomplete_positives)


def _curves(evidence: Evidence) -> pl.DataFrame:
    members = evidence.certification.split.evaluation
    return pl.concat(
        [
            rows_of(operating_curve(scores[members], evidence.cohort.labels[members]), configuration=name)
            for name, scores in zip(evidence.configurations, evidence.cohort.scores, strict=True)
        ]
    )


def _data(curves: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    marks = points.select(curves.columns)
    return pl.concat([rows_of(curves, kind="curve"), rows_of(marks, kind="certified point")])


def _points(
    points: pl.DataFrame, names: Sequence[str], x: alt.X, y: alt.Y, *, legend: bool
) -> list[alt.Chart]:
    tooltip = [
        alt.Tooltip("configuration:N", title="configuration"),
        alt.Tooltip("target:Q", format="~%", title="target"),
        alt.Tooltip("tau:Q", format=".6~g", title="threshold"),
        alt.Tooltip("dismissal:Q", format=".2%", title="dismissed"),
        alt.Tooltip("recall:Q", format=".2%", title="recall"),
        alt.Tooltip("bound:Q", format=".2%", title="bound"),
        alt.Tooltip("status:N", title="status"),
    ]
    color = configuration_styles(names, legend=False)["color"]
    shapes = {whole_percent(target): shape for target, shape in target_shapes(_targets(points)).items()}
    shown = alt.Legend(orient="bottom", title="target") if legend else None
    shape = alt.Shape("target_text:N", scale=scale_of(shapes), legend=shown)
    marks = []
    for certified in (True, False):
        rows = points.filter(pl.col("certified") == certified)
        if rows.height:
            chart = alt.Chart(inline(rows)).mark_point(
                filled=certified, size=_POINT, opacity=1, strokeWidth=1.6
            )
            marks.append(chart.encode(x=x, y=y, color=color, shape=shape, tooltip=tooltip))
    return marks


def _targets(points: pl.DataFrame) -> list[float]:
    return points["target"].unique(maintain_order=True).to_list()


def _target_rules(targets: Sequence[float], x: alt.X) -> list[alt.Chart]:
    rows = [{"recall": target, "label": whole_percent(target)} for target in targets]
    base = alt.Chart(inline(pl.DataFrame(rows))).encode(x=x)
    return [
        base.mark_rule(strokeDash=[4, 3], color=BLACK),
        base.mark_text(align="right", dx=-4, baseline="top", fontSize=11, color=BLACK).encode(
            y=alt.value(4), text="label:N"
        ),
    ]
