"""The pages under docs/: their command lines exist, their counts are those of the data sets' descriptions."""

import csv
import re
import shlex
from pathlib import Path

import pytest

from tests.project.examples import GROUP
from trust_cache.manifest.datasets.dataset import describe_dataset

DOCS = Path(__file__).parents[2] / "docs"
REPRODUCING = (DOCS / "reproducing.md").read_text(encoding="utf-8")
PAGES = sorted(DOCS.rglob("*.md"))
MADE = {
    "security.md",
    "settings.md",
    "commands.md",
}  # when the site is built; `mkdocs build --strict` checks these links


def command_lines(page: Path) -> list[str]:
    return re.findall(r"^(?:\$ )?(trust-cache .+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_commands_and_options_exist(page: Path) -> None:
    for line in command_lines(page):
        words = shlex.split(line.rstrip("\\"))[1:]
        command = GROUP
        while hasattr(command, "commands"):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        known = {name for parameter in command.params for name in parameter.opts}
        used = {word.split("=")[0] for word in words if word.startswith("--")}
        assert used <= known, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target and Path(target).name not in MADE:
            assert (page.parent / target).exists(), target


def test_counts_are_the_descriptions() -> None:
    rows = re.findall(r"^\| (images|cases|positive cases|positive images) \| ([\d,]+) \| ([\d,]+) \|$",
                      REPRODUCING, flags=re.MULTILINE)  # fmt: skip
    assert len(rows) == 4
    for name, *counts in rows:
        for data_set, text in zip(("rsna", "nlbs"), counts, strict=True):
            expected = getattr(describe_dataset(data_set).expected, name.replace(" ", "_"))
            assert int(text.replace(",", "")) == expected, (name, data_set)


def test_points_are_the_published() -> None:
    with (DOCS.parent / "tests" / "goldens" / "paper_operating_points.csv").open(newline="") as file:
        published = {
            (row["setting"], row["configuration"], row["recall_target"]): row for row in csv.DictReader(file)
        }
    rows = re.findall(
        r"^\| (NLBS|RSNA) (\S+) \| (\d+) % \| ([\d.]+) % \| ([\d,]+) \| (\d+) \| ([\d.]+) % \|$",
        REPRODUCING,
        flags=re.MULTILINE,
    )
    assert len(rows) == 5
    for data_set, configuration, target, dismissal, dismissed, positives, bound in rows:
        row = published[data_set.lower(), configuration, f"0.{target}"]
        assert (dismissal, bound) == (row["dismissal_percent"], row["cpu99_percent"])
        assert (dismissed.replace(",", ""), positives) == (row["dismissed"], row["positives_dismissed"])
