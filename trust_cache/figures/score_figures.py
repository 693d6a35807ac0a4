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

_CLASSES = {"no cancer": NEGATIVE, "cancer": POSITIVE}
_HEIGHT = 170


def distribution_figure(evidence: Evidence) -> Figure:
    """Draw the scores by class with the certified thresholds, one panel per configuration."""
    evaluated = [evidence.evaluated(index) for index in range(len(evidence.configurations))]
    edges = histogram_edges(tuple(scores for scores, _ in evaluated))
    panels, tables = [], []
    for index, (name, cases) in enumerate(zip(evidence.configurations, evaluated, strict=True)):
        shares = class_shares(*cases, edges)
        tables.append(rows_of(shares, configuration=name))
        panels.append(Panel(name, _distribution(evidence, index, shares)))
    return Figure(
        key="scores",
        title="Scores by class, with the thresholds",
        reading="The share of each class's evaluation cases by score. The score of a case is the maximum over"
        " its images. Cases to the left of a threshold (τ, labelled with its target) are dismissed: ideally"
        " many blue cases and hardly any orange ones.",
        alternative="Histograms of case scores for cases with and without cancer, one panel for each of"
        f" {', '.join(evidence.configurations)}, with a vertical line at each certified threshold.",
        panels=tuple(panels),
        data=pl.concat(tables),
        legend=legend_of(_CLASSES),
    )


def _distribution(evidence: Evidence, index: int, shares: pl.DataFrame) -> View:
    rows = shares.filter(pl.col("cases") > 0).with_columns(
        pl.col("label").replace_strict(dict(enumerate(_CLASSES)), return_dtype=pl.String).alias("class")
    )
    scale = alt.Scale(domain=[shares["low"][0], shares["high"][-1]], nice=False)
    x = alt.X("low:Q", title="case score", bin="binned", scale=scale, axis=alt.Axis(tickCount=5))
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
                alt.Tooltip("low:Q", format=".4~g", title="score from"),
                alt.Tooltip("high:Q", format=".4~g", title="to"),
                alt.Tooltip("cases:Q", title="cases"),
                alt.Tooltip("share:Q", format=".2%", title="share of its class"),
            ],
        )
    )
    return alt.layer(bars, *_thresholds(evidence.points_of(index), scale)).properties(
        width=NARROW, height=_HEIGHT
    )


def _thresholds(points: Sequence[Point], scale: alt.Scale) -> list[alt.Chart]:
    """Draw the thresholds with their targets above; labels of close thresholds do not overlap."""
    found = sorted((point.tau, whole_percent(point.target)) for point in points if point.tau is not None)
    layers: list[alt.Chart] = []
    for position, (tau, target) in enumerate(found):
        row = pl.DataFrame({"low": [tau], "label": [f"τ {target}"]})
        at = alt.Chart(inline(row)).encode(x=alt.X("low:Q", title="case score", scale=scale))
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
    colours = colours_of(evidence.configurations)
    panels = [Panel(name, _reliability(table, colours[name], top)) for name, table in tables.items()]
    prevalence = percent(evidence.certification.points[0].prevalence)
    return Figure(
        key="reliability",
        title="Reliability of the score",
        reading="The evaluation cases in ten equal groups by score: the observed cancer rate in each, with"
        " its 95 % Clopper-Pearson interval. Rising points mean that the score ranks cases well. On the"
        " dashed diagonal the score would equal the probability of cancer. It does not, because heads are"
        " trained on batches with more cancers than in screening, and nothing here relies on it.",
        alternative=f"Observed cancer rate against mean score in ten groups of cases (overall {prevalence}): "
        + "; ".join(
            f"{name} {percent(table['rate'][0])} in the lowest, {percent(table['rate'][-1])} in the highest"
            for name, table in tables.items()
        )
        + ".",
        panels=tuple(panels),
        data=pl.concat([rows_of(table, configuration=name) for name, table in tables.items()]),
    )


def _reliability(table: pl.DataFrame, colour: str, top: float) -> View:
    title, scale = "observed cancer rate", alt.Scale(domain=[0, top], nice=True, clamp=False)
    five = alt.Axis(tickCount=5)
    x = alt.X("mean_score:Q", title="mean score of the group", scale=alt.Scale(zero=False), axis=five)
    y = alt.Y("rate:Q", title=title, scale=scale, axis=percent_axis(tickCount=5))
    base = alt.Chart(inline(table)).encode(x=x)
    ends = [float(table["mean_score"].min()), float(table["mean_score"].max())]  # type: ignore[arg-type]
    diagonal = alt.Chart(inline(pl.DataFrame([{"mean_score": end, "rate": end} for end in ends])))
    tooltip = [
        alt.Tooltip("mean_score:Q", format=".4~g", title="mean score"),
        alt.Tooltip("cases:Q", title="cases"),
        alt.Tooltip("positives:Q", title="with cancer"),
        alt.Tooltip("rate:Q", format=".2%", title="observed rate"),
        alt.Tooltip("lower:Q", format=".2%", title="95 % from"),
        alt.Tooltip("upper:Q", format=".2%", title="to"),
    ]
    return alt.layer(
        diagonal.mark_line(strokeDash=[4, 4], strokeWidth=1, color=GREY, clip=True).encode(x=x, y=y),
        base.mark_rule(color=colour, strokeWidth=1.4).encode(y=alt.Y("lower:Q", title=title), y2="upper:Q"),
        base.mark_point(color=colour, filled=True, size=45, opacity=1).encode(y=y, tooltip=tooltip),
    ).properties(width=NARROW, height=_HEIGHT)
