"""The charts of the study's page: rows in, Vega-Lite out."""

import altair as alt
import polars as pl
from study_simulation import MECHANISM_PRESETS, RATES, RECALLS, SENSITIVITY_PRESETS
from study_tables import contrast, measure_of

from trust_cache.figures.chart_style import BLACK, BLUE, GREEN, GREY, VERMILLION, finish, inline
from trust_cache.synthetic.feature_law import preset_laws

CONTRASTS = {
    "closed-loop − ce-focal": ("closed-loop", "ce-focal"),
    "closed-loop − fixed-tau": ("closed-loop", "fixed-tau"),
    "ce-focal − ce": ("ce-focal", "ce"),
    "ce at lr 0.001 − ce": ("ce-lr-0.001", "ce"),
}
_PANELS = [f"{100 * recall:g} % recall" for recall in RECALLS]
RATE_WORDS = {rate: f"{rate:g}" for rate in RATES}
_COLOURS = dict(zip(CONTRASTS, (VERMILLION, BLUE, GREEN, BLACK), strict=True))
_SHAPES = dict(zip(CONTRASTS, ("circle", "square", "triangle-up", "diamond"), strict=True))


def differences_chart(rows: pl.DataFrame) -> alt.TopLevelMixin:
    """Differences of configurations in points of true dismissal, by preset; one panel per recall."""
    found = []
    for recall in RECALLS:
        for preset in preset_laws():
            here = rows.filter(setting=preset)
            for name, pair in CONTRASTS.items():
                item = contrast(here, *pair, measure_of(recall))
                ends = {"mean": item.mean, "low": item.low, "high": item.high}
                points = {key: 100 * value for key, value in ends.items()}
                found.append(
                    {"panel": f"{100 * recall:g} % recall", "preset": preset, "contrast": name} | points
                )
    names = list(CONTRASTS)
    colour = alt.Color(
        "contrast:N",
        title=None,
        scale=alt.Scale(domain=names, range=list(_COLOURS.values())),
        legend=alt.Legend(orient="bottom", columns=2, labelLimit=300),
    )
    shape = alt.Shape("contrast:N", scale=alt.Scale(domain=names, range=list(_SHAPES.values())), title=None)
    y = alt.Y("preset:N", title=None, sort=list(preset_laws()))
    base = alt.Chart().encode(y=y, yOffset=alt.YOffset("contrast:N", sort=names), color=colour)
    x = alt.X("mean:Q", title="points of dismissal")
    points = base.mark_point(filled=True, size=28).encode(x=x, shape=shape)
    rules = base.mark_rule().encode(x=alt.X("low:Q"), x2="high:Q")
    zero = alt.Chart().mark_rule(color=GREY, strokeDash=[3, 3]).encode(x=alt.datum(0))
    layers = alt.layer(zero, rules, points, data=inline(pl.DataFrame(found))).properties(
        width=270, height=300
    )
    return finish(layers.facet(facet=alt.Facet("panel:N", title=None, sort=_PANELS), columns=2))


def rates_chart(rows: pl.DataFrame) -> alt.TopLevelMixin:
    """The true dismissal without the penalty over learning rate and epochs."""
    here = (
        rows.filter(lambda_dismiss=0.0)
        .group_by("setting", "lr", "epochs")
        .agg(**{f"{100 * recall:g} % recall": 100 * pl.col(measure_of(recall)).mean() for recall in RECALLS})
        .sort("setting", "lr", "epochs")
    )
    panels = [_rate_panel(here, preset, recall) for preset in SENSITIVITY_PRESETS for recall in RECALLS]
    return finish(alt.concat(*panels, columns=2).resolve_scale(color="independent"))


def _rate_panel(rows: pl.DataFrame, preset: str, recall: float) -> alt.TopLevelMixin:
    name = f"{100 * recall:g} % recall"
    data = rows.filter(setting=preset).with_columns(
        value=pl.col(name),
        text=pl.col(name).round(1).cast(pl.String),
        lr=pl.col("lr").replace_strict(RATE_WORDS),
    )
    x = alt.X("epochs:O", title="epochs", axis=alt.Axis(labelAngle=0))
    y = alt.Y("lr:O", title="learning rate", sort=[RATE_WORDS[rate] for rate in reversed(RATES)])
    base = alt.Chart(inline(data), title=f"{preset}, {name}: dismissal in %").encode(x=x, y=y)
    tiles = base.mark_rect().encode(
        color=alt.Color("value:Q", title=None, scale=alt.Scale(scheme="blues"), legend=None)
    )
    middle = float(data["value"].min() + data["value"].max()) / 2  # type: ignore[operator, arg-type]
    words = base.mark_text().encode(
        text="text:N", color=alt.condition(alt.datum.value > middle, alt.value("white"), alt.value(BLACK))
    )
    return (tiles + words).properties(width=250, height=170)


def penalty_chart(rows: pl.DataFrame) -> alt.TopLevelMixin:
    """What the penalty changes in true dismissal, over its weight and margin, at each learning rate."""
    data = pl.concat([_penalty_gains(rows, recall) for recall in RECALLS])
    margins = sorted(data["margin"].unique())
    colour = alt.Color(
        "margin:N", title=None, scale=alt.Scale(domain=margins, range=[BLUE, GREEN, VERMILLION]),
        legend=alt.Legend(orient="bottom"),
    )  # fmt: skip
    x = alt.X(
        "lambda_dismiss:Q",
        title="lambda_dismiss",
        scale=alt.Scale(type="log"),
        axis=alt.Axis(values=[0.02, 0.05, 0.2, 1]),
    )
    base_chart = alt.Chart().encode(x=x, color=colour)
    lines = base_chart.mark_line(point=True).encode(y=alt.Y("value:Q", title="points"))
    bars = base_chart.mark_rule().encode(y=alt.Y("low:Q"), y2="high:Q")
    zero = alt.Chart().mark_rule(color=GREY, strokeDash=[3, 3]).encode(y=alt.datum(0))
    layers = alt.layer(zero, bars, lines, data=inline(data)).properties(width=120, height=110)
    return finish(
        layers.facet(
            column=alt.Column("lr:N", title=None, sort=[f"lr {RATE_WORDS[rate]}" for rate in RATES]),
            row=alt.Row("row:N", title=None, sort=data["row"].unique(maintain_order=True).to_list()),
        )
    )


def _penalty_gains(rows: pl.DataFrame, recall: float) -> pl.DataFrame:
    """Return the mean change at a recall after 20 epochs for each setting, with two standard errors."""
    measure = pl.col(measure_of(recall))
    here = rows.filter(epochs=20)
    base = here.filter(lambda_dismiss=0.0).select("setting", "cohort", "lr", base=measure)
    gain = 100 * (measure - pl.col("base"))
    return (
        here.filter(pl.col("lambda_dismiss") > 0)
        .join(base, on=["setting", "cohort", "lr"])
        .group_by("setting", "lambda_dismiss", "margin", "lr")
        .agg(value=gain.mean(), error=gain.std() / pl.len().sqrt())
        .with_columns(low=pl.col("value") - 2 * pl.col("error"), high=pl.col("value") + 2 * pl.col("error"))
        .with_columns(
            margin=pl.format("margin {}", "margin"),
            lr=pl.format("lr {}", pl.col("lr").replace_strict(RATE_WORDS)),
            row=pl.format("{}, {} %", "setting", pl.lit(f"{100 * recall:g}")),
        )
        .sort("setting", "lr", "margin", "lambda_dismiss")
    )


def mechanism_chart(rows: pl.DataFrame) -> alt.TopLevelMixin:
    """Tau by epoch and the share of positives within its reach, and what of each kind is missed."""
    loop = rows.filter(configuration="closed-loop", lr=rows["lr"].min()).with_columns(
        pl.col("setting").cast(pl.Enum(MECHANISM_PRESETS))
    )
    tau = (
        loop.group_by("setting", "epoch")
        .agg(tau=pl.col("tau").mean(), reached=pl.col("reached").mean())
        .unpivot(index=["setting", "epoch"], variable_name="line")
        .with_columns(
            pl.col("line").replace({"tau": "tau", "reached": "share of positives below tau + margin"})
        )
        .sort("setting", "line", "epoch")
    )
    colour = alt.Color(
        "line:N", title=None, scale=alt.Scale(range=[VERMILLION, BLUE]),
        legend=alt.Legend(orient="bottom", labelLimit=300),
    )  # fmt: skip
    chart = alt.Chart(inline(tau.with_columns(pl.col("setting").cast(pl.String)))).mark_line()
    drawn = chart.encode(
        x=alt.X("epoch:Q", title="epoch"), y=alt.Y("value:Q", title=None), color=colour,
        strokeDash=alt.StrokeDash("line:N", title=None),
    ).properties(width=150, height=140)  # fmt: skip
    return finish(drawn.facet(column=alt.Column("setting:N", title=None, sort=list(MECHANISM_PRESETS))))


def views_chart(rows: pl.DataFrame) -> alt.TopLevelMixin:
    """The true dismissal by the number of cached views."""
    order = rows["setting"].cast(pl.String).unique(maintain_order=True).to_list()
    data = (
        rows.with_columns(pl.col("setting").cast(pl.String))
        .group_by("setting", "configuration", maintain_order=True)
        .agg(
            *(
                item
                for recall in RECALLS
                for item in (
                    (100 * pl.col(measure_of(recall)).mean()).alias(f"{recall}"),
                    (100 * pl.col(measure_of(recall)).std() / pl.len().sqrt()).alias(f"{recall} error"),
                )
            )
        )
    )
    parts = [
        data.select(
            "setting", "configuration", value=pl.col(f"{recall}"),
            low=pl.col(f"{recall}") - 2 * pl.col(f"{recall} error"),
            high=pl.col(f"{recall}") + 2 * pl.col(f"{recall} error"),
            panel=pl.lit(f"{100 * recall:g} % recall"),
        )
        for recall in RECALLS
    ]  # fmt: skip
    x = alt.X("setting:O", title="augmented views", sort=order, axis=alt.Axis(labelAngle=0))
    names = sorted(data["configuration"].unique())
    colour = alt.Color(
        "configuration:N", title=None, scale=alt.Scale(domain=names, range=[BLUE, BLACK, VERMILLION]),
        legend=alt.Legend(orient="bottom"),
    )  # fmt: skip
    shape = alt.Shape("configuration:N", title=None, scale=alt.Scale(domain=names))  # of one legend
    base = alt.Chart().encode(x=x, color=colour, xOffset="configuration:N")
    y = alt.Y("value:Q", title="dismissal in %", scale=alt.Scale(zero=False))
    points = base.mark_point(filled=True).encode(y=y, shape=shape)
    bars = base.mark_rule().encode(y=alt.Y("low:Q", scale=alt.Scale(zero=False)), y2="high:Q")
    layers = alt.layer(bars, points, data=inline(pl.concat(parts))).properties(width=290, height=200)
    drawn = layers.facet(column=alt.Column("panel:N", title=None, sort=_PANELS)).resolve_scale(
        y="independent"
    )
    return finish(drawn)
