"""The compare folder: its files, the only writer and the only reader."""

from pathlib import Path

from trust_cache.base.csv_tables import write_rows
from trust_cache.base.documents import json_bytes, read_json
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_folder
from trust_cache.base.text_tables import to_markdown
from trust_cache.figures.comparison_figures import DrawnDifference, comparison_figure
from trust_cache.figures.figure import Figure, figure_files
from trust_cache.studies.compare.comparison_results import SCHEMA, Comparison, Contrast
from trust_cache.studies.compare.verdicts import all_tables

COMPARE = "compare.json"
OWN = frozenset({COMPARE, "compare.csv", "table.md", "compare.svg", "compare.png"})
CSV_COLUMNS = (
    "reference", "other", "target", "dismissal_reference", "dismissal_other", "difference", "low", "high",
    "p", "p_adjusted", "verdict", "trainings", "training_lowest", "training_highest",
    "training_standard_deviation", "training_same_sign", "split_q05", "split_q50", "split_q95",
    "split_opposite_share", "missed_share_reference", "missed_share_other",
)  # fmt: skip


def write_comparison(comparison: Comparison, out: Path) -> Path | None:
    """Write the folder; return where an earlier one with other results was kept, if there was one."""
    return write_folder(out, render(comparison), own=OWN)


def read_comparison(folder: Path) -> Comparison:
    """Read compare.json."""
    try:
        return read_json(folder / COMPARE, Comparison, what="the result of compare", schema=SCHEMA)
    except FileNotFoundError as error:
        raise InputError(f"{folder}: expected a folder of compare, found no {COMPARE} in it") from error


def render(comparison: Comparison) -> dict[str, bytes]:
    """Return the files of the folder by name."""
    notes = (*(item.sentence for item in comparison.contrasts), *comparison.warnings)
    return {
        COMPARE: json_bytes(comparison.as_document()),
        "compare.csv": write_rows(CSV_COLUMNS, (_row(comparison, item) for item in comparison.contrasts)),
        "table.md": to_markdown(all_tables(comparison), notes, comparison.limits).encode(),
        **figure_files(draw_comparison(comparison), "compare"),
    }


def draw_comparison(comparison: Comparison) -> Figure:
    """Return the figure of a comparison, for the folder and the report."""
    return comparison_figure(
        [
            DrawnDifference(
                reference=item.reference,
                other=item.other,
                target=item.target,
                difference=item.difference,
                low=item.low,
                high=item.high,
                split_low=None if item.split_noise is None else item.split_noise.q05,
                split_high=None if item.split_noise is None else item.split_noise.q95,
                p_adjusted=item.p_adjusted,
                verdict=item.verdict,
                trainings=() if item.training_noise is None else item.training_noise.differences,
            )
            for item in comparison.contrasts
        ]
    )


def _row(comparison: Comparison, item: Contrast) -> dict[str, object]:
    standings = [entry for entry in comparison.standings if entry.target == item.target]
    missed = {entry.configuration: entry.resplits_missed_share for entry in standings}
    training = {} if item.training_noise is None else item.training_noise.as_document()
    split = {} if item.split_noise is None else item.split_noise.as_document()
    noise = {f"training_{name}": value for name, value in training.items()}
    noise |= {f"split_{name}": value for name, value in split.items()}
    shares = {"missed_share_reference": missed[item.reference], "missed_share_other": missed[item.other]}
    row = item.as_document() | noise | shares | {"trainings": comparison.repeats}
    return {name: row.get(name) for name in CSV_COLUMNS}
