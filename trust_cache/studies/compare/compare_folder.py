"""The compare folder: its files, the only writer and the only reader."""

from pathlib import Path

from trust_cache.base.csv_tables import write_rows
from trust_cache.base.digests import changed_files, digests_of
from trust_cache.base.documents import read_json, sealed_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_results
from trust_cache.base.text_tables import to_markdown
from trust_cache.figures.comparison_figures import DrawnDifference, comparison_figure
from trust_cache.figures.figure import Figure, figure_files
from trust_cache.studies.compare.compare_tables import all_tables, sides
from trust_cache.studies.compare.comparison_results import (
    SCHEMA,
    AurocContrast,
    Comparison,
    Contrast,
    IncompleteCase,
    column_label,
)

COMPARE = "compare.json"
AUROCS, INCOMPLETE = "aurocs.csv", "incomplete.csv"
OWN = frozenset({COMPARE, "compare.csv", AUROCS, INCOMPLETE, "table.md", "compare.svg", "compare.png"})
CSV_COLUMNS = (
    "reference", "other", "target", "dismissal_reference", "dismissal_other", "difference", "low", "high",
    "p", "p_adjusted", "verdict", "margin", "not_inferior", "incomplete", "incomplete_positives",
    "trainings", "training_lowest", "training_highest", "training_standard_deviation", "training_same_sign",
    "training_chance", "split_q05", "split_q50", "split_q95", "split_opposite_share",
    "missed_share_reference", "missed_share_other", "reference_run", "other_run",
)  # fmt: skip
AUROC_COLUMNS = (
    "reference", "other", "cases", "positives", "auroc_reference", "auroc_other", "difference", "low", "high",
    "p", "p_adjusted", "verdict", "trainings", "training_lowest", "training_highest",
    "training_standard_deviation", "training_same_sign", "training_chance", "reference_run", "other_run",
)  # fmt: skip
_INCOMPLETE_COLUMNS = IncompleteCase.__struct_fields__


def write_comparison(comparison: Comparison, out: Path, *, overwrite: bool = False) -> None:
    """Write the folder; one that exists is refused, or replaced with `overwrite`."""
    write_results(out, render(comparison), own=OWN, overwrite=overwrite)


class RecordedComparison(Comparison, frozen=True, kw_only=True):
    """The content of compare.json: a comparison, and the sha256 of the folder's other files by name."""

    files: dict[str, str]

    @property
    def comparison(self) -> Comparison:
        """The comparison alone."""
        return Comparison(**{name: getattr(self, name) for name in Comparison.__struct_fields__})


def read_comparison(folder: Path) -> Comparison:
    """Read compare.json."""
    return _read_record(folder).comparison


def comparison_problems(folder: Path) -> list[str]:
    """Compare a folder with its record; return what does not fit, a sentence each."""
    try:
        return changed_files(folder, _read_record(folder).files, "compare again")
    except InputError as error:
        return [str(error)]


def _read_record(folder: Path) -> RecordedComparison:
    try:
        what = "the result of compare"
        return read_json(folder / COMPARE, RecordedComparison, what=what, schema=SCHEMA, sealed=True)
    except FileNotFoundError as error:
        raise InputError(f"{folder}: expected a folder of compare, found no {COMPARE} in it") from error


def render(comparison: Comparison) -> dict[str, bytes]:
    """Return the files of the folder by name."""
    notes = (*sentences(comparison), *comparison.warnings)
    incomplete = [item.as_document() for item in comparison.incomplete_cases]
    listed = {INCOMPLETE: write_rows(_INCOMPLETE_COLUMNS, incomplete, neutral=True)} if incomplete else {}
    files = listed | {
        "compare.csv": write_rows(CSV_COLUMNS, contrast_rows(comparison)),
        AUROCS: write_rows(
            AUROC_COLUMNS, (_auroc_row(comparison, item) for item in comparison.auroc_contrasts)
        ),
        "table.md": to_markdown(all_tables(comparison), notes, comparison.limits).encode(),
        **figure_files(draw_comparison(comparison), "compare"),
    }
    return files | {COMPARE: sealed_bytes(comparison.as_document() | {"files": digests_of(files)})}


def sentences(comparison: Comparison) -> tuple[str, ...]:
    """Return every comparison in plain words: dismissal first, then AUROCs."""
    of_aurocs = (item.sentence for item in comparison.auroc_contrasts)
    return (*(item.sentence for item in comparison.contrasts), *of_aurocs)


def draw_comparison(comparison: Comparison) -> Figure:
    """Return the figure of a comparison, for the folder and the report."""
    within = f"{comparison.reference} minus each other configuration"
    between = f"each configuration between the runs, first minus second, and {within} within each run"
    return comparison_figure(
        [
            DrawnDifference(
                label=": ".join(sides(item)),
                reference=column_label(item.reference_run, item.reference),
                other=column_label(item.other_run, item.other),
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
        ],
        between if comparison.several else within,
    )


def contrast_rows(comparison: Comparison) -> list[dict[str, object]]:
    """Return the rows of compare.csv, one per comparison."""
    return [_row(comparison, item) for item in comparison.contrasts]


def _row(comparison: Comparison, item: Contrast) -> dict[str, object]:
    standings = [entry for entry in comparison.standings if entry.target == item.target]
    missed = {(entry.run, entry.configuration): entry.resplits_missed_share for entry in standings}
    split = {} if item.split_noise is None else item.split_noise.as_document()
    noise = _training(item) | {f"split_{name}": value for name, value in split.items()}
    shares = {
        "missed_share_reference": missed[item.reference_run, item.reference],
        "missed_share_other": missed[item.other_run, item.other],
    }
    row = item.as_document() | noise | shares | {"trainings": comparison.repeats}
    return {name: row.get(name) for name in CSV_COLUMNS}


def _auroc_row(comparison: Comparison, item: AurocContrast) -> dict[str, object]:
    row = item.as_document() | _training(item) | {"trainings": comparison.repeats}
    return {name: row.get(name) for name in AUROC_COLUMNS}


def _training(item: Contrast | AurocContrast) -> dict[str, object]:
    noise = {} if item.training_noise is None else item.training_noise.as_document()
    return {f"training_{name}": value for name, value in noise.items()}
