"""Runs side by side, sweeps and comparisons on the page: sentences, tables and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trust_cache.base.text_tables import NO_NUMBER, Table, percent, whole_percent
from trust_cache.certificate.evidence import Evidence
from trust_cache.certificate.point_tables import BOUND, BOUND_CORRECTED, NOT_AVAILABLE, name_of
from trust_cache.figures.figure import Figure
from trust_cache.figures.sweep_figures import sweep_figure
from trust_cache.studies.compare.compare_folder import draw_comparison, read_comparison, sentences
from trust_cache.studies.compare.compare_tables import all_tables
from trust_cache.studies.compare.comparison_results import column_label
from trust_cache.studies.rivals.rivals_folder import read_rivals
from trust_cache.studies.sweep.sweep_choice import verify_winners
from trust_cache.studies.sweep.sweep_folder import WinnerRecord, setting_words


@dataclass(frozen=True)
class PageStudy:
    """A sweep or a comparison, for the page."""

    key: str
    heading: str
    sentences: tuple[str, ...]
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    reasons: Mapping[tuple[str, str], str] = field(default_factory=dict)  # why a cell of a table is N/A


def runs_study(evidences: Sequence[Evidence]) -> PageStudy:
    """Show the points of several runs side by side."""
    points = [
        (evidence, column_label(evidence.name, name_of(point.configuration)), point)
        for evidence in evidences
        for point in evidence.certification.points
    ]
    targets = evidences[0].certification.settings.targets
    names = list(dict.fromkeys(point.configuration for *_, point in points))
    rows = tuple(
        (
            label,
            evidence.encoder or NO_NUMBER,
            whole_percent(point.target),
            *(percent(value) if point.met else NOT_AVAILABLE for value in (point.dismissal, point.bound)),
            f"{point.positives_dismissed:,} of {point.positives:,}",
            f"{point.incomplete:,} of {point.cases:,}",
            NO_NUMBER if point.auroc_case is None else f"{point.auroc_case:.4f}",
            point.status,
        )
        for evidence, label, point in sorted(
            points, key=lambda item: (targets.index(item[2].target), names.index(item[2].configuration))
        )
    )
    header = (
        "Configuration (run)", "Encoder", "Target", "Dismissal", BOUND, "Cancers missed", "Incomplete",
        "Case AUROC", "Status",
    )  # fmt: skip
    same = all(item.cohort.case_ids.equals(evidences[0].cohort.case_ids) for item in evidences)
    about = (
        "The runs have the same cases and the same split. Whether one encoder dismisses more than another"
        f" is a question for `trust-cache compare {' '.join(str(item.path) for item in evidences)}`: it uses"
        " all cases, reviews a case that is incomplete in one run in all of them, and has intervals and"
        " verdicts. These points are of one split, and choosing a run by them breaks its bounds."
        if same
        else "The runs have different cases: differences between them are also differences of the cases."
    )
    return PageStudy(
        key="runs",
        heading="Runs side by side",
        sentences=(),
        figures=(),
        tables=(Table("Points of all runs, on the evaluation subset", header, rows),),
        notes=(about,),
        reasons={
            (label, whole_percent(point.target)): point.reason
            for _, label, point in points
            if point.reason is not None
        },
    )


def comparison_study(folder: Path) -> PageStudy:
    """Show a compare folder on the page."""
    comparison = read_comparison(folder)
    return PageStudy(
        key="comparison",
        heading="Comparison",
        sentences=sentences(comparison),
        figures=(draw_comparison(comparison),),
        tables=tuple(all_tables(comparison)[: None if comparison.several else 2]),
        notes=(*comparison.warnings, *comparison.limits),
    )


def rivals_study(folder: Path) -> PageStudy:
    """Show a rivals folder on the page."""
    found = read_rivals(folder)
    return PageStudy(
        key="rivals",
        heading="Rivals",
        sentences=tuple(f"{rule}: {promise}." for rule, promise in found.promises.items()),
        figures=(found.figure(),),
        tables=(found.table(),),
        notes=(*found.warnings, *found.limits),
    )


def sweep_study(folder: Path) -> PageStudy:
    """Show a sweep folder on the page; its winners are recomputed first."""
    sweep = verify_winners(folder)
    figure = sweep_figure(sweep.document.axes, sweep.results, sweep.fold_results)
    winners, axes = sweep.winners, list(sweep.document.axes)
    return PageStudy(
        key="sweep",
        heading="Sweep",
        sentences=tuple(_sentence(winner, axes) for winner in winners.values()),
        figures=() if figure is None else (figure,),
        tables=(_table(winners, axes),) if winners else (),
        notes=sweep.document.warnings or (),
        reasons={
            (setting_words(winner, axes), whole_percent(target)): winner.point.reason
            for target, winner in winners.items()
            if winner.point.reason is not None
        },
    )


def _sentence(winner: WinnerRecord, axes: Sequence[str]) -> str:
    point = winner.point
    result = (
        f"{percent(point.dismissal)} dismissed on evaluation, at most {percent(point.bound)} with cancer"
        f" ({percent(point.bound_corrected)} corrected for the {point.compared} points compared):"
        f" {point.status}"
        if point.met
        else f"{NOT_AVAILABLE}: {point.reason}"
    )
    return (
        f"At the {whole_percent(point.target)} target, {setting_words(winner, axes)} had the largest search"
        f" dismissal ({percent(winner.search_dismissal)}). Its one certification: {result}."
    )


def _table(winners: Mapping[float, WinnerRecord], axes: Sequence[str]) -> Table:
    header = (
        "Setting", "Target", "Search dismissal", "Dismissed", "Positives dismissed", "Dismissal", BOUND,
        BOUND_CORRECTED, "Status",
    )  # fmt: skip
    rows = tuple(
        (
            setting_words(winner, axes),
            whole_percent(target),
            percent(winner.search_dismissal),
            f"{point.dismissed:,} of {point.cases:,}",
            f"{point.positives_dismissed:,} of {point.positives:,}",
            *(
                percent(value) if point.met else NOT_AVAILABLE
                for value in (point.dismissal, point.bound, point.bound_corrected)
            ),
            point.status,
        )
        for target, winner in winners.items()
        for point in (winner.point,)
    )
    return Table("Winners, chosen on search and certified once on evaluation", header, rows)
