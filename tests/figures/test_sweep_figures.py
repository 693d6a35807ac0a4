"""The figure of a sweep: its kind follows from the axes, its numbers are those of the tables."""

import itertools
import math
from typing import Any

import polars as pl
import pytest

from trust_cache.figures.figure import Figure, figure_files, styled_spec
from trust_cache.figures.sweep_figures import show_value, sweep_figure
from trust_cache.heads.head_settings import HeadSettings
from trust_cache.studies.sweep.sweep_space import find_axes, in_order, name_setting

Tables = tuple[dict[str, Any], pl.DataFrame, pl.DataFrame]


def tables(*changes: dict[str, Any], repeats: int = 2, diverged: int = 0) -> Tables:
    """Results and folds of settings that differ from the default by these changes."""
    settings = in_order(HeadSettings(**change) for change in changes)
    results, folds = [], []
    for number, item in enumerate(settings):
        for repeat, target in itertools.product(range(repeats), (0.98, 0.95)):
            share = None if number < diverged else (number + repeat / 10) / 100
            key = {"setting": name_setting(item), "repeat": repeat, "target": target}
            results.append(
                {
                    **key,
                    **{name: getattr(item, name) for name in ("margin", "lr", "clip")},
                    "tau": None if item.tau is None else str(item.tau),
                    "search_dismissal": share,
                    "winner": number == len(settings) - 1,
                }
            )
            if share is not None:
                folds += [
                    {**key, "fold": fold, "search_cases": 100, "search_dismissed": number + fold}
                    for fold in range(5)
                ]
    return find_axes(settings), pl.DataFrame(results), pl.DataFrame(folds)


def drawn(*changes: dict[str, Any], **options: int) -> Figure:
    figure = sweep_figure(*tables(*changes, **options))
    assert figure is not None
    return figure


def panels(figure: Figure) -> list[dict[str, Any]]:
    return [styled_spec(panel.chart) for panel in figure.panels]


def rows_of(panel: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a panel; its layers share them."""
    (rows,) = panel["datasets"].values()
    return list(rows)


ONE = [{"lr": lr} for lr in (1e-5, 1e-4, 1e-3)]
TWO = [{"margin": m, "tau": tau} for m in (0.1, 0.2, 0.3) for tau in ("closed-loop", 0.05)]
THREE = [
    {"margin": m, "lr": lr, "clip": c} for m in (0.1, 0.2) for lr in (1e-5, 1e-3) for c in (1.0, 2.0, 5.0)
]
DRAWN = [{"margin": 0.1 + n / 100, "lr": 1e-5 * 2**n} for n in range(9)]
MANY = [{"margin": 0.1 + n / 100, "lr": 1e-5 * 2**n} for n in range(16)]


LINE, MAP, DOTS = ["rule", "line", "point", "point"], ["rect", "rect", "text"], ["point", "point"]


@pytest.mark.parametrize(
    ("changes", "marks", "titles"),
    [
        (ONE, LINE, [""]),
        (TWO, MAP, [""]),
        (THREE, DOTS, [": margin", ": lr", ": clip"]),
        (DRAWN, MAP, [""]),
        (MANY, DOTS, [": margin", ": lr"]),
    ],
)
def test_the_axes_decide_the_kind(changes: list[dict[str, Any]], marks: list[str], titles: list[str]) -> None:
    figure = drawn(*changes)
    for panel in panels(figure):
        assert [layer["mark"]["type"] for layer in panel["layer"]] == marks
    expected = [f"target {target}{title}" for target in ("98%", "95%") for title in titles]
    assert sorted(panel.title for panel in figure.panels) == sorted(expected)


def test_a_line_has_the_mean_over_repeats_and_the_range_over_folds() -> None:
    panel, _ = panels(drawn(*ONE))
    for number, row in enumerate(rows_of(panel)):
        assert row["x"] == ONE[number]["lr"]
        assert math.isclose(row["search_dismissal"], (number + 0.05) / 100)
        assert (row["low"], row["high"]) == (number / 100, (number + 4) / 100)
    assert panel["layer"][0]["encoding"]["x"]["scale"]["type"] == "log"


def test_every_setting_is_in_its_cell_or_among_the_dots() -> None:
    figure = drawn(*TWO)
    rows = rows_of(panels(figure)[1])
    assert {(row["margin"], row["tau"]) for row in rows} == {
        (show_value(change["margin"]), show_value(change["tau"])) for change in TWO
    }
    assert [row["winner"] for row in rows].count(True) == 1
    assert figure.data.height == 2 * len(TWO)
    for panel in panels(drawn(*THREE)):
        assert len(rows_of(panel)) == len(THREE)
        assert {row["clip"] for row in rows_of(panel)} == {"1", "2", "5"}


def test_an_absent_value_has_a_tick_of_its_own() -> None:
    (panel, _) = panels(drawn({"tau": None}, {"tau": 0.05}, {"tau": "closed-loop"}))
    assert [row["tau"] for row in rows_of(panel)] == ["none", "0.05", "closed-loop"]
    assert panel["layer"][0]["encoding"]["x"]["sort"] == ["none", "0.05", "closed-loop"]


def test_settings_that_diverged_are_left_out() -> None:
    axes, results, folds = tables(*ONE, diverged=1)
    figure = sweep_figure(axes, results, folds)
    assert figure is not None
    assert len(rows_of(panels(figure)[0])) == 2
    assert sweep_figure(*tables(*ONE, diverged=3)) is None
    assert sweep_figure({}, results, folds) is None


def test_files_are_pictures_and_the_same_again() -> None:
    first, again = (figure_files(drawn(*TWO), "figures/dismissal") for _ in range(2))
    assert set(first) == {"figures/dismissal.svg", "figures/dismissal.png"}
    assert first == again
    assert first["figures/dismissal.png"].startswith(b"\x89PNG")
    assert b"closed-loop" in first["figures/dismissal.svg"]
    assert b"the winner has an orange frame" in first["figures/dismissal.svg"]
