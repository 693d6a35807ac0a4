"""The statistics page says what its CSV files say, and its script makes them again."""

import importlib
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
FIGURES = DOCS / "figures"
PAGE = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("statistics.md", "choosing.md"))
WORDS = " ".join(PAGE.split())  # phrases may break over lines

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module


def percent(share: float, digits: int) -> str:
    return f"{100 * share:.{digits}f} %"


def error_rate(data_set: str, target: float, correlation: float, procedure: str) -> float:
    rows = pl.read_csv(FIGURES / "selection.csv").filter(
        (pl.col("data_set") == data_set)
        & (pl.col("target") == target)
        & (pl.col("auroc") == 0.72)
        & (pl.col("correlation") == correlation)
        & (pl.col("procedure") == procedure)
    )
    return float(rows["error_rate"].item())


def test_every_figure_of_the_page_exists_and_every_figure_is_in_the_page() -> None:
    shown = set(re.findall(r"!\[[^\]]+\]\(figures/([^)]+)\)", PAGE))
    assert shown == {path.name for path in FIGURES.glob("*.svg")}
    assert not list(FIGURES.glob("*.png"))
    for name in shown:
        text = (FIGURES / name).read_text(encoding="utf-8")
        assert text.startswith("<svg")
        assert not re.findall(r"(?:href|src)=\"http|@import|@font-face", text)


def test_every_table_of_the_page_is_what_the_csv_files_say(load: Load) -> None:
    tables = load("statistics_tables")
    assert tables.tables_in(PAGE) == tables.render_tables(FIGURES)
    unmarked = tables.fill_page(PAGE, dict.fromkeys(tables.tables_in(PAGE), ""))
    assert not [line for line in unmarked.splitlines() if line.startswith("|")]


def test_the_selection_table_read_back_agrees_with_the_counts(load: Load) -> None:
    """Independent of the code that writes tables: cells against errors / replicates."""
    lines = load("statistics_tables").tables_in(PAGE)["selection"].splitlines()[2:]
    assert len(lines) == 16
    for line in lines:
        name, target, correlation, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        shares = [float(cell.split(" %")[0]) / 100 for cell in cells]
        for procedure, share in zip(("fixed", "search", "evaluation", "corrected"), shares, strict=True):
            exact = error_rate(name, float(target.split()[0]) / 100, float(correlation), procedure)
            assert share == pytest.approx(exact, abs=0.00051)


def missing(*phrases: str) -> list[str]:
    return [phrase for phrase in phrases if phrase not in WORDS]


def test_the_worked_examples_are_those_of_the_csv_files() -> None:
    value = dict(pl.read_csv(FIGURES / "examples.csv").iter_rows())
    needed = [f"{value[f'n_min_{k}_at_1_percent']:.0f}" for k in range(3)]
    bound = percent(value["nlbs_bound"], 2)
    assert not missing(
        f"U(1, 947) = {bound}",
        f"{needed[0]}, {needed[1]} and {needed[2]} dismissed cases",
        f"({value['n_min_0_at_1_percent_delta_05']:.0f} without one at delta = 0.05)",
        f"{percent(value['nlbs_recall'], 1)} observed",
        f"lower bound {percent(value['nlbs_recall_lower'], 1)}",
        f"RSNA {percent(value['rsna_for_upper_at_own'], 3)} at its own prevalence",
        f"and {percent(value['rsna_for_upper_at_0.005'], 4)} at P = 0.005",
        f"NLBS {percent(value['nlbs_for_upper_at_own'], 3)} and"
        f" {percent(value['nlbs_for_upper_at_0.005'], 4)}",
        f"(M = 10): {percent(value['nlbs_bound_corrected_10'], 2)} instead of {bound}",
        f"`int(947 * (1 / 947))` is {value['nlbs_k_rebuilt']:.0f}, and the bound becomes"
        f" {percent(value['nlbs_bound_from_k_0'], 2)} instead of {bound}",
    )


def test_the_sentences_about_the_simulations_quote_the_csv_files() -> None:
    selection = pl.read_csv(FIGURES / "selection.csv")
    highest = dict(selection.group_by("procedure").agg(pl.col("error_rate").max()).iter_rows())
    heads = pl.read_csv(FIGURES / "one_head.csv")
    ratio = (heads["error_rate_met"] / heads["error_rate"]).to_list()
    assert not missing(
        f"share of {selection['replicates'][0]:,} replicates",
        f"from {percent(error_rate('NLBS', 0.98, 0.99, 'evaluation'), 1)} of replicates (NLBS size, 98 %"
        f" target, correlation 0.99) through {percent(error_rate('NLBS', 0.98, 0.9, 'evaluation'), 1)}"
        f" (correlation 0.9) to {percent(error_rate('RSNA', 0.95, 0.0, 'evaluation'), 1)}",
        f"corrected bound is wrong in at most {percent(highest['corrected'], 1)} in any setting,"
        f" choosing on search in at most {percent(highest['search'], 1)}",
        f"{heads['draws'][0]:,} cohorts per row",
        f"is {min(ratio):.1f} to {max(ratio):.1f} times that of all points",
    )
    chosen = selection.filter(pl.col("procedure") == "evaluation")
    assert all(low > 0.01 for low in chosen["low"])  # "significantly above 1 % in every setting"


def test_the_sentences_about_exact_sums_quote_the_csv_files() -> None:
    law = {
        (row["data_set"], row["target"]): percent(row["chance_met"], 0)
        for row in pl.read_csv(FIGURES / "law.csv").filter(pl.col("rule") == "recall").to_dicts()
    }
    fixed = pl.read_csv(FIGURES / "fixed_classes.csv")
    worst = dict(fixed.filter(pl.col("auroc") == 0.72).select("data_set", "worst_failure").iter_rows())
    rebuilt = pl.read_csv(FIGURES / "rebuilt_counts.csv")
    assert not missing(
        f"is {percent(worst['NLBS'], 2)} at NLBS size and {percent(worst['RSNA'], 2)} at RSNA size",
        f"and {percent(max(fixed['worst_failure']), 2)} in the worst of the six settings",
        f"1 <= m <= {rebuilt['largest_m'][0]:,}, never k + 1",
        f"in {law['NLBS', 0.98]} (98 % target) and {law['NLBS', 0.95]} (95 %) of splits at NLBS size,"
        f" in {law['RSNA', 0.98]} and {law['RSNA', 0.95]} at RSNA size",
    )
    assert f"`10 * (1 - 0.9)` is {10 * (1 - 0.9)!r}" in WORDS
    wrong = pl.read_csv(FIGURES / "float_targets.csv")["first_target"].drop_nulls()
    assert max(wrong) < 0.95  # from 0.99 downwards: 0.98 and 0.95 come out right
    chances = pl.read_csv(FIGURES / "chances.csv").group_by("rule").agg(pl.col("chance_met").min())
    lowest = {rule: percent(chance, 0) for rule, chance in chances.iter_rows()}
    assert not missing(f"in {lowest['crc']} or more", f"in {lowest['ltt']} or more")
    assert rebuilt["too_large"].sum() == 0
    assert max(fixed["worst_failure"]) < 0.01


def test_the_sentences_about_free_thresholds_quote_the_csv_files(load: Load) -> None:
    failures = pl.read_csv(FIGURES / "band_failures.csv")
    kept = failures["kept"] / failures["cohorts"]
    pointwise = failures["pointwise"] / failures["pointwise_cohorts"]
    below = failures["rank_below"] / failures["cohorts"]
    prices = pl.read_csv(FIGURES / "band_price.csv")
    free = pl.read_csv(FIGURES / "band_free.csv")
    smallest = load("trust_cache.statistics.bands").band_ranks(4_797)[0] / 4_797
    assert not missing(
        f"U(k, n; delta / {prices['ranks'].unique().item()})",
        f"down to {percent(smallest, 1)} of the cases",
        f"over {free['cohorts'][0]:,} cohorts of each size",
        f"{failures['cohorts'][0]:,} cohorts per law",
        f"from {failures['pointwise_cohorts'][0]:,} of the cohorts",
        f"fails in at most {percent(kept.max(), 2)} of the cohorts of any law",
        f"at some threshold in {percent(pointwise.min(), 1)} to {percent(pointwise.max(), 1)}",
        f"fails in {percent(below.max(), 1)} of the cohorts",
    )
    assert (failures["lowered"] <= failures["kept"]).all()
    assert kept.max() <= 0.01
    assert (free["lowered"] < free["lowered_of_forty"]).all()
    assert ((free["kept"] > free["kept_of_forty"]) | (free["high"] < 0.4)).all()
    assert (free["kept"] < free["kept_of_forty"]).to_list()[:2] == [True, True]


def test_the_published_figures_of_the_law() -> None:
    law = pl.read_csv(FIGURES / "law.csv").filter(pl.col("rule") == "recall")
    found = [round(100 * chance) for chance in law["chance_met"]]
    assert found[:4] == [49, 43, 56, 54]


def test_the_bound_fails_with_a_chance_of_delta_and_never_more() -> None:
    failures = pl.read_csv(FIGURES / "failures.csv")
    for _, of_n in failures.group_by("n"):
        assert of_n["failure"].max() == pytest.approx(0.01, rel=1e-9)
    first = failures.filter(pl.col("failure") > 0).group_by("n").agg(pl.col("rate").min())
    for n, rate in first.iter_rows():
        assert f"{percent(rate, 2)} for n = {n}" in WORDS


def test_splits_of_one_cohort_follow_the_law() -> None:
    for row in pl.read_csv(FIGURES / "spreads.csv").to_dicts():
        expected = row["met_share_expected"]
        error = math.sqrt(expected * (1 - expected) / row["resplits"])
        assert abs(row["met_share"] - expected) < 4 * error


@pytest.mark.slow
def test_the_script_makes_every_file_again(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: law -->\n<!-- end -->\nafter\n", encoding="utf-8")
    out = tmp_path / "figures"
    command = [sys.executable, "-W", "error", str(DOCS / "make_statistics_figures.py")]
    command += ["--replicates", "2", "--resplits", "5", "--seed", "3", "--out", str(out), "--page", str(page)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in out.iterdir()} == {path.name for path in FIGURES.iterdir()}
    for path in out.glob("*.csv"):
        assert pl.read_csv(path).columns == pl.read_csv(FIGURES / path.name).columns
    for name in (
        "law",
        "chances",
        "failures",
        "fixed_classes",
        "rebuilt_counts",
        "float_targets",
        "examples",
        "band_price",
    ):
        assert_close(pl.read_csv(out / f"{name}.csv"), pl.read_csv(FIGURES / f"{name}.csv"))
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- table: law -->\n| size |")
    assert text.endswith("|\n<!-- end -->\nafter\n")


def assert_close(found: pl.DataFrame, stored: pl.DataFrame) -> None:
    """Numbers without chance in them are the same, up to another scipy's last digits."""
    assert found.shape == stored.shape
    for column in stored.columns:
        values = found[column].to_list(), stored[column].to_list()
        if stored[column].dtype == pl.Float64:
            again, before = ([math.nan if value is None else value for value in part] for part in values)
            assert again == pytest.approx(before, rel=1e-9, abs=1e-12, nan_ok=True)
        else:
            assert values[0] == values[1]


@pytest.mark.slow
def test_another_run_of_the_simulation_finds_the_same_rates(load: Load) -> None:
    """Within 4 standard errors of the difference of both runs; the corrected bound keeps its level."""
    simulation = load("selection_simulation")
    keys = ["data_set", "target", "auroc", "correlation", "procedure"]
    stored = {
        tuple(row[key] for key in keys): row for row in pl.read_csv(FIGURES / "selection.csv").to_dicts()
    }
    compared = 0
    for size in simulation.paper_sizes():
        for row in simulation.simulate_selection(size, replicates=500, seed=20_261):
            other = stored[tuple(row[key] for key in keys)]
            trials = row["replicates"], other["replicates"]
            pooled = (row["errors"] + other["errors"]) / sum(trials)
            error = math.sqrt(pooled * (1 - pooled) * (1 / trials[0] + 1 / trials[1]))
            assert abs(row["error_rate"] - other["error_rate"]) <= 4 * error, row
            if row["procedure"] != "evaluation":
                assert row["error_rate"] <= 0.01 + 3 * math.sqrt(0.01 * 0.99 / trials[0]), row
                assert other["error_rate"] <= 0.01 + 3 * math.sqrt(0.01 * 0.99 / trials[1]), other
            compared += 1
    assert compared == len(stored) == 176
