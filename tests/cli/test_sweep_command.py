"""sweep on the command line: a new user's way, mistakes, Ctrl-C, kill -9."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.cli.conftest import Run
from tests.heads.cohorts import a_cohort, write_cohort
from tests.studies.sweep.test_run import content
from trust_cache.base.documents import unseal

COMMAND = [sys.executable, "-m", "trust_cache_cli"]
GRID = ("--grid", "lambda_dismiss=0,0.05", "--grid", "margin=0.05,0.1")
# 104 settings, in a bank of 100 and one of 4; long enough to be stopped in the middle of it.
LONG = ("--grid", "lambda_dismiss=0..0.5:13", "--grid", "margin=0..0.3:8", "--epochs", "12", "--repeats", "2")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cohort(tmp_path_factory.mktemp("cohort") / "cache.zarr", *a_cohort(dim=24))


def test_the_designs_example(run: Run, cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    done = run("sweep", cache, *GRID, "--out", out, "--epochs", 1)
    assert done.code == 0
    assert "Winners of 4 settings" in done.out
    assert "lambda_dismiss" in done.out
    assert "Approximate for out-of-fold scores" in done.out
    table = pl.read_csv(out / "results.csv")
    assert table.height == 8
    for target in ("0.98", "0.95"):
        certificate, scores = out / f"certificates/winner@{target}.json", out / f"winner/scores@{target}.csv"
        assert f"verify {certificate} --scores {scores}" in done.out
        assert run("verify", certificate, "--scores", scores).code == 0
    more = run("sweep", cache, "--grid", "margin=0.2", "--out", out, "--epochs", 1, "--json", "--resume")
    assert more.code == 0
    assert "trained before and reused: 20 heads; new: 5 heads" in more.err
    document = json.loads(more.out)
    assert unseal(json.loads((out / "sweep.json").read_text())) == (document, True)
    assert document["counts"]["looks"] == 2
    assert set(document["winner"]) == {"0.98", "0.95"}
    assert document["axes"]["margin"] == [0.05, 0.1, 0.2]
    again = run("sweep", cache, "--out", out, "--epochs", 1, "--resume")
    assert "has been looked at 2 times" in again.out


def test_a_file_and_draws(run: Run, cache: Path, tmp_path: Path) -> None:
    toml = tmp_path / "sweep.toml"
    toml.write_text('random = 3\n[grid]\nlr = { low = 1e-5, high = 1e-3, scale = "log" }\n')
    out = tmp_path / "sweep"
    done = run("sweep", cache, "--file", toml, "--base", "fixed-tau", "--out", out, "--epochs", 1)
    assert done.code == 0
    table = pl.read_csv(out / "results.csv")
    assert table["lr"].n_unique() == 3
    assert table["lr"].is_between(1e-5, 1e-3).all()
    assert set(table["tau"]) == {0.05}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--grid", "lambda_dismis=0"], "did you mean lambda_dismiss?"),
        (["--grid", "loop_level=0.5,2"], "loop_level: expected a number strictly between 0 and 1, found 2.0"),
        (["--grid", "margin=1", "--grid", "margin=2"], "axis margin is given twice"),
        (["--grid", "margin"], "expected name=value"),
        (["--file", "none.toml"], "none.toml: no such file"),
        ([], "no sweep to resume"),
        (["--grid", "margin=1,2", "--target", "98"], "for 98.0 % write 0.98"),
        (["--grid", "margin=1,2", "--views", "9"], "expected at least 9 augmented views"),
        (["--grid", "margin=1,2", "--threads", "0"], "threads: expected 1 or more"),
        (["--grid", "margin=1,2", "--epochs", "0"], "epochs: expected 1 or more"),
        (["--grid", "margin=1,2", "--random", "0"], "random: expected 1 to"),
    ],
)
def test_wrong_use_exits_2_and_writes_nothing(
    run: Run, cache: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    done = run("sweep", cache, "--out", tmp_path / "sweep", *words)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert message in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_large_grid_says_its_count_and_time_and_asks(run: Run, cache: Path, tmp_path: Path) -> None:
    """Ten million, and a million million: nobody could make the latter, so neither is made."""
    for axes, settings, heads in (
        (("margin=0..1:5000", "lr=0..1:2000"), "10,000,000 settings", "50,000,000 heads"),
        (
            ("margin=0..1:10000", "lr=0..1:10000", "clip=1..2:10000"),
            "1,000,000,000,000 settings",
            "heads",
        ),
    ):
        words = [word for axis in axes for word in ("--grid", axis)]
        done = run("sweep", cache, *words, "--out", tmp_path / "sweep")
        assert done.code == 2
        assert settings in done.err
        assert heads in done.err
        assert "about" in done.err
        assert "--yes" in done.err
        assert run("sweep", cache, *words, "--out", tmp_path / "sweep", "--yes").code == 2
    assert list(tmp_path.iterdir()) == []


def test_yes_starts_a_large_grid(
    run: Run, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trust_cache.studies.sweep.sweep_request.ASKED_ABOVE", 2)
    words = ("sweep", cache, *GRID, "--out", tmp_path / "sweep", "--epochs", 1)
    assert "4 settings x 5 folds x 1 repeat are 20 heads" in run(*words).err
    assert run(*words, "--yes").code == 0


def test_a_diverged_setting_is_exit_1_with_its_name_in_a_file(run: Run, cache: Path, tmp_path: Path) -> None:
    done = run("sweep", cache, "--grid", "lr=1e-4,1e30", "--out", tmp_path / "sweep", "--epochs", 1)
    assert done.code == 1
    assert "diverged: 1 setting, named in" in done.err
    assert pl.read_csv(tmp_path / "sweep" / "failures.csv").height == 1


def start(cache: Path, out: Path, *words: str) -> "subprocess.Popen[str]":
    command = [*COMMAND, "sweep", str(cache), "--out", str(out), "--threads", "1", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 180
    while not condition() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def scores_in(out: Path) -> list[Path]:
    return list(out.glob("scores/*/*.safetensors"))


@pytest.mark.slow
def test_killed_at_several_moments_and_resumed(run: Run, cache: Path, tmp_path: Path) -> None:
    """SIGKILL after the first fold, in the second repeat, and as the winner is being certified."""
    whole, out = tmp_path / "whole", tmp_path / "sweep"
    assert run("sweep", cache, *LONG, "--out", whole).code == 0
    killed = 0
    for folds in (1, 3, 7):
        with start(cache, out, *LONG, "--resume") as process:
            wait_until(lambda enough=folds: len(scores_in(out)) >= enough, process)
            process.kill()
            process.communicate(timeout=60)
        killed += process.returncode == -signal.SIGKILL
        assert len(scores_in(out)) >= folds
    assert killed >= 2
    with start(cache, out, *LONG, "--resume") as process:
        wait_until(lambda: b"settings_sha256" in (out / "sweep.json").read_bytes(), process)
        process.kill()
        process.communicate(timeout=60)
    resumed = run("sweep", cache, *LONG, "--out", out, "--resume")
    assert resumed.code == 0
    assert "trained before and reused" in resumed.err
    assert content(out) == content(whole)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".lock") == ["sweep", "whole"]


def test_ctrl_c_is_exit_130_and_loses_nothing(run: Run, cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    with start(cache, out, *LONG) as process:
        wait_until(lambda: bool(scores_in(out)), process)
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in complaint
    assert (
        f"Stopped by Ctrl-C: finished heads are kept in {out}; continue with the same command and --resume"
        in (complaint.replace("\n", " "))
    )
    kept = scores_in(out)
    assert kept
    stamps = {path: path.stat().st_mtime_ns for path in kept}
    assert run("sweep", cache, *LONG, "--out", out, "--resume").code == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == stamps
