"""The commands report and show as a user meets them."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.report.material import make_run


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", configurations=("ce", "closed-loop"), cases=400)


def test_report_writes_a_page_and_says_so(run: Run, made: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run("certify", made, "--out", tmp_path / "certified", "--seed", 3).code == 0
    done = run("report", tmp_path / "certified", made, "--out", page)
    assert done.code == 0, done.err
    assert f"Written to {page}" in done.out
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert f"trust-cache report {tmp_path / 'certified'} {made} --out {page}" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--out", "page.pdf"), "expected the name of an .html file, found page.pdf"),
        (("--out", "page.html", "--by", "nothing"), "no column 'nothing' to group by"),
        (("--out", "page.html", "--configuration", "mine"), "expected one of ce, closed-loop, found mine"),
        (("--out", "page.html", "--target", "98"), "for 98.0 % write 0.98"),
        (("missing/", "--out", "page.html"), "missing: no such folder"),
    ],
)
def test_a_wrong_use_ends_with_a_sentence(
    run: Run,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("report", made, *words)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert not Path("page.html").exists()


def test_a_folder_of_other_files_for_figures_is_refused_before_the_work(
    run: Run, made: Path, tmp_path: Path
) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "mine.txt").write_text("x")
    done = run("report", made, "--out", tmp_path / "page.html", "--figures", tmp_path / "figures")
    assert done.code == 2
    assert not (tmp_path / "page.html").exists()


def test_show_prints_the_essentials(run: Run, made: Path) -> None:
    done = run("show", made)
    assert done.code == 0, done.err
    for text in (
        "400 cases, 120 with cancer",
        "Tau by epoch",
        "▁▃▆█",
        "What this does not say",
        "closed-loop",
    ):
        assert text in done.out
