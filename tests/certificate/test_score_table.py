"""Scores as people bring them: what is read, what is refused and how the refusal is worded."""

import json
from hashlib import sha256
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import MakeScores
from trust_cache import certify
from trust_cache.base.errors import InputError
from trust_cache.certificate.score_table import build_cohort, check_scores, read_scores

GOOD = "case_id,label,score\n001,1,0.5\n002,0,0.25\n"


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "scores.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.replace("\n", "\r\n"),
        "\ufeff" + GOOD,
        GOOD + "\n\n",
        "case_id , label, score\n 001 ,1, 0.5\n002 , 0 ,0.25\n",
        'case_id,label,score\n"001","1","0.5"\n"002","0","2.5e-1"\n',
        "score,label,case_id\n0.25,0.0,002\n0.5,1.0,001\n",
    ],
)
def test_reads_what_editors_and_spreadsheets_write(tmp_path: Path, text: str) -> None:
    table = read_scores(written(tmp_path, text)).table
    assert table["case_id"].to_list() == ["001", "002"]
    assert table["label"].to_list() == [1, 0]
    assert table["score"].to_list() == [0.5, 0.25]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("case_id,label,score\n", "a header and no rows"),
        ("case_id,label\n1,1\n", "missing column score; found case_id, label"),
        ("case_id;label;score\n1;1;0,5\n2;0;0.5\n", "line 2, case 1: expected a number or nothing as score"),
        ("case_id,label,score\n1,1,0.5\n".encode("utf-16"), "UTF-16"),
        (GOOD + "\n\n003,0,nan\n", "line 6, case 003"),
        ("case_id,label,score,score\n1,1,0.5,0.6\n", "column score occurs twice"),
        (GOOD + "003,0,nan\n", r"line 4, case 003: expected a finite score, found nan"),
        (GOOD + "003,0,inf\n", "finite score, found inf"),
        (GOOD + "003,0,-inf\n003,0,inf\n", "and 1 more such rows"),
        (GOOD + "003,0,high\n", "line 4, case 003: expected a number or nothing as score, found high"),
        (GOOD + "003,2,0.1\n", "line 4, case 003: expected a label of 0 or 1, found 2"),
        (GOOD + "003,0.5,0.1\n", "label of 0 or 1"),
        (GOOD + "003,,0.1\n", "label of 0 or 1, found nothing"),
        (GOOD + "003,yes,0.1\n", "label of 0 or 1"),
        (GOOD + ",0,0.1\n", "line 4.*an empty case_id"),
        (GOOD + "004,0,0.1,5\n", "not a readable CSV"),
        (b"case_id,label,score\n\xff\xfe,1,0.5\n", "not a readable CSV"),
        ("case_id,image_id,label,score\n1,a,1,0.5\n2,a,0,0.5\n", "image_id a occurs more than once"),
        ("case_id,image_id,label,score\n1,a,1,0.5\n2,,0,0.5\n", "an empty image_id"),
        ("configuration,case_id,label,score\nx,1,1,0.5\n,2,0,0.5\n", "an empty configuration"),
    ],
)
def test_refusals_say_what_where_and_how_many(tmp_path: Path, text: str | bytes, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=said) as caught:
        read_scores(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_image_id_may_stand_in_several_configurations(tmp_path: Path) -> None:
    text = "configuration,case_id,image_id,label,score\nx,1,a,1,0.5\ny,1,a,1,0.6\n"
    assert read_scores(written(tmp_path, text)).configurations == ["x", "y"]
    again = text + "x,1,a,1,0.7\n"
    with pytest.raises(InputError, match="image_id a occurs more than once within configuration x"):
        read_scores(written(tmp_path, again))


def test_names_are_names_not_patterns(tmp_path: Path) -> None:
    (tmp_path / "scores1.csv").write_text(GOOD.replace("001", "999"))
    (tmp_path / "scores[1].csv").write_text(GOOD)
    assert read_scores(tmp_path / "scores[1].csv").table["case_id"][0] == "001"
    with pytest.raises(InputError, match="no such file"):
        read_scores(tmp_path / "scores?.csv")


def test_a_column_may_have_any_name(tmp_path: Path) -> None:
    text = "row,line,index,case_id,label,score\n1,2,3,001,1,0.5\n4,5,6,002,0,0.25\n"
    table = read_scores(written(tmp_path, text)).table
    assert table["row"].to_list() == ["1", "4"]


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_scores(tmp_path / "none.csv")
    with pytest.raises(InputError, match=r"run folder with scores\.csv"):
        read_scores(tmp_path)


def test_a_run_folder_is_read_through_its_scores(tmp_path: Path, scores: MakeScores) -> None:
    table = scores(images=2, configurations=("a",))
    table.with_columns(fold=pl.lit("0")).write_csv(tmp_path / "scores.csv")
    result = certify(tmp_path)
    assert result.points == certify(table).points
    assert any("Approximate for out-of-fold" in text for text in result.limits)
    table.with_columns(fold=pl.lit("external")).write_csv(tmp_path / "scores.csv")
    assert any("Exact here" in text for text in certify(tmp_path).limits)


@pytest.mark.parametrize("change", ["fewer", "label"])
def test_configurations_must_speak_of_the_same_cases(scores: MakeScores, change: str) -> None:
    table = scores(cases=50, positives=20, configurations=("a", "b"))
    one = (pl.col("configuration") == "b") & (pl.col("case_id") == "00007")
    if change == "fewer":
        with pytest.raises(InputError, match="configuration b lacks case 00007"):
            build_cohort(check_scores(table.filter(~one)))
        swapped = pl.col("configuration").replace({"a": "b", "b": "a"})
        with pytest.raises(InputError, match="configuration a lacks case 00007"):
            build_cohort(check_scores(table.filter(~one).with_columns(swapped)))
    else:
        flipped = table.with_columns(label=pl.when(one).then(1 - pl.col("label")).otherwise(pl.col("label")))
        with pytest.raises(InputError, match="case 00007 has another label in configuration b"):
            build_cohort(check_scores(flipped))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_every_double_survives_the_file(values: list[float]) -> None:
    text = "case_id,label,score\n" + "".join(f"{i},1,{value!r}\n" for i, value in enumerate(values))
    table = pl.read_csv(text.encode(), infer_schema=False)
    found = check_scores(table).table.sort(pl.col("case_id").cast(pl.Int64))["score"].to_list()
    assert found == values


def test_digest_is_what_the_readme_says(scores: MakeScores) -> None:
    table = scores(cases=40, positives=10, configurations=("ß", "a"), images=2)
    rows = sorted(
        [r["configuration"], r["case_id"], r["image_id"], r["label"], r["score"]]
        for r in table.iter_rows(named=True)
    )
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
    assert check_scores(table).sha256 == sha256(text.encode()).hexdigest()


def test_minus_zero_and_zero_are_one_score() -> None:
    def digest(zero: str) -> str:
        return check_scores(pl.DataFrame({"case_id": ["1"], "label": ["1"], "score": [zero]})).sha256

    assert digest("0") == digest("-0.0") == digest("0.0")
