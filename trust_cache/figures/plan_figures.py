"""The figure of a plan: the bounds that a cohort can reach, by dismissal."""

import altair as alt
import polars as pl

from trust_cache.base.text_tables import confidence, percent, whole_percent
from trust_cache.certificate.planning.plan import BoundAt, Reach
from trust_cache.figures.chart_style import inline
from trust_cache.figures.figure import (
    WIDE,
    Figure,
    Panel,
    View,
    configuration_legend,
    configuration_styles,
    percent_axis,
)

_HEIGHT = 300  # points


def reach_figure(reach: Reach) -> Figure:
    """Draw the bound against dismissal: without a miss, and with as many as each target allows."""
    lines: dict[str, tuple[BoundAt, ...]] = {"no cancer dismissed": reach.bounds}
    for row in reach.targets:
        lines[f"{row.allowed:,} cancers dismissed ({whole_percent(row.target)} recall)"] = row.bounds
    data = pl.DataFrame(
        [(name, at.dismissal, at.bound) for name, bounds in lines.items() for at in bounds],
        schema={"configuration": pl.String, "dismissal": pl.Float64, "bound": pl.Float64},
        orient="row",
    )
    prevalence = reach.evaluation_positives / reach.evaluation_cases
    scale = alt.Scale(zero=True)
    x = alt.X("dismissal:Q", title="cases dismissed", scale=scale, axis=percent_axis(tickCount=6))
    y = alt.Y("bound:Q", title=f"bound at {confidence(reach.delta)} confidence", axis=percent_axis())

    def draw(*, legend: bool) -> View:
        styles = configuration_styles(list(lines), legend=legend)
        curves = alt.Chart(inline(data)).mark_line(point=True).encode(x=x, y=y, **styles)
        rule = alt.Chart(inline(pl.DataFrame({"bound": [prevalence]}))).mark_rule(strokeDash=[4, 3])
        return alt.layer(rule.encode(y=y), curves).properties(width=WIDE, height=_HEIGHT)

    return Figure(
        key="plan",
        title="What the cohort can reach",
        reading="The smallest bound that any model can have at each dismissal. The dashed line is the"
        " prevalence: a bound above it says nothing.",
        alternative=f"Line chart of the bound against dismissal for {reach.cases:,} cases with"
        f" {reach.positives:,} positive; at best {percent(reach.best_bound, 4)}.",
        panels=(Panel("", draw(legend=False)),),
        paper=lambda: draw(legend=True),
        data=data,
        legend=configuration_legend(list(lines)),
    )
