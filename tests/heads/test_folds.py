"""Folds: every case tested once, parts of the published sizes, reused by case."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

from trust_cache.base.errors import InputError
from trust_cache.heads.folds import (
    CALIBRATE,
    FIT,
    TEST,
    deal_patients,
    draw_final,
    draw_folds,
    read_final,
    read_folds,
)
from trust_cache.manifest.cases import Cases


def some_cases(cases: int, positives: int, patients: NDArray[np.int64] | None = None) -> Cases:
    labels = np.random.default_rng(1).permutation(np.arange(cases) < positives).astype(np.int64)
    everyone = np.arange(cases)
    names = pl.Series("case_id", [f"{n:05d}" for n in everyone])
    return Cases(names, labels, everyone, everyone if patients is None else patients)


@st.composite
def cases_of_patients(draw: st.DrawFn) -> Cases:
    """Patients of one to four cases, in any order; enough of them with a positive case."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=60, max_size=150))
    order = draw(st.permutations(np.repeat(np.arange(len(sizes)), sizes).tolist()))
    numbers: dict[int, int] = {}
    patients = np.array([numbers.setdefault(patient, len(numbers)) for patient in order])
    return some_cases(patients.size, draw(st.integers(30, 45)), patients)


@given(st.integers(40, 400), st.integers(5, 20), st.integers(0, 2**32 - 1), st.integers(0, 2))
def test_every_case_is_tested_once_and_parts_have_their_share(
    cases: int, positives: int, seed: int, repeat: int
) -> None:
    drawn = draw_folds(some_cases(cases, positives), seed, repeat)
    assert np.array_equal(np.sum(drawn.parts == TEST, axis=0), np.ones(cases))
    for parts in drawn.parts:
        assert abs(np.sum(parts == TEST) - cases / 5) <= 2
        assert np.sum(parts == CALIBRATE) == round(cases / 10)
        share = drawn.labels[parts == CALIBRATE].sum() - positives / 10
        assert abs(share) <= 1


def test_repeat_zero_is_scikit_learns_splitter_and_others_differ() -> None:
    cases = some_cases(500, 50)
    splitter = StratifiedGroupKFold(5, shuffle=True, random_state=3)
    expected = [test for _, test in splitter.split(cases.labels, cases.labels, groups=np.arange(500))]
    drawn = draw_folds(cases, seed=3)
    for fold, test in enumerate(expected):
        assert np.array_equal(np.flatnonzero(drawn.parts[fold] == TEST), test)
    assert draw_folds(cases, 3, 1).sha256 != drawn.sha256 != draw_folds(cases, 4).sha256
    assert draw_folds(cases, 3).sha256 == drawn.sha256


@given(cases_of_patients(), st.integers(0, 2**32 - 1))
def test_patients_are_dealt_as_scikit_learn_deals_them(cases: Cases, seed: int) -> None:
    splitter = StratifiedGroupKFold(5, shuffle=True, random_state=seed)
    drawn = draw_folds(cases, seed)
    for fold, (_, test) in enumerate(splitter.split(cases.labels, cases.labels, groups=cases.patients)):
        assert np.array_equal(np.flatnonzero(drawn.parts[fold] == TEST), test)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=20, max_size=120),
    st.integers(0, 2**32 - 1),
)
def test_few_and_large_patients_are_dealt_alike_too(cases: list[tuple[int, bool]], seed: int) -> None:
    """Few patients, patients of many cases, and ties between folds."""
    patients = np.array([number // 3 if number > 9 else 0 for number, _ in cases] + [20, 21, 22, 23, 24])
    labels = np.array([int(positive) for _, positive in cases] + [0, 1, 0, 1, 0])
    assume(min(labels.sum(), (1 - labels).sum()) >= 5)
    splitter = StratifiedGroupKFold(5, shuffle=True, random_state=seed)
    found = deal_patients(labels, patients, seed)
    for fold, (_, test) in enumerate(splitter.split(labels, labels, groups=patients)):
        assert np.array_equal(np.flatnonzero(found == fold), test)


def test_splits_are_reused_by_case(tmp_path: Path) -> None:
    cases = some_cases(100, 30)
    drawn = draw_folds(cases, 0)
    file = tmp_path / "folds.csv"
    drawn.table.sample(fraction=1.0, shuffle=True, seed=1).write_csv(file)
    again, warnings = read_folds(file, cases)
    assert again.sha256 == drawn.sha256
    assert warnings == []
    flipped = replace(cases, labels=1 - cases.labels)
    _, warnings = read_folds(file, flipped)
    assert any("labels of 100 cases changed" in text for text in warnings)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.head(90), "missing from the folds"),
        (lambda t: pl.concat([t, t.head(1)]), "occurs twice"),
        (lambda t: t.with_columns(fold_0=pl.lit("fit")), "is tested in 0 folds"),
        (lambda t: t.with_columns(fold_0=pl.lit("train")), "expected fit, calibrate, test"),
        (lambda t: t.drop("fold_3"), "missing column fold_3"),
        (
            lambda t: t.with_columns(fold_1=pl.col("fold_1").replace("calibrate", "fit")),
            "calibrate its threshold",
        ),
    ],
)
def test_bad_folds(tmp_path: Path, change: object, said: str) -> None:
    cases = some_cases(100, 30)
    file = tmp_path / "folds.csv"
    change(draw_folds(cases, 0).table).write_csv(file)  # type: ignore[operator]
    with pytest.raises(InputError, match=said):
        read_folds(file, cases)


def test_a_fold_without_positives(tmp_path: Path) -> None:
    cases = some_cases(100, 30)
    file = tmp_path / "folds.csv"
    draw_folds(cases, 0).table.write_csv(file)
    tested = draw_folds(cases, 0).parts[2] == TEST
    labels = np.where(tested, 0, cases.labels)
    with pytest.raises(InputError, match="fold 2 has no positive cases to test"):
        read_folds(file, replace(cases, labels=labels))
    with pytest.raises(InputError, match="at least 5 positive"):
        draw_folds(some_cases(100, 4), 0)


def test_fit_parts_are_what_is_left() -> None:
    drawn = draw_folds(some_cases(1_000, 100), 0)
    assert [int(np.sum(parts == FIT)) for parts in drawn.parts] == [700] * 5


@given(cases_of_patients(), st.integers(0, 2**32 - 1), st.integers(0, 2))
def test_no_patient_is_in_two_parts_of_a_fold(cases: Cases, seed: int, repeat: int) -> None:
    drawn, final = draw_folds(cases, seed, repeat), draw_final(cases, seed)
    assert np.array_equal(np.sum(drawn.parts == TEST, axis=0), np.ones(cases.labels.size))
    count = int(cases.patients.max()) + 1
    for parts in (*drawn.parts, *final.parts):
        of_parts = [set(cases.patients[parts == part]) for part in (FIT, CALIBRATE, TEST)]
        assert sum(map(len, of_parts)) == count
        assert len(of_parts[CALIBRATE]) == round(count / 10)


def test_patients_are_divided_as_scikit_learn_divides_groups_and_calibrate_in_proportion() -> None:
    patients = np.repeat(np.arange(400), 2)
    cases = some_cases(800, 120, patients)
    drawn = draw_folds(cases, seed=5)
    splitter = StratifiedGroupKFold(5, shuffle=True, random_state=5)
    for parts, (_, test) in zip(
        drawn.parts, splitter.split(patients, cases.labels, groups=patients), strict=True
    ):
        assert np.array_equal(np.flatnonzero(parts == TEST), test)
        positive = set(patients[cases.labels == 1])
        rest, aside = set(patients[parts != TEST]), set(patients[parts == CALIBRATE])
        assert abs(len(aside & positive) - 40 * len(rest & positive) / len(rest)) <= 0.5
    assert not np.array_equal(drawn.parts, draw_folds(some_cases(800, 120), 5).parts)


def test_folds_that_divide_a_patient_are_refused(tmp_path: Path) -> None:
    cases = some_cases(100, 30)
    file, final = tmp_path / "folds.csv", tmp_path / "final.csv"
    draw_folds(cases, 0).table.write_csv(file)
    draw_final(cases, 0).table.write_csv(final)
    tested, fitted = (int(np.flatnonzero(draw_folds(cases, 0).parts[0] == part)[0]) for part in (TEST, FIT))
    patients = np.arange(100)
    patients[max(tested, fitted)] = min(tested, fitted)
    one, other = sorted((f"0{tested:04d} (test)", f"0{fitted:04d} (fit)"))
    with pytest.raises(InputError) as raised:
        read_folds(file, replace(cases, patients=patients))
    assert f"folds.csv: fold 0: expected all cases of a patient in one part, found {one} and {other}" in str(
        raised.value
    )
    with pytest.raises(InputError, match=r"fold external: .* of the same patient; draw new folds"):
        read_final(final, replace(cases, patients=np.zeros(100, dtype=np.int64)))


def test_positives_of_too_few_patients_are_refused() -> None:
    cases = some_cases(100, 30)
    patients = np.where(cases.labels == 1, np.arange(100) % 4, np.arange(100))
    with pytest.raises(InputError, match=r"positive cases of at least 5 patients.*found 30 of 4"):
        draw_folds(replace(cases, patients=patients), 0)
