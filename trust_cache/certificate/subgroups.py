"""Subgroups of cases by a column of the scores: one group a case, none left out."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.base.tables import read_text_table
from trust_cache.certificate.cohort import Cohort
from trust_cache.certificate.scores import IDENTITY, Scores

MISSING = "missing"
CONFLICTING = "conflicting"


@dataclass(frozen=True)
class Grouping:
    """The groups of a column in sorted order, and each case's group by position."""

    column: str
    names: tuple[str, ...]
    group: NDArray[np.int64]

    def members(self, position: int) -> NDArray[np.bool_]:
        """Mark the cases of the group at `position`."""
        return np.asarray(self.group == position)


def group_cases(scores: Scores, cohort: Cohort, column: str) -> Grouping:
    """Give each case the value that its rows agree on, or `conflicting`, or `missing`."""
    table = _with_column(scores, column)
    text = pl.col(column).cast(pl.String)
    # A value that happens to be one of our two words is told apart by quotation marks.
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
    names = sorted(named.unique().to_list(), key=_ordinary_first)
    positions = {group: position for position, group in enumerate(names)}
    group = np.array([positions[item] for item in named.to_list()], dtype=np.int64)
    return Grouping(column, tuple(names), group)


def _with_column(scores: Scores, column: str) -> pl.DataFrame:
    """Return the scores with the column: their own, or the run's manifest's by image_id."""
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


def _ordinary_first(name: str) -> tuple[bool, str]:
    return name in {MISSING, CONFLICTING}, name
