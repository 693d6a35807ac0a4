"""Scores as people have them: other names, words for labels, other formats; remembered by the folder."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.base.test_table_files import write
from tests.cli.conftest import Run
from tests.conftest import make_scores
from trust_cache.certificate.certify import certify

NAMES = ("--case", "Accession", "--label", "Class", "--score", "Prob", "--positive", "malignant")


@pytest.fixture
def theirs() -> pl.DataFrame:
    """The scores of a cohort as a hospital would have them."""
    table = make_scores(auroc=0.95)
    words = pl.when(pl.col("label") == 1).then(pl.lit("malignant")).otherwise(pl.lit("normal"))
    age = pl.int_range(pl.len()) % 40 + 40
    return table.select(Accession="case_id", Class=words, Prob="score", site="site", age=age)


def facts(folder: Path) -> dict[str, object]:
    document = json.loads((folder / "points.json").read_text())
    return {name: document[name] for name in ("points", "scores_sha256", "subgroups")}


@pytest.mark.parametrize("ending", ["csv", "ssv", "tsv", "parquet", "xlsx"])
def test_names_labels_and_formats_change_nothing(
    run: Run, theirs: pl.DataFrame, tmp_path: Path, ending: str
) -> None:
    """The same scores under this project's names give the same digest and points."""
    make_scores(auroc=0.95).drop("image_id").write_csv(tmp_path / "ours.csv")
    assert run("certify", tmp_path / "ours.csv", "--out", tmp_path / "ours").code == 0
    scores, out = write(tmp_path / f"theirs.{ending}", theirs), tmp_path / "out"
    if ending == "ssv":
        scores = scores.rename(scores.with_suffix(".csv"))
    lower = [word.lower() for word in NAMES]
    done = run("certify", scores, "--out", out, *lower)
    assert (done.code, facts(out)) == (0, facts(tmp_path / "ours"))
    assert "\0" not in done.out + done.err
    certificate = out / "certificates" / "scores@0.98.json"
    for words in (("verify", certificate), ("verify", out)):
        assert run(*words, "--scores", scores).code == 0, "the folder remembers the names"
    assert run("report", scores, out, "--out", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert "--case accession --label class --score prob" in page
    assert "--positive malignant" in page
    assert run("show", scores, out).code == 0
    lost = run("verify", certificate, "--scores", scores, "--score", "age")
    assert (lost.code, "scores_sha256" in lost.out) == (1, True)


def test_compare_and_rivals_take_the_names(run: Run, theirs: pl.DataFrame, tmp_path: Path) -> None:
    two = pl.concat([theirs.with_columns(Configuration=pl.lit(name)) for name in ("a", "b")])
    scores = write(tmp_path / "scores.csv", two)
    quick = ("--resamples", 200, "--swaps", 200, "--resplits", 0)
    assert run("compare", scores, "--out", tmp_path / "compare", *NAMES, *quick).code == 0
    settings = json.loads((tmp_path / "compare" / "compare.json").read_text())["settings"]
    assert (settings["case"], settings["positive"]) == ("Accession", "malignant")
    assert run("rivals", "--scores", scores, "--out", tmp_path / "rivals", *NAMES).code == 0
    wrong = run("rivals", tmp_path / "cache.zarr", "--out", tmp_path / "other", "--score", "x")
    assert (wrong.code, "names a column of --scores" in wrong.err) == (2, True)


def test_what_is_missing_is_named_with_its_option(run: Run, theirs: pl.DataFrame, tmp_path: Path) -> None:
    scores = write(tmp_path / "scores.csv", theirs)
    for words, said in (
        ((), "Name it with --case NAME and --label NAME and --score NAME"),
        ((*NAMES[:4], "--score", "prop"), "--score: expected a column 'prop'"),
        (NAMES[:6], "line 2, case 00000: expected a label of 0 or 1, found normal; --positive names"),
        ((*NAMES[:6], "--positive", "cancer"), "found 'malignant', 'normal'"),
    ):
        done = run("certify", scores, "--out", tmp_path / "out", *words)
        assert (done.code, (tmp_path / "out").exists()) == (2, False)
        assert said in done.err
    benign = pl.when(pl.int_range(pl.len()) % 7 == 0).then(pl.lit("benign")).otherwise(pl.col("Class"))
    several = theirs.with_columns(Class=pl.when(pl.col("Class") == "normal").then(benign).otherwise("Class"))
    done = run("certify", write(tmp_path / "more.csv", several), "--out", tmp_path / "out", *NAMES)
    assert "'malignant' is positive; all 2 other labels are negative: 'benign', 'normal'" in done.err


def test_several_columns_and_bands_share_delta(run: Run, theirs: pl.DataFrame, tmp_path: Path) -> None:
    """The first --by used to be dropped silently. METHOD 12: targets x (groups of all columns + 1)."""
    scores, out = write(tmp_path / "scores.csv", theirs), tmp_path / "out"
    by = ("--by", "site", "--by", "age=50,60,70")
    done = run("certify", scores, "--out", out, *NAMES, *by)
    assert done.code == 0
    for group in ("site 0", "below 50", "50 to below 60", "70 and above"):
        assert group in done.out
    document = json.loads((out / "points.json").read_text())
    assert {point["compared"] for point in document["points"]} == {2}
    assert {item["compared"] for item in document["subgroups"]} == {2 * (3 + 4 + 1)}
    assert document["composition"]["groups"]["age=50,60,70"] == [
        "below 50", "50 to below 60", "60 to below 70", "70 and above",
    ]  # fmt: skip
    below = (theirs["age"] < 50).to_numpy()
    cases = [item["cases"] for item in document["subgroups"] if item["group"] == "below 50"]
    evaluated = certify(scores, case="Accession", label="Class", score="Prob", positive="malignant").split
    assert set(cases) == {np.count_nonzero(below & evaluated.evaluation)}
    assert run("verify", out, "--scores", scores).code == 0
    assert run("verify", out / "certificates" / "scores@0.95.json", "--scores", scores).code == 0
    assert run("report", scores, out, "--out", tmp_path / "page.html").code == 0
    assert "The same thresholds by age" in (tmp_path / "page.html").read_text()
    twice = run("certify", scores, "--out", tmp_path / "other", *NAMES, "--by", "site", "--by", "site")
    assert (twice.code, "by: expected different columns" in twice.err) == (2, True)


def test_a_column_about_images_is_a_warning(run: Run, tmp_path: Path) -> None:
    table = make_scores(images=2).with_columns(side=pl.Series(["L", "R"] * 1_500))
    done = run("certify", write(tmp_path / "s.csv", table), "--out", tmp_path / "out", "--by", "side")
    assert "--by side: the images of every case differ in this column" in done.err
