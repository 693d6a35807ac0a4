"""Gather a report from its folders, and write its figures and tables for a paper."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_existing, write_results
from trust_cache.certificate.certified_folder import POINTS
from trust_cache.certificate.evidence import Evidence, Options, gather
from trust_cache.certificate.point_tables import all_tables
from trust_cache.figures.curve_figures import recall_figure, roc_figure
from trust_cache.figures.figure import Figure, figure_files
from trust_cache.figures.point_figures import level_figure, subgroup_figure
from trust_cache.figures.score_figures import distribution_figure, reliability_figure
from trust_cache.figures.study_figures import resplit_figure
from trust_cache.figures.training_figures import threshold_figure
from trust_cache.heads.run_folder import SCORES
from trust_cache.report.page_studies import PageStudy, comparison_study, rivals_study, runs_study, sweep_study
from trust_cache.report.page_tables import table_files
from trust_cache.studies.compare.compare_folder import COMPARE
from trust_cache.studies.rivals.rivals_folder import RIVALS
from trust_cache.studies.sweep import sweep_folder

OWN = frozenset({"figures", "tables"})
# A folder's kind is that of the first file found: sweep and compare folders may hold scores as well.
_SIGNS = {
    "sweep": sweep_folder.NAME,
    "compare": COMPARE,
    "rivals": RIVALS,
    "certified": POINTS,
    "run": SCORES,
}
_FIGURES: tuple[Callable[[Evidence], Figure | None], ...] = (
    recall_figure, roc_figure, distribution_figure, threshold_figure, reliability_figure, level_figure,
    subgroup_figure, resplit_figure,
)  # fmt: skip
_TABLES = (".csv", ".tsv", ".parquet", ".xlsx", ".xls")  # files of scores
_FURTHER_FIGURES = (recall_figure, distribution_figure, subgroup_figure, resplit_figure)


@dataclass(frozen=True)
class ReportFolders:
    """The folders of a report by kind; the first of the runs is its subject."""

    runs: tuple[Path, ...]
    certified: tuple[Path, ...] = ()
    sweep: Path | None = None
    compare: Path | None = None
    rivals: Path | None = None


@dataclass(frozen=True)
class Report:
    """The content of a page; the first evidence is its subject."""

    evidences: tuple[Evidence, ...]
    figures: tuple[tuple[Figure, ...], ...]  # of each evidence
    studies: tuple[PageStudy, ...] = ()
    overviews: tuple[PageStudy, ...] = ()  # of several runs, below the result
    words: tuple[str, ...] = ()  # of the command that makes it
    title: str | None = None  # None: the name of the run


def sort_folders(paths: Sequence[Path]) -> ReportFolders:
    """Sort folders by kind, each kind in the given order."""
    found: dict[str, list[Path]] = {kind: [] for kind in _SIGNS}
    for path in paths:
        found[_kind(path)].append(path)
    if not found["run"]:
        raise InputError(
            "expected a run folder (with scores.csv in it) among"
            f" {', '.join(map(str, paths)) or 'the arguments'}, found none; name the run first"
        )
    for kind in ("sweep", "compare", "rivals"):
        if found[kind][1:]:
            raise InputError(f"expected one {kind} folder, found {', '.join(map(str, found[kind]))}")
    return ReportFolders(
        runs=tuple(found["run"]),
        certified=tuple(found["certified"]),
        sweep=next(iter(found["sweep"]), None),
        compare=next(iter(found["compare"]), None),
        rivals=next(iter(found["rivals"]), None),
    )


def _kind(path: Path) -> str:
    if not path.exists():
        raise InputError(f"{path}: no such folder")
    if not path.is_dir():
        if path.suffix.lower() in _TABLES:
            return "run"  # imported scores
        raise InputError(
            f"{path}: expected a folder or a table of scores ({', '.join(_TABLES)}), found another file"
        )
    for kind, sign in _SIGNS.items():
        if (path / sign).is_file():
            return kind
    raise InputError(
        f"{path}: expected a folder of fit-heads or external (scores.csv), certify (points.json), sweep"
        " (sweep.json), compare (compare.json) or rivals (rivals.json), found none of these files in it"
    )


def gather_evidence(paths: Sequence[Path], options: Options) -> tuple[Evidence, ...]:
    """Certify the runs among these folders, by their certified folders where there are any."""
    folders = sort_folders(paths)
    return gather(folders.runs, options, folders.certified)


def make_report(
    paths: Sequence[Path], options: Options, words: Sequence[str] = (), *, title: str | None = None
) -> Report:
    """Read the folders, certify the runs that have no certified folder, and draw the figures."""
    folders = sort_folders(paths)
    main, *others = gather(folders.runs, options, folders.certified)
    studies = [
        *([] if folders.sweep is None else [sweep_study(folders.sweep)]),
        *([] if folders.compare is None else [comparison_study(folders.compare)]),
        *([] if folders.rivals is None else [rivals_study(folders.rivals)]),
    ]
    figures = (run_figures(main), *(run_figures(evidence, further=True) for evidence in others))
    overviews = (runs_study((main, *others)),) if others else ()
    return Report((main, *others), figures, tuple(studies), overviews, tuple(words), title)


def run_figures(evidence: Evidence, *, further: bool = False) -> tuple[Figure, ...]:
    """Return a run's figures, fewer for a further run; those without data are left out."""
    functions = _FURTHER_FIGURES if further else _FIGURES
    return tuple(figure for draw in functions if (figure := draw(evidence)) is not None)


def named_figures(report: Report) -> dict[str, Figure]:
    """Return all figures by their file names; those of further runs have a prefix."""
    named: dict[str, Figure] = {}
    for number, figures in enumerate(report.figures, start=1):
        prefix = "" if number == 1 else f"run-{number}-"
        named |= {f"{prefix}{figure.key}": figure for figure in figures}
    return named | {figure.key: figure for study in report.studies for figure in study.figures}


def write_figures(
    report: Report, out: Path, advance: Callable[[], None] = lambda: None, *, overwrite: bool = False
) -> None:
    """Write every figure as SVG and PNG with its data, and every table as Markdown, LaTeX and CSV.

    A folder that exists is refused, or replaced with `overwrite`.
    """
    refuse_existing(out, own=OWN, overwrite=overwrite)  # before the drawing, which takes seconds
    files: dict[str, bytes] = {}
    for name, figure in named_figures(report).items():
        files |= figure_files(figure, f"figures/{name}")
        files[f"figures/{name}.csv"] = figure.data.write_csv().encode()
        advance()
    tables = {
        f"{study.key}-{number}": table
        for study in (*report.overviews, *report.studies)
        for number, table in enumerate(study.tables, 1)
    }
    for number, evidence in enumerate(report.evidences, start=1):
        prefix = "" if number == 1 else f"run-{number}-"
        tables |= {f"{prefix}{key}": table for key, table in all_tables(evidence.certification).items()}
    for name, table in tables.items():
        files |= {f"tables/{file}": content for file, content in table_files(table, name).items()}
    write_results(out, files, own=OWN, overwrite=overwrite)
