"""Tables that users give: every format has the same rows, to the last digit, or is refused by name."""

import sys
import zipfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.workbooks import write_workbook
from trust_cache.base.csv_tables import LINE
from trust_cache.base.errors import InputError
from trust_cache.base.table_files import as_labels, id_warnings, read_table_file, take_columns

TABLE = pl.DataFrame({"Case": ["007", "8"], "label": [1, 0], "score": [0.1 + 0.2, 5e-324]})


def write(path: Path, table: pl.DataFrame = TABLE) -> Path:
    if path.suffix == ".parquet":
        table.write_parquet(path)
    elif path.suffix == ".xlsx":
        write_workbook(path, Scores=table)
    else:
        separator = {".tsv": "\t", ".ssv": ";"}.get(path.suffix, ",")
        table.write_csv(path, separator=separator, decimal_comma=path.suffix == ".ssv")
    return path


@pytest.mark.parametrize("ending", ["csv", "ssv", "tsv", "parquet", "xlsx"])
def test_every_format_has_the_same_cells(tmp_path: Path, ending: str) -> None:
    read = read_table_file(write(tmp_path / f"table.{ending}"))
    assert read.table["Case"].to_list() == ["007", "8"]
    assert read.table["label"].cast(pl.Int64).to_list() == [1, 0]
    assert read.table["score"].cast(pl.Float64).to_list() == [0.1 + 0.2, 5e-324]
    assert read.table[LINE].to_list() == [2, 3]
    assert id_warnings(read, "it", {"case": "cases"}) == []


@pytest.mark.parametrize(
    ("mark", "end", "separator"), [("", "\r", ";"), ("", "\r", ","), ("\ufeff", "\r\n", ",")]
)
def test_every_end_of_a_line_is_read(tmp_path: Path, mark: str, end: str, separator: str) -> None:
    path = tmp_path / "table.csv"
    text = mark + TABLE.write_csv(line_terminator=end, separator=separator)
    path.write_bytes(text.encode())
    assert read_table_file(path).table["Case"].to_list() == ["007", "8"]


def test_an_empty_column_of_a_workbook_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    empty = TABLE.with_columns(note=pl.lit(None, pl.String))
    assert read_table_file(write(tmp_path / "t.xlsx", empty)).table["note"].null_count() == 2
    assert caplog.records == []


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.floats(min_value=0, max_value=1), min_size=2, max_size=20))
def test_no_digit_is_lost_in_a_workbook(tmp_path: Path, values: list[float]) -> None:
    path = tmp_path / "t.xlsx"
    write(path, pl.DataFrame({"case_id": [str(number) for number in range(len(values))], "score": values}))
    assert read_table_file(path).table["score"].cast(pl.Float64).to_list() == values


def test_numbers_as_ids_are_said(tmp_path: Path) -> None:
    numeric = TABLE.with_columns(Case=pl.Series([7, 8]))
    for name, said in (("t.parquet", "without leading zeros"), ("t.xlsx", "leading zeros are lost")):
        (warning,) = id_warnings(read_table_file(write(tmp_path / name, numeric)), "it", {"case": "cases"})
        assert warning.startswith("it: the column Case holds cases as numbers")
        assert said in warning
    book = write_workbook(tmp_path / "two.xlsx", First=TABLE, Second=TABLE)
    assert read_table_file(book).warnings == (f"{book}: has 2 sheets; the first, 'First', was read",)


def test_other_files_are_refused_by_name_and_never_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "scores.zip", "w") as archive:
        archive.writestr("scores.csv", "case_id,label,score\n")
    (tmp_path / "weights.csv").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1\x15\x04")
    (tmp_path / "cut.xlsx").write_bytes((write(tmp_path / "good.xlsx")).read_bytes()[:300])
    (tmp_path / "old.xls").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    for name, said in (
        ("scores.zip", "found a zip archive; unpack it"),
        ("weights.csv", "found a binary file"),
        ("cut.parquet", "not a readable Parquet file"),
        ("cut.xlsx", "not a readable Excel file"),
        ("old.xls", "not a readable Excel file"),
        ("none.csv", "no such file"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            read_table_file(tmp_path / name)
        assert str(caught.value).startswith(str(tmp_path / name))
        assert str(caught.value).isprintable()
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    with pytest.raises(InputError, match=r'an Excel file, which needs .*pip install "trust-cache\[excel\]"'):
        read_table_file(tmp_path / "good.xlsx")


def test_decimal_commas_only_where_all_cells_have_them(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b;c\n0,5;1,2;x,1\n1;3.5;2\n;2;3\n")
    table = read_table_file(path).table
    assert table["a"].to_list() == ["0.5", "1", None]
    assert table["b"].to_list() == ["1,2", "3.5", "2"]
    assert table["c"].to_list() == ["x,1", "2", "3"]


def test_names_in_capitals_and_names_given() -> None:
    names, options = {"case_id": "case_id", "score": "Prob"}, {"score": "--score"}
    table = pl.DataFrame({"CASE_ID": ["1"], "score": [0.9], "prob": [0.1]})
    taken = take_columns(table, names, "it", options)
    assert taken.to_dict(as_series=False) == {"case_id": ["1"], "score": [0.1]}
    swapped = take_columns(pl.DataFrame({"a": [1], "b": [2]}), {"a": "b", "b": "a"}, "it", {})
    assert swapped.to_dict(as_series=False) == {"b": [1], "a": [2]}
    for wrong, wanted, said in (
        (table.rename({"score": "PROB"}), names, "expected one column Prob, found PROB and prob; name one"),
        (table, names | {"score": "probs"}, "--score: expected a column 'probs', .*did you mean prob"),
        (table, names | {"score": "case_id"}, "found 'CASE_ID' named twice"),
    ):
        with pytest.raises(InputError, match=said):
            take_columns(wrong, wanted, "it", options)


@pytest.mark.parametrize(
    ("cells", "positive", "labels"),
    [
        (["True", "FALSE", "true"], None, [1, 0, 1]),
        (["1.0", "0.0", "1"], None, [1, 0, 1]),
        ([True, False, True], None, [1, 0, 1]),
        ([1.0, 0.0, 1.0], None, [1, 0, 1]),
        (["malignant", "normal", "benign"], "malignant", [1, 0, 0]),
        (["2", "1.0", "2.0"], "2", [1, 0, 1]),
        (["yes", "0", None], None, [None, 0, None]),
        (["yes", "no", None], "yes", [1, 0, None]),
    ],
)
def test_labels(cells: list[object], positive: str | None, labels: list[int | None]) -> None:
    assert as_labels(pl.Series(cells), positive, "it").to_list() == labels


def test_a_positive_label_that_is_not_there() -> None:
    with pytest.raises(InputError, match="found 'benign', 'malignant'; did you mean malignant"):
        as_labels(pl.Series(["malignant", "benign"]), "Malignant", "it")


def test_an_empty_file_is_refused_in_a_whole_sentence(tmp_path: Path) -> None:
    (tmp_path / "t.csv").touch()
    with pytest.raises(InputError, match=r"the file is empty; expected a header and rows$"):
        read_table_file(tmp_path / "t.csv")
