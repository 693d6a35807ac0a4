"""The search/evaluation split of cases: draw it, read it from its file, write it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.csv_tables import read_text_table, restored, rows_of_cases, write_rows
from trust_cache.base.digests import rows_sha256
from trust_cache.base.errors import InputError
from trust_cache.certificate.score_table import Cohort
from trust_cache.statistics.stratified_draws import draw_one_per_patient, draw_search, random_keys

PARTS = ("search", "evaluation", "set_aside")
_SEARCH, _EVALUATION, _SET_ASIDE = PARTS
_DRAWN = 3  # the stream of random keys that one case per patient is drawn by


@dataclass(frozen=True)
class Split:
    """The cases that thresholds are searched on; the others are for evaluation.

    A bound needs independent cases: of each patient one case is drawn, without regard to scores. The other
    evaluation cases are set aside for the bound, but count for dismissal and recall.
    """

    case_ids: pl.Series
    search: NDArray[np.bool_]
    drawn: NDArray[np.bool_]  # one case of each patient
    origin: str  # "seed 0" or the file it came from
    given: bool = False  # read from a file, not drawn

    @property
    def evaluation(self) -> NDArray[np.bool_]:
        """The cases that a fixed threshold is evaluated on."""
        return ~self.search

    @cached_property
    def table(self) -> pl.DataFrame:
        """The rows of split.csv: case_id and part, sorted by case_id."""
        part = np.where(self.search, _SEARCH, np.where(self.drawn, _EVALUATION, _SET_ASIDE))
        return pl.DataFrame({"case_id": self.case_ids, "part": part})

    def as_csv(self) -> bytes:
        """Return split.csv; no cell is a formula in a spreadsheet."""
        return write_rows(self.table.columns, self.table.iter_rows(named=True), neutral=True)

    @cached_property
    def sha256(self) -> str:
        """The digest of the rows (case_id, part), sorted by case_id."""
        return rows_sha256(self.table.iter_rows())


def draw_split(cohort: Cohort, seed: int, *, resplit: int | None = None) -> Split:
    """Draw a stratified split: ceil(20 %) of the patients for search, with all their cases."""
    search = draw_search(cohort.labels, seed, patients=cohort.patients, resplit=resplit)
    origin = f"seed {seed}" if resplit is None else f"seed {seed}, resplit {resplit}"
    split = Split(cohort.case_ids, search, draw_independent(cohort, seed, resplit), origin)
    if resplit is None:
        _check_parts(cohort, split)
    return split


def draw_independent(cohort: Cohort, seed: int, resplit: int | None = None) -> NDArray[np.bool_]:
    """Draw one case of each patient."""
    everyone = np.ones(cohort.cases, dtype=np.bool_)
    if not cohort.repeated_patients:
        return everyone
    keys = random_keys(cohort.cases, seed, _DRAWN, 0 if resplit is None else resplit + 1)
    return draw_one_per_patient(cohort.patients, everyone, keys)


def read_split(path: Path, cohort: Cohort, seed: int = 0) -> tuple[Split, list[str]]:
    """Read a split for these cases from its file; also return warnings.

    A file that draws no case per patient gets that draw from the seed.
    """
    table = read_text_table(path, ("case_id", "part")).select(pl.col("case_id").pipe(restored), "part")
    wrong = table.filter(~pl.col("part").is_in(PARTS).fill_null(value=False))
    if wrong.height:
        case_id, part = wrong.row(0)
        raise InputError(f"{path}: case {case_id}: expected the part {' or '.join(PARTS)}, found {part!r}")
    table = table.unique()
    twice = table.filter(pl.col("case_id").is_duplicated()).sort("case_id")
    if twice.height:
        raise InputError(f"{path}: case {twice['case_id'][0]} is in two parts of the split")
    used = rows_of_cases(table, cohort.case_ids, path, of="scores", what="split")
    search = (used["part"] == _SEARCH).to_numpy()
    aside = (used["part"] == _SET_ASIDE).to_numpy()
    drawn = draw_independent(cohort, seed)
    if np.any(aside):
        drawn = np.where(search, drawn, ~aside)
    split = Split(cohort.case_ids, search, drawn, str(path), given=True)
    _check_parts(cohort, split)
    _check_patients(cohort, split)
    unused = table.height - used.height
    return split, [f"{path}: {unused} cases of the split have no scores and are left out"] if unused else []


def _check_patients(cohort: Cohort, split: Split) -> None:
    """Refuse a split that has a patient in two parts, or draws not exactly one case of each for the bound."""
    count = int(np.max(cohort.patients, initial=-1)) + 1
    sizes, searched, drawn = (
        np.bincount(cohort.patients, weights=weights, minlength=count).astype(np.int64)
        for weights in (None, split.search, split.drawn)
    )
    divided = np.flatnonzero((searched > 0) & (searched < sizes))
    if divided.size:
        raise InputError(
            f"{split.origin}: expected all cases of a patient in one part, found the patient of case"
            f" {_first_case(cohort, divided)} in search and evaluation ({divided.size} patients in all)"
        )
    wrong = np.flatnonzero((searched == 0) & (drawn != 1))
    if wrong.size:
        hint = "" if cohort.repeated_patients else "; name the column of patients with --patient"
        raise InputError(
            f"{split.origin}: expected one evaluation case of each patient and the others {_SET_ASIDE}, found"
            f" {drawn[wrong[0]]} for the patient of case {_first_case(cohort, wrong)}"
            f" ({wrong.size} patients in all){hint}"
        )


def _first_case(cohort: Cohort, patients: NDArray[np.int64]) -> str:
    return str(cohort.case_ids[int(np.argmax(cohort.patients == patients[0]))])


def _check_parts(cohort: Cohort, split: Split) -> None:
    for part, members in ((_SEARCH, split.search), (_EVALUATION, split.evaluation)):
        positives = int(np.count_nonzero(cohort.labels[members]))
        if not positives:
            raise InputError(
                f"the {part} part has no positives: {np.count_nonzero(members)} of"
                f" {cohort.cases} cases are in it, the cohort has {cohort.positives} positives;"
                " a threshold and its recall need at least one in each part"
                + (", and all cases of a patient are in one part" if cohort.repeated_patients else "")
            )
