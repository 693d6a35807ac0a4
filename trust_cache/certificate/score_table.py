"""Read and check a table of scores, one row per image or case, and aggregate it to a cohort of cases."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.csv_tables import LINE, read_text_table
from trust_cache.base.digests import rows_sha256
from trust_cache.base.errors import InputError
from trust_cache.heads.run_folder import RunFolder
from trust_cache.manifest.cases import Cases, find_cases

REQUIRED = ("case_id", "label", "score")
IDENTITY = ("configuration", "case_id", "image_id", "label", "score")
MISSING = "missing"
CONFLICTING = "conflicting"

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Scores:
    """A checked table, sorted by its identity columns; further columns are kept as text."""

    table: pl.DataFrame
    source: str
    manifest: Path | None = None  # of a run folder: further columns by image_id

    @cached_property
    def sha256(self) -> str:
        """The digest of (configuration, case_id, image_id, label, score), sorted, nulls for absent."""
        return rows_sha256(self.table.select(IDENTITY).iter_rows())

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


@dataclass(frozen=True)
class Cohort:
    """Cases sorted by case_id with their labels, and one row of case scores per configuration."""

    case_ids: pl.Series
    labels: Integers
    configurations: tuple[str | None, ...]
    scores: tuple[Floats, ...]
    images: tuple[Images | None, ...]  # None where every case has one row

    @property
    def cases(self) -> int:
        """The number of cases."""
        return int(self.labels.size)

    @property
    def positives(self) -> int:
        """The number of positive cases."""
        return int(np.count_nonzero(self.labels))


def read_scores(path: Path) -> Scores:
    """Read a scores file, or the scores.csv of a run folder."""
    run = RunFolder(path) if path.is_dir() else None
    file = path if run is None else run.scores_file
    scores = check_scores(read_text_table(file, REQUIRED, lines=True), str(file))
    return scores if run is None else replace(scores, manifest=run.manifest_file)


def as_scores(scores: Scores | pl.DataFrame | Path | str) -> Scores:
    """Return checked scores from a table, a scores file or a run folder."""
    if isinstance(scores, pl.DataFrame):
        return check_scores(scores)
    return scores if isinstance(scores, Scores) else read_scores(Path(scores))


def check_scores(table: pl.DataFrame, source: str = "scores") -> Scores:
    """Check a table of scores (text or typed columns) and sort it by its identity columns."""
    missing = [name for name in REQUIRED if name not in table.columns]
    if missing:
        raise InputError(f"{source}: missing column {', '.join(missing)}")
    if table.is_empty():
        raise InputError(f"{source}: there are no rows")
    for name in ("configuration", "image_id"):
        if name not in table.columns:
            table = table.with_columns(pl.lit(None, dtype=pl.String).alias(name))
    if LINE not in table.columns:
        table = table.with_columns(pl.int_range(2, pl.len() + 2, dtype=pl.Int64).alias(LINE))
    table = table.with_columns(pl.col("configuration", "case_id", "image_id").cast(pl.String))
    for problem in _problems(table):
        raise InputError(f"{source}: {problem}")
    table = table.with_columns(
        pl.col("label").cast(pl.Float64).cast(pl.Int64),
        # Adding zero turns -0.0, which has a text of its own, into 0.0.
        pl.col("score").cast(pl.Float64) + 0.0,
    )
    return Scores(table.drop(LINE).sort(IDENTITY, nulls_last=False), source)


def _problems(table: pl.DataFrame) -> Iterator[str]:
    for name in ("case_id", "configuration", "image_id"):
        if name == "case_id" or table[name].null_count() != table.height:
            yield from _first(table.filter(pl.col(name).is_null()), f"an empty {name}")
    score = pl.col("score").cast(pl.Float64, strict=False)
    yield from _first(table.filter(score.is_null()), "expected a number as score, found {score}")
    yield from _first(table.filter(~score.is_finite()), "expected a finite score, found {score}")
    label = pl.col("label").cast(pl.Float64, strict=False)
    yield from _first(
        table.filter(~label.is_in([0.0, 1.0]).fill_null(value=False)),
        "expected a label of 0 or 1, found {label}",
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


def build_cohort(scores: Scores) -> Cohort:
    """Aggregate images to cases; all configurations must score the same cases."""
    tables = scores.table.partition_by("configuration", maintain_order=True)
    found = [find_cases(table) for table in tables]
    for name, cases in zip(scores.configurations[1:], found[1:], strict=True):
        _check_same_cases(scores, found[0], cases, name)
    by_image = [table["score"].to_numpy() for table in tables]
    return Cohort(
        case_ids=found[0].case_ids,
        labels=found[0].labels,
        configurations=tuple(scores.configurations),
        scores=tuple(cases.score(values) for cases, values in zip(found, by_image, strict=True)),
        images=tuple(
            None
            if table.height == cases.labels.size
            else Images(cases.of_image, table["label"].to_numpy(), values)
            for table, cases, values in zip(tables, found, by_image, strict=True)
        ),
    )


def _check_same_cases(scores: Scores, first: Cases, other: Cases, name: str | None) -> None:
    reference = scores.configurations[0]
    for here, there, lacking in ((first, other, name), (other, first, reference)):
        missing = here.case_ids.filter(~here.case_ids.is_in(there.case_ids.implode()))
        if missing.len():
            raise InputError(
                f"{scores.source}: every configuration must score the same cases; configuration"
                f" {lacking} lacks case {missing[0]} ({missing.len()} cases in all)"
            )
    differing = np.flatnonzero(first.labels != other.labels)
    if differing.size:
        raise InputError(
            f"{scores.source}: case {first.case_ids[int(differing[0])]} has another label in"
            f" configuration {name} than in {reference} ({differing.size} cases in all)"
        )


@dataclass(frozen=True)
class Grouping:
    """The groups of a column in sorted order, and each case's group by position."""

    column: str
    names: tuple[str, ...]
    group: NDArray[np.int64]


def group_cases(scores: Scores, cohort: Cohort, column: str) -> Grouping:
    """Give each case the one value of its rows; `conflicting` if there are several, `missing` if none."""
    table = _with_column(scores, column)
    text = pl.col(column).cast(pl.String)
    # A value that equals one of these two words gets quotation marks.
    ours = text.is_in([MISSING, CONFLICTING])
    value = pl.when(ours).then(pl.format('"{}"', text)).otherwise(text).drop_nulls()
    by_case = table.group_by("case_id").agg(values=value.n_unique(), value=value.first())
    name = (
        pl.when(pl.col("values") == 0).then(pl.lit(MISSING))
        .when(pl.col("values") > 1).then(pl.lit(CONFLICTING))
        .otherwise(pl.col("value"))
    )  # fmt: skip
    named = pl.DataFrame({"case_id": cohort.case_ids}).join(
        by_case.select("case_id", name=name), on="case_id", how="left", maintain_order="left"
    )["name"]
    names = sorted(named.unique().to_list(), key=lambda group: (group in {MISSING, CONFLICTING}, group))
    positions = {group: position for position, group in enumerate(names)}
    return Grouping(column, tuple(names), named.replace_strict(positions, return_dtype=pl.Int64).to_numpy())


def _with_column(scores: Scores, column: str) -> pl.DataFrame:
    """Return the scores with the column, from their own table or, by image_id, from the run's manifest."""
    if column in scores.table.columns and column not in IDENTITY:
        return scores.table
    others = [name for name in scores.table.columns if name not in IDENTITY]
    if scores.manifest is not None:
        manifest = read_text_table(scores.manifest, ("image_id",))
        if column in manifest.columns and column not in IDENTITY:
            return scores.table.join(manifest.select("image_id", column), on="image_id", how="left")
        others += [name for name in manifest.columns if name not in (*IDENTITY, *others)]
    raise InputError(
        f"{scores.source}: no column {column!r} to group by; there is"
        f" {', '.join(others) or 'none besides ids, label and score'}"
    )
