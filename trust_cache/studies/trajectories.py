"""How training went: tau and the class-conditional score quantiles of each configuration by epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import altair as alt
import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.base.tables import read_text_table
from trust_cache.heads.run_files import QUANTILE_NAMES
from trust_cache.studies import charts

CLASSES = {0: "images without cancer", 1: "images with cancer"}
_COLOURS = {CLASSES[0]: charts.NEGATIVE, CLASSES[1]: charts.POSITIVE}
_TAU = "threshold τ"
_WIDTH, _HEIGHT, _COLUMNS = 250, 190, 3


@dataclass(frozen=True)
class Trajectories:
    """What a run recorded at the start of every epoch, on its calibration images, by fold."""

    quantiles: pl.DataFrame  # configuration, fold, epoch, label, q05 .. q95
    taus: pl.DataFrame  # configuration, fold, epoch, tau; only configurations with one

    @property
    def configurations(self) -> list[str]:
        """The configurations in the run's order."""
        return self.quantiles["configuration"].unique(maintain_order=True).to_list()


def read_trajectories(run: Path) -> Trajectories:
    """Read trajectories.csv and thresholds.csv of a run folder."""
    for name in ("trajectories.csv", "thresholds.csv"):
        if not (run / name).is_file():
            raise InputError(f"{run}: expected a run folder with {name} in it, found none")
    numbers = {"epoch": pl.Int64, "label": pl.Int64, "tau": pl.Float64}
    numbers |= dict.fromkeys(QUANTILE_NAMES, pl.Float64)
    wanted = ("configuration", "fold", "epoch", "label", *QUANTILE_NAMES)
    quantiles = _numbers(read_text_table(run / "trajectories.csv", wanted), numbers, run / "trajectories.csv")
    file, names = run / "thresholds.csv", ("configuration", "fold", "epoch", "tau")
    if file.read_text(encoding="utf-8").count("\n") > 1:
        taus = _numbers(read_text_table(file, names), numbers, file)
    else:  # no configuration has a tau
        taus = pl.DataFrame(schema=dict.fromkeys(names, pl.String) | {"epoch": pl.Int64, "tau": pl.Float64})
    return Trajectories(quantiles, taus.select(names))


def choose(trajectories: Trajectories, names: Sequence[str]) -> Trajectories:
    """Keep these configurations, in this order; an unknown one is an error naming the nearest."""
    known = trajectories.configurations
    for name in names:
        if name not in known:
            nearest = get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise InputError(f"configurations: expected {', '.join(known)}, found {name!r}{hint}")
    parts = [trajectories.quantiles.filter(pl.col("configuration") == name) for name in names]
    return Trajectories(pl.concat(parts), trajectories.taus.filter(pl.col("configuration").is_in(names)))


def trajectory_chart(trajectories: Trajectories) -> alt.ConcatChart:
    """Draw a panel for each configuration: median and quantile bands of either class, and tau.

    Bands and medians are means over the folds; tau is drawn for each fold (thin) and as their mean.
    """
    means = (
        trajectories.quantiles.group_by("configuration", "epoch", "label", maintain_order=True)
        .agg(pl.col(*QUANTILE_NAMES).mean())
        .with_columns(pl.col("label").replace_strict(CLASSES, return_dtype=pl.String).alias("class"))
    )
    highest = pl.concat([means["q95"], trajectories.taus["tau"]]).drop_nulls().to_list()
    top = min(1.0, 1.05 * max(highest, default=1.0))
    panels = [
        _panel(
            name,
            means.filter(pl.col("configuration") == name),
            _held(trajectories.taus.filter(pl.col("configuration") == name)),
            top,
        )
        for name in trajectories.configurations
    ]
    chart = alt.concat(*panels, columns=_COLUMNS, spacing=25, title=_title(trajectories))
    shared: alt.ConcatChart = chart.resolve_scale(color="shared", strokeDash="shared")
    return charts.finish(shared)


def _panel(name: str, means: pl.DataFrame, taus: pl.DataFrame, top: float) -> alt.LayerChart | alt.FacetChart:
    x = alt.X("epoch:Q", title="epochs trained", axis=alt.Axis(tickMinStep=1, format="d"))
    y_scale = alt.Scale(domain=[0, top], nice=False)
    colour = alt.Color("class:N", title=None, scale=charts.scale_of(_COLOURS), legend=_legend())
    base = alt.Chart(charts.inline(means)).encode(x=x)
    title = "score of calibration images"
    bands = [
        base.mark_area(opacity=opacity).encode(
            y=alt.Y(f"{low}:Q", title=title, scale=y_scale), y2=f"{high}:Q", color=colour
        )
        for low, high, opacity in (("q05", "q95", 0.13), ("q25", "q75", 0.22))
    ]
    median = base.mark_line(strokeWidth=2).encode(y=alt.Y("q50:Q", scale=y_scale), color=colour)
    by_fold = alt.Chart(charts.inline(taus)).encode(x=x, y=alt.Y("tau:Q", scale=y_scale))
    mean = (
        taus.group_by("epoch", maintain_order=True).agg(pl.col("tau").mean()).with_columns(what=pl.lit(_TAU))
    )
    dash = alt.StrokeDash("what:N", title=None, scale=charts.scale_of({_TAU: [5, 3]}), legend=_legend())
    lines = [
        by_fold.mark_line(interpolate="step-after", strokeWidth=0.6, opacity=0.6, color=charts.BLACK).encode(
            detail="fold:N"
        ),
        alt.Chart(charts.inline(mean.with_columns(what=pl.lit(_TAU))))
        .mark_line(interpolate="step-after", strokeWidth=2, color=charts.BLACK)
        .encode(x=x, y=alt.Y("tau:Q", scale=y_scale), strokeDash=dash),
    ]
    layers = [*bands, median, *(lines if taus.height else [])]
    return alt.layer(*layers, title=name).properties(width=_WIDTH, height=_HEIGHT)


def _held(taus: pl.DataFrame) -> pl.DataFrame:
    """Let the last tau hold to the end of its epoch, as it did in training."""
    last = taus.filter(pl.col("epoch") == pl.col("epoch").max())
    return pl.concat([taus, last.with_columns(pl.col("epoch") + 1)])


def _title(trajectories: Trajectories) -> alt.TitleParams:
    folds = trajectories.quantiles["fold"].n_unique()
    mean = f"; all are means of {folds} folds, each fold's τ a thin line" if folds > 1 else ""
    return alt.TitleParams(
        "Score quantiles and threshold by epoch",
        subtitle=f"Calibration images: median, 25-75 % and 5-95 % bands of either class{mean}",
        offset=14,
    )


def _legend() -> alt.Legend:
    return alt.Legend(
        orient="bottom", symbolType="stroke", symbolStrokeWidth=3, symbolSize=300, symbolOpacity=1
    )


def _numbers(table: pl.DataFrame, types: Mapping[str, type[pl.DataType]], source: Path) -> pl.DataFrame:
    """Give the columns of numbers their types; empty cells stay undefined."""
    try:
        return table.with_columns(
            pl.col(name).cast(kind) for name, kind in types.items() if name in table.columns
        )
    except pl.exceptions.PolarsError as error:
        first = str(error).splitlines()[0]
        raise InputError(f"{source}: expected numbers ({first}); the file was changed by hand?") from error
