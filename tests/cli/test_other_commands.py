"""plan, demo and help on the command line."""

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from trust_cache.base.versions import revision


def test_plan_both_ways(run: Run) -> None:
    need = run("plan", "--bound", 0.01, "--dismissal", 0.2, "--misses", 2)
    assert need.code == 0
    assert "838 dismissed cases" in need.out
    reach = run("plan", "--cases", 5997, "--positives", 149)
    for words in ("49%", "43%", "infeasible, needs 49", "infeasible, needs 228", "1,200 (30)", "4,797 (119)"):
        assert words in reach.out
    assert (
        json.loads(run("plan", "--cases", 5997, "--positives", 149, "--json").out)["search_positives"] == 30
    )
    assert json.loads(run("plan", "--bound", 0.01, "--dismissal", 0.2, "--json").out)["dismissed"] == 459


def test_plan_with_chances(run: Run, tmp_path: Path) -> None:
    known = ("plan", "--rate", 0.002, "--limit", 0.01, "--dismissal", 0.2)
    done = run(*known, "--assurance", 0.9, "--figure", tmp_path / "assurance.svg")
    assert "8,169 cases" in done.out
    assert "(assurance)" in done.out
    assert (tmp_path / "assurance.svg").stat().st_size > 1_000
    assert json.loads(run(*known, "--cases", 6000, "--json").out)["dismissed"] == 960
    watch = run("plan", "--bound", 0.01, "--dismissal", 0.2, "--audit", 0.05, "--json")
    answers = json.loads(watch.out)["watching"]["alarms"]
    assert [item["of_bound"] for item in answers] == [1.0, 1.5, 2.0, 3.0]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--rate", "0.02", "--limit", "0.01", "--dismissal", "0.2", "--assurance", "0.9"],
        ["--rate", "0.002", "--limit", "0.01", "--dismissal", "0.2"],
        ["--bound", "0.01", "--dismissal", "0.2", "--audit", "0"],
        ["--bound", "0.01"],
        ["--cases", "100"],
        ["--cases", "100", "--positives", "10", "--bound", "0.1"],
        ["--cases", "5", "--positives", "9"],
        ["--bound", "1e-300", "--dismissal", "0.2"],
        ["--cases", "100", "--positives", "50", "--misses", "3"],
        ["--bound", "0.1", "--dismissal", "0.2", "--target", "0.5"],
        ["--cases", "1" + 20 * "0", "--positives", "9"],
    ],
)
def test_plan_wrong_use(run: Run, words: list[str]) -> None:
    done = run("plan", *words)
    assert done.code == 2
    assert done.err.startswith("error: ")


@pytest.mark.slow
def test_demo_runs_twice(run: Run, tmp_path: Path) -> None:
    words = ("demo", "--out", tmp_path / "demo", "--cases", 400, "--image-cases", 24)
    done = run(*words)
    assert done.code == 0, done.err
    assert "agrees with" in done.out
    assert "no clinical meaning" in done.out
    runs = ("images/run", "features/paper/rsna/run")
    trained = [tmp_path / "demo" / run_folder / "scores.csv" for run_folder in runs]
    files = [path.stat().st_ino for path in trained]
    assert run(*words).code == 0
    assert [path.stat().st_ino for path in trained] == files  # finished parts are reused


def test_version_and_help(run: Run) -> None:
    found = revision()  # of git; None in an unpacked archive of the source
    shown = f" ({found})" if found else ""
    assert run("--version").out == f"trust-cache {version('trust-cache')}{shown}\n"
    assert run("--help").code == 0
    for command in ("certify", "verify", "plan", "demo"):
        shown = run(command, "--help")
        assert shown.code == 0
        assert "Example" in shown.out
        assert f"trust-cache {command}" in shown.out
    assert run("certfy").code == 2
