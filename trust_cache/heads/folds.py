"""Folds of cases: which case each fold fits on, calibrates its threshold on, and is tested on."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

from trust_cache.base.digests import rows_sha256
from trust_cache.base.errors import InputError
from trust_cache.base.tables import read_text_table
from trust_cache.statistics.splits import draw_stratified, random_keys

FOLDS = 5
FOLD_COLUMNS = tuple(f"fold_{fold}" for fold in range(FOLDS))
PARTS = ("fit", "calibrate", "test")
FIT, CALIBRATE, TEST = range(3)
CALIBRATION_SHARE = 10  # one tenth of all cases
_CALIBRATION = 1  # the stream of random keys that calibration cases are drawn by


@dataclass(frozen=True)
class Cases:
    """The cases of a cache sorted by case_id, their labels, and each image's case by position."""

    case_ids: pl.Series
    labels: NDArray[np.int64]
    of_image: NDArray[np.int64]


@dataclass(frozen=True)
class Folds:
    """The part [fold, case] of every case in every fold, and the folds' columns in a file."""

    case_ids: pl.Series
    labels: NDArray[np.int64]
    parts: NDArray[np.int8]
    columns: tuple[str, ...] = FOLD_COLUMNS

    @property
    def names(self) -> tuple[str, ...]:
        """The folds as a run's files name them."""
        return tuple(column.removeprefix("fold_") for column in self.columns)

    @cached_property
    def table(self) -> pl.DataFrame:
        """The folds as their file has them: case_id, label, then a column for each (fold_0 .. fold_4)."""
        words = np.array(PARTS)
        of_cases = {column: words[parts] for column, parts in zip(self.columns, self.parts, strict=True)}
        return pl.DataFrame({"case_id": self.case_ids, "label": self.labels} | of_cases)

    @cached_property
    def sha256(self) -> str:
        """The digest of the table's rows."""
        return rows_sha256(self.table.iter_rows())


def find_cases(manifest: pl.DataFrame) -> Cases:
    """Return the cases of a manifest; a case is positive if one of its images is."""
    cases = manifest.group_by("case_id").agg(pl.col("label").max()).sort("case_id")
    position = cases.select("case_id").with_row_index("case")
    joined = manifest.select("case_id").join(position, on="case_id", how="left", maintain_order="left")
    return Cases(
        case_ids=cases["case_id"],
        labels=cases["label"].cast(pl.Int64).to_numpy(),
        of_image=joined["case"].cast(pl.Int64).to_numpy(),
    )


def draw_folds(cases: Cases, seed: int, repeat: int = 0) -> Folds:
    """Draw five stratified folds: 20 % test, 10 % calibration, 70 % fitting, each of all cases."""
    labels = cases.labels
    rarest = min(int(np.count_nonzero(labels == label)) for label in (0, 1))
    if rarest < FOLDS:
        raise InputError(
            f"{FOLDS} folds need at least {FOLDS} positive and {FOLDS} negative cases,"
            f" found {np.count_nonzero(labels)} positive of {labels.size}"
        )
    splitter = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=_fold_seed(seed, repeat))
    parts = np.full((FOLDS, labels.size), FIT, dtype=np.int8)
    everyone = np.arange(labels.size)
    for fold, (_, test) in enumerate(splitter.split(everyone, labels, groups=everyone)):
        parts[fold, test] = TEST
        rest = np.flatnonzero(parts[fold] == FIT)
        keys = random_keys(rest.size, seed, _CALIBRATION, repeat, fold)
        size = round(labels.size / CALIBRATION_SHARE)
        parts[fold, rest[draw_stratified(labels[rest], size, keys)]] = CALIBRATE
    folds = Folds(cases.case_ids, labels, parts)
    check_folds(folds, "the folds drawn")
    return folds


def read_folds(path: Path, cases: Cases) -> tuple[Folds, list[str]]:
    """Read five folds for these cases from a splits.csv; also return warnings."""
    folds, warnings = read_parts(path, cases, FOLD_COLUMNS)
    check_folds(folds, str(path))
    return folds, warnings


def read_parts(path: Path, cases: Cases, names: tuple[str, ...]) -> tuple[Folds, list[str]]:
    """Read these columns of a splits.csv for these cases, whatever the parts; also return warnings."""
    table = read_text_table(path, ("case_id", "label", *names))
    twice = table.filter(pl.col("case_id").is_duplicated())
    if twice.height:
        raise InputError(f"{path}: case {twice['case_id'][0]} stands twice")
    wrong = table.filter(~pl.all_horizontal(pl.col(*names).is_in(PARTS).fill_null(value=False)))
    if wrong.height:
        raise InputError(f"{path}: case {wrong['case_id'][0]}: expected {', '.join(PARTS)} in every fold")
    wanted = pl.DataFrame({"case_id": cases.case_ids})
    missing = wanted.join(table, on="case_id", how="anti", maintain_order="left")
    if missing.height:
        raise InputError(
            f"{path}: case {missing['case_id'][0]} of the cache is missing from the splits"
            f" ({missing.height} cases in all)"
        )
    used = wanted.join(table, on="case_id", how="left", maintain_order="left")
    codes = {name: code for code, name in enumerate(PARTS)}
    parts = np.stack([used[name].replace_strict(codes, return_dtype=pl.Int8).to_numpy() for name in names])
    folds = Folds(cases.case_ids, cases.labels, parts, names)
    changed = int((used["label"].cast(pl.Float64, strict=False).fill_null(-1) != cases.labels).sum())
    warnings = (
        [f"{path}: the labels of {changed} cases changed since these splits were made"] if changed else []
    )
    if table.height > used.height:
        warnings.append(f"{path}: {table.height - used.height} cases of the splits are not in the cache")
    return folds, warnings


def check_folds(folds: Folds, source: str) -> None:
    """Refuse folds that do not test every case exactly once, or lack positives where they need them."""
    tested = np.count_nonzero(folds.parts == TEST, axis=0)
    if np.any(tested != 1):
        case = int(np.flatnonzero(tested != 1)[0])
        raise InputError(
            f"{source}: case {folds.case_ids[case]} is tested in {tested[case]} folds; expected exactly one"
        )
    for fold, parts in zip(folds.names, folds.parts, strict=True):
        for part in (FIT, TEST):
            check_classes(folds.labels[parts == part], f"{source}: fold {fold}", PARTS[part])
        if not np.any(parts == CALIBRATE):
            raise InputError(f"{source}: fold {fold} has no cases to calibrate its threshold on")


def check_classes(labels: NDArray[np.int64], where: str, part: str) -> None:
    """Refuse a part without cases of both classes."""
    for label, word in ((1, "positive"), (0, "negative")):
        if not np.any(labels == label):
            raise InputError(f"{where} has no {word} cases to {part} with, it needs some")


def _fold_seed(seed: int, repeat: int) -> int:
    """Return the splitter's seed: the run's own for repeat 0, others derived from it."""
    if repeat == 0:
        return seed
    return int(np.random.SeedSequence(seed, spawn_key=(repeat,)).generate_state(1)[0])
