"""A real Dask cluster for tests: a scheduler and workers, each a process of its own on the loopback."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PATIENCE = 120  # seconds, for a machine under load


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class TestCluster:
    """A scheduler and its workers; a worker that is killed is not replaced unless asked for."""

    __test__ = False

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder = folder
        self._log = folder / "scheduler.log"
        # What the workers import is this tree, wherever the package is installed from.
        path = os.pathsep.join([str(ROOT), str(ROOT / "cli"), os.environ.get("PYTHONPATH", "")])
        self._environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **settings}
        words = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        self.scheduler = self._start(words, self._log)
        wait_until(lambda: "Scheduler at:" in self._log.read_text(), "the scheduler did not start")
        line = next(line for line in self._log.read_text().splitlines() if "Scheduler at:" in line)
        self.address = line.split()[-1]
        self.workers: list[subprocess.Popen[bytes]] = []

    def add_worker(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a worker with one thread and wait until the scheduler knows it."""
        number = len(self.workers)
        before = self._registered()
        worker = self._start(
            [
                *("distributed.cli.dask_worker", self.address, "--host", "127.0.0.1", "--nthreads", "1"),
                *("--no-dashboard", "--no-nanny", "--local-directory", str(self._folder), *words),
            ],
            self._folder / f"worker-{number}.log",
        )
        self.workers.append(worker)
        wait_until(lambda: self._registered() > before, "a worker did not register")
        return worker

    def _registered(self) -> int:
        return self._log.read_text().count("Register worker")

    def _start(self, words: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            return subprocess.Popen(
                [sys.executable, "-m", *words],
                stdout=file,
                stderr=file,
                env=self._environment,
                cwd=self._folder,
            )

    def stop(self) -> None:
        """End every process that was started here."""
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@contextmanager
def cluster_in(folder: Path, workers: int, **settings: str) -> Iterator[TestCluster]:
    """Start a cluster with its files in `folder` and variables of its environment; end it afterwards."""
    cluster = TestCluster(folder, **settings)
    try:
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.stop()
