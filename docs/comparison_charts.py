"""The charts of the comparison page: tables in, Vega-Lite out."""

import altair as alt
import polars as pl

from trust_cache.figures.chart_style import BLACK, BLUE, GREEN, GREY, VERMILLION, finish, inline

PROCEDURES = {
    "obvious": "bootstrap of one split",
    "interval": "interval on all cases",
    "swap": "swap test alone",
    "verdict": "verdict (both)",
}
_COLOURS = dict(zip(PROCEDURES.values(), (VERMILLION, BLUE, GREEN, BLACK), strict=True))
_SHAPES = dict(zip(PROCEDURES.values(), ("circle", "square", "triangle-up", "diamond"), strict=True))
_PERCENT = "100 * datum.value + ' %'"
_NOMINAL = 0.05


def alarm_chart(rows: pl.DataFrame) -> alt.TopLevelMixin:
    """False alarms of equal columns against their correlation, one panel per size and target."""
    x = alt.X("correlation:O", title="correlation of the two columns", axis=alt.Axis(labelAngle=0))
    return _panels(_prepared(rows), x, "intervals without zero, columns equal", top=0.25, width=210)


def verdict_chart(rows: pl.DataFrame) -> alt.TopLevelMixin:
    """How often the columns are called different in each scenario, one panel per size and target."""
    x = alt.X(
        "scenario:N",
        title=None,
        sort=["equal", "crossing", "10 points"],
        axis=alt.Axis(labelAngle=0),
    )
    return _panels(_prepared(rows), x, "cohorts in which they are called different", top=1.0, width=270)


def _prepared(rows: pl.DataFrame) -> pl.DataFrame:
    ours_unresolved = (pl.col("procedure") == "interval") & (pl.col("intervals") == 0)
    return rows.filter(~ours_unresolved).with_columns(
        pl.col("procedure").replace_strict(PROCEDURES),
        panel=pl.format("{}, {} % recall", "data_set", (100 * pl.col("target")).round().cast(pl.Int64)),
        nominal=pl.lit(_NOMINAL),
    )


def _panels(data: pl.DataFrame, x: alt.X, title: str, *, top: float, width: int) -> alt.TopLevelMixin:
    names = [name for name in _COLOURS if name in set(data["procedure"])]
    colour = alt.Color(
        "procedure:N",
        title=None,
        scale=alt.Scale(domain=names, range=[_COLOURS[name] for name in names]),
        legend=alt.Legend(orient="bottom"),
    )
    shape = alt.Shape(
        "procedure:N", title=None, scale=alt.Scale(domain=names, range=[_SHAPES[name] for name in names])
    )
    scale = alt.Scale(domain=[0, top])
    axis = alt.Axis(labelExpr=_PERCENT, tickCount=5)
    base = alt.Chart().encode(x=x, xOffset=alt.XOffset("procedure:N", sort=names), color=colour)
    bars = base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("called_low:Q", title=title), y2="called_high:Q")
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        y=alt.Y("called_share:Q", title=title, scale=scale, axis=axis), shape=shape
    )
    nominal = alt.Chart().mark_rule(strokeDash=[5, 4], color=GREY).encode(y="nominal:Q")
    layers = alt.layer(nominal, bars, points, data=inline(data)).properties(width=width, height=190)
    order = data["panel"].unique(maintain_order=True).to_list()
    return finish(layers.facet(alt.Facet("panel:N", title=None, sort=order), columns=2))
