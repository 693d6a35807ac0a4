"""The search/evaluation split of cases: draw it, read it from its file, write it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.csv_tables import read_text_table, rows_of_cases
from trust_cache.base.digests import rows_sha256
from trust_cache.base.errors import InputError
from trust_cache.certificate.score_table import Cohort
from trust_cache.statistics.stratified_draws import draw_search

PARTS = ("search", "evaluation")


@dataclass(frozen=True)
class Split:
    """The cases that thresholds are searched on; the others are for evaluation."""

    case_ids: pl.Series
    search: NDArray[np.bool_]
    origin: str  # "seed 0" or the file it came from

    @property
    def evaluation(self) -> NDArray[np.bool_]:
        """The cases that a fixed threshold is evaluated on."""
        return ~self.search

    @cached_property
    def table(self) -> pl.DataFrame:
        """The rows of split.csv: case_id and part, sorted by case_id."""
        search, evaluation = PARTS
        part = pl.when(pl.Series(self.search)).then(pl.lit(search)).otherwise(pl.lit(evaluation))
        return pl.DataFrame({"case_id": self.case_ids}).with_columns(part=part)

    @cached_property
    def sha256(self) -> str:
        """The digest of the rows (case_id, part), sorted by case_id."""
        return rows_sha256(self.table.iter_rows())


def draw_split(cohort: Cohort, seed: int) -> Split:
    """Draw a stratified split: ceil(20 %) of the cases for search."""
    split = Split(cohort.case_ids, draw_search(cohort.labels, seed), f"seed {seed}")
    _check_parts(cohort, split)
    return split


def read_split(path: Path, cohort: Cohort) -> tuple[Split, list[str]]:
    """Read a split for these cases from its file; also return warnings."""
    table = read_text_table(path, ("case_id", "part")).select("case_id", "part")
    wrong = table.filter(~pl.col("part").is_in(PARTS).fill_null(value=False))
    if wrong.height:
        case_id, part = wrong.row(0)
        raise InputError(f"{path}: case {case_id}: expected the part search or evaluation, found {part!r}")
    table = table.unique()
    twice = table.filter(pl.col("case_id").is_duplicated()).sort("case_id")
    if twice.height:
        raise InputError(f"{path}: case {twice['case_id'][0]} is in two parts of the split")
    used = rows_of_cases(table, cohort.case_ids, path, of="scores", what="split")
    split = Split(cohort.case_ids, (used["part"] == PARTS[0]).to_numpy(), str(path))
    _check_parts(cohort, split)
    unused = table.height - used.height
    return split, [f"{path}: {unused} cases of the split have no scores and are left out"] if unused else []


def _check_parts(cohort: Cohort, split: Split) -> None:
    for part, members in zip(PARTS, (split.search, split.evaluation), strict=True):
        positives = int(np.count_nonzero(cohort.labels[members]))
        if not positives:
            raise InputError(
                f"the {part} part has no positives: {np.count_nonzero(members)} of"
                f" {cohort.cases} cases are in it, the cohort has {cohort.positives} positives;"
                " a threshold and its recall need at least one in each part"
            )
