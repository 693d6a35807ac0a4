"""The README: one screen with a result, and its commands and its Python run unchanged."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run  # noqa: F401
from tests.project.examples import command_names
from tests.project.pages import DOCS, README, ROOT, blocks, run_python, section

TEXT = README.read_text(encoding="utf-8")
SCREEN = 40  # lines
LONGEST = 150


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the scores that the README names."""
    (tmp_path / "docs" / "notebooks").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "notebooks" / "scores.csv", tmp_path / "docs" / "notebooks")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_short_and_names_the_paper_first() -> None:
    lines = TEXT.splitlines()
    assert len(lines) <= LONGEST
    assert "Threshold-Recalibrated Uncertainty-Safe Training" in "\n".join(lines[:10])
    assert TEXT.count("![") == 1


def test_the_first_screen_installs_and_shows_a_real_certificate(workplace: Path, run: Run) -> None:  # noqa: F811
    first = "\n".join(TEXT.splitlines()[:SCREEN])
    assert "pip install" in first
    (shown,) = [block for block in blocks("console", first) if block.startswith("$ ")]
    command, *lines = shown.splitlines()
    done = run(*shlex.split(command)[2:])
    assert done.code == 0, done.err
    real = [line.rstrip() for line in done.out.splitlines()]
    place = -1
    for line in (line for line in lines if line != "..."):  # in their order, whole
        place = real.index(line, place + 1)
    assert any("certified/certificates" in line for line in lines)
    for text in blocks("python", TEXT):
        run_python(text)
    assert (workplace / "dismissal.svg").read_text().startswith("<svg")


def test_words_are_explained_where_they_first_appear() -> None:
    workflow = section("The real workflow")
    for word in ("closed loop", "lambda_dismiss", "margin"):
        assert word in workflow
        assert workflow.count(word) >= 1
    explained = workflow[workflow.index("**closed loop**") :]
    assert "`margin` are penalised, with the weight `lambda_dismiss`" in " ".join(explained.split())


def test_one_set_of_folder_names() -> None:
    """In the README, and in the guides, which also make synthetic images, rivals and a model."""
    folders = {"png", "run", "certified", "external", "sweep", "compare"}
    assert set(re.findall(r"--out ([a-z-]+)/", TEXT)) == folders
    guides = [DOCS / "getting-started.md", *(DOCS / "guides").glob("*.md")]
    named = {name for page in guides for name in re.findall(r"--out ([a-z-]+)/", page.read_text())}
    assert named <= folders | {"synthetic", "rivals", "model", "encoders", "tuned", "tuned-certified"}


def test_make_targets_exist() -> None:
    makefile = (README.parent / "Makefile").read_text()
    targets = re.findall(r"^make (\S+)", "\n".join(blocks("console", TEXT)), flags=re.MULTILINE)
    assert {"demo", "test", "docs"} <= set(targets)
    for target in targets:
        assert f"\n{target}:" in makefile


def test_every_command_is_in_the_table() -> None:
    table = section("All commands")
    for name in command_names():
        assert re.search(rf"`(trust-cache )?{name}[ `]", table), name


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT):
        assert (ROOT / target).exists(), target
