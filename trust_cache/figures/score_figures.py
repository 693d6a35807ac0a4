"""Figures of the scores: their distribution by class, and the observed cancer rate by score."""

from collections.abc import Sequence

import altair as alt
import polars as pl

from trust_cache.base.text_tables import percent, whole_percent
from trust_cache.certificate.evidence import Evidence
from trust_cache.certificate.points import Point
from trust_cache.figures.chart_style import BLACK, GREY, NEGATIVE, POSITIVE, colours_of, inline, scale_of
from trust_cache.figures.curves import class_shares, histogram_edges, reliability
from trust_cache.figures.figure import NARROW, Figure, Panel, View, legend_of, percent_axis, rows_of
from trust_cache.figures.score_axis import ScoreAxis, choose_axis
from trust_cache.manifest.cases import MAXIMUM

_CLASSES = {"no cancer": NEGATIVE, "cancer": POSITIVE}
_HEIGHT = 170
_SHARES = (0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # ticks of reliability
_DIAGONAL = (
    " On the dashed diagonal the score would equal the probability of cancer; nothing here relies on it. Both"
    " axes are in percent and spread by the square root."
)
_ENRICHED = " Heads are trained on batches with more cancers than in screening, so their scores lie above it."


def distribution_figure(evidence: Evidence) -> Figure:
    """Draw the scores by class with the certified thresholds, one panel per configuration."""
    evaluated = [evidence.evaluated(index) for index in range(len(evidence.configurations))]
    axis = choose_axis([scores for scores, _ in evaluated])
    edges = histogram_edges(tuple(axis.place(scores) for scores, _ in evaluated))
    panels, tables = [], []
    for index, (name, (scores, labels)) in enumerate(zip(evidence.configurations, evaluated, strict=True)):
        places = class_shares(axis.place(scores), labels, edges)
        tables.append(rows_of(_in_scores(places, axis), configuration=name))
        panels.append(Panel(name, _distribution(evidence, index, places, axis)))
    alike = all(name == MAXIMUM for name in evidence.cohort.aggregations)
    maximum = (
        " The score of a case is the maximum over its images." if evidence.cohort.images[0] and alike else ""
    )
    crowded = (
        ""
        if axis.kind == "linear"
        else f" Most scores are near one end: the {axis.kind} scale spreads them, and scores beyond an end"
        " of the axis are in its last bar."
    )
    return Figure(
        key="scores",
        title="Scores by class, with the thresholds",
        reading=f"The share of each class's evaluation cases by score.{maximum} Cases to the left of a"
        " threshold (τ, labelled with its target) are dismissed: ideally many blue cases and hardly any"
        f" orange ones.{crowded}",
        alternative="Histograms of case scores for cases with and without cancer, one panel for each of"
        f" {', '.join(evidence.configurations)}, with a vertical line at each threshold; {axis.title}.",
        panels=tuple(panels),
        data=pl.concat(tables),
        legend=legend_of(_CLASSES),
    )


def _in_scores(places: pl.DataFrame, axis: ScoreAxis) -> pl.DataFrame:
    """Return bins in score units."""
    low, high = (axis.score(places[name].to_numpy()) for name in ("low", "high"))
    return places.with_columns(low=low, high=high)


def _distribution(evidence: Evidence, index: int, places: pl.DataFrame, axis: ScoreAxis) -> View:
    in_scores = _in_scores(places, axis)
    rows = places.with_columns(score_from=in_scores["low"], score_to=in_scores["high"])
    rows = rows.filter(pl.col("cases") > 0).with_columns(
        pl.col("label").replace_strict(dict(enumerate(_CLASSES)), return_dtype=pl.String).alias("class")
    )
    scale = alt.Scale(domain=[places["low"][0], places["high"][-1]], nice=False)
    x = alt.X("low:Q", title=axis.title, bin="binned", scale=scale, axis=axis.axis())
    bars = (
        alt.Chart(inline(rows))
        .mark_bar(opacity=0.6, binSpacing=0)
        .encode(
            x=x,
            x2="high:Q",
            y=alt.Y("share:Q", title="share of its class", stack=None, axis=percent_axis(tickCount=4)),
            color=alt.Color("class:N", scale=scale_of(_CLASSES), legend=None),
            tooltip=[
                alt.Tooltip("class:N", title="class"),
                alt.Tooltip("score_from:Q", format=".4~g", title="score from"),
                alt.Tooltip("score_to:Q", format=".4~g", title="to"),
                alt.Tooltip("cases:Q", title="cases"),
                alt.Tooltip("share:Q", format=".2%", title="share of its class"),
            ],
        )
    )
    return alt.layer(bars, *_thresholds(evidence.points_of(index), scale, axis)).properties(
        width=NARROW, height=_HEIGHT
    )


def _thresholds(points: Sequence[Point], scale: alt.Scale, axis: ScoreAxis) -> list[alt.Chart]:
    """Draw the thresholds with their targets above; labels of close thresholds do not overlap."""
    found = sorted((point.tau, whole_percent(point.target)) for point in points if point.tau is not None)
    layers: list[alt.Chart] = []
    for position, (tau, target) in enumerate(found):
        row = pl.DataFrame({"low": [float(axis.place(tau))], "label": [f"τ {target}"]})
        at = alt.Chart(inline(row)).encode(x=alt.X("low:Q", title=axis.title, scale=scale, axis=axis.axis()))
        left = position == 0 and len(found) > 1
        dx = -3 if left else 3
        label = at.mark_text(
            align="right" if left else "left", dx=dx, baseline="bottom", fontSize=11, color=BLACK
        )
        height = alt.value(-3 - 12 * max(position - 1, 0))
        layers += [at.mark_rule(color=BLACK, strokeWidth=1.2), label.encode(y=height, text="label:N")]
    return layers


def reliability_figure(evidence: Evidence) -> Figure:
    """Draw the observed cancer rate in ten groups by score, one panel per configuration."""
    tables = {
        name: reliability(*evidence.evaluated(index)) for index, name in enumerate(evidence.configurations)
    }
    top = max(float(table["upper"].max()) for table in tables.values())  # type: ignore[arg-type]
    means = pl.concat(list(tables.values()))["mean_score"]
    shares = bool(means.min() >= 0 and means.max() <= 1)  # type: ignore[operator]
    colours = colours_of(evidence.configurations)
    panels = [
        Panel(name, _reliability(table, colours[name], top, shares=shares)) for name, table in tables.items()
    ]
    prevalence = percent(evidence.certification.points[0].prevalence)
    return Figure(
        key="reliability",
        title="Reliability of the score",
        reading="The evaluation cases in ten equal groups by score: the observed cancer rate in each, with"
        " its 95 % Clopper-Pearson interval. Rising points mean that the score ranks cases well."
        + (_DIAGONAL if shares else " The scores are no shares, so there is no diagonal to compare with.")
        + (_ENRICHED if shares and evidence.record is not None else ""),
        alternative=f"Observed cancer rate against mean score in ten groups of cases (overall {prevalence}): "
        + "; ".join(
            f"{name} {percent(table['rate'][0])} in the lowest, {percent(table['rate'][-1])} in the highest"
            for name, table in tables.items()
        )
        + ".",
        panels=tuple(panels),
        data=pl.concat([rows_of(table, configuration=name) for name, table in tables.items()]),
    )


def _reliability(table: pl.DataFrame, colour: str, top: float, *, shares: bool) -> View:
    """Draw one configuration; shares on both axes by their square roots, which spread what is near zero."""
    title = "observed cancer rate"
    x_title, x_scale, x_axis = "mean score of the group", alt.Scale(zero=False), alt.Axis(tickCount=5)
    if shares:
        most = float(table["mean_score"].max())  # type: ignore[arg-type]
        x_scale, x_axis = alt.Scale(type="sqrt", domain=[0, most], nice=False), _share_axis(most)
    x = alt.X("mean_score:Q", title=x_title, scale=x_scale, axis=x_axis)
    y_scale, y_axis = alt.Scale(type="sqrt", domain=[0, top], nice=False), _share_axis(top)
    y = alt.Y("rate:Q", title=title, scale=y_scale, axis=y_axis)
    base = alt.Chart(inline(table)).encode(x=x)
    end = min(top, float(table["mean_score"].max()))  # type: ignore[arg-type]
    diagonal = alt.Chart(inline(pl.DataFrame([{"mean_score": at, "rate": at} for at in (0.0, end)])))
    tooltip = [
        alt.Tooltip("mean_score:Q", format=".4~g", title="mean score"),
        alt.Tooltip("cases:Q", title="cases"),
        alt.Tooltip("positives:Q", title="with cancer"),
        alt.Tooltip("rate:Q", format=".2%", title="observed rate"),
        alt.Tooltip("lower:Q", format=".2%", title="95 % from"),
        alt.Tooltip("upper:Q", format=".2%", title="to"),
    ]
    lines = [diagonal.mark_line(strokeDash=[4, 4], strokeWidth=1, color=GREY).encode(x=x, y=y)]
    return alt.layer(
        *(lines if shares else ()),
        base.mark_rule(color=colour, strokeWidth=1.4).encode(
            y=alt.Y("lower:Q", title=title, scale=y_scale, axis=y_axis), y2="upper:Q"
        ),
        base.mark_point(color=colour, filled=True, size=45, opacity=1).encode(y=y, tooltip=tooltip),
    ).properties(width=NARROW, height=_HEIGHT)


def _share_axis(top: float) -> alt.Axis:
    """Return an axis of shares in percent with round ticks up to the top."""
    values = [share for share in _SHARES if share <= top]
    return alt.Axis(format=".3~%", labelOverlap="greedy", values=values if len(values) > 2 else [0.0, top])  # noqa: PLR2004
