"""fit-heads and simulate on the command line: options, errors, Ctrl-C and kill -9."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from tests.cli.conftest import Run
from tests.heads.cohorts import a_cohort, write_cohort
from trust_cache.heads.fit import fit_heads

COMMAND = [sys.executable, "-m", "trust_cache_cli"]
EPOCHS = 60  # of a run that is long enough to be stopped in the middle


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cohort(tmp_path_factory.mktemp("cohort") / "cache.zarr", *a_cohort())


def test_simulate_fit_certify(run: Run, tmp_path: Path) -> None:
    done = run("simulate", "--like", "nlbs", "--out", tmp_path / "cache.zarr", "--cases", 300, "--views", 1)
    assert done.code == 0
    assert "300 cases" in done.out
    assert run("simulate", "--like", "nlbs", "--out", tmp_path / "cache.zarr", "--cases", 300).code == 2
    fitted = run("fit-heads", tmp_path / "cache.zarr", "--out", tmp_path / "run", "--epochs", 2)
    assert fitted.code == 0
    assert "closed-loop" in fitted.out
    assert "warning: closed-loop: a fold has only" in fitted.err
    certified = run("certify", tmp_path / "run", "--out", tmp_path / "certified")
    assert certified.code == 0
    assert "Image dismissal at τ98" in certified.out
    assert "Approximate for out-of-fold scores" in certified.out


def test_configurations_by_name_and_from_a_file(run: Run, cache: Path, tmp_path: Path) -> None:
    toml = tmp_path / "mine.toml"
    toml.write_text("[strong]\nlambda_focal = 1.0\nlambda_dismiss = 0.5\ntau = 'closed-loop'\n")
    done = run("fit-heads", cache, "--out", tmp_path / "run", "--epochs", 1, "--configurations", f"ce,{toml}")
    assert done.code == 0
    scores = pl.read_csv(tmp_path / "run" / "scores.csv")
    assert scores["configuration"].unique(maintain_order=True).to_list() == ["ce", "strong"]
    toml.write_text("[strong]\nlambda_dismis = 0.5\n")
    wrong = run("fit-heads", cache, "--out", tmp_path / "other", "--configurations", toml)
    assert wrong.code == 2
    assert "lambda_dismiss" in wrong.err
    nearest = run("fit-heads", cache, "--out", tmp_path / "other", "--configurations", "closedloop")
    assert (nearest.code, "did you mean closed-loop?" in nearest.err) == (2, True)


def test_settings_of_all_heads_are_recorded(run: Run, cache: Path, tmp_path: Path) -> None:
    words = ("--configurations", "ce,closed-loop", "--epochs", 1)
    assert run("fit-heads", cache, "--out", tmp_path / "plain", *words).code == 0
    given = ("--lr", "1e-3", "--weight-decay", 0, "--clip", 2, "--batch-positives", 4, "--batch-negatives", 8)
    assert run("fit-heads", cache, "--out", tmp_path / "run", *words, *given, "--dropout", 0.5).code == 0
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    for head in record["configurations"].values():
        assert (head["lr"], head["weight_decay"], head["clip"]) == (1e-3, 0.0, 2.0)
    assert record["configurations"]["closed-loop"]["lambda_dismiss"] == 0.05, "the rest is its own"
    training = record["training"]
    assert (training["batch_positives"], training["batch_negatives"], training["dropout"]) == (4, 8, 0.5)
    both = [(tmp_path / name / "scores.csv").read_bytes() for name in ("plain", "run")]
    assert both[0] != both[1]
    assert run("report", tmp_path / "run", "--out", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert "--batch-positives 4 --batch-negatives 8 --dropout 0.5 --lr 0.001" in page


@pytest.mark.parametrize(
    "words",
    [
        ["--epochs", "0"],
        ["--views", "9"],
        ["--folds", "none.csv"],
        ["--threads", "0"],
        ["--lr", "-1"],
        ["--clip", "0"],
        ["--dropout", "1"],
        ["--batch-positives", "0"],
    ],
)
def test_wrong_use_exits_2_and_writes_nothing(
    run: Run, cache: Path, tmp_path: Path, words: list[str]
) -> None:
    done = run("fit-heads", cache, "--out", tmp_path / "run", *words)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


def test_no_cache_at_all(run: Run, tmp_path: Path) -> None:
    done = run("fit-heads", tmp_path / "none.zarr", "--out", tmp_path / "run")
    assert done.code == 2
    assert "none.zarr" in done.err
    assert "Traceback" not in done.err


def start(cache: Path, out: Path, *words: str) -> "subprocess.Popen[str]":
    words = ("fit-heads", str(cache), "--out", str(out), "--epochs", str(EPOCHS), "--threads", "1", *words)
    return subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_folds(out: Path, folds: int) -> None:
    deadline = time.monotonic() + 120
    partial = out.with_name(f".{out.name}.partial")
    while len(list(partial.glob("*.safetensors"))) < folds:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def whole(cache: Path) -> Path:
    """The run that nobody stopped."""
    return fit_heads(cache, cache.parent / "whole", epochs=EPOCHS).folder


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_stopped_in_the_middle_and_resumed(
    run: Run, cache: Path, whole: Path, tmp_path: Path, stop: signal.Signals
) -> None:
    out = tmp_path / "run"
    with start(cache, out) as process:
        wait_for_folds(out, 1)
        process.send_signal(stop)
        _, complaint = process.communicate(timeout=60)
    assert process.returncode == (130 if stop == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in complaint
    if stop == signal.SIGINT:
        assert f"Stopped by Ctrl-C: finished folds are kept beside {out}; continue with" in complaint
    assert not out.exists()
    assert run("fit-heads", cache, "--out", out, "--epochs", EPOCHS).code == 2
    resumed = run("fit-heads", cache, "--out", out, "--epochs", EPOCHS, "--resume")
    assert resumed.code == 0
    assert "finished before and reused" in resumed.err
    for name in ("scores.csv", "thresholds.csv", "trajectories.csv", "heads.safetensors", "folds.csv"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    assert not out.with_name(".run.partial").exists()
    assert json.loads((out / "run.json").read_text())["resumed_folds"] >= 1


def test_a_second_start_pays_no_compilation(cache: Path, tmp_path: Path) -> None:
    code = (
        "from trust_cache.heads import kernels; from trust_cache.heads.fit import fit_heads; import sys;"
        "fit_heads(sys.argv[1], sys.argv[2], epochs=1);"
        "stats = [f.stats for f in vars(kernels).values() if hasattr(f, 'stats')];"
        "names = ('cache_hits', 'cache_misses');"
        "print(*(sum(sum(getattr(s, name).values()) for s in stats) for name in names))"
    )
    fit_heads(cache, tmp_path / "here", epochs=1)  # compiles what no earlier process has
    words = [sys.executable, "-c", code, str(cache), str(tmp_path / "there")]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    hits, misses = map(int, done.stdout.split())
    assert hits > 0
    assert misses == 0
