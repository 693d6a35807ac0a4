"""The README: its commands and its Python run unchanged (the real workflow: test_workflow.py)."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run  # noqa: F401
from tests.conftest import make_scores
from tests.project.examples import command_names
from tests.project.readme import README, blocks, commands, section, titles
from trust_cache.cache.extract.view_features import torch_threads

# Under these headings every console line is run, here or in test_workflow.py.
PICTURES = ("From DICOMs to PNGs", "From PNGs to cached features")
STAGE_TWO = (
    *("From cached features to scores", "Many settings", "Is the difference real?", "One page of it all"),
)
SCORES = "From scores to a certificate"
TWO_SETS = "On a set that the model never saw"
WORKFLOW = "The real workflow"


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_is_under_a_heading_that_is_tested() -> None:
    tested = {*PICTURES, *STAGE_TWO, SCORES, TWO_SETS, WORKFLOW}
    assert {title for title in titles() if commands(title)} == tested


@pytest.mark.parametrize("shape", [{}, {"images": 3}, {"images": 2, "configurations": ("scores", "other")}])
def test_commands_and_recomputation(workplace: Path, run: Run, shape: dict[str, object]) -> None:  # noqa: F811
    table = make_scores(auroc=0.9, **shape)  # type: ignore[arg-type]
    table.write_csv(workplace / "scores.csv")
    assert len(commands(SCORES)) >= 3
    for command in commands(SCORES):
        done = run(*shlex.split(command)[1:])
        assert done.code == 0, (command, done.err)
    python = blocks("python")
    assert len(python) == 2
    for text in python:
        # The files that the few lines leave open would be warnings, and warnings are errors here.
        closed = re.sub(
            r"open\((\"[^\"]+\")\)",
            r"__import__('io').StringIO(__import__('pathlib').Path(\1).read_text())",
            text,
        )
        exec(compile(closed, "README.md", "exec"), {})  # noqa: S102


def test_images(workplace: Path, run: Run) -> None:  # noqa: F811
    chosen = [command for title in PICTURES for command in commands(title)]
    assert [command.split()[1] for command in chosen] == ["images", "manifest", "preprocess", "extract"]
    for command in chosen:
        # A sixteenth of the pixels, on one thread: B5 is a large network for a busy processor.
        smaller = ["--image-size", "38x23"] if " extract " in command else []
        with torch_threads(1):
            done = run(*shlex.split(command)[1:], *smaller)
        assert done.code == 0, (command, done.err)
    assert (workplace / "sheet.png").stat().st_size > 1_000


def test_stage_two(workplace: Path, run: Run) -> None:  # noqa: F811
    chosen = [command for title in STAGE_TWO for command in commands(title)]
    names = [command.split()[1] for command in chosen]
    assert names == ["simulate", "fit-heads", "certify", "sweep", "compare", "report", "show"]
    for command in chosen:
        # The cohort at a tenth of its size: `make bench` runs the full size.
        smaller = ["--cases", "600"] if " simulate " in command else []
        done = run(*shlex.split(command)[1:], *smaller)
        assert done.code == 0, (command, done.err)
    (toml,) = blocks("toml")
    (workplace / "mine.toml").write_text(toml)
    words = ["fit-heads", "nlbs.zarr", "--out", "other", "--epochs", "1"]
    assert run(*words, "--configurations", "ce,closed-loop,mine.toml", "--low-memory").code == 0


def test_two_sets(workplace: Path, run: Run) -> None:  # noqa: F811
    chosen = commands(TWO_SETS)
    assert [command.split()[1] for command in chosen] == ["simulate", "simulate", "external", "trajectories"]
    for command in chosen:
        smaller = ["--cases", "400"] if " simulate " in command else []
        done = run(*shlex.split(command)[1:], *smaller)
        assert done.code == 0, (command, done.err)
    assert (workplace / "external" / "certified" / "points.json").exists()
    assert (workplace / "trajectories.svg").read_text().startswith("<svg")


def test_make_targets_exist() -> None:
    makefile = (README.parent / "Makefile").read_text()
    targets = re.findall(r"^make (\S+)", "\n".join(blocks("console")), flags=re.MULTILINE)
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        assert f"\n{target}:" in makefile


def test_options_in_the_readme_exist(run: Run) -> None:  # noqa: F811
    named = set(re.findall(r"`trust-cache ([a-z-]+)", section("All commands")))
    shown = run("--help").out + " ".join(run(command, "--help").out for command in sorted(named))
    options = set(re.findall(r"`--([a-z-]+)", README.read_text()))
    assert options >= {"by", "prevalence", "resplits", "rule", "json", "target"}
    for option in options:
        assert f"--{option}" in shown, option


def test_every_command_is_in_the_table() -> None:
    table = section("All commands")
    for name in command_names():
        assert re.search(rf"`(trust-cache )?{name}[ `]", table), name
