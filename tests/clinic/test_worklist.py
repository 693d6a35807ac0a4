"""Worklists are safe in a spreadsheet and read back unchanged; no row dismisses what it must not."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clinic.material import a_row
from trust_cache.base.csv_tables import neutralise, restore
from trust_cache.base.errors import InputError
from trust_cache.clinic.worklist import read_worklist, write_worklist

DANGEROUS = ("=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\nx", "'x", "''=x")


@given(st.one_of(st.text(), st.sampled_from(DANGEROUS)))
def test_neutralised_text_is_no_formula_and_is_restored(text: str) -> None:
    assert not neutralise(text).startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert restore(neutralise(text)) == text


def test_every_text_cell_is_neutral_and_read_back(tmp_path: Path) -> None:
    rows = [
        replace(a_row(f"{sign}case {n}", "=model", dismissed=False), image_id=sign, reason=sign)
        for n, sign in enumerate(("=", "+", "-", "@", "'", "7"))
    ]
    path = tmp_path / "worklist.csv"
    write_worklist(path, rows)
    assert path.stat().st_mode & 0o777 == 0o600
    for cells in list(csv.reader(io.StringIO(path.read_text())))[1:]:
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)
    assert sorted(read_worklist(path), key=lambda row: row.case_id) == sorted(
        rows, key=lambda row: row.case_id
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"complete": False},
        {"score": None},
        {"score": float("nan")},
        {"score": 0.3},
        {"score": 0.31},
        {"tau": None},
        {"tau": float("nan")},
        {"score": float("-inf")},
    ],
)
def test_no_row_dismisses_what_may_not_be_dismissed(changes: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        replace(a_row("1", "m"), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1,0.9,dismiss,i,0.3,true,,true,m", "may not be dismissed"),
        ("1,nan,dismiss,i,0.3,true,,true,m", "may not be dismissed"),
        ("1,0.1,skip,i,0.3,true,,true,m", "dismiss, review or audit"),
        ("1,0.9,audit,i,0.3,true,,true,m", "may not be dismissed"),
        ("1,0.1,dismiss,i,0.3,yes,,true,m", "true or false"),
        ("1,x,dismiss,i,0.3,true,,true,m", "could not convert"),
        (",0.1,dismiss,i,0.3,true,,true,m", "case_id"),
        ("7,0.1,review,i,0.3,true,,true,m", "case 7 occurs twice"),
    ],
)
def test_invalid_rows(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "worklist.csv"
    head = "case_id,score,decision,image_id,tau,complete,reason,certified,model\n"
    path.write_text(f"{head}7,0.1,dismiss,i,0.3,TRUE,,true,m\n{line}\n")
    with pytest.raises(InputError, match=f"line 3.*{words}"):
        read_worklist(path)
