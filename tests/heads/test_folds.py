"""Folds: every case tested once, parts of the published sizes, reused by case."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedGroupKFold

from trust_cache.base.errors import InputError
from trust_cache.heads.folds import CALIBRATE, FIT, TEST, draw_folds, read_folds
from trust_cache.manifest.cases import Cases


def some_cases(cases: int, positives: int) -> Cases:
    labels = np.random.default_rng(1).permutation(np.arange(cases) < positives).astype(np.int64)
    return Cases(pl.Series("case_id", [f"{n:05d}" for n in range(cases)]), labels, np.arange(cases))


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


def test_splits_are_reused_by_case(tmp_path: Path) -> None:
    cases = some_cases(100, 30)
    drawn = draw_folds(cases, 0)
    file = tmp_path / "folds.csv"
    drawn.table.sample(fraction=1.0, shuffle=True, seed=1).write_csv(file)
    again, warnings = read_folds(file, cases)
    assert again.sha256 == drawn.sha256
    assert warnings == []
    flipped = Cases(cases.case_ids, 1 - cases.labels, cases.of_image)
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
        read_folds(file, Cases(cases.case_ids, labels, cases.of_image))
    with pytest.raises(InputError, match="at least 5 positive"):
        draw_folds(some_cases(100, 4), 0)


def test_fit_parts_are_what_is_left() -> None:
    drawn = draw_folds(some_cases(1_000, 100), 0)
    assert [int(np.sum(parts == FIT)) for parts in drawn.parts] == [700] * 5
