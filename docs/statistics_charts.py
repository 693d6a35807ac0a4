"""The charts of the statistics page: tables in, Vega-Lite out."""

import altair as alt
import polars as pl
from selection_simulation import AUROC, DELTA

# Okabe and Ito's colours, which colour-blind readers can distinguish; shapes and dashes repeat them.
BLUE, ORANGE, GREEN, BLACK = "#0072B2", "#D55E00", "#009E73", "#333333"

PROCEDURES = {
    "evaluation": "best evaluation bound, as printed",
    "corrected": "the same head, bound at delta/100",
    "search": "largest dismissal on search",
    "fixed": "a head fixed beforehand",
}
RULES = {"recall": "the paper's rule (recall)", "crc": "crc", "ltt": "ltt"}
PERCENT = "100 * datum.value + ' %'"


def finish(chart: alt.TopLevelMixin) -> alt.TopLevelMixin:
    """Give every chart the same style: white background, fonts that each machine has."""
    return (
        chart.configure(background="white", font="sans-serif", padding=10)
        .configure_view(stroke="#bbbbbb")
        .configure_axis(gridColor="#e6e6e6", labelFontSize=11, titleFontSize=12, titleFontWeight="normal")
        .configure_header(labelFontSize=12, titleFontSize=12)
        .configure_legend(labelFontSize=12, titleFontSize=12, labelLimit=320, symbolSize=70)
    )


def selection_chart(selection: pl.DataFrame) -> alt.TopLevelMixin:
    """Error rate against correlation, one panel per data set and target."""
    names = list(PROCEDURES.values())
    data = selection.filter(pl.col("auroc") == AUROC).with_columns(
        pl.col("procedure").replace_strict(PROCEDURES), panel=_panel("data_set"), nominal=pl.lit(DELTA)
    )
    colour = alt.Color(
        "procedure:N",
        title=None,
        scale=alt.Scale(domain=names, range=[ORANGE, GREEN, BLUE, BLACK]),
        legend=alt.Legend(orient="bottom", columns=2),
    )
    shape = alt.Shape(
        "procedure:N",
        title=None,
        scale=alt.Scale(domain=names, range=["circle", "square", "triangle-up", "diamond"]),
    )
    x = alt.X(
        "correlation:O", title="correlation of the heads' scores within a class", axis=alt.Axis(labelAngle=0)
    )
    # The square root keeps 0, 1 % and 30 % apart on one axis.
    y = alt.Y(
        "error_rate:Q",
        title="certificates that are wrong (square-root axis)",
        scale=alt.Scale(type="sqrt", domain=[0, 0.36]),
        axis=alt.Axis(values=[0, 0.01, 0.03, 0.1, 0.2, 0.3], labelExpr=PERCENT, labelOverlap=False),
    )
    base = alt.Chart().encode(x=x, color=colour, xOffset=alt.XOffset("procedure:N", sort=names))
    bars = base.mark_rule(strokeWidth=1.4).encode(
        y=alt.Y("low:Q", title="certificates that are wrong (square-root axis)"), y2="high:Q"
    )
    points = base.mark_point(filled=True, size=55, opacity=1).encode(y=y, shape=shape)
    nominal = alt.Chart().mark_rule(strokeDash=[5, 4], color=BLACK).encode(y=alt.Y("nominal:Q"))
    layers = alt.layer(nominal, bars, points, data=_inline(data)).properties(width=330, height=230)
    return finish(layers.facet(alt.Facet("panel:N", title=None, sort=_order(data)), columns=2))


def resplit_chart(points: pl.DataFrame) -> alt.TopLevelMixin:
    """Distribution functions over the splits of one cohort: dismissal and bound, one row per cohort."""
    data = points.with_columns(
        dismissal=pl.col("dismissed") / pl.col("cases"), name=_percent("target") + " target"
    )
    names = ["98 % target", "95 % target"]
    style = {
        "color": alt.Color(
            "name:N",
            title=None,
            scale=alt.Scale(domain=names, range=[BLUE, ORANGE]),
            legend=alt.Legend(orient="bottom", symbolType="stroke", symbolStrokeWidth=3),
        ),
        "strokeDash": alt.StrokeDash(
            "name:N", title=None, scale=alt.Scale(domain=names, range=[[1, 0], [6, 3]])
        ),
    }
    columns = (
        ("dismissal", "dismissed evaluation cases (%)", 0.9),
        ("bound", "99 % bound on cancer among them (%)", 0.1),
    )
    rows = []
    for cohort in data["cohort"].unique(maintain_order=True):
        of_cohort = data.filter(pl.col("cohort") == cohort)
        panels = [
            _distribution(of_cohort, column, title, last).encode(**style) for column, title, last in columns
        ]
        rows.append(alt.hconcat(*panels, spacing=30))
    return finish(alt.vconcat(*rows, spacing=25))


def _distribution(data: pl.DataFrame, column: str, title: str, last: float) -> alt.Chart:
    """Draw the share of splits at or below each value, up to `last`."""
    steps = (
        data.group_by("name", column)
        .len()
        .sort("name", column)
        .with_columns(share=pl.col("len").cum_sum().over("name") / pl.col("len").sum().over("name"))
    )
    ends = [
        {"name": name, column: value, "share": share}
        for name in steps["name"].unique()
        for value, share in ((0.0, 0.0), (1.0, 1.0))
    ]
    rows = sorted([*steps.drop("len").to_dicts(), *ends], key=lambda row: (row["name"], row[column]))
    first = data.row(0, named=True)
    heading = f"{first['cohort']}: evaluation on {first['cases']:,} cases, {first['positives']} positive"
    percent = alt.Axis(labelExpr="format(100 * datum.value, '.3~g')")
    return (
        alt.Chart(alt.Data(values=rows), title=alt.TitleParams(heading, fontSize=12))
        .mark_line(interpolate="step-after", strokeWidth=1.6, clip=True)
        .encode(
            x=alt.X(f"{column}:Q", title=title, scale=alt.Scale(domain=[0, last], nice=False), axis=percent),
            y=alt.Y("share:Q", title="splits at or below (%)", scale=alt.Scale(domain=[0, 1]), axis=percent),
        )
        .properties(width=330, height=170)
    )


def chance_chart(chances: pl.DataFrame, law: pl.DataFrame) -> alt.TopLevelMixin:
    """The chance to meet the target against search positives, one panel per target."""
    names = list(RULES.values())
    curves = chances.with_columns(pl.col("rule").replace_strict(RULES), panel=_percent("target") + " target")
    marks = law.filter(
        (pl.col("rule") == "recall") & pl.col("data_set").is_in(["NLBS", "RSNA"])
    ).with_columns(
        pl.col("rule").replace_strict(RULES),
        panel=_percent("target") + " target",
        label=pl.col("data_set") + " " + _percent("chance_met"),
        foot=pl.when(pl.col("data_set") == "NLBS").then(0.05).otherwise(0.13),  # below all curves
    )
    x = alt.X(
        "search_positives:Q",
        title="search positives (evaluation positives: four times as many)",
        scale=alt.Scale(domain=[0, 300], nice=False),
    )
    y = alt.Y(
        "chance_met:Q",
        title="chance that evaluation meets the target (%)",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(labelExpr="100 * datum.value"),
    )
    style = {
        "color": alt.Color(
            "rule:N",
            title=None,
            scale=alt.Scale(domain=names, range=[ORANGE, BLUE, GREEN]),
            legend=alt.Legend(orient="bottom", symbolType="stroke", symbolStrokeWidth=3),
        ),
    }
    panels = []
    for panel in curves["panel"].unique(maintain_order=True):
        line = (
            alt.Chart(_inline(curves.filter(pl.col("panel") == panel)))
            .mark_line(strokeWidth=1.3)
            .encode(x=x, y=y, **style)
        )
        at = alt.Chart(_inline(marks.filter(pl.col("panel") == panel))).encode(x=x, y=y)
        dots = at.mark_point(filled=True, size=70, color=BLACK, opacity=1)
        stems = at.mark_rule(color=BLACK, strokeDash=[2, 2]).encode(y2="foot:Q")
        labels = at.mark_text(align="left", dx=4, fontSize=12, fontWeight="bold", color=BLACK).encode(
            y="foot:Q", text="label:N"
        )
        title = alt.TitleParams(panel, fontSize=12)
        panels.append(alt.layer(line, stems, dots, labels).properties(width=330, height=230, title=title))
    return finish(alt.hconcat(*panels, spacing=30))


def failure_chart(failures: pl.DataFrame) -> alt.TopLevelMixin:
    """The exact chance of a wrong bound against the true rate, one panel per n."""
    data = failures.with_columns(panel="n = " + pl.col("n").cast(pl.String), nominal=pl.lit(DELTA))
    curve = (
        alt.Chart()
        .mark_line(strokeWidth=1.3, color=BLUE)
        .encode(
            x=alt.X(
                "rate:Q",
                title="true rate of cancer among the dismissed (%)",
                scale=alt.Scale(domain=[0, data["rate"].max()], nice=False),
                axis=alt.Axis(labelExpr="format(100 * datum.value, '.2~g')"),
            ),
            y=alt.Y(
                "failure:Q",
                title="chance that the bound is wrong (%)",
                scale=alt.Scale(domain=[0, 0.011], nice=False),
                axis=alt.Axis(
                    labelExpr="format(100 * datum.value, '.2~g')",
                    values=[0, 0.0025, 0.005, 0.0075, 0.01],
                ),
            ),
        )
    )
    nominal = alt.Chart().mark_rule(strokeDash=[5, 4], color=BLACK).encode(y="nominal:Q")
    layers = alt.layer(curve, nominal, data=_inline(data)).properties(width=330, height=170)
    return finish(layers.facet(alt.Facet("panel:N", title=None, sort=_order(data)), columns=2))


def _panel(column: str) -> pl.Expr:
    positives = pl.col("positives").cast(pl.String)
    size = pl.col("cases").cast(pl.String).str.replace(r"(\d{3})$", ",$1")
    return (
        pl.col(column)
        + " ("
        + size
        + " cases, "
        + positives
        + " positive), "
        + _percent("target")
        + " target"
    )


def _percent(column: str) -> pl.Expr:
    return (100 * pl.col(column)).round(0).cast(pl.Int64).cast(pl.String) + " %"


def _order(data: pl.DataFrame) -> list[str]:
    return data["panel"].unique(maintain_order=True).to_list()


def _inline(data: pl.DataFrame) -> alt.Data:
    """Put the rows into the chart itself: no row limit, nothing to fetch."""
    return alt.Data(values=data.to_dicts())
