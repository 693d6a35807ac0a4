"""A report: what its folders say, and the figures of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trust_cache.report.comparison import read_comparison
from trust_cache.report.curve_figures import recall_figure, roc_figure
from trust_cache.report.evidence import Evidence, Options, gather
from trust_cache.report.figure import Figure
from trust_cache.report.folders import sort_folders
from trust_cache.report.point_figures import level_figure, subgroup_figure
from trust_cache.report.score_figures import distribution_figure, reliability_figure
from trust_cache.report.study import Study
from trust_cache.report.sweeping import read_sweep
from trust_cache.report.training_figures import threshold_figure


@dataclass(frozen=True)
class Report:
    """All that stands on a page; the first evidence is what it is about."""

    evidences: tuple[Evidence, ...]
    figures: tuple[tuple[Figure, ...], ...]  # of each evidence
    studies: tuple[Study, ...] = ()
    words: tuple[str, ...] = field(default=())  # of the command that makes it


def make_report(paths: Sequence[Path], options: Options, words: Sequence[str] = ()) -> Report:
    """Read the folders, certify what is not certified yet, and prepare the figures."""
    folders = sort_folders(paths)
    evidences = gather(folders, options)
    studies = [
        *([] if folders.sweep is None else [read_sweep(folders.sweep)]),
        *([] if folders.compare is None else [read_comparison(folders.compare)]),
    ]
    main, *others = evidences
    figures = (run_figures(main), *map(further_figures, others))
    return Report(evidences, figures, tuple(studies), tuple(words))


def run_figures(evidence: Evidence) -> tuple[Figure, ...]:
    """Return the figures of one certified set of scores, as far as it has what they need."""
    found = (
        recall_figure(evidence),
        roc_figure(evidence),
        distribution_figure(evidence),
        threshold_figure(evidence),
        reliability_figure(evidence),
        level_figure(evidence),
        subgroup_figure(evidence),
    )
    return tuple(figure for figure in found if figure is not None)


def further_figures(evidence: Evidence) -> tuple[Figure, ...]:
    """Return the figures of a run that stands beside the one that the page is about."""
    found = (recall_figure(evidence), distribution_figure(evidence), subgroup_figure(evidence))
    return tuple(figure for figure in found if figure is not None)
