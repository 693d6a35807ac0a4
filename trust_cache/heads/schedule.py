"""Fold tasks over threads, an epoch at a time: early ones to their end, the last ones in turns.

A finished fold survives an interruption, so folds are finished one after the other; the last ones take
turns, the longest remaining first, so that threads that do not divide the folds evenly still end together.
"""

import queue
import threading
from collections.abc import Callable, Sequence

from trust_cache.base.errors import InputError
from trust_cache.heads.fold_task import FoldTask

OnEpoch = Callable[[FoldTask, int], None]  # the task, which may be further by now, and the epochs it had done

_POLL_SECONDS = 0.2  # a wait without an end cannot be interrupted on Windows


def train(tasks: Sequence[FoldTask], threads: int, on_epoch: OnEpoch | None = None) -> None:
    """Train all tasks to their end; `on_epoch` is called from this thread after each epoch of a task.

    An error in a thread or in `on_epoch`, or Ctrl-C, stops the threads within a fraction of a second and is
    raised here. The results are the same bytes whatever the number of threads: one at a time computes a task.
    """
    if threads < 1:
        raise InputError(f"threads: expected 1 or more, found {threads}")
    waiting = [task for task in tasks if not task.finished]
    pool = _Pool(waiting, threads)
    workers = [
        threading.Thread(target=pool.work, name=f"fold-{i}", daemon=True)
        for i in range(min(threads, len(waiting)))
    ]
    try:
        for worker in workers:
            worker.start()
        _report(pool, workers, on_epoch)
    finally:
        pool.stop.set()
        for worker in workers:
            if worker.ident is not None:
                worker.join()


def _report(pool: "_Pool", workers: Sequence[threading.Thread], on_epoch: OnEpoch | None) -> None:
    """Pass on what the threads report until all have ended."""
    while True:
        alive = any(worker.is_alive() for worker in workers)  # asked first: reports precede the end
        try:
            report = pool.reports.get(timeout=_POLL_SECONDS if alive else 0)
        except queue.Empty:
            if alive:
                continue
            return
        if isinstance(report, BaseException):
            raise report
        if report is None:  # a thread has ended
            continue
        if on_epoch is not None:
            on_epoch(*report)


class _Pool:
    """The unfinished tasks, and which of them no thread is working on."""

    def __init__(self, tasks: Sequence[FoldTask], threads: int) -> None:
        self.stop = threading.Event()
        self.reports: queue.SimpleQueue[tuple[FoldTask, int] | BaseException | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = threads
        self._unfinished = list(tasks)
        self._running: set[FoldTask] = set()

    def work(self) -> None:
        """Run epochs until nothing waits: what is then still running keeps its own thread busy."""
        try:
            while (task := self._take()) is not None:
                if not task.run_epoch(self.stop.is_set):
                    break
                self.reports.put((task, task.epoch))
                self._put_back(task)
        except BaseException as error:  # raised again in the caller's thread
            self.reports.put(error)
        finally:
            self.reports.put(None)

    def _take(self) -> FoldTask | None:
        with self._lock:
            several_rounds = len(self._unfinished) >= 2 * self._threads
            candidates = self._unfinished[: self._threads] if several_rounds else self._unfinished
            waiting = [task for task in candidates if task not in self._running]
            if self.stop.is_set() or not waiting:
                return None
            task = max(waiting, key=lambda candidate: candidate.remaining_work)
            self._running.add(task)
            return task

    def _put_back(self, task: FoldTask) -> None:
        with self._lock:
            self._running.remove(task)
            if task.finished:
                self._unfinished.remove(task)
