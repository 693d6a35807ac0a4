"""Scores as users bring them: one row per image or case, checked, sorted, with a digest."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from trust_cache.base.digests import rows_sha256
from trust_cache.base.errors import InputError
from trust_cache.base.tables import LINE, read_text_table

REQUIRED = ("case_id", "label", "score")
IDENTITY = ("configuration", "case_id", "image_id", "label", "score")


@dataclass(frozen=True)
class Scores:
    """A checked table, sorted by its identity columns; further columns ride along as text."""

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
        """Tell how the scores were made as far as the file says: external, out-of-fold or unknown."""
        if "fold" not in self.table.columns:
            return "unknown"
        folds = set(self.table["fold"].unique().to_list())
        return "external" if folds == {"external"} else "out-of-fold"


def read_scores(path: Path) -> Scores:
    """Read a scores file, or the scores.csv of a run folder."""
    file = path / "scores.csv" if path.is_dir() else path
    if path.is_dir() and not file.exists():
        raise InputError(f"{path}: expected a run folder with scores.csv in it, found none")
    scores = check_scores(read_text_table(file, REQUIRED, lines=True), str(file))
    manifest = path / "manifest.csv"
    return replace(scores, manifest=manifest) if path.is_dir() and manifest.exists() else scores


def check_scores(table: pl.DataFrame, source: str = "scores") -> Scores:
    """Check a table of scores (text or typed columns) and put it into canonical order."""
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
        empty = pl.col(name).is_null()
        if name == "case_id" or table[name].null_count() != table.height:
            yield from _first(table.filter(empty), f"an empty {name}")
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
            "image_id {image_id} stands more than once within configuration {configuration}",
        )


def _first(wrong: pl.DataFrame, message: str) -> Iterator[str]:
    """Word the first of the offending rows, with how many there are."""
    if wrong.is_empty():
        return
    row = {name: "nothing" if cell is None else cell for name, cell in wrong.row(0, named=True).items()}
    more = f" (and {wrong.height - 1} more such rows)" if wrong.height > 1 else ""
    yield f"line {row[LINE]}, case {row['case_id']}: {message.format_map(row)}{more}"
