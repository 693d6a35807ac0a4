"""Folds: which cases each fold fits on, calibrates its threshold on, and tests; a patient's are together."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.csv_tables import read_text_table, rows_of_cases
from trust_cache.base.digests import rows_sha256
from trust_cache.base.errors import InputError
from trust_cache.manifest.cases import Cases
from trust_cache.statistics.stratified_draws import count_patients, draw_patients, random_keys

FOLDS = 5
FOLD_COLUMNS = tuple(f"fold_{fold}" for fold in range(FOLDS))
PARTS = ("fit", "calibrate", "test")
FIT, CALIBRATE, TEST = range(3)
CALIBRATION_SHARE = 10  # one tenth of all patients
EXTERNAL = "external"  # the one fold of an external run: in folds.csv and in scores.csv
_ALIKE, _ALIKE_SHARE = 1e-8, 1e-5  # the tolerances of numpy.isclose
_CALIBRATION, _FINAL = 1, 2  # the streams of random keys that calibration cases are drawn by


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
        """folds.csv: case_id, label, then one column per fold (fold_0 .. fold_4)."""
        words = np.array(PARTS)
        of_cases = {column: words[parts] for column, parts in zip(self.columns, self.parts, strict=True)}
        return pl.DataFrame({"case_id": self.case_ids, "label": self.labels} | of_cases)

    @cached_property
    def sha256(self) -> str:
        """The digest of the table's rows."""
        return rows_sha256(self.table.iter_rows())


def draw_folds(cases: Cases, seed: int, repeat: int = 0) -> Folds:
    """Draw five stratified folds of whole patients: 20 % test, 10 % calibration, 70 % fitting.

    A case without a patient is its own.
    """
    labels, patients = cases.labels, cases.patients
    _check_enough(labels, patients)
    # Repeat 0 has the run's own seed, others derive theirs from it.
    state = np.random.SeedSequence(seed, spawn_key=(repeat,)).generate_state(1) if repeat else [seed]
    tested_in = deal_patients(labels, patients, int(state[0]))
    parts = np.full((FOLDS, labels.size), FIT, dtype=np.int8)
    size = round(count_patients(patients) / CALIBRATION_SHARE)
    for fold in range(FOLDS):
        parts[fold, tested_in == fold] = TEST
        rest = np.flatnonzero(parts[fold] == FIT)
        keys = random_keys(count_patients(patients[rest]), seed, _CALIBRATION, repeat, fold)
        parts[fold, rest[draw_patients(labels[rest], patients[rest], size, keys)]] = CALIBRATE
    folds = Folds(cases.case_ids, labels, parts)
    check_folds(folds, patients, "the folds drawn")
    return folds


def deal_patients(labels: NDArray[np.int64], patients: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return the fold that tests each case: scikit-learn's StratifiedGroupKFold, shuffled by the seed.

    The greedy rule and its arithmetic are scikit-learn's to the last bit. Its own loop takes 6 s for 11,913
    patients because it makes a dozen small arrays for each fold of each patient; these are plain numbers.
    """
    _, patient_of_case = np.unique(patients, return_inverse=True)
    number = int(patient_of_case.max()) + 1
    counts = np.zeros((number, 2))
    np.add.at(counts, (patient_of_case, labels), 1.0)
    order = np.arange(number)
    np.random.RandomState(seed).shuffle(order)
    order = order[np.argsort(-np.std(counts[order], axis=1), kind="stable")]
    totals = counts.sum(axis=0).tolist()
    in_folds = [[0.0] * FOLDS for _ in totals]  # cases by class and fold
    shares = [[0.0] * FOLDS for _ in totals]  # of the cases of the class
    spreads = [0.0 for _ in totals]
    fold_of_patient = np.empty(number, dtype=np.int64)
    for patient, added in zip(order.tolist(), counts[order].tolist(), strict=True):
        best, least, fewest = 0, math.inf, math.inf
        for fold in range(FOLDS):
            total_spread, cases_there = 0.0, 0.0
            for share, cases, more, total, spread in zip(
                shares, in_folds, added, totals, spreads, strict=True
            ):
                total_spread += _spread(share, fold, (cases[fold] + more) / total) if more else spread
                cases_there += cases[fold]
            uneven = total_spread / len(totals)
            # As numpy.isclose: folds that are as even as each other, up to rounding, go by their size.
            alike = abs(uneven - least) <= _ALIKE + _ALIKE_SHARE * least
            if uneven < least or (alike and cases_there < fewest):
                best, least, fewest = fold, uneven, cases_there
        for label, more in enumerate(added):
            in_folds[label][best] += more
            shares[label][best] = in_folds[label][best] / totals[label]
            spreads[label] = _spread(shares[label], best, shares[label][best])
        fold_of_patient[patient] = best
    return fold_of_patient[patient_of_case]


def _spread(shares: list[float], fold: int, share: float) -> float:
    """Return the standard deviation of the folds' shares with another share for one fold, as numpy.std."""
    values = shares.copy()
    values[fold] = share
    a, b, c, d, e = values
    # One after the other, as numpy adds; `sum` compensates for rounding since Python 3.12.
    mean = (a + b + c + d + e) / FOLDS
    a, b, c, d, e = a - mean, b - mean, c - mean, d - mean, e - mean
    return math.sqrt((a * a + b * b + c * c + d * d + e * e) / FOLDS)


def _check_enough(labels: NDArray[np.int64], patients: NDArray[np.int64]) -> None:
    """Refuse too few cases, or cases of too few patients, for each fold to test both classes."""
    for label in (0, 1):
        cases = int(np.count_nonzero(labels == label))
        if cases < FOLDS:
            raise InputError(
                f"{FOLDS} folds need at least {FOLDS} positive and {FOLDS} negative cases,"
                f" found {np.count_nonzero(labels)} positive of {labels.size}"
            )
        of_patients = count_patients(patients[labels == label])
        if of_patients < FOLDS:
            raise InputError(
                f"{FOLDS} folds need {'positive' if label else 'negative'} cases of at least {FOLDS}"
                f" patients, since all cases of a patient are in one fold; found {cases} of {of_patients}"
            )


def read_folds(path: Path, cases: Cases) -> tuple[Folds, list[str]]:
    """Read five folds for these cases from a folds.csv; also return warnings."""
    folds, warnings = read_parts(path, cases, FOLD_COLUMNS)
    check_folds(folds, cases.patients, str(path))
    return folds, warnings


def read_parts(path: Path, cases: Cases, names: tuple[str, ...]) -> tuple[Folds, list[str]]:
    """Read these columns of a folds.csv for these cases, whatever the parts; also return warnings."""
    table = read_text_table(path, ("case_id", "label", *names))
    twice = table.filter(pl.col("case_id").is_duplicated())
    if twice.height:
        raise InputError(f"{path}: case {twice['case_id'][0]} occurs twice")
    wrong = table.filter(~pl.all_horizontal(pl.col(*names).is_in(PARTS).fill_null(value=False)))
    if wrong.height:
        raise InputError(f"{path}: case {wrong['case_id'][0]}: expected {', '.join(PARTS)} in every fold")
    used = rows_of_cases(table, cases.case_ids, path, of="cache", what="folds")
    codes = {name: code for code, name in enumerate(PARTS)}
    parts = np.stack([used[name].replace_strict(codes, return_dtype=pl.Int8).to_numpy() for name in names])
    folds = Folds(cases.case_ids, cases.labels, parts, names)
    changed = int((used["label"].cast(pl.Float64, strict=False).fill_null(-1) != cases.labels).sum())
    unused = table.height - used.height
    warnings = {
        f"{path}: the labels of {changed} cases changed since these folds were made": changed,
        f"{path}: {unused} cases of the folds are not in the cache": unused,
    }
    return folds, [text for text, number in warnings.items() if number > 0]


def check_folds(folds: Folds, patients: NDArray[np.int64], source: str) -> None:
    """Refuse folds that do not test every case once, divide a patient, or lack positives in a part."""
    tested = np.count_nonzero(folds.parts == TEST, axis=0)
    if np.any(tested != 1):
        case = int(np.flatnonzero(tested != 1)[0])
        raise InputError(
            f"{source}: case {folds.case_ids[case]} is tested in {tested[case]} folds; expected exactly one"
        )
    check_patients(folds, patients, source)
    for fold, parts in zip(folds.names, folds.parts, strict=True):
        for part in (FIT, TEST):
            check_classes(folds.labels[parts == part], f"{source}: fold {fold}", PARTS[part])
        if not np.any(parts == CALIBRATE):
            raise InputError(f"{source}: fold {fold} has no cases to calibrate its threshold on")


def check_patients(folds: Folds, patients: NDArray[np.int64], source: str) -> None:
    """Refuse folds with cases of one patient in two parts: a model would be tested on a patient it saw."""
    order = np.argsort(patients, kind="stable")
    same = patients[order][1:] == patients[order][:-1]
    for fold, parts in zip(folds.names, folds.parts, strict=True):
        apart = np.flatnonzero(same & (parts[order][1:] != parts[order][:-1]))
        if apart.size:
            first = int(apart[0])
            one, other = (
                f"{folds.case_ids[case]} ({PARTS[parts[case]]})" for case in order[first : first + 2].tolist()
            )
            raise InputError(
                f"{source}: fold {fold}: expected all cases of a patient in one part, found {one} and {other}"
                " of the same patient; draw new folds by leaving out --folds, or correct patient_id"
            )


def check_classes(labels: NDArray[np.int64], where: str, part: str) -> None:
    """Refuse a part without cases of both classes."""
    for label, word in ((1, "positive"), (0, "negative")):
        if not np.any(labels == label):
            raise InputError(f"{where} has no {word} cases to {part} with, it needs some")


def draw_final(cases: Cases, seed: int) -> Folds:
    """Draw the cases of 10 % of the patients for calibration, stratified by "has a positive case"."""
    labels, patients = cases.labels, cases.patients
    parts = np.full((1, labels.size), FIT, dtype=np.int8)
    count = count_patients(patients)
    keys = random_keys(count, seed, _FINAL)
    parts[0, draw_patients(labels, patients, round(count / CALIBRATION_SHARE), keys)] = CALIBRATE
    folds = Folds(cases.case_ids, labels, parts, (EXTERNAL,))
    _check(folds, "the fold drawn")
    return folds


def read_final(path: Path, cases: Cases) -> tuple[Folds, list[str]]:
    """Read the one fold for these cases from the folds.csv of an external run; also return warnings."""
    folds, warnings = read_parts(path, cases, (EXTERNAL,))
    _check(folds, str(path))
    check_patients(folds, cases.patients, str(path))
    return folds, warnings


def _check(folds: Folds, source: str) -> None:
    (parts,) = folds.parts
    if np.any(parts == TEST):
        case = folds.case_ids[int(np.flatnonzero(parts == TEST)[0])]
        raise InputError(
            f"{source}: case {case}: expected {PARTS[FIT]} or {PARTS[CALIBRATE]}, found {PARTS[TEST]}:"
            " a final model is tested on another cache"
        )
    check_classes(folds.labels[parts == FIT], source, PARTS[FIT])
    if not np.any(parts == CALIBRATE):
        raise InputError(f"{source} has no cases to calibrate a threshold on, it needs some")
