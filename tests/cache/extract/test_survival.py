"""Killed, interrupted, out of room, started twice: nothing finished is lost, and the bytes are the same."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cache.extract.material import write_pngs
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.verify_cache import verify_cache

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and forks of POSIX"),
]

IMAGES, SHARD_IMAGES = 120, 2
SHARDS = IMAGES // SHARD_IMAGES
KILLS, MOST_TRIES = 20, 60
PATIENCE_SECONDS = 120.0
PAGE = 4096
WORDS = (
    "--weights", "random", "--encoder", "test_resnet", "--image-size", "48x32", "--views", "3",
    "--device", "cpu", "--runtime", "openvino", "--shard-images", str(SHARD_IMAGES), "--batch", "4",
    "--workers", "2",
)  # fmt: skip


class Started:
    """One run of the command; `wait` returns its exit code, negative for a signal."""

    def __init__(self, launcher: "subprocess.Popen[str]", pid: int, log: Path) -> None:
        self._launcher = launcher
        self.pid = pid
        self.log = log

    def signal(self, number: signal.Signals) -> None:
        # It may have ended by itself; the launcher has not told yet.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self) -> int:
        assert self._launcher.stdout is not None
        return int(self._launcher.stdout.readline())


Start = Callable[[Path], Started]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pngs(tmp_path_factory.mktemp("survival") / "png", IMAGES)


@pytest.fixture(scope="module")
def start(manifest: Path) -> Iterator[Start]:
    words = [sys.executable, "-m", "tests.cache.extract.launcher"]
    launched = []

    def launch(out: Path) -> Started:
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        launched.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return order(process, out)

    def order(process: "subprocess.Popen[str]", out: Path) -> Started:
        assert process.stdin is not None
        assert process.stdout is not None
        log = manifest.parent.parent / f"{len(launched)}.log"
        command = ["extract", str(manifest), "--out", str(out), *WORDS]
        process.stdin.write(json.dumps({"words": command, "log": str(log)}) + "\n")
        process.stdin.flush()
        return Started(process, int(process.stdout.readline()), log)

    free: list[subprocess.Popen[str]] = []

    def begin(out: Path) -> Started:
        if not free:
            started = launch(out)
            free.append(started._launcher)
            return started
        return order(free[0], out)

    yield begin
    for process in launched:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(PATIENCE_SECONDS)
        assert process.stdout is not None
        process.stdout.close()


def run(start: Start, out: Path) -> tuple[int, str]:
    started = start(out)
    return started.wait(), started.log.read_text()


@pytest.fixture(scope="module")
def expected(start: Start, manifest: Path) -> np.ndarray:
    out = manifest.parent.parent / "whole.zarr"
    code, said = run(start, out)
    assert code == 0, said
    return bits(out)


def bits(out: Path) -> np.ndarray:
    return np.asarray(open_cache(out).features[:]).view(np.uint16)


def marks(out: Path) -> int:
    return len(list((out / "marks").glob("c.*.0"))) if out.exists() else 0


def wait_for_marks(started: Started, out: Path, count: int) -> None:
    """Wait until so many shards are done; the run may also end before we look."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while marks(out) < count and Path(f"/proc/{started.pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def finish(start: Start, out: Path, done: int, expected: np.ndarray) -> None:
    """Start again: exactly the images that were not done are made, and every byte is as expected."""
    code, said = run(start, out)
    assert code == 0, said
    (before,) = re.findall(rf"{IMAGES} of {IMAGES} images \((\d+) of them before\)", said)
    assert int(before) == done
    np.testing.assert_array_equal(bits(out), expected)
    assert verify_cache(out) == []
    assert list(out.rglob("*.partial")) == []


def test_20_kills_between_30_and_90_percent(start: Start, expected: np.ndarray, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    kills = 0
    for attempt in range(MOST_TRIES):
        out = tmp_path / f"{attempt}.zarr"
        started = start(out)
        wait_for_marks(started, out, int(generator.integers(0.3 * SHARDS, 0.85 * SHARDS)))
        time.sleep(float(generator.uniform(0, 0.005)))  # anywhere within a shard's work
        started.signal(signal.SIGKILL)
        code = started.wait()
        done = int(open_cache(out).done.sum())
        if code != -signal.SIGKILL or not 0.3 * IMAGES <= done <= 0.9 * IMAGES:
            continue  # a busy machine let it run on before we could strike: that was no kill in the middle
        assert {problem.kind for problem in verify_cache(out)} == {"unfinished"}
        finish(start, out, done, expected)
        kills += 1
        if kills == KILLS:
            return
    pytest.fail(f"only {kills} of {MOST_TRIES} runs could be killed in the middle")


def test_ctrl_c_ends_with_130_and_loses_nothing(start: Start, expected: np.ndarray, tmp_path: Path) -> None:
    out = tmp_path / "cache.zarr"
    started = start(out)
    wait_for_marks(started, out, SHARDS // 3)
    seen = marks(out)
    started.signal(signal.SIGINT)
    code, said = started.wait(), started.log.read_text()
    assert code == 130, said
    assert "Traceback" not in said
    done = int(open_cache(out).done.sum())
    assert seen * SHARD_IMAGES <= done < IMAGES
    finish(start, out, done, expected)


def test_a_second_process_is_told_who_holds_the_cache(
    start: Start, manifest: Path, expected: np.ndarray, tmp_path: Path
) -> None:
    out = tmp_path / "cache.zarr"
    started = start(out)
    wait_for_marks(started, out, 3)
    started.signal(signal.SIGSTOP)
    try:
        words = [sys.executable, "-m", "trust_cache_cli", "extract", str(manifest), "--out", str(out)]
        second = subprocess.run([*words, *WORDS], capture_output=True, text=True, check=False)
    finally:
        started.signal(signal.SIGCONT)
    assert (second.returncode, second.stdout) == (2, "")
    assert f"is being written by process {started.pid} on " in second.stderr
    assert started.wait() == 0
    np.testing.assert_array_equal(bits(out), expected)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root; the stores' own tests of a full disk still run")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


def pages(folder: Path) -> int:
    """What the files of a folder take of a tmpfs."""
    return sum(-(-path.stat().st_size // PAGE) for path in folder.rglob("*") if path.is_file())


def test_a_full_disk_stops_in_words_and_resumes(
    start: Start, manifest: Path, expected: np.ndarray, small_disk: Path
) -> None:
    out, ballast = small_disk / "cache.zarr", small_disk / "ballast"
    whole = pages(manifest.parent.parent / "whole.zarr")
    state = os.statvfs(small_disk)
    # A shard and its mark take a page each: about half of them will find no room.
    ballast.write_bytes(bytes(state.f_bavail * state.f_frsize - (whole - SHARDS) * PAGE))
    for _ in range(2):  # and again while it is still full
        code, said = run(start, out)
        assert code == 3, said
        assert "no space left on the disk" in said
        assert "run the same command again" in said
        assert "Traceback" not in said
        done = int(open_cache(out).done.sum())
        assert 0.2 * IMAGES < done < 0.8 * IMAGES
        assert {problem.kind for problem in verify_cache(out)} == {"unfinished"}
    code, said = run(start, small_disk / "cache.h5")  # takes all its room at once
    assert code == 3, said
    assert not list(small_disk.glob("*.h5"))
    ballast.unlink()
    finish(start, out, done, expected)
