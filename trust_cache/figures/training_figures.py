"""Figures of the training: the threshold by epoch and fold, and score quantiles by epoch."""

from collections.abc import Sequence

import altair as alt
import polars as pl

from trust_cache.base.errors import InputError, did_you_mean
from trust_cache.certificate.evidence import Evidence
from trust_cache.figures.chart_style import (
    BLACK,
    GREY,
    NEGATIVE,
    ORANGE,
    POSITIVE,
    colours_of,
    finish,
    inline,
    scale_of,
)
from trust_cache.figures.figure import NARROW, Figure, LegendEntry, Panel, View
from trust_cache.heads.run_folder import QUANTILE_NAMES

_CLASSES = {0: "images without cancer", 1: "images with cancer"}
_COLOURS = {_CLASSES[0]: NEGATIVE, _CLASSES[1]: POSITIVE}
_TAU = "threshold τ"
_HEIGHT = 170
_PANEL_WIDTH, _PANEL_HEIGHT, _COLUMNS = 250, 190, 3  # of the trajectories
_REGION, _REACH = "dismissal region: score below τ", "reach of the penalty: up to τ + margin"
_LOW_POSITIVES = "images with cancer: 5, 25 and 50 % quantiles"
_MIDDLE_NEGATIVES = "images without cancer: median"
_REACH_COLOUR = ORANGE


def threshold_figure(evidence: Evidence) -> Figure | None:
    """Draw tau by epoch, one line per fold and one panel per configuration; None where none has a tau."""
    table = evidence.thresholds
    if table is None:
        return None
    colours = colours_of(evidence.configurations)
    panels = tuple(
        Panel(str(name), _course(rows, colours.get(str(name), BLACK)))
        for (name,), rows in table.group_by("configuration", maintain_order=True)
    )
    last = table.filter(pl.col("epoch") == pl.col("epoch").max().over("configuration"))
    ends = last.group_by("configuration", maintain_order=True).agg(
        pl.col("tau").min().alias("low"), pl.col("tau").max().alias("high")
    )
    folds = table["fold"].n_unique()
    return Figure(
        key="tau-by-epoch",
        title="Threshold of the training by epoch",
        reading="The threshold in the dismissal loss by epoch, one line per fold (each is fitted on different"
        " cases). The closed loop recomputes it on the calibration images at the start of every epoch. Lines"
        " that level off mean that training has converged; lines far apart mean that the calibration part is"
        " small. This is not the certified threshold, which is chosen on the search subset.",
        alternative=f"Lines of tau over the epochs, one for each of {folds} folds; in the last epoch: "
        + "; ".join(
            f"{row['configuration']} {row['low']:.4g} to {row['high']:.4g}" for row in ends.to_dicts()
        )
        + ".",
        panels=panels,
        data=table,
    )


def _course(rows: pl.DataFrame, colour: str) -> View:
    epochs = int(rows["epoch"].max())  # type: ignore[arg-type]
    points = alt.OverlayMarkDef(size=14, color=colour)
    chart: View = (
        alt.Chart(inline(rows.select("fold", "epoch", "tau")))
        .mark_line(color=colour, strokeWidth=1.3, opacity=0.85, point=points)
        .encode(
            x=alt.X(
                "epoch:Q", title="epoch", scale=alt.Scale(domain=[0, max(epochs, 1)], nice=False),
                axis=alt.Axis(tickMinStep=1, tickCount=5, format="d"),
            ),
            y=alt.Y("tau:Q", title="τ", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5)),
            detail="fold:N",
            tooltip=[
                alt.Tooltip("fold:N", title="fold"),
                alt.Tooltip("epoch:Q", title="epoch"),
                alt.Tooltip("tau:Q", format=".6~g", title="τ"),
            ],
        )
        .properties(width=NARROW, height=_HEIGHT)
    )  # fmt: skip
    return chart


def loop_figure(
    key: str, title: str, quantiles: pl.DataFrame, taus: pl.DataFrame, configuration: str, margin: float
) -> Figure:
    """Draw the closed loop in each fold: the dismissal region, the penalty's reach, and positives in them.

    `quantiles` and `taus` are tables of a run folder, `margin` is that of the configuration.
    """
    quantiles, taus = (table.filter(configuration=configuration) for table in (quantiles, taus))
    held = _held(taus).with_columns(reach=pl.col("tau") + margin)
    positives = quantiles.filter(label=1)
    top = 1.05 * max([*held["reach"], *quantiles["q50"].drop_nulls()])
    folds = taus["fold"].unique(maintain_order=True).to_list()
    panels = tuple(
        Panel(f"fold {fold}", _loop_panel(quantiles.filter(fold=fold), held.filter(fold=fold), top))
        for fold in folds
    )
    lowest = positives.group_by("epoch", maintain_order=True).agg(pl.col("q05").mean())["q05"].drop_nulls()
    return Figure(
        key=key,
        title=title,
        reading="One panel per fold. Blue: the dismissal region, scores below τ, which the loop recomputes on"
        " the calibration images at the start of every epoch. Orange: the reach of the penalty, up to"
        f" τ + {margin:g}. Red: calibration images with cancer, the 5 % quantile thick, those of 25 and 50 %"
        " thin; the penalty pushes fitting images with cancer out of both regions. Grey: the median of images"
        " without cancer. τ is 0 where no threshold keeps the bound.",
        alternative=f"Tau by epoch in {len(folds)} folds with the region below it; the 5 % quantiles of"
        f" images with cancer by epoch, as means over folds: {', '.join(f'{low:.3f}' for low in lowest)}.",
        panels=panels,
        data=quantiles.join(held.select("fold", "epoch", "tau", "reach"), on=["fold", "epoch"], how="left"),
        legend=(
            LegendEntry(_REGION, NEGATIVE, line=False),
            LegendEntry(_REACH, _REACH_COLOUR, line=False),
            LegendEntry(_LOW_POSITIVES, POSITIVE),
            LegendEntry(_MIDDLE_NEGATIVES, GREY),
        ),
        paper=lambda: _on_paper(title, configuration, panels),
    )


def _on_paper(title: str, configuration: str, panels: Sequence[Panel]) -> alt.TopLevelMixin:
    words = [
        f"{configuration}. Blue: {_REGION}. Orange: {_REACH}.",
        f"Red: {_LOW_POSITIVES}. Grey: {_MIDDLE_NEGATIVES}.",
    ]
    charts = [panel.chart.properties(title=panel.title) for panel in panels]
    return alt.concat(*charts, columns=_COLUMNS, title=alt.TitleParams(title, subtitle=words, offset=14))


def _loop_panel(quantiles: pl.DataFrame, held: pl.DataFrame, top: float) -> View:
    x = alt.X("epoch:Q", title="epochs trained", axis=alt.Axis(tickMinStep=1, tickCount=5, format="d"))
    scale = alt.Scale(domain=[0, top], nice=False)
    regions = alt.Chart(inline(held.with_columns(zero=pl.lit(0.0)))).encode(x=x)
    area = [
        regions.mark_area(interpolate="step-after", opacity=0.25, color=colour).encode(
            y=alt.Y(f"{low}:Q", title="score", scale=scale), y2=f"{high}:Q"
        )
        for low, high, colour in (("zero", "tau", NEGATIVE), ("tau", "reach", _REACH_COLOUR))
    ]
    tau = regions.mark_line(interpolate="step-after", strokeWidth=1.8, color=NEGATIVE).encode(
        y=alt.Y("tau:Q", scale=scale)
    )
    lines = [
        alt.Chart(inline(quantiles.filter(label=label)))
        .mark_line(color=colour, strokeWidth=width)
        .encode(x=x, y=alt.Y(f"{name}:Q", scale=scale))
        for label, name, colour, width in (
            (0, "q50", GREY, 1.5),
            (1, "q50", POSITIVE, 0.8),
            (1, "q25", POSITIVE, 1.2),
            (1, "q05", POSITIVE, 2.0),
        )
    ]
    return alt.layer(*area, tau, *lines).properties(width=NARROW, height=_HEIGHT)


def _held(taus: pl.DataFrame) -> pl.DataFrame:
    """Add the end of the last epoch, until which the last tau holds."""
    last = taus.filter(pl.col("epoch") == pl.col("epoch").max().over("configuration"))
    return pl.concat([taus, last.with_columns(pl.col("epoch") + 1)])


def trajectory_chart(
    quantiles: pl.DataFrame, taus: pl.DataFrame, configurations: Sequence[str] | None = None
) -> alt.ConcatChart:
    """Draw one panel per configuration: median and quantile bands of each class, and tau.

    Bands and medians are means over the folds. Tau is drawn for each fold (thin) and as a mean.
    `quantiles` and `taus` are tables of a run folder; `configurations` chooses some, in this order.
    """
    known = quantiles["configuration"].unique(maintain_order=True).to_list()
    names = known if configurations is None else list(configurations)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise InputError(f"configurations: expected {', '.join(known)}, found {name!r}{hint}")
    quantiles, taus = (table.filter(pl.col("configuration").is_in(names)) for table in (quantiles, taus))
    means = (
        quantiles.group_by("configuration", "epoch", "label", maintain_order=True)
        .agg(pl.col(*QUANTILE_NAMES).mean())
        .with_columns(pl.col("label").replace_strict(_CLASSES, return_dtype=pl.String).alias("class"))
    )
    highest = pl.concat([means["q95"], taus["tau"]]).drop_nulls().to_list()
    top = min(1.0, 1.05 * max(highest, default=1.0))
    held = _held(taus)
    panels = [
        _panel(name, means.filter(configuration=name), held.filter(configuration=name), top) for name in names
    ]
    folds = quantiles["fold"].n_unique()
    mean = f"; means of {folds} folds, thin lines: τ of each fold" if folds > 1 else ""
    title = alt.TitleParams(
        "Score quantiles and threshold by epoch",
        subtitle=f"Calibration images: median, 25-75 % and 5-95 % bands of each class{mean}",
        offset=14,
    )
    chart = alt.concat(*panels, columns=_COLUMNS, spacing=25, title=title)
    shared: alt.ConcatChart = chart.resolve_scale(color="shared", strokeDash="shared")
    return finish(shared)


def _panel(name: str, means: pl.DataFrame, taus: pl.DataFrame, top: float) -> alt.LayerChart | alt.FacetChart:
    x = alt.X("epoch:Q", title="epochs trained", axis=alt.Axis(tickMinStep=1, format="d"))
    y_scale = alt.Scale(domain=[0, top], nice=False)
    legend = alt.Legend(
        orient="bottom", symbolType="stroke", symbolStrokeWidth=3, symbolSize=300, symbolOpacity=1
    )
    colour = alt.Color("class:N", title=None, scale=scale_of(_COLOURS), legend=legend)
    base = alt.Chart(inline(means)).encode(x=x)
    title = "score of calibration images"
    bands = [
        base.mark_area(opacity=opacity).encode(
            y=alt.Y(f"{low}:Q", title=title, scale=y_scale), y2=f"{high}:Q", color=colour
        )
        for low, high, opacity in (("q05", "q95", 0.13), ("q25", "q75", 0.22))
    ]
    median = base.mark_line(strokeWidth=2).encode(y=alt.Y("q50:Q", scale=y_scale), color=colour)
    by_fold = alt.Chart(inline(taus)).encode(x=x, y=alt.Y("tau:Q", scale=y_scale))
    mean = (
        taus.group_by("epoch", maintain_order=True).agg(pl.col("tau").mean()).with_columns(what=pl.lit(_TAU))
    )
    dash = alt.StrokeDash("what:N", title=None, scale=scale_of({_TAU: [5, 3]}), legend=legend)
    lines = [
        by_fold.mark_line(interpolate="step-after", strokeWidth=0.6, opacity=0.6, color=BLACK).encode(
            detail="fold:N"
        ),
        alt.Chart(inline(mean))
        .mark_line(interpolate="step-after", strokeWidth=2, color=BLACK)
        .encode(x=x, y=alt.Y("tau:Q", scale=y_scale), strokeDash=dash),
    ]
    layers = [*bands, median, *(lines if taus.height else [])]
    return alt.layer(*layers, title=name).properties(width=_PANEL_WIDTH, height=_PANEL_HEIGHT)
