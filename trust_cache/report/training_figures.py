"""The figure of the training: the closed loop's threshold by epoch, a line for each fold."""

import altair as alt
import polars as pl

from trust_cache.report.evidence import Evidence
from trust_cache.report.figure import NARROW, Figure, Panel, View, inline, on_paper
from trust_cache.studies.charts import colours_of

_HEIGHT = 170


def threshold_figure(evidence: Evidence) -> Figure | None:
    """Tau by epoch and fold for each configuration that has one; None where none has."""
    table = evidence.record.thresholds
    if table is None:
        return None
    colours = colours_of(evidence.configurations)
    panels = []
    for (name,), rows in table.group_by("configuration", maintain_order=True):
        panels.append(Panel(str(name), _course(rows, colours.get(str(name), "#333333"))))
    last = table.filter(pl.col("epoch") == pl.col("epoch").max().over("configuration"))
    ends = last.group_by("configuration", maintain_order=True).agg(
        pl.col("tau").min().alias("low"), pl.col("tau").max().alias("high")
    )
    folds = table["fold"].n_unique()
    return Figure(
        key="tau-by-epoch",
        title="Threshold of the training by epoch",
        reading="The threshold that the dismissal loss used in each epoch, a line for each fold"
        " (fitted on different cases). A closed loop recomputes it at the start of every epoch on the"
        " calibration images: lines that settle mean that loss and threshold have come to terms; lines"
        " far apart, that the calibration part is small. It is not the certified threshold, which"
        " the search subset gives.",
        alternative=f"Lines of tau over the epochs, one for each of {folds} folds; in the last epoch: "
        + "; ".join(
            f"{row['configuration']} {row['low']:.4g} to {row['high']:.4g}" for row in ends.to_dicts()
        )
        + ".",
        panels=tuple(panels),
        paper=on_paper(panels),
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
