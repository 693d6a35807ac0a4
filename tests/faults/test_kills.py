"""kill -9 at random moments: the same command again gives what an undisturbed one gives, records included.

Decoding is done in the killed process itself; tests/images and tests/clinic kill runs with worker processes.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.faults.chain_pipeline import (
    FIT,
    MONITOR,
    TRIAGE,
    build_pipeline,
    content_of,
    copy_of,
    in_this_process,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and forks of POSIX"),
]

KILLS, MOST_TRIES = 10, 60
COMPLETE = "is complete, there is nothing to resume"


@dataclass(frozen=True)
class Killed:
    """A command, what it needs, and all that it writes."""

    words: tuple[object, ...]
    needs: tuple[str, ...]
    makes: tuple[str, ...]


COMMANDS = {
    "preprocess": Killed(
        ("preprocess", "manifest.csv", "--out", "new", "--workers", 1), ("manifest.csv", "dicoms"), ("new",)
    ),
    "fit-heads": Killed(
        ("fit-heads", "train.zarr", "--out", "new", *FIT, "--resume"), ("train.zarr", "mine.toml"), ("new",)
    ),
    "sweep": Killed(
        ("sweep", "train.zarr", "--grid", "lr=0.01,0.02", "--epochs", 1, "--threads", 1, "--out", "new",
         "--resume"),
        ("train.zarr",),
        ("new",),
    ),
    "certify": Killed(
        ("certify", "run", "--out", "new", "--target", 0.9, "--seed", 5, "--resplits", 20, "--overwrite"),
        ("run", "run.attempts.json"),
        ("new", "run.attempts.json"),
    ),
    "report": Killed(
        ("report", "run", "certified", "--out", "page.html"),
        ("run", "run.attempts.json", "certified"),
        ("page.html", "run.attempts.json"),
    ),
    "triage": Killed(
        ("triage", "dicoms", "--model", "model", *TRIAGE, "--out", "new.csv"),
        ("dicoms", "model"),
        ("new.csv", "new.csv.record.json"),
    ),
    "monitor": Killed(
        ("monitor", "worklist.csv", *MONITOR),
        (
            "worklist.csv", "worklist.csv.record.json", "model.history.jsonl", "model.history.end.json",
            "model", "outcomes.csv",
        ),
        ("model.history.jsonl",),
    ),
}  # fmt: skip


class Launcher:
    """Starts commands in processes of their own, one after the other."""

    def __init__(self, log: Path) -> None:
        words = [sys.executable, "-m", "tests.cache.extract.launcher", "tests.faults.kill_setup"]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._log = log
        assert self._answer() == "ready"

    def start(self, command: Killed, folder: Path) -> int:
        """Start a command in a folder and return its process."""
        assert self._process.stdin is not None
        order = {"words": [str(word) for word in command.words], "log": str(self._log), "folder": str(folder)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def wait(self) -> int:
        """Return the exit code of the last command, negative for a signal."""
        return int(self._answer())

    def said(self) -> str:
        """Return what the last command printed."""
        return self._log.read_text()

    def close(self) -> None:
        """End the launcher."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        in_this_process(patch)
        return build_pipeline(tmp_path_factory.mktemp("kills") / "one")


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    started = Launcher(tmp_path_factory.mktemp("launcher") / "log")
    yield started
    started.close()


def made(command: Killed, folder: Path) -> dict[str, object]:
    return {file: item for name in command.makes for file, item in content_of(folder / name).items()}


def differing(found: dict[str, object], expected: dict[str, object]) -> list[str]:
    """Name the files that differ, or that only one of the two has."""
    return sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))


@pytest.mark.parametrize("name", COMMANDS)
def test_ten_kills(name: str, pipeline: Path, launcher: Launcher, tmp_path: Path) -> None:
    command, generator = COMMANDS[name], np.random.default_rng(len(name))
    work, seconds, found = tmp_path / "work", [], []  # one place: warnings name places

    def begin() -> int:
        shutil.rmtree(work, ignore_errors=True)
        copy_of(pipeline, work, command.needs)
        return launcher.start(command, work)

    for _ in range(2):
        start = time.monotonic()
        begin()
        assert launcher.wait() == 0, launcher.said()
        seconds.append(time.monotonic() - start)
        found.append(made(command, work))
    expected, kills = found[0], 0
    assert differing(found[1], expected) == []
    for _ in range(MOST_TRIES):
        process = begin()
        time.sleep(float(generator.uniform(0.05, 0.95)) * min(seconds))
        with suppress(ProcessLookupError):  # it may have ended by itself; the launcher has not told yet
            os.kill(process, signal.SIGKILL)
        if launcher.wait() != -signal.SIGKILL:
            continue  # it was faster than before
        kills += 1
        launcher.start(command, work)
        code = launcher.wait()
        assert code == 0 or COMPLETE in launcher.said(), launcher.said()
        assert differing(made(command, work), expected) == []
        if kills == KILLS:
            return
    pytest.fail(f"only {kills} of {MOST_TRIES} starts could be killed before they ended")
