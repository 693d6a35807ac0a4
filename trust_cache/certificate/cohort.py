"""Scores by case: the maximum over a case's images, aligned over configurations."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.certificate.scores import Scores

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


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


def build_cohort(scores: Scores) -> Cohort:
    """Aggregate images to cases and check that all configurations speak of the same cases."""
    by_configuration = scores.table.partition_by("configuration", maintain_order=True)
    parts = [_cases(part) for part in by_configuration]
    first = parts[0]
    for name, part in zip(scores.configurations[1:], parts[1:], strict=True):
        _check_same_cases(scores, first, part, name)
    case_ids = first["case_id"]
    return Cohort(
        case_ids=case_ids,
        labels=first["label"].to_numpy(),
        configurations=tuple(scores.configurations),
        scores=tuple(part["score"].to_numpy() for part in parts),
        images=tuple(
            None if rows.height == part.height else _images(rows, part)
            for rows, part in zip(by_configuration, parts, strict=True)
        ),
    )


def _cases(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.group_by("case_id").agg(pl.col("label", "score").max()).sort("case_id")


def _images(rows: pl.DataFrame, cases: pl.DataFrame) -> Images:
    position = cases.select("case_id").with_row_index("case")
    joined = rows.select("case_id", "label", "score").join(
        position, on="case_id", how="left", maintain_order="left"
    )
    return Images(
        case=joined["case"].cast(pl.Int64).to_numpy(),
        labels=joined["label"].to_numpy(),
        scores=joined["score"].to_numpy(),
    )


def _check_same_cases(scores: Scores, first: pl.DataFrame, other: pl.DataFrame, name: str | None) -> None:
    reference = scores.configurations[0]
    for here, there, lacking in ((first, other, name), (other, first, reference)):
        missing = here.join(there, on="case_id", how="anti").sort("case_id")
        if missing.height:
            raise InputError(
                f"{scores.source}: every configuration must score the same cases; configuration"
                f" {lacking} lacks case {missing['case_id'][0]} ({missing.height} cases in all)"
            )
    differing = first.join(other, on="case_id", suffix="_other").filter(
        pl.col("label") != pl.col("label_other")
    )
    if differing.height:
        raise InputError(
            f"{scores.source}: case {differing.sort('case_id')['case_id'][0]} has another label in"
            f" configuration {name} than in {reference} ({differing.height} cases in all)"
        )
