"""The comparison page says what its CSV files say, and its script makes them again."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest
from scipy.stats import binomtest

from trust_cache.statistics.bounds import clopper_pearson_upper

DOCS = Path(__file__).resolve().parents[2] / "docs"
FIGURES = DOCS / "comparison_figures"
PAGE = (DOCS / "comparison.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())  # phrases may break over lines

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def span(values: pl.Series) -> str:
    return f"{100 * values.min():.1f} to {percent(values.max())}"  # type: ignore[operator, arg-type]


def chosen(name: str, **conditions: object) -> pl.DataFrame:
    return pl.read_csv(FIGURES / f"{name}.csv").filter(**conditions)


def test_every_figure_of_the_page_exists_and_every_figure_is_in_the_page() -> None:
    shown = set(re.findall(r"!\[[^\]]+\]\(comparison_figures/([^)]+)\)", PAGE))
    assert shown == {path.name for path in FIGURES.glob("*.svg")}
    for name in shown:
        text = (FIGURES / name).read_text(encoding="utf-8")
        assert text.startswith("<svg")
        assert not re.findall(r"(?:href|src)=\"http|@import|@font-face", text)


def test_every_marked_table_of_the_page_is_what_the_csv_files_say(load: Load) -> None:
    assert load("statistics_tables").tables_in(PAGE) == load("comparison_tables").render_tables(FIGURES)


def test_the_obvious_bootstrap_fails_as_the_page_says() -> None:
    """Where the threshold is a sample minimum, significantly below its 95 % at every correlation."""
    obvious = chosen("alarms", procedure="obvious", data_set="NLBS", target=0.98)
    assert obvious.height == 4
    assert obvious["coverage_high"].max() < 0.95  # type: ignore[operator]
    ours = chosen("alarms", procedure="interval").drop_nulls("coverage")
    assert ours["coverage"].min() >= 0.90  # type: ignore[operator]
    assert f"covers zero in {span(obvious['coverage'])} of {obvious['cohorts'][0]} cohorts" in WORDS
    assert f"{span(obvious['called_share'])} false alarms" in WORDS
    assert f"The interval on all cases covers in {span(ours['coverage'])}" in WORDS
    assert round(100 * (1 - (29 / 30) ** 30)) == 64


def test_the_sentences_about_verdicts_quote_the_csv_files() -> None:
    found = chosen("verdicts", procedure="verdict", scenario="10 points", data_set="RSNA")
    missed = chosen("verdicts", procedure="verdict", scenario="10 points", data_set="NLBS", target=0.95)
    null = chosen("verdicts", procedure="verdict").filter(pl.col("scenario") != "10 points")
    swap = chosen("verdicts", procedure="swap", scenario="equal")
    crossing = chosen("verdicts", procedure="swap", scenario="crossing")
    covers = chosen("verdicts", procedure="interval").drop_nulls("coverage")["coverage"]
    assert f"in {found['cohorts'][0]} cohorts of each kind" in WORDS
    assert f"is found in {span(found['called_share'])} of the cohorts of RSNA's size" in WORDS
    assert f"in {percent(missed['called_share'].item())} of NLBS's at 95 %" in WORDS
    assert f"swap test alone rejects equal columns in {span(swap['called_share'])}" in WORDS
    assert f"crossing ones in {span(crossing['called_share'])}" in WORDS
    assert f"false verdict in at most {percent(null['called_share'].max())}" in WORDS  # type: ignore[arg-type]
    assert f"intervals cover in {span(covers)}" in WORDS
    worst = chosen("verdicts", procedure="obvious", scenario="crossing")["coverage"].min()
    assert f"covers as little as {percent(worst)}" in WORDS  # type: ignore[arg-type]
    assert found["called_share"].min() > 0.5  # type: ignore[operator]
    assert swap["called_share"].max() <= 0.096  # type: ignore[operator]
    assert covers.min() >= 0.90  # type: ignore[operator]


def test_trainings_of_one_configuration_are_rarely_called_different(load: Load) -> None:
    """With five trainings at most 5 % in every row, for dismissal significantly; else what the page says."""
    tables = load("comparison_tables")
    counted = {trainings: tables.count_called(tables.NOISE, trainings) for trainings in (1, 2, 5)}
    five, cohorts = counted[5], counted[5]["cohorts"][0]
    assert five["cohorts"].unique().to_list() == [cohorts]

    def worst(trainings: int, measure: str) -> str:
        rows = counted[trainings].filter(pl.col("measure").str.starts_with(measure))
        return percent(rows["called"].max() / cohorts)

    assert max(five["called"]) <= 0.05 * cohorts
    for called in five.filter(pl.col("measure").str.starts_with("dismissal"))["called"]:
        assert clopper_pearson_upper(called, cohorts, 0.025) < 0.05
    upper = percent(clopper_pearson_upper(max(five["called"]), cohorts, 0.025))
    for words in (
        f"In {cohorts} cohorts of each kind the first training alone would lead to a false verdict in up to"
        f" {worst(1, 'any')}; five trainings do in at most {worst(5, 'any')}",
        f"stay at or below {worst(1, 'dismissal')} even with one training",
        f"different in up to {worst(1, 'AUROC')}, with two in up to {worst(2, 'AUROC')}",
        f"reaches {upper} for the worst row",
        f"says {percent(max(counted[1]['called']) / cohorts / 16)}",
    ):
        assert words in WORDS


def test_the_signs_of_equal_configurations_are_fair_coins(load: Load) -> None:
    """The second training has the first one's sign in half the cohorts: a binomial test of each measure."""
    rows = pl.read_csv(load("comparison_tables").NOISE)
    for (_, measure), part in rows.group_by("setting", "measure"):
        held = part.filter(pl.col("held") >= 2).height
        assert binomtest(held, part.height, 0.5).pvalue > 1e-3, measure


@pytest.mark.slow
def test_the_first_cohort_of_training_noise_is_made_again(load: Load, tmp_path: Path) -> None:
    """Ten trainings and six verdicts; last bits of scores may differ between machines and move a rank."""
    simulation = load("simulate_training_noise")
    stored = pl.read_csv(load("comparison_tables").NOISE).filter(cohort=0)
    again = simulation.judge_cohort(0, tmp_path)
    assert len(again) == stored.height == 6
    for row, kept in zip(again, stored.iter_rows(named=True), strict=True):
        assert tuple(row) == simulation.COLUMNS
        for name in ("setting", "cohort", "measure", "called", "held"):
            assert row[name] == kept[name]
        for name in ("difference", "low", "high"):
            assert row[name] == pytest.approx(kept[name], abs=0.003)


def test_the_study_of_training_noise_resumes(
    load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file with some cohorts gets the missing ones, once."""
    simulation = load("simulate_training_noise")
    asked: list[int] = []

    def judge(cohort: int, folder: Path) -> list[dict[str, object]]:
        assert folder.is_dir()
        asked.append(cohort)
        if cohort == 2 and len(asked) == 3:
            raise KeyboardInterrupt
        return [dict.fromkeys(simulation.COLUMNS, 0) | {"cohort": cohort}]

    monkeypatch.setattr(simulation, "judge_cohort", judge)
    out = tmp_path / "noise.csv"
    monkeypatch.setattr(sys, "argv", ["script", "--cohorts", "4", "--out", str(out)])
    with pytest.raises(KeyboardInterrupt):
        simulation.main()
    simulation.main()
    assert asked == [0, 1, 2, 2, 3]
    assert pl.read_csv(out)["cohort"].to_list() == [0, 1, 2, 3]


@pytest.mark.slow
def test_the_script_makes_every_file_again(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: alarms -->\n<!-- end -->\nafter\n", encoding="utf-8")
    out = tmp_path / "figures"
    command = [sys.executable, "-W", "error", str(DOCS / "make_comparison_figures.py"), "--processes", "1"]
    command += ["--cohorts", "2", "--many", "3", "--resamples", "200", "--seed", "3"]
    command += ["--out", str(out), "--page", str(page)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in out.iterdir()} == {path.name for path in FIGURES.iterdir()}
    for path in out.glob("*.csv"):
        again, stored = pl.read_csv(path), pl.read_csv(FIGURES / path.name)
        keys = ["data_set", "cases", "positives", "target", "scenario", "correlation", "procedure"]
        assert again.columns == stored.columns
        assert again.select(keys).equals(stored.select(keys))
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- table: alarms -->\n| size |")
    assert text.endswith("|\n<!-- end -->\nafter\n")
