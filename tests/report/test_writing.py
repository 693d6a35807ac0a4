"""Laws of the folder for a paper: figures as SVG and PNG, tables three ways, whole or not at all."""

import csv
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.report.material import HOSTILE, make_run
from trust_cache.base.errors import InputError
from trust_cache.report.evidence import Options
from trust_cache.report.report import Report, make_report
from trust_cache.report.writing import named_figures, write_figures, write_report

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    run = make_run(
        tmp_path_factory.mktemp("made") / "run", configurations=("closed-loop", HOSTILE[0]), cases=400
    )
    return make_report([run], Options(by="site", prevalence=0.01))


@pytest.fixture(scope="module")
def folder(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("paper") / "figures"
    assert write_figures(report, out) is None
    return out


def test_every_figure_is_there_as_svg_png_and_csv(report: Report, folder: Path) -> None:
    names = set(named_figures(report))
    assert names >= {"dismissal-recall", "roc", "scores", "tau-by-epoch", "reliability", "subgroups"}
    found = {path.name for path in (folder / "figures").iterdir()}
    assert found == {f"{name}{suffix}" for name in names for suffix in (".svg", ".png", ".csv")}
    for name in names:
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n")
        with (folder / "figures" / f"{name}.csv").open() as file:
            assert len(list(csv.DictReader(file))) > 1


def test_drawings_name_the_configurations_as_text(folder: Path) -> None:
    root = ET.parse(folder / "figures" / "dismissal-recall.svg").getroot()  # noqa: S314
    assert not list(root.iter(f"{SVG}script"))
    texts = {element.text for element in root.iter(f"{SVG}text")}
    assert {"closed-loop", HOSTILE[0]} <= texts


def test_every_table_is_there_three_ways(folder: Path) -> None:
    found = {path.name for path in (folder / "tables").iterdir()}
    keys = ("paper", "details", "prevalence", "subgroups")
    assert found == {f"{key}.{suffix}" for key in keys for suffix in ("md", "tex", "csv")}
    with (folder / "tables" / "paper.csv").open() as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows] == ["Configuration", HOSTILE[0], "closed-loop"]
    assert r"\begin{tabular}" in (folder / "tables" / "details.tex").read_text()


def test_other_peoples_files_are_left_alone(report: Report, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="found files that this command does not write"):
        write_figures(report, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_the_page_is_written_whole(report: Report, tmp_path: Path) -> None:
    size = write_report(report, tmp_path / "deep" / "page.html")
    assert (tmp_path / "deep" / "page.html").stat().st_size == size
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["page.html"]
