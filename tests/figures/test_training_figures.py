"""The chart of training draws the numbers of the run, with and without a tau."""

import json
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl
import pytest

from tests.cli.conftest import Run, run  # noqa: F401
from tests.heads.cohorts import a_cohort, write_cohort
from trust_cache.base.errors import InputError
from trust_cache.figures.chart_style import render_chart, spec_of
from trust_cache.figures.figure import draw
from trust_cache.figures.training_figures import loop_figure, trajectory_chart
from trust_cache.heads.fit import fit_heads
from trust_cache.heads.head_settings import choose_configurations
from trust_cache.heads.run_folder import RunFolder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run")
    cache = write_cohort(made / "cache.zarr", *a_cohort(cases=120, positives=30))
    chosen = choose_configurations(["ce,fixed-tau"])
    return fit_heads(cache, made / "run", epochs=3, configurations=chosen).folder


def drawn(folder: Path, configurations: list[str] | None = None) -> alt.ConcatChart:
    made = RunFolder(folder)
    return trajectory_chart(made.trajectories(), made.thresholds(), configurations)


def rows_of(spec: dict[str, Any], panel: dict[str, Any], mark: str) -> list[list[dict[str, Any]]]:
    """The rows behind each layer of this mark; what all layers share altair keeps with the panel."""
    marked = [layer for layer in panel["layer"] if layer["mark"]["type"] == mark]
    return [spec["datasets"][(layer.get("data") or panel["data"])["name"]] for layer in marked]


def test_the_chart_holds_the_means_over_folds_and_each_folds_tau(folder: Path) -> None:
    spec = spec_of(drawn(folder))
    ce, fixed = spec["concat"]
    assert (ce["title"], fixed["title"]) == ("ce", "fixed-tau")
    rows = pl.read_csv(folder / "trajectories.csv").filter(pl.col("configuration") == "ce")
    shown = rows_of(spec, ce, "area")[0]
    assert len(shown) == 4 * 2  # epochs and one more, labels
    for row in shown:
        same = rows.filter((pl.col("epoch") == row["epoch"]) & (pl.col("label") == row["label"]))
        assert same.height == 5
        assert row["q50"] == pytest.approx(np.mean(same["q50"].to_list()))
    assert not any("tau" in str(layer["encoding"]["y"]) for layer in ce["layer"])
    _, by_fold, mean = rows_of(spec, fixed, "line")
    assert len(by_fold) == (3 + 1) * 5  # the last tau holds to the end of its epoch
    assert {row["tau"] for row in by_fold} == {row["tau"] for row in mean} == {0.05}


def test_the_loop_holds_each_folds_region_reach_and_low_positives(folder: Path) -> None:
    made = RunFolder(folder)
    quantiles, taus = made.trajectories(), made.thresholds()
    figure = loop_figure("figure", "The loop", quantiles, taus, "fixed-tau", 0.1)
    assert [panel.title for panel in figure.panels] == [f"fold {fold}" for fold in range(5)]
    for fold, panel in enumerate(figure.panels):
        spec = spec_of(panel.chart)
        regions = rows_of(spec, spec, "area")[0]
        assert [row["epoch"] for row in regions] == [0, 1, 2, 3]  # the last tau holds to the end
        assert {row["tau"] for row in regions} == {0.05}
        assert {round(row["reach"], 9) for row in regions} == {0.15}
        shown = rows_of(spec, spec, "line")[-1]
        expected = quantiles.filter(configuration="fixed-tau", fold=str(fold), label=1)["q05"].to_list()
        assert [row["q05"] for row in shown] == expected
    high = quantiles.with_columns(q50=pl.when(label=0).then(0.8).otherwise("q50"))
    spec = spec_of(loop_figure("figure", "The loop", high, taus, "fixed-tau", 0.1).panels[0].chart)
    for layer in spec["layer"]:  # no line leaves the panel, that of images without cancer neither
        assert layer["encoding"]["y"]["scale"]["domain"][1] > 0.8
    nobody = quantiles.with_columns(
        pl.lit(None, dtype=pl.Float64).alias(name) for name in ("q05", "q25", "q50")
    )
    empty = loop_figure("figure", "The loop", nobody, taus, "fixed-tau", 0.1)
    assert render_chart(draw(empty), ".svg").startswith(b"<svg")


def test_runs_without_a_tau_and_labels_without_images(folder: Path) -> None:
    assert render_chart(drawn(folder, ["ce"]), ".svg").startswith(b"<svg")
    empty = (
        RunFolder(folder)
        .trajectories()
        .with_columns(
            pl.when(pl.col("label") == 1).then(None).otherwise(pl.col(name)).alias(name)
            for name in ("q05", "q25", "q50", "q75", "q95")
        )
    )
    assert render_chart(trajectory_chart(empty, RunFolder(folder).thresholds()), ".svg").startswith(b"<svg")


def test_the_command(run: Run, folder: Path, tmp_path: Path) -> None:  # noqa: F811
    for name in ("t.svg", "t.png", "t.html", "t.json"):
        assert run("trajectories", folder, "--out", tmp_path / name).code == 0
    assert json.loads((tmp_path / "t.json").read_text())["concat"]
    again = tmp_path / "again.svg"
    assert run("trajectories", folder, "--out", again, "--configurations", "ce,fixed-tau").code == 0
    assert again.read_bytes() == (tmp_path / "t.svg").read_bytes()
    for words, said in (
        ([folder, "--out", tmp_path / "t.pdf"], "ends in .svg"),
        ([tmp_path, "--out", tmp_path / "t.svg"], "expected a run folder with trajectories.csv"),
        ([folder, "--out", tmp_path / "t.svg", "--configurations", "fixedtau"], "did you mean fixed-tau?"),
    ):
        done = run("trajectories", *words)
        assert (done.code, said in done.err) == (2, True)


def test_a_file_changed_by_hand(folder: Path, tmp_path: Path) -> None:
    for name in ("trajectories.csv", "thresholds.csv"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "thresholds.csv").write_text("configuration,fold,epoch,tau\nce,0,first,0.5\n")
    with pytest.raises(InputError, match=r"thresholds\.csv: expected numbers"):
        drawn(tmp_path)
    (tmp_path / "thresholds.csv").unlink()
    with pytest.raises(InputError, match="thresholds"):
        drawn(tmp_path)
