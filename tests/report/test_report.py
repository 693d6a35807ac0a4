"""A report's folders are sorted by kind; its figures and tables are written completely or not at all."""

import csv
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.report.material import HOSTILE, make_run
from trust_cache.base.errors import InputError
from trust_cache.certificate.evidence import Options
from trust_cache.report.page import write_page
from trust_cache.report.report import (
    Report,
    ReportFolders,
    make_report,
    named_figures,
    sort_folders,
    write_figures,
)

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    run = make_run(
        tmp_path_factory.mktemp("made") / "run", configurations=("closed-loop", HOSTILE[0]), cases=400
    )
    return make_report([run], Options(by=("site",), prevalence=0.01))


@pytest.fixture(scope="module")
def folder(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("paper") / "figures"
    write_figures(report, out)
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
    size = write_page(report, tmp_path / "deep" / "page.html")
    assert (tmp_path / "deep" / "page.html").stat().st_size == size
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["page.html"]


def test_folders_are_sorted_in_any_order(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", configurations=("ce",), cases=300)
    for name, sign in (("a", "sweep.json"), ("b", "compare.json"), ("c", "points.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / sign).write_text("{}")
    (tmp_path / "a" / "scores.csv").write_text("")  # a sweep has scores as well
    external = make_run(tmp_path / "x", external=True, configurations=("ce",), cases=300)
    found = sort_folders([tmp_path / "b", tmp_path / "c", run, tmp_path / "a", external])
    assert found == ReportFolders((run, external), (tmp_path / "c",), tmp_path / "a", tmp_path / "b")


def test_other_folders_and_files_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", configurations=("ce",), cases=300)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    for paths, message in (
        ([tmp_path / "none"], "no such folder"),
        ([run, tmp_path / "empty"], r"scores\.csv.*points\.json.*sweep\.json.*compare\.json"),
        ([run, tmp_path / "notes.txt"], "found another file"),
        ([], "expected a run folder"),
    ):
        with pytest.raises(InputError, match=message):
            sort_folders(paths)
