"""Threads: the same bytes whatever their number, errors and Ctrl-C passed on without delay."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.heads.oracle import make_cohort
from trust_cache.base.errors import InputError
from trust_cache.cache.feature_rows import rows_of_array
from trust_cache.heads.draws import Draws
from trust_cache.heads.head_settings import TrainingSettings, presets
from trust_cache.heads.trainer import FoldImages, FoldJob, FoldTask, _Pool, run_epochs

COHORT = make_cohort(40, images=900, positives=90)


def make_tasks(folds: int = 5, epochs: int = 3) -> list[FoldTask]:
    images = FoldImages(COHORT.labels, np.arange(700), np.arange(700, 900))
    heads, training = list(presets().values()), TrainingSettings(epochs=epochs)
    rows = rows_of_array(COHORT.features)
    return [FoldTask(FoldJob(rows, images, heads, training, Draws(0, fold))) for fold in range(folds)]


def train(
    tasks: list[FoldTask],
    threads: int,
    on_epoch: Callable[[FoldTask, int], None] = lambda _task, _epoch: None,
) -> None:
    with closing(run_epochs(tasks, threads)) as epochs:
        for task, epoch in epochs:
            on_epoch(task, epoch)


def all_bytes(tasks: list[FoldTask]) -> list[bytes]:
    return [
        part.tobytes()
        for task in tasks
        for part in (*vars(task.parameters).values(), task.taus, task.dismissed, task.trajectories)
    ]


def test_the_same_bytes_on_any_number_of_threads() -> None:
    banks = []
    for threads in (1, 2, 7):
        tasks = make_tasks()
        train(tasks, threads)
        assert all(task.finished for task in tasks)
        banks.append(all_bytes(tasks))
    assert banks[0] == banks[1] == banks[2]


def test_every_epoch_is_reported_in_the_callers_thread() -> None:
    tasks = make_tasks()
    seen: list[tuple[int, int]] = []

    def on_epoch(task: FoldTask, epoch: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        seen.append((task.job.draws.fold, epoch))

    train(tasks, 2, on_epoch)
    assert sorted(seen) == [(fold, epoch) for fold in range(5) for epoch in (1, 2, 3)]


class Recorded:
    """A task that only counts; `order` is shared."""

    def __init__(self, name: str, work: int, order: list[str]) -> None:
        self.name, self.remaining_work, self.order = name, work, order
        self.epoch = 0

    @property
    def finished(self) -> bool:
        return self.remaining_work == 0

    def run_epoch(self, _stopped: object) -> bool:
        self.order.append(self.name)
        self.remaining_work -= 1
        self.epoch += 1
        return True


def test_early_folds_are_finished_one_after_the_other() -> None:
    order: list[str] = []
    train([Recorded(name, 3, order) for name in "abc"], 1)  # type: ignore[misc]
    assert order == ["a"] * 3 + ["b"] * 3 + ["c"] * 3


def test_of_the_last_folds_the_longest_remaining_goes_first() -> None:
    tasks = [Recorded(name, work, []) for name, work in (("short", 2), ("long", 5), ("middle", 3))]
    pool = _Pool(tasks, 2)  # type: ignore[arg-type]
    taken = [pool._take(), pool._take()]
    assert [task.name for task in taken] == ["long", "middle"]  # type: ignore[union-attr]


def test_finished_tasks_and_no_tasks_are_done_at_once() -> None:
    train([], 2)
    tasks = make_tasks(folds=1, epochs=1)
    train(tasks, 2)
    train(tasks, 2)


def test_an_error_in_a_thread_is_raised_and_stops_the_others() -> None:
    tasks = make_tasks(folds=2, epochs=10_000)

    def fail(_stopped: object = None) -> bool:
        raise OSError("the disk is gone")

    tasks[1].run_epoch = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="the disk is gone"):
        train(tasks, 2)
    assert not any(thread.name.startswith("fold-") for thread in threading.enumerate())


def test_an_error_in_the_callback_is_raised() -> None:
    def fail(_task: FoldTask, _epoch: int) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        train(make_tasks(epochs=10_000), 2, fail)


def test_no_threads_are_refused() -> None:
    with pytest.raises(InputError, match="threads: expected 1 or more, found 0"):
        train(make_tasks(), 0)


INTERRUPTED = """
import signal, sys, time
sys.path.insert(0, {root!r})
from tests.heads.test_schedule import make_tasks, train
tasks = make_tasks(epochs=1_000_000)
tasks[0].run_epoch()
begin = []
def interrupt(*_):
    begin.append(time.process_time())
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)
print("training", flush=True)
try:
    train(tasks, 2)
except KeyboardInterrupt:
    print(time.process_time() - begin[0], flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_ends_within_a_second_of_work() -> None:
    """At most a second of processor time on each of two threads, whatever else the machine does."""
    code = INTERRUPTED.format(root=str(Path(__file__).parents[2]))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "training\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=120)
    assert float(rest) < 2
    assert process.returncode == 0
