"""The search/evaluation split: drawn once, written out, reused by case_id."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.digests import rows_sha256
from trust_cache.base.documents import parse_json
from trust_cache.base.errors import InputError
from trust_cache.base.tables import read_text_table
from trust_cache.certificate.cohort import Cohort
from trust_cache.statistics.splits import draw_search

PARTS = ("search", "evaluation")


@dataclass(frozen=True)
class Split:
    """Which of a cohort's cases are for the search of thresholds; the others are for evaluation."""

    case_ids: pl.Series
    search: NDArray[np.bool_]
    chosen_by: str  # "seed 0" or the file it came from

    @property
    def evaluation(self) -> NDArray[np.bool_]:
        """The cases on which a threshold, once fixed, is evaluated."""
        return ~self.search

    @cached_property
    def table(self) -> pl.DataFrame:
        """The split as its file has it: case_id, part, sorted by case_id."""
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
        raise InputError(f"{path}: case {twice['case_id'][0]} stands in two parts of the split")
    cases = pl.DataFrame({"case_id": cohort.case_ids})
    missing = cases.join(table, on="case_id", how="anti", maintain_order="left")
    if missing.height:
        raise InputError(
            f"{path}: case {missing['case_id'][0]} of the scores is missing from the split"
            f" ({missing.height} cases in all)"
        )
    used = cases.join(table, on="case_id", how="left", maintain_order="left")
    split = Split(cohort.case_ids, (used["part"] == PARTS[0]).to_numpy(), str(path))
    _check_parts(cohort, split)
    return split, _reuse_warnings(path, cohort, split, unused=table.height - used.height)


def _check_parts(cohort: Cohort, split: Split) -> None:
    for part, members in zip(PARTS, (split.search, split.evaluation), strict=True):
        positives = int(np.count_nonzero(cohort.labels[members]))
        if not positives:
            raise InputError(
                f"the {part} part has no positives: {np.count_nonzero(members)} of"
                f" {cohort.cases} cases are in it, the cohort has {cohort.positives} positives;"
                " a threshold and its recall need at least one in each part"
            )


def _reuse_warnings(path: Path, cohort: Cohort, split: Split, *, unused: int) -> list[str]:
    warnings = []
    if unused:
        warnings.append(f"{path}: {unused} cases of the split have no scores and are left out")
    recorded = _recorded_positives(path.with_name("points.json"))
    found = [int(np.count_nonzero(cohort.labels[part])) for part in (split.search, split.evaluation)]
    if not unused and recorded is not None and recorded != found:
        warnings.append(
            f"{path}: the labels changed since this split was made: search and evaluation had"
            f" {recorded[0]} and {recorded[1]} positives then, {found[0]} and {found[1]} now"
        )
    return warnings


def _recorded_positives(points: Path) -> list[int] | None:
    """Return the positives of both parts from the results beside a split file, if there are any."""
    try:
        point = parse_json(points.read_text(encoding="utf-8"))["points"][0]
        return [int(point["search_positives"]), int(point["positives"])]
    except (OSError, ValueError, LookupError, TypeError):
        return None
