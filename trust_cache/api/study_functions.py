"""The functions of the commands compare, rivals, report and show."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from trust_cache.api.certificate_functions import TARGETS, describe_point
from trust_cache.api.result import Frame, PlottedResult, Result, lifted, path_or_polars, shown_files
from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_existing
from trust_cache.base.text_tables import whole_percent
from trust_cache.cache.cache_reader import Cache
from trust_cache.certificate.evidence import Options
from trust_cache.certificate.score_table import COLUMNS, ScoreColumns
from trust_cache.manifest.protocol import PAPER, Protocol, find_protocol
from trust_cache.report.page import write_page
from trust_cache.report.report import OWN as FIGURES_OWN
from trust_cache.report.report import gather_evidence, make_report, named_figures, write_figures
from trust_cache.report.terminal import Essentials, essentials
from trust_cache.studies.compare import compare_folder
from trust_cache.studies.compare.compare import compare as compare_scores
from trust_cache.studies.compare.compare_tables import sides
from trust_cache.studies.compare.comparison_results import Comparison, Contrast
from trust_cache.studies.rivals import rivals_folder
from trust_cache.studies.rivals.rival_rules import RivalSettings
from trust_cache.studies.rivals.rivals import RivalsStudy, study_cache, study_scores

if TYPE_CHECKING:
    from trust_cache.figures.figure import Figure


@dataclass(frozen=True, repr=False)
class CompareResult(PlottedResult):
    """A comparison of configurations, within a run and between runs, and where it was written."""

    comparison: Comparison
    folder: Path | None = None

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """One column against another, at each target."""
        return self.comparison.contrasts

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is worth knowing about the data."""
        return self.comparison.warnings

    def to_polars(self) -> pl.DataFrame:
        """Return one row per comparison, with the columns of compare.csv."""
        return pl.DataFrame(compare_folder.contrast_rows(self.comparison), infer_schema_length=None)

    def _lines(self) -> Iterator[str]:
        found = self.comparison
        of = f" of {', '.join(run.name for run in found.runs)}" if found.several else ""
        yield f"Comparison with {found.reference}{of} on {found.cases:,} cases, {found.positives:,} positive"
        for item in found.contrasts:
            what = ": ".join(sides(item))
            yield f"{what} at {whole_percent(item.target)} recall: {item.verdict}, {_points(item)}"
        yield from shown_files(self.folder)

    def _figure(self) -> "Figure":
        return compare_folder.draw_comparison(self.comparison)


def _points(item: Contrast) -> str:
    text = f"difference in dismissal {100 * item.difference:+.2f} points"
    if item.low is None or item.high is None:
        return text
    return f"{text} ({100 * item.low:+.2f} to {100 * item.high:+.2f})"


def compare(
    scores: Frame | Path | str | Sequence[Frame | Path | str],
    out: Path | str | None = None,
    *,
    names: Sequence[str] | None = None,
    targets: Sequence[float] = TARGETS,
    reference: str | None = None,
    resamples: int = 2_000,
    swaps: int = 2_000,
    seed: int = 0,
    resplits: int = 200,
    margin_points: float = 1.0,
    protocol: Protocol | Path | str = PAPER,
    case: str = COLUMNS.case,
    label: str = COLUMNS.label,
    score: str = COLUMNS.score,
    patient: str = COLUMNS.patient,
    positive: str | None = None,
    overwrite: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> CompareResult:
    """Test whether one configuration dismisses more than another at the same recall.

    `scores` is a run folder, or a file or data frame with configuration, case_id, label and score; the names
    of columns and `positive` are those of `certify`. The others are compared with `reference` (default:
    closed-loop, else the first). `margin_points` is the margin of non-inferiority in percentage points of
    dismissal. A folder `out` that exists is refused unless `overwrite` is set.

    A list of runs on caches of the same cases, trained with the same folds, compares encoders: each
    configuration between every two runs, and the reference with the others within each run. `names` are the
    names of the runs (default: their encoders).

    Examples:
        >>> import trust_cache as tc
        >>> cache = tc.simulate("nlbs", "compared.zarr", cases=300, views=1)
        >>> run = tc.fit_heads(cache, "compared", configurations=["ce", "closed-loop"], epochs=2)
        >>> found = tc.compare("compared", targets=[0.9], resplits=10)
        >>> found.comparison.reference, len(found.contrasts)
        ('closed-loop', 1)
    """
    if out is not None:
        refuse_existing(Path(out), own=compare_folder.OWN, overwrite=overwrite)
    given: list[Any] = list(scores) if isinstance(scores, list | tuple) else [scores]
    options: dict[str, Any] = {
        "names": names, "targets": targets, "reference": reference, "resamples": resamples, "swaps": swaps,
        "seed": seed, "resplits": resplits, "margin_points": margin_points, "protocol": protocol,
        "case": case, "label": label, "score": score, "patient": patient, "positive": positive,
        "advance": advance,
    }  # fmt: skip
    found = compare_scores([path_or_polars(item) for item in given], **options)
    if out is None:
        return CompareResult(found)
    compare_folder.write_comparison(found, Path(out), overwrite=overwrite)
    return CompareResult(found, Path(out))


@dataclass(frozen=True, repr=False)
class RivalsResult(PlottedResult, RivalsStudy):
    """Score models and threshold rules on the same cases: `outcomes`, `warnings`, and where it is written."""

    folder: Path | None = None

    def to_polars(self) -> pl.DataFrame:
        """Return one row per rule and score model, with the columns of results.csv."""
        return pl.DataFrame([outcome.row() for outcome in self.outcomes], infer_schema_length=None)

    def _lines(self) -> Iterator[str]:
        models = dict.fromkeys(outcome.score_model for outcome in self.outcomes)
        yield f"{len(self.settings.rules)} rules on {len(models)} score models, {self.cohort.cases:,} cases"
        for outcome in self.outcomes:
            point = outcome.reason if outcome.point.tau is None else describe_point(outcome.point)
            yield f"{outcome.rule}, {outcome.score_model}: {point}"
        yield from shown_files(self.folder)

    def _figure(self) -> "Figure":
        return rivals_folder.draw_rivals(self)


def rivals(
    cache: Cache | Path | str | None = None,
    out: Path | str | None = None,
    *,
    scores: Frame | Path | str | None = None,
    targets: Sequence[float] = TARGETS,
    level: float = 0.01,
    delta: float = 0.01,
    limit: float | None = None,
    protocol: Protocol | Path | str = PAPER,
    seed: int = 0,
    split: Path | str | None = None,
    folds: Path | str | None = None,
    models: Sequence[str] | None = None,
    rules: Sequence[str] | None = None,
    epochs: int = 20,
    threads: int | None = None,
    low_memory: bool = False,
    case: str = COLUMNS.case,
    label: str = COLUMNS.label,
    score: str = COLUMNS.score,
    patient: str = COLUMNS.patient,
    positive: str | None = None,
    overwrite: bool = False,
    on_start: Callable[[int, int], None] = lambda _of, _done: None,
    advance: Callable[[], None] = lambda: None,
) -> RivalsResult:
    """Compare score models and threshold rules on the same cases, folds and split.

    Give a cache, on which the models are trained, or `scores`, with the names of columns and `positive` of
    `certify`. `level` is the cancer rate among the dismissed to stay below; `overwrite` replaces results in
    `out`. `on_start` gets the number of steps of training, `advance` is called after each.

    Examples:
        >>> import polars as pl, trust_cache as tc
        >>> labels = [int(i % 10 == 0) for i in range(1000)]
        >>> shares = [(i * 7919 % 1000) / 1000 for i in range(1000)]
        >>> table = pl.DataFrame({"case_id": range(1000), "label": labels, "score": shares})
        >>> tc.rivals(scores=table, targets=[0.9], rules=["recall", "crc"]).to_polars()["rule"].to_list()
        ['recall', 'crc']
    """
    columns = ScoreColumns(case, label, score, patient, positive)
    _check_source(cache, scores, columns, training=folds is not None or models is not None)
    chosen: dict[str, Any] = {"epochs": epochs, "limit": limit, "protocol": find_protocol(protocol)}
    chosen |= {name: tuple(words) for name, words in (("models", models), ("rules", rules)) if words}
    settings = RivalSettings(tuple(targets), level, delta, seed, **chosen)
    if out is not None:
        refuse_existing(Path(out), own=rivals_folder.OWN, overwrite=overwrite)
    if cache is not None:
        on_start(settings.steps, 0)
        how: dict[str, Any] = {"threads": threads, "low_memory": low_memory, "advance": advance}
        study = study_cache(cache, settings, split=split, folds=folds, **how)
    elif scores is not None:
        study = study_scores(path_or_polars(scores), settings, split=split, columns=columns)
    else:
        raise InputError("expected a cache or --scores, found neither")
    if out is None:
        return lifted(RivalsResult, study)
    rivals_folder.write_study(study, Path(out), overwrite=overwrite)
    return lifted(RivalsResult, study, folder=Path(out))


def _check_source(cache: object, scores: object, columns: ScoreColumns, *, training: bool) -> None:
    """Refuse a cache together with scores, and options that are for the other."""
    if cache is not None and scores is not None:
        raise InputError("expected a cache or --scores, found both")
    if scores is not None and training:
        raise InputError("--folds and --models are for training; --scores trains nothing, leave them out")
    for name, value in vars(columns).items():
        if cache is not None and value != getattr(COLUMNS, name):
            raise InputError(f"--{name}: names a column of --scores; a cache has its own")


@dataclass(frozen=True, repr=False)
class ReportResult(Result):
    """A page that was written."""

    page: Path
    bytes_written: int
    figures: Path | None
    figure_titles: dict[str, str]
    warnings: tuple[str, ...]

    def to_polars(self) -> pl.DataFrame:
        """Return the figures of the page, one row each."""
        rows = list(self.figure_titles.items())
        return pl.DataFrame(rows, schema={"figure": pl.String, "title": pl.String}, orient="row")

    def _lines(self) -> Iterator[str]:
        yield f"Page {self.page} ({self.bytes_written / 1e6:.1f} MB), {len(self.figure_titles)} figures"
        if self.figures is not None:
            yield f"figures and tables written to {self.figures}"


def write_report(
    folders: Sequence[Path | str],
    out: Path | str,
    *,
    figures: Path | str | None = None,
    options: Options | None = None,
    words: Sequence[str] = (),
    title: str | None = None,
    overwrite: bool = False,
    on_figures: Callable[[int, int], None] = lambda _of, _done: None,
    advance: Callable[[], None] = lambda: None,
) -> ReportResult:
    """Write one offline HTML page of a run: the result, an explorer, figures, tables, provenance.

    `folders` are a run folder (or a table of scores), further runs to show beside it, and the folders of
    certify, external, sweep, compare and rivals, in any order. With `figures`, all figures are written there
    too; a folder that exists is refused unless `overwrite` is set. `options` are the settings of `certify`
    where no certified folder is given, `words` the command line that the page shows, `title` its title
    (default: the name of the run).

    Examples:
        >>> import trust_cache as tc
        >>> cache = tc.simulate("nlbs", "reported.zarr", cases=300, views=1)
        >>> run = tc.fit_heads(cache, "reported", configurations=["ce"], epochs=2)
        >>> tc.write_report([run.folder], "report.html").page.name
        'report.html'
    """
    page, folder = Path(out), None if figures is None else Path(figures)
    if page.suffix.lower() not in {".html", ".htm"} or page.is_dir():
        found = f"the folder {page}" if page.is_dir() else f"{page}"
        raise InputError(f"--out: expected the name of an .html file, found {found}")
    if folder is not None:
        refuse_existing(folder, own=FIGURES_OWN, overwrite=overwrite)
    made = make_report([Path(item) for item in folders], options or Options(), words, title=title)
    size, named = write_page(made, page), named_figures(made)
    if folder is not None:
        on_figures(len(named), 0)
        write_figures(made, folder, advance, overwrite=overwrite)
    titles = {name: figure.title for name, figure in named.items()}
    warnings = made.evidences[0].certification.warnings
    return ReportResult(page, size, folder, titles, warnings)


@dataclass(frozen=True, repr=False)
class ShowResult(Result):
    """The essentials of one run or several, as `trust-cache show` prints them."""

    runs: tuple[Essentials, ...]

    def to_polars(self) -> pl.DataFrame:
        """Return the table of points of all runs."""
        tables = [item.table for item in self.runs]
        rows = [row for table in tables for row in table.rows]
        return pl.DataFrame(rows, schema=list(tables[0].header), orient="row")

    def _lines(self) -> Iterator[str]:
        yield f"{len(self.runs)} run{'s' * (len(self.runs) > 1)}"
        for item in self.runs:
            yield item.title
            yield from (*item.sentences, *item.reasons, *item.courses)


def show(folders: Sequence[Path | str], options: Options | None = None) -> ShowResult:
    """Return the essentials of a run: the status of each point, its meaning, and tau by epoch.

    Examples:
        >>> import trust_cache as tc
        >>> cache = tc.simulate("nlbs", "shown.zarr", cases=300, views=1)
        >>> run = tc.fit_heads(cache, "shown", configurations=["ce"], epochs=2)
        >>> tc.show([run.folder]).to_polars()["Target"].to_list()
        ['98%', '95%']
    """
    found = gather_evidence([Path(item) for item in folders], options or Options())
    return ShowResult(tuple(map(essentials, found)))
