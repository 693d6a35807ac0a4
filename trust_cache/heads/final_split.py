"""The split of a final model: the whole set, 90 % of its cases to fit on and 10 % to calibrate on."""

from pathlib import Path

import numpy as np

from trust_cache.base.errors import InputError
from trust_cache.heads.folds import (
    CALIBRATE,
    CALIBRATION_SHARE,
    FIT,
    PARTS,
    TEST,
    Cases,
    Folds,
    check_classes,
    read_parts,
)
from trust_cache.statistics.splits import draw_stratified, random_keys

EXTERNAL = "external"  # the one fold: a column of splits.csv, and the fold of all scores
_FINAL = 2  # the stream of random keys that calibration cases are drawn by


def draw_final(cases: Cases, seed: int) -> Folds:
    """Draw 10 % of the cases for calibration, stratified by label."""
    labels = cases.labels
    parts = np.full((1, labels.size), FIT, dtype=np.int8)
    size = round(labels.size / CALIBRATION_SHARE)
    parts[0, draw_stratified(labels, size, random_keys(labels.size, seed, _FINAL))] = CALIBRATE
    folds = Folds(cases.case_ids, labels, parts, (EXTERNAL,))
    _check(folds, "the split drawn")
    return folds


def read_final(path: Path, cases: Cases) -> tuple[Folds, list[str]]:
    """Read the split for these cases from the splits.csv of an external run; also return warnings."""
    folds, warnings = read_parts(path, cases, (EXTERNAL,))
    _check(folds, str(path))
    return folds, warnings


def _check(folds: Folds, source: str) -> None:
    (parts,) = folds.parts
    if np.any(parts == TEST):
        case = folds.case_ids[int(np.flatnonzero(parts == TEST)[0])]
        raise InputError(
            f"{source}: case {case}: expected {PARTS[FIT]} or {PARTS[CALIBRATE]}, found {PARTS[TEST]}:"
            " a final model is tested on another set"
        )
    check_classes(folds.labels[parts == FIT], source, PARTS[FIT])
    if not np.any(parts == CALIBRATE):
        raise InputError(f"{source} has no cases to calibrate a threshold on, it needs some")
