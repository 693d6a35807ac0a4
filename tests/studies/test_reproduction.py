"""What the paper printed, held against a copy of its tables, and ours beside it."""

import csv
import re
from fractions import Fraction
from pathlib import Path

import pytest

from tests.conftest import make_scores
from trust_cache.base.text_tables import to_latex
from trust_cache.certificate.points import Terms
from trust_cache.certificate.score_table import build_cohort, check_scores
from trust_cache.studies.reproduction.level_spreads import level_spreads
from trust_cache.studies.reproduction.paper_numbers import paper_numbers
from trust_cache.studies.reproduction.paper_tables import setting_table, summary_table
from trust_cache.studies.reproduction.published import published
from trust_cache.studies.reproduction.reproduction import Reproduction
from trust_cache.studies.reproduction.saved_reads import estimate_savings

GOLDENS = Path(__file__).parents[1] / "goldens"


def golden(name: str) -> list[dict[str, str]]:
    with (GOLDENS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def printed(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def test_the_published_numbers_are_those_of_the_papers_tables() -> None:
    found = [
        {
            "table": str(setting.table),
            "setting": key,
            "row": name,
            "target": str(point.target),
            "dismissal_percent": printed(point.dismissal) or "N/A",
            "cpu99_percent": printed(point.bound),
            "auroc": printed(head.auroc, 4),
            "image_dismissal_percent": printed(point.image_dismissal),
        }
        for key, setting in published().settings.items()
        for name, head in setting.heads.items()
        for point in head.points
    ]
    assert found == [row for row in golden("paper_tables.csv") if row["table"] != "4"]


def test_the_published_integers_are_those_behind_the_bounds() -> None:
    expected = golden("paper_operating_points.csv")
    for row in expected:
        setting = published().settings[row["setting"]]
        assert (setting.cases, setting.positives) == (
            int(row["evaluation_cases"]),
            int(row["evaluation_positives"]),
        )
        point = setting.heads[row["configuration"]].point(float(row["recall_target"]))
        assert point is not None
        assert (point.dismissed, point.positives_dismissed) == (
            int(row["dismissed"]),
            int(row["positives_dismissed"]),
        )
    points = [p for s in published().settings.values() for h in s.heads.values() for p in h.points]
    assert sum(point.dismissed is not None for point in points) == len(expected) == 21


def test_every_published_dismissal_and_bound_is_its_own_arithmetic() -> None:
    numbers = paper_numbers(())
    agree = [number for number in numbers if number.agrees is not None]
    assert len(agree) == 42
    assert all(number.agrees for number in agree)
    assert all(number.here is None for number in numbers)
    never = [number for number in numbers if number.nature == "not reproducible"]
    assert {(number.setting, number.configuration, number.target) for number in never} == {
        ("nlbs", "ce-focal", 0.98),
        ("nlbs", "fixed-tau", 0.98),
        ("nlbs", "closed-loop", 0.98),
        ("rsna", "closed-loop", 0.98),
    }
    smallest = [
        (point.image_dismissal, point.image_dismissal_at_least)
        for setting in published().settings.values()
        for head in setting.heads.values()
        for point in head.points
        if point.image_dismissal_at_least is not None
    ]
    assert smallest == [(7.70, 9.40), (12.29, 13.31), (14.80, 17.02), (11.03, 12.08)]


def test_table_4_follows_from_the_others() -> None:
    """The rule "largest dismissal among those that met" gives the paper's own summary."""
    rows = {row[0]: row[1:] for row in summary_table({}).table.rows}
    expected = [row for row in golden("paper_tables.csv") if row["table"] == "4"]
    for setting in published().settings:
        title = published().settings[setting].title
        for kind, word in (("alternative", "best alternative"), ("proposed", "closed-loop")):
            (cells,) = (
                rows[name] for name in rows if name.startswith(f"{title}: {word}") and "paper" in name
            )
            for place, target in enumerate(("0.98", "0.95")):
                (row,) = (
                    item
                    for item in expected
                    if (item["setting"], item["row"], item["target"]) == (setting, kind, target)
                )
                dismissal, bound = cells[2 * place : 2 * place + 2]
                assert dismissal.rstrip("%") == row["dismissal_percent"]
                assert bound.rstrip("%").replace("—", "") == row["cpu99_percent"]
    assert any("fixed-tau and ce-focal" in name for name in rows)  # RSNA's alternatives differ by target


def test_cells_that_are_not_available_keep_their_image_level() -> None:
    table = setting_table("nlbs", published().settings["nlbs"], None)
    (row,) = (row for row in table.table.rows if row[0] == "ce, paper")
    assert row == ("ce, paper", "N/A", "—", "N/A", "—", "0.7157", "—", "12.08%", "12.21%")
    assert ("ce, paper", "98%") in table.reasons
    assert "no cache of this setting was given" in table.table.title


def test_latex_has_the_legend_and_leaves_the_number_to_latex() -> None:
    """Braces and environments are balanced, and each row has as many cells as there are columns."""
    found = Reproduction({}, 1000, 10.0)
    for table in (*(item.table for item in found.tables), *found.further_tables.values()):
        text = to_latex(table)
        assert "\\caption{Table" not in text
        assert text.isascii()
        bare = text.replace("\\{", "").replace("\\}", "")
        assert bare.count("{") == bare.count("}")
        assert re.findall(r"\\begin\{(\w+)\}", text) == re.findall(r"\\end\{(\w+)\}", text)[::-1]
        body = text.partition("\\toprule\n")[2].partition("\\bottomrule")[0].splitlines()
        cells = {len(re.split(r"(?<!\\)&", line)) for line in body if line != "\\midrule"}
        assert cells == {len(table.header)}
        first = table.legend.split(":")[0]  # without signs that LaTeX writes in another way
        assert first in text.partition("\\end{tabular}")[2]


def test_the_economic_estimate_is_the_papers() -> None:
    """Exact arithmetic, rounded as the paper rounds."""
    economics = published().economics
    (found,) = (
        item
        for item in estimate_savings({}, economics.programme, economics.fee)
        if (item.setting, item.target) == ("nlbs", 0.98)
    )
    share, fee = Fraction("19.74") / 100, 31
    assert found.dismissed_per_1000 == pytest.approx(float(1000 * share))
    assert found.saved == pytest.approx(float(10_000_000 * share * fee))
    assert (found.saved_per_1000, found.dismissed, found.saved) != (None, None, None)
    assert round(float(1000 * share)) == economics.dismissed_per_1000
    assert round(float(1000 * share * fee), -2) == economics.saved_per_1000
    assert round(float(10_000_000 * share), -4) == economics.dismissed
    assert round(float(10_000_000 * share * fee), -5) == economics.saved


def test_without_a_cache_only_published_numbers_stand() -> None:
    found = Reproduction({}, 1000, 10.0)
    assert not any("pattern" in text for text in found.sentences())
    assert all(item.source == "paper" for item in found.savings)


def test_the_image_level_is_left_out_where_the_threshold_says_nothing_about_images() -> None:
    names = ("maximum", "top-two")
    scores = check_scores(make_scores(configurations=names, images=2)).aggregated_as({n: n for n in names})
    terms = Terms("recall", 0.01, 1)
    one, two = level_spreads(build_cohort(scores), (0.95,), terms, seed=0, resplits=3)
    assert (one.configuration, two.configuration) == names
    assert one.at(0.95) is not None
    assert two.at(0.95) is None
    assert set(two.auroc_case) == set(one.auroc_case)
