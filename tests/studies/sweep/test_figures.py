"""Figures: the kind that the axes call for, with the numbers of the tables, the same bytes again."""

import itertools
import math
from typing import Any

import polars as pl
import pytest

from trust_cache.heads.settings import HeadSettings
from trust_cache.studies.sweep.catalogue import find_axes, in_order, name_setting
from trust_cache.studies.sweep.figures import draw_chart, draw_figures, show_value

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


def marks(chart: dict[str, Any]) -> list[str]:
    return [layer["mark"]["type"] for layer in chart["layer"]]


ONE = [{"lr": lr} for lr in (1e-5, 1e-4, 1e-3)]
TWO = [{"margin": m, "tau": tau} for m in (0.1, 0.2, 0.3) for tau in ("closed-loop", 0.05)]
THREE = [
    {"margin": m, "lr": lr, "clip": c} for m in (0.1, 0.2) for lr in (1e-5, 1e-3) for c in (1.0, 2.0, 5.0)
]
DRAWN = [{"margin": 0.1 + n / 100, "lr": 1e-5 * 2**n} for n in range(9)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (ONE, ["errorbar", "line", "point"]),
        (TWO, ["rect", "rect", "text"]),
        (THREE, ["line", "line", "text", "text"]),
        (DRAWN, ["point", "point"]),
    ],
)
def test_the_axes_decide_the_kind(changes: list[dict[str, Any]], expected: list[str]) -> None:
    made = draw_chart(*tables(*changes)).to_dict()
    assert len(made["vconcat"]) == 2
    for panel, target in zip(made["vconcat"], ("98%", "95%"), strict=True):
        assert marks(panel) == expected
        assert panel["title"]["text"].endswith(f"recall of {target}")


def test_a_line_has_the_mean_over_repeats_and_the_range_over_folds() -> None:
    panel = draw_chart(*tables(*ONE)).to_dict()["vconcat"][0]
    rows = panel["layer"][0].get("data", panel.get("data"))["values"]
    for number, row in enumerate(rows):
        assert row["lr_value"] == ONE[number]["lr"]
        assert math.isclose(row["dismissal"], (number + 0.05) / 100)
        assert (row["low"], row["high"]) == (number / 100, (number + 4) / 100)
    assert panel["layer"][0]["encoding"]["x"]["scale"]["type"] == "log"


def test_every_setting_is_in_its_cell_or_on_its_line() -> None:
    panel = draw_chart(*tables(*TWO)).to_dict()["vconcat"][1]
    rows = panel["data"]["values"] if "data" in panel else panel["layer"][0]["data"]["values"]
    assert {(row["margin"], row["tau"]) for row in rows} == {
        (show_value(change["margin"]), show_value(change["tau"])) for change in TWO
    }
    assert [row["winner"] for row in rows].count(True) == 1
    lines = draw_chart(*tables(*THREE)).to_dict()["vconcat"][0]["layer"][0]["data"]["values"]
    assert len(lines) == len(THREE) * 3
    assert {row["place"] for row in lines if row["axis"] == "clip"} == {0, 0.5, 1}


def test_settings_that_diverged_are_left_out() -> None:
    axes, results, folds = tables(*ONE, diverged=1)
    panel = draw_chart(axes, results, folds).to_dict()["vconcat"][0]
    rows = panel["data"]["values"] if "data" in panel else panel["layer"][0]["data"]["values"]
    assert len(rows) == 2
    assert draw_figures(*tables(*ONE, diverged=3)) == {}
    assert draw_figures({}, results, folds) == {}


def test_files_are_pictures_and_the_same_again() -> None:
    first, again = (draw_figures(*tables(*TWO)) for _ in range(2))
    assert set(first) == {"figures/dismissal.svg", "figures/dismissal.png"}
    assert first == again
    assert first["figures/dismissal.png"].startswith(b"\x89PNG")
    assert b"closed-loop" in first["figures/dismissal.svg"]


def test_many_values_stay_readable() -> None:
    changes = [{"margin": n / 50, "lr": 1e-5 * (1 + n), "clip": 1.0 + n} for n in range(50)]
    panel = draw_chart(*tables(*changes, repeats=1)).to_dict()["vconcat"][0]
    words = panel["layer"][-1]["data"]["values"]
    assert len(words) == 3 * 8
    assert [row["value"] for row in words if row["axis"] == "clip"][::7] == ["1", "50"]
