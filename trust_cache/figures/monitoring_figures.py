"""Figures of monitoring: the bounds and the counts of a stream of cases, and what a plan can expect."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.text_tables import percent
from trust_cache.certificate.planning.watch_plan import AssurancePlan, WatchPlan
from trust_cache.figures.chart_style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION, inline, scale_of
from trust_cache.figures.figure import NARROW, Figure, LegendEntry, Panel, View, percent_axis

_MOST_POINTS = 400  # of a line; more cannot be seen
_TOP = 3.0  # certified bounds on the axis of rates
_HEIGHT = 240

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class DrawnStream:
    """A confidence sequence after each case, and the counts at which it decides."""

    name: str  # "dismissed cases"
    key: str
    days: Integers = field(repr=False)  # ordinals
    cancers: Integers = field(repr=False)
    unknown: Integers = field(repr=False)
    upper: Floats = field(repr=False)
    lower: Floats = field(repr=False)
    confirms: Integers | None = field(repr=False)  # the largest count that confirms, -1 for none
    alarms: Integers | None = field(repr=False)  # the smallest count that raises the alarm
    bound: float | None  # certified


_RATES = {"at most": BLUE, "at least": VERMILLION, "certified bound": BLACK}
_COUNTS = {
    "cancers": VERMILLION, "cancers and unknown": ORANGE,
    "alarm from here": BLACK, "confirmed up to here": GREEN,
}  # fmt: skip
_DASHES = {"certified bound": (5, 3), "alarm from here": (5, 3), "confirmed up to here": (2, 2)}


def stream_figure(stream: DrawnStream) -> Figure:
    """Draw the bounds and the counts of a stream over the examination dates."""
    data = _rows(stream)
    top = 1.0 if stream.bound is None else min(1.0, max(_TOP * stream.bound, 1.2 * float(stream.upper[-1])))
    shares = alt.Y("value:Q", title="cancer rate", scale=alt.Scale(domain=[0, top]), axis=percent_axis())
    rates = _lines(data, _RATES, shares)
    counts = _lines(data, _COUNTS, alt.Y("value:Q", title="cases"))
    last = f"{percent(float(stream.lower[-1]))} to {percent(float(stream.upper[-1]))}"
    return Figure(
        key=stream.key,
        title=f"The {stream.name} over time",
        reading="Left: the interval of rates that the cases counted so far allow, at every moment. The bound"
        " is confirmed while the upper line is at or below the dashed one; the alarm sounds when the lower"
        " line crosses it. Right: the same as counts. An alarm needs as many known cancers as the black"
        " dashed line, a confirmation no more cancers and unknown outcomes together than the green dotted"
        " one.",
        alternative=f"Line charts over {stream.days.size:,} {stream.name}:"
        f" {int(stream.cancers[-1]):,} cancers, {int(stream.unknown[-1]):,} unknown; the rate is between"
        f" {last}" + (f"; certified {percent(stream.bound)}." if stream.bound is not None else "."),
        panels=(Panel("bounds", rates), Panel("counts", counts)),
        data=data,
        legend=tuple(
            LegendEntry(name, colour, _DASHES.get(name, (1, 0)))
            for name, colour in (_RATES | _COUNTS).items()
            if name in data["line"].unique().to_list()
        ),
    )


def _rows(stream: DrawnStream) -> pl.DataFrame:
    size = stream.days.size
    kept = np.unique(np.linspace(0, size - 1, min(size, _MOST_POINTS)).astype(np.int64))
    lines: dict[str, NDArray[np.float64]] = {
        "at most": stream.upper,
        "at least": stream.lower,
        "cancers": stream.cancers.astype(np.float64),
        "cancers and unknown": (stream.cancers + stream.unknown).astype(np.float64),
    }
    if stream.bound is not None and stream.confirms is not None and stream.alarms is not None:
        lines["certified bound"] = np.full(size, stream.bound)
        lines["alarm from here"] = stream.alarms.astype(np.float64)
        confirms = stream.confirms.astype(np.float64)
        lines["confirmed up to here"] = np.where(confirms < 0, np.nan, confirms)
    rows = [
        {
            "examined": date.fromordinal(int(stream.days[place])).isoformat(),
            "cases": int(place) + 1,
            "line": name,
            "value": float(values[place]),
        }
        for name, values in lines.items()
        for place in kept
        if np.isfinite(values[place])
    ]
    return pl.DataFrame(rows)


def _lines(data: pl.DataFrame, colours: dict[str, str], y: alt.Y) -> View:
    names = [name for name in colours if name in data["line"].unique().to_list()]
    chart = alt.Chart(inline(data.filter(pl.col("line").is_in(names))))
    dashes = {name: list(_DASHES.get(name, (1, 0))) for name in names}
    lines = chart.mark_line(strokeWidth=1.8, interpolate="step-after", clip=True).encode(
        x=alt.X(
            "examined:T",
            title="examined until",
            axis=alt.Axis(format="%b %Y", labelOverlap=True, tickCount=5),
        ),
        y=y,
        color=alt.Color("line:N", scale=scale_of({name: colours[name] for name in names}), legend=None),
        strokeDash=alt.StrokeDash("line:N", scale=scale_of(dashes), legend=None),
        tooltip=["examined:T", "cases:Q", "line:N", "value:Q"],
    )
    return alt.layer(lines).properties(width=NARROW, height=_HEIGHT)


def assurance_figure(plan: AssurancePlan) -> Figure:
    """Draw the assurance of a study by its number of cases."""
    cases, chances = zip(*plan.curve, strict=True)
    return chance_figure(
        "assurance",
        "Assurance by the number of cases",
        f"The chance that the bound is at most {percent(plan.limit)} if {percent(plan.rate)} of the"
        f" dismissed have cancer and {percent(plan.dismissal, 0)} of cases are dismissed. It falls where a"
        " case is added that does not yet allow one more cancer.",
        "cases of the study",
        [DrawnCurve("assurance", cases, chances)],
    )


def watch_figure(plan: WatchPlan) -> Figure:
    """Draw the chances that monitoring has answered by a number of cases."""
    counted = "followed" if plan.audit is None else "audited"
    curves = [
        DrawnCurve(f"{word} at {item.of_bound:.3g} x", *zip(*item.curve, strict=True))
        for word, answers in (("confirmed", plan.confirmations), ("alarm", plan.alarms[1:]))
        for item in answers
    ]
    return chance_figure(
        "watching",
        "When monitoring answers",
        f"The chance that the certified {percent(plan.bound)} has been confirmed, or its alarm raised, by a"
        " number of cases, for true rates that are multiples of the bound. They may be watched all the time.",
        f"{counted} cases",
        curves,
    )


@dataclass(frozen=True)
class DrawnCurve:
    """A chance by the number of cases."""

    name: str
    cases: Sequence[int]
    chances: Sequence[float]


def chance_figure(key: str, title: str, reading: str, axis: str, curves: Sequence[DrawnCurve]) -> Figure:
    """Draw chances against a number of cases, one line each."""
    names = [curve.name for curve in curves]
    colours = dict(zip(names, (BLUE, VERMILLION, GREEN, ORANGE, BLACK, GREY), strict=False))
    data = pl.DataFrame(
        [
            {"line": curve.name, "cases": cases, "chance": chance}
            for curve in curves
            for cases, chance in zip(curve.cases, curve.chances, strict=True)
        ]
    )
    chart = (
        alt.Chart(inline(data))
        .mark_line(strokeWidth=1.8)
        .encode(
            x=alt.X("cases:Q", title=axis, axis=alt.Axis(format=",d")),
            y=alt.Y("chance:Q", title="chance", scale=alt.Scale(domain=[0, 1]), axis=percent_axis()),
            color=alt.Color("line:N", scale=scale_of(colours), legend=None),
        )
        .properties(width=2 * NARROW, height=_HEIGHT)
    )
    return Figure(
        key=key,
        title=title,
        reading=reading,
        alternative="; ".join(
            f"{curve.name}: {percent(curve.chances[-1], 0)} at {curve.cases[-1]:,}" for curve in curves
        ),
        panels=(Panel("", chart),),
        data=data,
        legend=tuple(LegendEntry(name, colour) for name, colour in colours.items()),
        notes=reading,
    )
