"""The figure of a comparison: one panel per target, with the parts that its numbers allow."""

import pytest

from trust_cache.figures.comparison_figures import DrawnDifference, comparison_figure
from trust_cache.figures.figure import figure_files, styled_spec

WHAT = "closed-loop minus each other configuration"


def difference(other: str, target: float, **changes: object) -> DrawnDifference:
    values = {"low": 0.01, "high": 0.05, "split_low": -0.02, "split_high": 0.08, "trainings": (0.02, 0.04)}
    return DrawnDifference(
        label=other, reference="closed-loop", other=other, target=target, difference=0.03, p_adjusted=0.01,
        verdict="different", **(values | changes),  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_data_are_the_differences_of_every_panel() -> None:
    made = [difference(other, target) for target in (0.98, 0.95) for other in ("ce", "ce-focal")]
    figure = comparison_figure(made, WHAT)
    assert [panel.title for panel in figure.panels] == ["at 98% recall", "at 95% recall"]
    assert figure.data["other"].to_list() == ["ce", "ce-focal"] * 2
    assert figure.data["low"].to_list() == [0.01] * 4
    for panel in figure.panels:
        rows = [row for rows in styled_spec(panel.chart)["datasets"].values() for row in rows]
        assert {row["other"] for row in rows if "other" in row} == {"ce", "ce-focal"}
    assert "closed-loop minus each other configuration: ce at 98% +3.00 points" in figure.alternative


@pytest.mark.parametrize(
    ("changes", "marks"),
    [
        ({}, ["rule", "rule", "tick", "rule", "point"]),
        ({"trainings": ()}, ["rule", "rule", "rule", "point"]),
        ({"split_low": None, "split_high": None}, ["rule", "tick", "rule", "point"]),
        ({"low": None, "high": None}, ["rule", "rule", "tick", "point"]),
    ],
)
def test_undefined_numbers_are_not_drawn(changes: dict[str, object], marks: list[str]) -> None:
    figure = comparison_figure([difference("ce", 0.98, **changes)], WHAT)
    assert [layer["mark"]["type"] for layer in styled_spec(figure.panels[0].chart)["layer"]] == marks
    assert ("Grey ticks" in figure.reading) == ("tick" in marks)
    files = figure_files(figure, "compare")
    assert b"all cases: closed-loop minus" in files["compare.svg"]
    assert files["compare.png"].startswith(b"\x89PNG")
