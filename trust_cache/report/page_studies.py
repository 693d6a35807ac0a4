"""Sweeps and comparisons on the page: sentences, tables and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trust_cache.base.text_tables import Table, percent, whole_percent
from trust_cache.certificate.point_tables import BOUND, BOUND_CORRECTED, NOT_AVAILABLE
from trust_cache.figures.figure import Figure
from trust_cache.figures.sweep_figures import sweep_figure
from trust_cache.studies.compare.compare_folder import draw_comparison, read_comparison, sentences
from trust_cache.studies.compare.compare_tables import all_tables
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


def comparison_study(folder: Path) -> PageStudy:
    """Show a compare folder on the page."""
    comparison = read_comparison(folder)
    return PageStudy(
        key="comparison",
        heading="Comparison",
        sentences=sentences(comparison),
        figures=(draw_comparison(comparison),),
        tables=tuple(all_tables(comparison)[:2]),
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
