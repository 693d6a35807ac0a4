"""Read and check a table of scores, one row per image or case, and aggregate it to a cohort of cases.

The columns may have other names (`ScoreColumns`) and capitals; a file may be CSV, Parquet or Excel.
An empty score means an image without a score: its case is incomplete, and reviewed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.csv_tables import LINE, read_text_table
from trust_cache.base.digests import rows_sha256
from trust_cache.base.errors import InputError
from trust_cache.base.table_files import as_ids, as_labels, id_warnings, read_table_file, take_columns
from trust_cache.heads.run_folder import RECORD, SCORES, RunFolder
from trust_cache.manifest.case_groups import Grouping, find_groups, parse_groups
from trust_cache.manifest.cases import (
    AGGREGATIONS,
    CASE_LABEL,
    FEATURE_TAIL,
    LATERALITY,
    MAXIMUM,
    NEEDS_SIDES,
    PATIENT,
    WARNING,
    Aggregation,
    Cases,
    find_cases,
    find_problems,
    texts,
)
from trust_cache.manifest.data_terms import label_warnings
from trust_cache.manifest.protocol import PAPER, Protocol

REQUIRED = ("case_id", "label", "score")
IDENTITY = ("configuration", "case_id", "image_id", "label", "score")
_OF_CASES = (PATIENT, CASE_LABEL)  # further columns that a certificate depends on, where there are any
_OF_PICTURES = (LATERALITY, "projection", WARNING, FEATURE_TAIL)  # that a protocol with projections needs
_FURTHER = ("configuration", "image_id", "fold", CASE_LABEL, *_OF_PICTURES)  # found whatever their capitals

_NUMBER = "\0label"  # the column of labels as numbers
_LABELS_SHOWN = 5

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class ScoreColumns:
    """The names of a table's columns, and the label of cancer where labels are not 0 and 1."""

    case: str = "case_id"
    label: str = "label"
    score: str = "score"
    patient: str = PATIENT  # where the table has one
    positive: str | None = None

    @property
    def names(self) -> dict[str, str]:
        """The names of this project, and those of the table."""
        return {"case_id": self.case, "label": self.label, "score": self.score, PATIENT: self.patient}


COLUMNS = ScoreColumns()
_OPTIONS = {"case_id": "--case", "label": "--label", "score": "--score", PATIENT: "--patient"}


@dataclass(frozen=True)
class Scores:
    """A checked table, sorted by its identity columns; further columns are kept as text."""

    table: pl.DataFrame
    source: str
    manifest: Path | None = None  # of a run folder: further columns by image_id
    warnings: tuple[str, ...] = ()  # about the file and its labels
    # How image scores become case scores, by configuration; the maximum for those that are not named.
    aggregations: Mapping[str | None, Aggregation] = field(default_factory=dict)

    def aggregation(self, configuration: str | None) -> Aggregation:
        """Return how the image scores of a configuration become case scores."""
        return self.aggregations.get(configuration, MAXIMUM)

    def aggregated_as(self, stated: Mapping[str | None, Any]) -> "Scores":
        """Return the scores with stated aggregations where their run says nothing, if they are known ones."""
        known = {name: value for name, value in stated.items() if value in AGGREGATIONS}
        return replace(self, aggregations={**known, **self.aggregations})

    @cached_property
    def sha256(self) -> str:
        """The digest of the identity columns, and of patient_id and case_label where there are any.

        Rows are sorted; null stands for an absent value.
        """
        names = (*IDENTITY, *(name for name in _OF_CASES if name in self.table.columns))
        return rows_sha256(self.table.select(names).iter_rows())

    @property
    def configurations(self) -> list[str | None]:
        """The configurations in sorted order; [None] where the file has no such column."""
        return self.table["configuration"].unique(maintain_order=True).to_list()

    def kind(self) -> str:
        """Return how the scores were made, if the file shows it: external, out-of-fold or unknown."""
        if "fold" not in self.table.columns:
            return "unknown"
        folds = set(self.table["fold"].unique().to_list())
        return "external" if folds == {"external"} else "out-of-fold"


@dataclass(frozen=True)
class Images:
    """The images of one configuration, each with the position of its case."""

    case: Integers
    labels: Integers
    scores: Floats
    breasts: Integers | None = None  # the number of each image's breast; None: sides are not known


@dataclass(frozen=True)
class Cohort:
    """Cases sorted by case_id with labels and patients, and one row of case scores per configuration."""

    case_ids: pl.Series
    labels: Integers
    patients: Integers  # the number of each case's patient (`manifest.cases.Cases`)
    configurations: tuple[str | None, ...]
    scores: tuple[Floats, ...]  # NaN for an incomplete case, which is below no threshold
    images: tuple[Images | None, ...]  # None where every case has one row
    problems: tuple[Mapping[int, tuple[str, ...]], ...] = ()  # of each configuration's incomplete cases
    aggregations: tuple[Aggregation, ...] = ()  # of each configuration; none: the maximum for all

    @property
    def cases(self) -> int:
        """The number of cases."""
        return int(self.labels.size)

    @property
    def positives(self) -> int:
        """The number of positive cases."""
        return int(np.count_nonzero(self.labels))

    @property
    def repeated_patients(self) -> bool:
        """Whether a patient has several cases."""
        return int(np.max(self.patients, initial=-1)) + 1 < self.cases

    def aggregation(self, index: int) -> Aggregation:
        """Return how a configuration's image scores became case scores."""
        return self.aggregations[index] if self.aggregations else MAXIMUM

    def complete(self, index: int) -> NDArray[np.bool_]:
        """Mark the cases that fulfil the protocol in a configuration."""
        return ~np.isnan(self.scores[index])


def read_scores(path: Path, columns: ScoreColumns = COLUMNS) -> Scores:
    """Read a file of scores, or the scores.csv of a run folder.

    The scores of a run are compared with its record, whichever of the two is named. What must be known about
    the labels of its data sets is among the warnings.
    """
    run = RunFolder(path) if path.is_dir() else None
    beside = RunFolder(path.parent)
    of_run = run is None and path.name == SCORES and beside.has(RECORD)
    file = run.scores_file if run is not None else beside.scores_file if of_run else path
    read = read_table_file(file)
    of_ids = {columns.case: "cases", "image_id": "images", columns.patient: "patients"}
    warnings = (*read.warnings, *id_warnings(read, str(file), of_ids))
    scores = check_scores(read.table, str(file), columns)
    recorded = beside if of_run else run if run is not None and run.has(RECORD) else None
    of_labels = () if recorded is None else label_warnings(recorded.terms)
    return replace(
        scores,
        aggregations={} if recorded is None else recorded.aggregations,
        manifest=None if run is None else run.manifest_file,
        warnings=(*of_labels, *warnings, *scores.warnings),
    )


def as_scores(scores: Scores | pl.DataFrame | Path | str, columns: ScoreColumns = COLUMNS) -> Scores:
    """Return checked scores from a table, a scores file or a run folder."""
    if isinstance(scores, pl.DataFrame):
        return check_scores(scores, columns=columns)
    return scores if isinstance(scores, Scores) else read_scores(Path(scores), columns)


def check_scores(table: pl.DataFrame, source: str = "scores", columns: ScoreColumns = COLUMNS) -> Scores:
    """Check a table of scores (text or typed columns) and sort it by its identity columns."""
    table = take_columns(table, {name: name for name in _FURTHER} | columns.names, source, _OPTIONS)
    missing = [name for name in REQUIRED if name not in table.columns]
    if missing:
        found = ", ".join(name for name in table.columns if name != LINE)
        named = " and ".join(f"{_OPTIONS[name]} NAME" for name in missing)
        raise InputError(
            f"{source}: missing column {', '.join(missing)}; found {found}. Name it with {named}"
        )
    if table.is_empty():
        raise InputError(f"{source}: there are no rows")
    for name in ("configuration", "image_id"):
        if name not in table.columns:
            table = table.with_columns(pl.lit(None, dtype=pl.String).alias(name))
    if LINE not in table.columns:
        table = table.with_columns(pl.int_range(2, pl.len() + 2, dtype=pl.Int64).alias(LINE))
    table = table.with_columns(
        *(as_ids(table[name], source) for name in ("configuration", "case_id", "image_id")),
        as_labels(table["label"], columns.positive, source).alias(_NUMBER),
    )
    for problem in _problems(table):
        raise InputError(f"{source}: {problem}")
    warnings = _label_warnings(table, columns.positive, source)
    table = table.with_columns(
        pl.col(_NUMBER).cast(pl.Int64).alias("label"),
        # Adding zero turns -0.0, which has a text of its own, into 0.0.
        pl.col("score").cast(pl.Float64) + 0.0,
        *(texts(as_ids(table[name], source)).alias(name) for name in _OF_CASES if name in table.columns),
    )
    return Scores(
        table.drop(LINE, _NUMBER).sort(IDENTITY, nulls_last=False), source, warnings=tuple(warnings)
    )


def _label_warnings(table: pl.DataFrame, positive: str | None, source: str) -> list[str]:
    """Name the labels that --positive makes negative, if there are several."""
    if positive is None:
        return []
    others = table.filter(pl.col(_NUMBER) == 0)["label"].cast(pl.String).unique().sort().to_list()
    if len(others) < 2:  # noqa: PLR2004
        return []
    shown = ", ".join(map(repr, others[:_LABELS_SHOWN])) + (", ..." if others[_LABELS_SHOWN:] else "")
    return [f"{source}: {positive!r} is positive; all {len(others)} other labels are negative: {shown}"]


def _problems(table: pl.DataFrame) -> Iterator[str]:
    for name in ("case_id", "configuration", "image_id"):
        if name == "case_id" or table[name].null_count() != table.height:
            yield from _first(table.filter(pl.col(name).is_null()), f"an empty {name}")
    score = pl.col("score").cast(pl.Float64, strict=False)
    wrong = score.is_null() & pl.col("score").is_not_null()
    yield from _first(table.filter(wrong), "expected a number or nothing as score, found {score}")
    yield from _first(table.filter(~score.is_finite()), "expected a finite score, found {score}")
    yield from _first(
        table.filter(~pl.col(_NUMBER).is_in([0.0, 1.0]).fill_null(value=False)),
        "expected a label of 0 or 1, found {label}; --positive names another label of cancer",
    )
    if table["image_id"].null_count() == 0:
        repeated = table.filter(pl.struct("configuration", "image_id").is_duplicated())
        yield from _first(
            repeated.sort("configuration", "image_id", LINE),
            "image_id {image_id} occurs more than once within configuration {configuration}",
        )


def _first(wrong: pl.DataFrame, message: str) -> Iterator[str]:
    """Describe the first offending row and count the others."""
    if wrong.is_empty():
        return
    row = {name: "nothing" if cell is None else cell for name, cell in wrong.row(0, named=True).items()}
    more = f" (and {wrong.height - 1} more such rows)" if wrong.height > 1 else ""
    yield f"line {row[LINE]}, case {row['case_id']}: {message.format_map(row)}{more}"


def build_cohort(scores: Scores, protocol: Protocol = PAPER) -> Cohort:
    """Aggregate images to cases; all configurations must score the same cases."""
    aggregations = tuple(map(scores.aggregation, scores.configurations))
    if protocol.examines_pictures or NEEDS_SIDES in aggregations:
        scores = replace(scores, table=_with_pictures(scores))
    tables = scores.table.partition_by("configuration", maintain_order=True)
    try:
        found = [find_cases(table) for table in tables]
        for name, cases in zip(scores.configurations[1:], found[1:], strict=True):
            _check_same_cases(scores, found[0], cases, name)
        problems = _problems_of(tables, found, protocol)
        by_image = [table["score"].fill_null(np.nan).to_numpy() for table in tables]
        by_case = [
            cases.score(values, aggregation)
            for cases, values, aggregation in zip(found, by_image, aggregations, strict=True)
        ]
    except InputError as error:
        source = "" if str(error).startswith(scores.source) else f"{scores.source}: "
        raise InputError(f"{source}{error}") from error
    for values, incomplete in zip(by_case, problems, strict=True):
        values[list(incomplete)] = np.nan
    return Cohort(
        case_ids=found[0].case_ids,
        labels=found[0].labels,
        patients=found[0].patients,
        configurations=tuple(scores.configurations),
        scores=tuple(by_case),
        images=tuple(
            None
            if table.height == cases.labels.size
            else Images(cases.of_image, table["label"].to_numpy(), values, cases.breasts)
            for table, cases, values in zip(tables, found, by_image, strict=True)
        ),
        problems=problems,
        aggregations=aggregations,
    )


def with_manifest(table: pl.DataFrame, manifest: pl.DataFrame) -> pl.DataFrame:
    """Return a table of scores with the other columns of a manifest, which a protocol may ask for."""
    further = manifest.select("image_id", pl.exclude("image_id", *table.columns))
    return table.join(further, on="image_id", how="left", maintain_order="left")


def examined_cohort(manifest: pl.DataFrame, usable: NDArray[np.bool_], protocol: Protocol) -> Cohort:
    """Return the cases of a manifest before any scoring, incomplete where the protocol is not fulfilled.

    `usable` tells which images can get a score. The one column of scores is constant.
    """
    score = pl.when(pl.Series(usable)).then(0.5)
    table = manifest.drop("configuration", strict=False).with_columns(score=score)
    return build_cohort(check_scores(table, "manifest"), protocol)


def repeated_projections(scores: Scores) -> list[str]:
    """Return the cases with several images of one projection of a side, sorted."""
    table = _with_pictures(scores)
    names = ("configuration", "case_id", "laterality", "projection")
    counted = table.group_by(names).len().filter(pl.col("len") > 1)
    return counted["case_id"].unique().sort().to_list()


def known_columns(scores: Scores) -> list[str]:
    """Return the columns of the scores and of their manifest."""
    columns = scores.table.columns
    if scores.manifest is not None:
        columns = [*columns, *read_text_table(scores.manifest, ("image_id",)).columns]
    return list(dict.fromkeys(columns))


def _with_pictures(scores: Scores) -> pl.DataFrame:
    """Return the scores with what a protocol needs to know about pictures, from the run's manifest."""
    absent = [name for name in _OF_PICTURES if name not in scores.table.columns]
    if not absent or scores.manifest is None:
        return scores.table
    manifest = read_text_table(scores.manifest, ("image_id",))
    there = [name for name in absent if name in manifest.columns]
    return scores.table.join(
        manifest.select("image_id", *there), on="image_id", how="left", maintain_order="left"
    )


def _problems_of(
    tables: Sequence[pl.DataFrame], found: Sequence[Cases], protocol: Protocol
) -> tuple[Mapping[int, tuple[str, ...]], ...]:
    """Return the problems of the incomplete cases of each configuration; most configurations share them."""
    looked_at = [
        table.select(
            *(name for name in ("case_id", "image_id", *_OF_PICTURES) if name in table.columns),
            scored=pl.col("score").is_not_null(),
        )
        for table in tables
    ]
    problems: list[Mapping[int, tuple[str, ...]]] = []
    for number, (images, cases) in enumerate(zip(looked_at, found, strict=True)):
        if number and images.equals(looked_at[number - 1]):
            problems.append(problems[-1])
        else:
            problems.append(find_problems(images, cases, images["scored"].to_numpy(), protocol))
    return tuple(problems)


def _check_same_cases(scores: Scores, first: Cases, other: Cases, name: str | None) -> None:
    reference = scores.configurations[0]
    for here, there, lacking in ((first, other, name), (other, first, reference)):
        missing = here.case_ids.filter(~here.case_ids.is_in(there.case_ids.implode()))
        if missing.len():
            raise InputError(
                f"{scores.source}: every configuration must score the same cases; configuration"
                f" {lacking} lacks case {missing[0]} ({missing.len()} cases in all)"
            )
    if not np.array_equal(first.patients, other.patients):
        raise InputError(f"{scores.source}: the patients of cases differ between {reference} and {name}")
    differing = np.flatnonzero(first.labels != other.labels)
    if differing.size:
        raise InputError(
            f"{scores.source}: case {first.case_ids[int(differing[0])]} has another label in"
            f" configuration {name} than in {reference} ({differing.size} cases in all)"
        )


def group_cases(scores: Scores, cohort: Cohort, by: str) -> Grouping:
    """Group the cases by a column of the scores or their manifest; `age=50,60` divides it into bands."""
    spec = parse_groups(by, _columns_to_group_by(scores))
    return find_groups(_with_column(scores, spec.column), cohort.case_ids, spec, scores.source)


def _columns_to_group_by(scores: Scores) -> list[str]:
    return [name for name in known_columns(scores) if name not in IDENTITY]


def has_groups(scores: Scores, by: str) -> bool:
    """Whether the scores or their manifest have the column."""
    columns = _columns_to_group_by(scores)
    return parse_groups(by, columns).column in columns


def _with_column(scores: Scores, column: str) -> pl.DataFrame:
    """Return the scores with the column, from their own table or, by image_id, from the run's manifest."""
    known = _columns_to_group_by(scores)
    if column not in known:
        raise InputError(
            f"{scores.source}: no column {column!r} to group by; there is"
            f" {', '.join(known) or 'none besides ids, label and score'}"
        )
    if column in scores.table.columns or scores.manifest is None:
        return scores.table
    manifest = read_text_table(scores.manifest, ("image_id",))
    return scores.table.join(manifest.select("image_id", column), on="image_id", how="left")
