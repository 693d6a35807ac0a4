"""The compare/ folder: every file of a comparison, rendered first and then written as a whole."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from trust_cache.base.documents import json_bytes
from trust_cache.base.files import write_folder
from trust_cache.base.tables import write_rows
from trust_cache.certificate.markup import to_markdown
from trust_cache.studies.charts import render_chart
from trust_cache.studies.compare.figure import draw
from trust_cache.studies.compare.interval import LEVEL, RESOLVED_FROM
from trust_cache.studies.compare.results import Comparison, Contrast
from trust_cache.studies.compare.settings import ALPHA
from trust_cache.studies.compare.tables import all_tables

SCHEMA = 1
OWN = frozenset({"compare.json", "compare.csv", "table.md", "compare.svg", "compare.png"})
CSV_COLUMNS = (
    "reference", "other", "target", "dismissal_reference", "dismissal_other", "difference", "low", "high",
    "p", "p_adjusted", "verdict", "trainings", "training_lowest", "training_highest",
    "training_standard_deviation", "training_same_sign", "split_q05", "split_q50", "split_q95",
    "split_opposite_share", "missed_share_reference", "missed_share_other",
)  # fmt: skip


def write_comparison(comparison: Comparison, out: Path) -> Path | None:
    """Write the folder; return where an earlier one with other results was kept, if there was one."""
    return write_folder(out, render(comparison), own=OWN)


def render(comparison: Comparison) -> dict[str, bytes]:
    """Return the files of the folder by name."""
    chart = draw(comparison)
    remarks = (*(item.sentence for item in comparison.contrasts), *comparison.warnings)
    return {
        "compare.json": json_bytes(as_document(comparison)),
        "compare.csv": write_rows(CSV_COLUMNS, (_row(comparison, item) for item in comparison.contrasts)),
        "table.md": to_markdown(all_tables(comparison), remarks, comparison.limits).encode(),
        "compare.svg": render_chart(chart, ".svg"),
        "compare.png": render_chart(chart, ".png"),
    }


def as_document(comparison: Comparison) -> dict[str, Any]:
    """Return everything as one JSON document (compare.json, `compare --json`)."""
    return {
        "schema": SCHEMA,
        "reference": comparison.reference,
        "cases": comparison.cases,
        "positives": comparison.positives,
        "repeats": comparison.repeats,
        "comparisons": [asdict(item) for item in comparison.contrasts],
        "configurations": [asdict(item) for item in comparison.standings],
        "settings": {
            **asdict(comparison.settings),
            "alpha": ALPHA,
            "level": LEVEL,
            "resolvable_from": RESOLVED_FROM,
        },
        "kind": comparison.kind,
        "scores_sha256": comparison.scores_sha256,
        "repeats_sha256": list(comparison.repeats_sha256),
        "warnings": list(comparison.warnings),
        "limits": list(comparison.limits),
        "versions": comparison.versions,
    }


def _row(comparison: Comparison, item: Contrast) -> dict[str, object]:
    missed = {
        entry.configuration: entry.resplits_missed_share
        for entry in comparison.standings
        if entry.target == item.target
    }
    training = item.training_noise
    split = item.split_noise
    return {
        **{name: getattr(item, name) for name in CSV_COLUMNS[: CSV_COLUMNS.index("trainings")]},
        "trainings": comparison.repeats,
        "training_lowest": None if training is None else training.lowest,
        "training_highest": None if training is None else training.highest,
        "training_standard_deviation": None if training is None else training.standard_deviation,
        "training_same_sign": None if training is None else training.same_sign,
        "split_q05": None if split is None else split.q05,
        "split_q50": None if split is None else split.q50,
        "split_q95": None if split is None else split.q95,
        "split_opposite_share": None if split is None else split.opposite_share,
        "missed_share_reference": missed[item.reference],
        "missed_share_other": missed[item.other],
    }
