"""compare on the command line: tables, sentences, JSON, and errors with their exit codes."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.cli.conftest import Run
from trust_cache.base.documents import unseal

WriteScores = Callable[..., Path]
QUICK = ("--resamples", 200, "--swaps", 200, "--resplits", 5)
NAMES = ("ce", "closed-loop", "fixed-tau")
TWO = {"one": 0.9, "two": 0.8}  # files and their AUROCs


def test_compare_prints_tables_and_one_sentence_a_comparison(
    run: Run, scores_file: WriteScores, tmp_path: Path
) -> None:
    scores = scores_file(configurations=NAMES, images=2)
    done = run("compare", scores, "--out", tmp_path / "out", *QUICK)
    assert done.code == 0, done.err
    for words in (
        "closed-loop minus each other configuration", "95 % interval", "p adjusted", "Verdict",
        "Splits", "In words", "What this does not say",
        "Training noise was not looked at", "Not inferior at 1", "Case AUROC of closed-loop minus",
    ):  # fmt: skip
        assert " ".join(words.split()) in " ".join(done.out.split())
    assert done.out.count("  - At 9") == 4
    assert done.out.count("  - The case AUROC of closed-loop is") == 2
    assert (tmp_path / "out" / "compare.json").exists()


def test_several_files_are_named_and_compared(run: Run, scores_file: WriteScores, tmp_path: Path) -> None:
    files = [scores_file(f"{name}.csv", configurations=NAMES, auroc=auroc) for name, auroc in TWO.items()]
    done = run("compare", *files, "--out", tmp_path / "out", "--names", "b5, b2", *QUICK)
    assert done.code == 0, done.err
    assert "b5 \u2212 b2" in done.out
    assert "adjustment for 14 comparisons" in " ".join(done.out.split())
    found = run("compare", *files, "--out", tmp_path / "more", "--json", *QUICK)
    assert [item["name"] for item in json.loads(found.out)["runs"]] == ["one", "two"]
    wrong = run("compare", *files, "--out", tmp_path / "none", "--names", "b5", *QUICK)
    assert (wrong.code, "expected 2 different names" in wrong.err) == (2, True)


def test_json_alone_on_stdout_and_options_kept(run: Run, scores_file: WriteScores, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("--target", "0.9", "--reference", "ce", "--seed", "7", "--margin-points", "2.5", "--json")
    done = run("compare", scores_file(configurations=NAMES), "--out", out, *words, *QUICK)
    document = json.loads(done.out)
    recorded, unchanged = unseal(json.loads((out / "compare.json").read_text()))
    assert unchanged
    assert recorded == document | {"files": recorded["files"]}
    assert [(item["other"], item["target"]) for item in document["comparisons"]] == [
        ("closed-loop", 0.9),
        ("fixed-tau", 0.9),
    ]
    assert document["settings"]["seed"] == 7
    assert document["settings"]["swaps"] == 200
    assert {item["margin"] for item in document["comparisons"]} == {0.025}
    assert [item["other"] for item in document["auroc_comparisons"]] == ["closed-loop", "fixed-tau"]


def test_incomplete_cases_are_counted_and_listed(run: Run, scores_file: WriteScores, tmp_path: Path) -> None:
    scores = scores_file(configurations=NAMES, images=2)
    table = pl.read_csv(scores, schema_overrides={"case_id": pl.String, "image_id": pl.String})
    table.with_columns(score=pl.when(pl.col("image_id") != "00003_1").then("score")).write_csv(scores)
    done = run("compare", scores, "--out", tmp_path / "out", *QUICK)
    assert done.code == 0, done.err
    assert "1 of 1,500 cases are incomplete" in done.err
    assert "incomplete.csv lists them" in done.err
    listed = pl.read_csv(tmp_path / "out" / "incomplete.csv", schema_overrides={"case_id": pl.String})
    assert listed["configuration"].to_list() == list(NAMES)
    assert set(listed["case_id"]) == {"00003"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--reference", "closed_loop"], "did you mean closed-loop?"),
        (["--target", "98"], "for 98.0 % write 0.98"),
        (["--target", "0.9", "--target", "0.9"], "different values"),
        (["--swaps", "10"], "swaps: expected 200 to"),
        (["--resamples", "0"], "resamples: expected 200 to"),
        (["--resplits", "-1"], "resplits: expected 0 or more"),
        (
            ["--margin-points", "0"],
            "margin_points: expected percentage points above 0 and below 100, found 0",
        ),
        (["--protocol", "papr"], "protocol: expected paper"),
        (["--patient", "who"], "--patient: expected a column 'who'"),
        (["--seed", "-1"], "seed: expected 0 or more"),
    ],
)
def test_wrong_use_exits_2_and_writes_nothing(
    run: Run, scores_file: WriteScores, tmp_path: Path, words: list[str], message: str
) -> None:
    done = run("compare", scores_file(configurations=NAMES, cases=60), "--out", tmp_path / "out", *words)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def one_configuration(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(pl.col("configuration") == "ce")


def no_configuration(table: pl.DataFrame) -> pl.DataFrame:
    return one_configuration(table).drop("configuration")


def other_cases(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter((pl.col("configuration") != "ce") | (pl.col("case_id") != "00003"))


def no_positives(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(label=pl.lit(0))


def a_row_without_a_name(table: pl.DataFrame) -> pl.DataFrame:
    named = pl.when(pl.col("configuration") != "ce").then(pl.col("configuration"))
    return table.with_columns(named.alias("configuration"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (one_configuration, "found only ce; there is nothing to compare"),
        (no_configuration, "found no such column; there is nothing to compare"),
        (other_cases, "configuration ce lacks case 00003"),
        (no_positives, "expected positive cases, found none"),
        (a_row_without_a_name, "an empty configuration"),
    ],
)
def test_scores_that_cannot_be_compared(
    run: Run,
    scores_file: WriteScores,
    tmp_path: Path,
    spoil: Callable[[pl.DataFrame], pl.DataFrame],
    message: str,
) -> None:
    scores = scores_file(configurations=NAMES, cases=60, positives=20)
    spoil(pl.read_csv(scores, schema_overrides={"case_id": pl.String})).write_csv(scores)
    done = run("compare", scores, "--out", tmp_path / "out")
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "out").exists()


def test_other_files_and_missing_ones(run: Run, scores_file: WriteScores, tmp_path: Path) -> None:
    scores = scores_file(configurations=NAMES, cases=60)
    assert "choose another --out" in run("compare", scores, "--out", tmp_path).err
    assert run("compare", tmp_path / "none.csv", "--out", tmp_path / "out").code == 2
    (tmp_path / "empty").mkdir()
    done = run("compare", tmp_path / "empty", "--out", tmp_path / "out")
    assert done.code == 2
    assert "expected a run folder with scores.csv" in done.err


def test_help_has_examples(run: Run) -> None:
    done = run("compare", "--help")
    assert done.code == 0
    assert "trust-cache compare run/ --out compare/" in done.out
