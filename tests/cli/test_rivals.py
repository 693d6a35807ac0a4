"""rivals on the command line: options, wrong use, and what it leaves behind."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.heads.cohorts import a_cohort, write_cohort


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cohort(tmp_path_factory.mktemp("cohort") / "cache.zarr", *a_cohort(dim=16))


def test_from_a_cache(run: Run, cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "rivals"
    words = ("--epochs", 1, "--target", 0.9, "--level", 0.2, "--delta", 0.05)
    done = run("rivals", cache, "--out", out, *words)
    assert done.code == 0, done.err
    for text in ("selectivenet", "conformal-risk-training@0.9", "closed-loop", "ltt-for-sequence", "needs"):
        assert text in done.out
    assert "What each rule promises" in done.out
    assert (out / "table.md").read_text().startswith("**Rivals on the evaluation subset")
    document = json.loads((out / "rivals.json").read_text())
    assert document["settings"]["level"] == 0.2
    again = ("rivals", "--scores", out, "--out", tmp_path / "again", *words[2:])
    assert [run(*again).code, run(*again).code, run(*again, "--overwrite").code] == [0, 2, 0]


def test_scores_as_json(run: Run, scores_file: Callable[..., Path], tmp_path: Path) -> None:
    scores = scores_file(cases=2_000, positives=200)
    done = run("rivals", "--scores", scores, "--out", tmp_path / "rivals", "--rules", "recall,sgr", "--json")
    assert done.code == 0
    document = json.loads(done.out)
    assert [(row["rule"], row["target"], row["level"]) for row in document["results"]] == [
        ("recall", 0.98, None), ("recall", 0.95, None), ("sgr", None, 0.01),
    ]  # fmt: skip
    assert document["training"] is None
    assert {path.name for path in (tmp_path / "rivals").iterdir()} == {
        "results.csv", "rivals.json", "split.csv", "table.md", "rivals.svg", "rivals.png",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "expected a cache or --scores, found neither"),
        (["none.zarr"], "none.zarr"),
        (["{cache}", "--scores", "{cache}"], "found both"),
        (["--scores", "none.csv"], "no such file"),
        (["--scores", "{scores}", "--models", "ce"], "leave them out"),
        (["{cache}", "--models", "selectivnet"], "did you mean selectivenet?"),
        (["{cache}", "--models", "ce,ce"], "different names"),
        (["{cache}", "--rules", "rcp"], "did you mean rcps?"),
        (["{cache}", "--level", "1"], "level: expected a fraction"),
        (["{cache}", "--target", "98"], "write 0.98"),
        (["{cache}", "--delta", "0.9"], "delta: expected"),
        (["{cache}", "--epochs", "0"], "epochs: expected 1 or more"),
        (["{cache}", "--threads", "0"], "threads: expected 1 or more"),
        (["{cache}", "--seed", "-1"], "seed: expected 0 or more"),
        (["{cache}", "--folds", "none.csv"], "none.csv: no such file"),
        (["--scores", "{scores}", "--split", "none.csv"], "none.csv: no such file"),
    ],
)
def test_wrong_use_exits_2_and_writes_nothing(
    run: Run, cache: Path, scores_file: Callable[..., Path], tmp_path: Path, words: list[str], complaint: str
) -> None:
    scores = scores_file(cases=200, positives=40)
    filled = [word.format(cache=cache, scores=scores) for word in words]
    done = run("rivals", *filled, "--out", tmp_path / "rivals")
    assert done.code == 2, done.err
    assert complaint in done.err
    assert done.err.startswith("error: ")
    assert not (tmp_path / "rivals").exists()


def test_a_folder_of_other_files_is_refused_before_any_work(run: Run, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    done = run("rivals", cache, "--out", tmp_path)
    assert done.code == 2
    assert "mine.txt" in done.err
    assert (tmp_path / "mine.txt").read_text() == "keep"


def test_no_positives_to_search_with(run: Run, scores_file: Callable[..., Path], tmp_path: Path) -> None:
    done = run("rivals", "--scores", scores_file(cases=50, positives=1), "--out", tmp_path / "rivals")
    assert done.code == 2
    assert "has no positives" in done.err
