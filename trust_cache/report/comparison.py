"""A compare/ folder on the page: its sentences, and the differences with their intervals."""

from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from trust_cache.base.documents import parse_json
from trust_cache.base.errors import InputError
from trust_cache.base.text_tables import whole_percent
from trust_cache.report.figure import (
    NARROW,
    Figure,
    Panel,
    View,
    inline,
    legend_of,
    name_axis,
    on_paper,
    percent_axis,
)
from trust_cache.report.study import Study
from trust_cache.studies.charts import BLACK, BLUE, GREY, VERMILLION, scale_of

SCHEMA = 1
_VERDICTS = {"different": BLUE, "cannot tell": BLACK, "not resolvable": VERMILLION}
_SHAPES = {"different": "square", "cannot tell": "circle", "not resolvable": "cross"}
_ROW = 26  # points of height


def read_comparison(folder: Path) -> Study:
    """Read what `compare` found."""
    file = folder / "compare.json"
    try:
        document = parse_json(file.read_bytes())
        if document["schema"] != SCHEMA:
            raise InputError(f"{file}: expected schema {SCHEMA}, found {document['schema']!r}; compare again")
        return Study(
            key="comparison",
            heading="Comparison",
            sentences=tuple(item["sentence"] for item in document["comparisons"]),
            figures=(_figure(document),),
            notes=(*document["warnings"], *document["limits"]),
        )
    except InputError:
        raise
    except (OSError, ValueError, LookupError, TypeError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{file}: not a readable result of compare ({error}); compare again") from error


def _figure(document: dict[str, Any]) -> Figure:
    data = pl.DataFrame(
        [
            {
                "reference": item["reference"],
                "other": item["other"],
                "target": item["target"],
                "difference": item["difference"],
                "low": item["low"],
                "high": item["high"],
                "split_low": (item["split_noise"] or {}).get("q05"),
                "split_high": (item["split_noise"] or {}).get("q95"),
                "p_adjusted": item["p_adjusted"],
                "verdict": item["verdict"],
            }
            for item in document["comparisons"]
        ],
        infer_schema_length=None,
        schema_overrides=dict.fromkeys(("low", "high", "split_low", "split_high", "p_adjusted"), pl.Float64),
    )
    panels = [
        Panel(f"at {whole_percent(target)} recall", _intervals(rows))
        for (target,), rows in data.group_by("target", maintain_order=True)
    ]
    reference = document["reference"]
    return Figure(
        key="comparison-intervals",
        title="Differences in dismissal, with intervals",
        reading=f"How much more {reference} dismisses than each other configuration at the same recall, on"
        " all cases; right of zero it dismisses more. Thick lines: 95 % intervals over cases; thin grey"
        " lines: what single search/evaluation splits gave (5 to 95 %). Where an interval holds zero the data"
        " cannot tell the two apart.",
        alternative=f"Differences in dismissal, {reference} minus each other configuration: "
        + "; ".join(
            f"{row['other']} at {whole_percent(row['target'])} {100 * row['difference']:+.2f} points,"
            f" {row['verdict']}"
            for row in data.iter_rows(named=True)
        )
        + ".",
        panels=tuple(panels),
        paper=on_paper(panels, legend_of(_VERDICTS)),
        data=data,
        legend=legend_of(_VERDICTS),
    )


def _intervals(rows: pl.DataFrame) -> View:
    title = "difference in dismissal (percentage points)"
    x = alt.X("difference:Q", title=title, axis=percent_axis(tickCount=5))
    y = alt.Y("other:N", title=None, sort=rows["other"].to_list(), axis=name_axis())
    color = alt.Color("verdict:N", scale=scale_of(_VERDICTS), legend=None)
    shape = alt.Shape("verdict:N", scale=scale_of(_SHAPES), legend=None)
    tooltip = [
        alt.Tooltip("other:N", title="compared with"),
        alt.Tooltip("difference:Q", format="+.2%", title="difference"),
        alt.Tooltip("low:Q", format="+.2%", title="95 % from"),
        alt.Tooltip("high:Q", format="+.2%", title="to"),
        alt.Tooltip("p_adjusted:Q", format=".3~g", title="p, adjusted"),
        alt.Tooltip("verdict:N", title="verdict"),
    ]
    zero = alt.Chart(inline(pl.DataFrame({"zero": [0.0]}))).mark_rule(strokeDash=[4, 3], color=BLACK)
    layers: list[alt.Chart] = [zero.encode(x=alt.X("zero:Q", title=title))]
    splits, known = (rows.drop_nulls(column) for column in ("split_low", "low"))
    if splits.height:
        lines = alt.Chart(inline(splits)).mark_rule(color=GREY, strokeWidth=1)
        layers.append(lines.encode(x=alt.X("split_low:Q", title=title), x2="split_high:Q", y=y))
    if known.height:
        lines = alt.Chart(inline(known)).mark_rule(strokeWidth=3)
        layers.append(lines.encode(x=alt.X("low:Q", title=title), x2="high:Q", y=y, color=color))
    dots = alt.Chart(inline(rows)).mark_point(filled=True, size=80, opacity=1)
    layers.append(dots.encode(x=x, y=y, color=color, shape=shape, tooltip=tooltip))
    return alt.layer(*layers).properties(width=NARROW, height=_ROW * rows.height)
