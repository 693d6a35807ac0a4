"""The functions of the commands compare, rivals, report and show."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from trust_cache.api.certificate_functions import TARGETS, describe_point
from trust_cache.api.result import Frame, PlottedResult, Result, lifted, path_or_polars, shown_files
from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_unknown
from trust_cache.base.text_tables import whole_percent
from trust_cache.cache.cache_reader import Cache
from trust_cache.certificate.evidence import Options
from trust_cache.manifest.cases import PATIENT
from trust_cache.manifest.protocol import PAPER, Protocol, find_protocol
from trust_cache.report.page import write_page
from trust_cache.report.report import OWN as FIGURES_OWN
from trust_cache.report.report import gather_evidence, make_report, named_figures, write_figures
from trust_cache.report.terminal import Essentials, essentials
from trust_cache.studies.compare import compare_folder
from trust_cache.studies.compare.compare import compare as compare_scores
from trust_cache.studies.compare.comparison_results import Comparison, Contrast
from trust_cache.studies.rivals import rivals_folder
from trust_cache.studies.rivals.rival_rules import RivalSettings
from trust_cache.studies.rivals.rivals import RivalsStudy, study_cache, study_scores

if TYPE_CHECKING:
    from trust_cache.figures.figure import Figure


@dataclass(frozen=True, repr=False)
class CompareResult(PlottedResult):
    """A comparison of every configuration with the reference, and where it was written."""

    comparison: Comparison
    folder: Path | None = None
    kept: Path | None = None  # where earlier results in this place went

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """The reference against each other configuration, at each target."""
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
        yield f"Comparison with {found.reference} on {found.cases:,} cases, {found.positives:,} positive"
        for item in found.contrasts:
            yield f"{item.other} at {whole_percent(item.target)} recall: {item.verdict}, {_points(item)}"
        yield from shown_files(self.folder)

    def _figure(self) -> "Figure":
        return compare_folder.draw_comparison(self.comparison)


def _points(item: Contrast) -> str:
    text = f"difference in dismissal {100 * item.difference:+.2f} points"
    if item.low is None or item.high is None:
        return text
    return f"{text} ({100 * item.low:+.2f} to {100 * item.high:+.2f})"


def compare(
    scores: Frame | Path | str,
    out: Path | str | None = None,
    *,
    targets: Sequence[float] = TARGETS,
    reference: str | None = None,
    resamples: int = 2_000,
    swaps: int = 2_000,
    seed: int = 0,
    resplits: int = 200,
    margin_points: float = 1.0,
    protocol: Protocol | Path | str = PAPER,
    patient: str = PATIENT,
    advance: Callable[[], None] = lambda: None,
) -> CompareResult:
    """Test whether one configuration dismisses more than another at the same recall.

    `scores` is a run folder, or a CSV file or data frame with configuration, case_id, label and score. The
    others are compared with `reference` (default: closed-loop, else the first). `margin_points` is the margin
    of non-inferiority in percentage points of dismissal.

    Examples:
        >>> import trust_cache as tc
        >>> cache = tc.simulate("nlbs", "compared.zarr", cases=300, views=1)
        >>> run = tc.fit_heads(cache, "compared", configurations=["ce", "closed-loop"], epochs=2)
        >>> found = tc.compare("compared", targets=[0.9], resplits=10)
        >>> found.comparison.reference, len(found.contrasts)
        ('closed-loop', 1)
    """
    if out is not None:
        refuse_unknown(Path(out), own=compare_folder.OWN)
    options: dict[str, Any] = {
        "targets": targets, "reference": reference, "resamples": resamples, "swaps": swaps, "seed": seed,
        "resplits": resplits, "margin_points": margin_points, "protocol": protocol, "patient": patient,
        "advance": advance,
    }  # fmt: skip
    found = compare_scores(path_or_polars(scores), **options)
    if out is None:
        return CompareResult(found)
    return CompareResult(found, Path(out), compare_folder.write_comparison(found, Path(out)))


@dataclass(frozen=True, repr=False)
class RivalsResult(Result, RivalsStudy):
    """Score models and threshold rules on the same cases: `outcomes`, `warnings`, and where it is written."""

    folder: Path | None = None
    kept: Path | None = None  # where earlier results in this place went

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
    on_start: Callable[[int, int], None] = lambda _of, _done: None,
    advance: Callable[[], None] = lambda: None,
) -> RivalsResult:
    """Compare score models and threshold rules on the same cases, folds and split.

    Give a cache, on which the models are trained, or `scores`. `level` is the cancer rate among the dismissed
    to stay below. `on_start` gets the number of steps of training, `advance` is called after each.

    Examples:
        >>> import polars as pl, trust_cache as tc
        >>> labels = [int(i % 10 == 0) for i in range(1000)]
        >>> shares = [(i * 7919 % 1000) / 1000 for i in range(1000)]
        >>> table = pl.DataFrame({"case_id": range(1000), "label": labels, "score": shares})
        >>> tc.rivals(scores=table, targets=[0.9], rules=["recall", "crc"]).to_polars()["rule"].to_list()
        ['recall', 'crc']
    """
    if cache is not None and scores is not None:
        raise InputError("expected a cache or --scores, found both")
    if scores is not None and (folds is not None or models is not None):
        raise InputError("--folds and --models are for training; --scores trains nothing, leave them out")
    chosen = {name: tuple(words) for name, words in (("models", models), ("rules", rules)) if words}
    settings = RivalSettings(
        tuple(targets), level, delta, seed, epochs=epochs, limit=limit, protocol=find_protocol(protocol),
        **chosen,
    )  # fmt: skip
    if out is not None:
        refuse_unknown(Path(out), own=rivals_folder.OWN)
    if scores is not None:
        study = study_scores(path_or_polars(scores), settings, split=split)
    elif cache is None:
        raise InputError("expected a cache or --scores, found neither")
    else:
        on_start(settings.steps, 0)
        how: dict[str, Any] = {"threads": threads, "low_memory": low_memory, "advance": advance}
        study = study_cache(cache, settings, split=split, folds=folds, **how)
    kept = None if out is None else rivals_folder.write_study(study, Path(out))
    return lifted(RivalsResult, study, folder=None if out is None else Path(out), kept=kept)


@dataclass(frozen=True, repr=False)
class ReportResult(Result):
    """A page that was written."""

    page: Path
    bytes_written: int
    figures: Path | None
    kept: Path | None  # where earlier figures in this place went
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
    on_figures: Callable[[int, int], None] = lambda _of, _done: None,
    advance: Callable[[], None] = lambda: None,
) -> ReportResult:
    """Write one offline HTML page of a run: the result, an explorer, figures, tables, provenance.

    `folders` are a run folder (or a CSV of scores) and the folders of certify, external, sweep and compare,
    in any order. With `figures`, all figures are written there too. `options` are the settings of `certify`
    where no certified folder is given, `words` the command line that the page shows.

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
        refuse_unknown(folder, own=FIGURES_OWN)
    made = make_report([Path(item) for item in folders], options or Options(), words)
    size, named, kept = write_page(made, page), named_figures(made), None
    if folder is not None:
        on_figures(len(named), 0)
        kept = write_figures(made, folder, advance)
    titles = {name: figure.title for name, figure in named.items()}
    warnings = made.evidences[0].certification.warnings
    return ReportResult(page, size, folder, kept, titles, warnings)


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
