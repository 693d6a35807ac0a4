"""Trainers: what trains a bank of heads on a fold, and the compiled trainer for processors."""

import os
import queue
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.feature_rows import FeatureRows, rows_of_array
from trust_cache.heads import bank
from trust_cache.heads.bank import HeadParameters
from trust_cache.heads.closed_loop import closed_loop_of_sorted, dismissal_of_sorted
from trust_cache.heads.draws import Draws
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings, TunedChoice

QUANTILES = (0.05, 0.25, 0.50, 0.75, 0.95)
_HEAD_STEPS = 2000  # between two checks whether to stop: less than 0.1 s
_POLL_SECONDS = 0.2  # a wait without an end cannot be interrupted on Windows


@dataclass(frozen=True)
class FoldImages:
    """The images of a fold by their number in the cache, with the labels of all images."""

    labels: NDArray[np.int64]  # of every image of the cache
    fit: NDArray[np.int64]
    calibrate: NDArray[np.int64]
    # The case, patient and breast of every image of the cache by number. None: an image is its own case, a
    # case its own patient, and sides are not known.
    cases: NDArray[np.int64] | None = None
    patients: NDArray[np.int64] | None = None
    breasts: NDArray[np.int64] | None = None

    def of_class(self, images: NDArray[np.int64], label: int) -> NDArray[np.int64]:
        """Return those of the images that have this label."""
        return np.asarray(images[self.labels[images] == label], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class FoldJob:
    """One fold to train: a bank of heads, the rows and images to train on, and the random numbers."""

    rows: FeatureRows
    images: FoldImages
    heads: Sequence[HeadSettings]
    training: TrainingSettings
    draws: Draws
    initial: HeadParameters | None = None  # None: PyTorch's default initialisation


@dataclass(frozen=True)
class TrainedFold:
    """The heads of a fold after the last epoch, and the course of their training.

    `taus`, `dismissed` and `positives_dismissed` [epoch, head] are those that the epoch was trained with (NaN
    and 0 where a head has no tau). `trajectories` [epoch, head, label, quantile] are of the calibration
    images' scores before the epoch, with one more row after the last (NaN where a label has no image).
    `choices` are those of tuned heads, by head, None for others; empty where there is no tuned head.
    """

    parameters: HeadParameters
    taus: NDArray[np.float64]
    dismissed: NDArray[np.int64]
    positives_dismissed: NDArray[np.int64]
    trajectories: NDArray[np.float64]
    choices: tuple[TunedChoice | None, ...] = ()


OnEpoch = Callable[[int, int, NDArray[np.float64]], None]  # number of the job, epochs done, tau of each head
TrainedFolds = Generator[tuple[int, TrainedFold], None, None]  # number of the job, its result


class Trainer(Protocol):
    """Trains banks of heads. Another optimiser or device is another class with this method."""

    def train(self, jobs: Sequence[FoldJob], *, threads: int, on_epoch: OnEpoch) -> TrainedFolds:
        """Train the jobs and yield each result as its last epoch ends; call `on_epoch` after the others.

        Both happen in the caller's thread. The same jobs must give the same bytes on any number of threads.
        """


class CompiledTrainer:
    """AdamW by the compiled kernels, one thread per fold."""

    def train(self, jobs: Sequence[FoldJob], *, threads: int, on_epoch: OnEpoch) -> TrainedFolds:
        """Train the jobs; see `Trainer`."""
        numbers = {FoldTask(job): number for number, job in enumerate(jobs)}
        with closing(run_epochs(list(numbers), threads)) as epochs:
            for task, epoch in epochs:
                if epoch == task.job.training.epochs:
                    yield numbers[task], task.result()
                else:
                    on_epoch(numbers[task], epoch, task.taus[epoch - 1])


COMPILED = CompiledTrainer()


def load_kernels_aside(trainer: Trainer) -> None:
    """Load the compiled kernels, or compile them, in a thread beside what the caller does next."""
    if isinstance(trainer, CompiledTrainer):
        threading.Thread(target=_try_kernels, name="kernels", daemon=True).start()


def _try_kernels() -> None:
    with suppress(Exception):  # the run meets the same error where it needs the kernels
        _use_kernels()


def _use_kernels() -> None:
    """Train a tiny fold for one epoch: this loads or compiles all that a run uses."""
    features = np.arange(64, dtype=np.float16).reshape(4, 1, 16)
    everyone = np.arange(4)
    images = FoldImages(np.array([0, 0, 1, 1]), everyone, everyone)
    job = FoldJob(rows_of_array(features), images, [HeadSettings()], TrainingSettings(epochs=1), Draws(0, 0))
    FoldTask(job).run_epoch()


def count_threads(threads: int | None) -> int:
    """Return the number of threads asked for; None means one per processor."""
    threads = (os.cpu_count() or 1) if threads is None else threads
    if threads < 1:
        raise InputError(f"threads: expected 1 or more, found {threads}")
    return threads


class FoldTask:
    """A job in training by the compiled kernels, one epoch at a time.

    tau of a closed loop is set at the start of each epoch. The arrays are those of `TrainedFold`.
    """

    def __init__(self, job: FoldJob) -> None:
        heads, rows, images, training = job.heads, job.rows, job.images, job.training
        positives, negatives = (images.of_class(images.fit, label) for label in (1, 0))
        for name, pool in (("positive", positives), ("negative", negatives)):
            if not pool.size:
                raise InputError(f"fold {job.draws.fold}: expected {name} images to fit on, found none")
        if not heads:
            raise InputError("heads: expected at least one configuration, found none")
        self.job, self.heads, self.training = job, tuple(heads), training
        self.epoch = 0
        self.steps_per_epoch = -(-images.fit.size // training.batch)
        self._calibrate = [images.of_class(images.calibrate, label) for label in (0, 1)]
        self._source = bank.make_source(rows, training, positives, negatives, job.draws)
        self._weights = bank.make_weights(
            job.initial or bank.initial_parameters(job.draws, len(heads), rows.dim)
        )
        self._arrays = bank.make_head_arrays(heads)
        self._work = bank.make_workspace(training.batch, rows.dim)
        shape = (training.epochs, len(heads))
        self.taus = np.full(shape, np.nan)
        self.dismissed = np.zeros(shape, dtype=np.int64)
        self.positives_dismissed = np.zeros(shape, dtype=np.int64)
        self.trajectories = np.full((shape[0] + 1, shape[1], 2, len(QUANTILES)), np.nan)

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch == self.training.epochs

    @property
    def remaining_work(self) -> int:
        """The head-steps still to do."""
        return (self.training.epochs - self.epoch) * self.steps_per_epoch * len(self.heads)

    @property
    def parameters(self) -> HeadParameters:
        """A copy of the heads' parameters as they are now."""
        return bank.read_parameters(self._weights, len(self.heads), self.job.rows.dim)

    def result(self) -> TrainedFold:
        """Return the trained heads and the course of their training."""
        return TrainedFold(
            self.parameters, self.taus, self.dismissed, self.positives_dismissed, self.trajectories
        )

    def run_epoch(self, stopped: Callable[[], bool] | None = None) -> bool:
        """Train one epoch; return False if `stopped` became true meanwhile: the task is then useless."""
        if self.epoch >= self.training.epochs:
            raise RuntimeError(f"all {self.training.epochs} epochs are done")
        scores = self._look_at_calibration()
        for head, settings in enumerate(self.heads):
            if settings.tau is not None:
                self._set_tau(head, settings, scores[0][head], scores[1][head])
        begin = self.epoch * self.steps_per_epoch
        end = begin + self.steps_per_epoch
        stride = max(_HEAD_STEPS // len(self.heads), 1)
        for step in range(begin, end, stride):
            if stopped is not None and stopped():
                return False
            until = min(step + stride, end)
            bank.train_steps(
                self._source, self._arrays, self._weights, len(self.heads), step, until, self._work
            )
        self.epoch += 1
        if self.finished:
            self._look_at_calibration()
        return True

    def _look_at_calibration(self) -> list[NDArray[np.float64]]:
        """Score the calibration images, record their quantiles, return the sorted scores by label."""
        sorted_scores = []
        for label, images in enumerate(self._calibrate):
            scores = bank.score_images(self._source, images, self._weights, len(self.heads), self._work)
            scores.sort(axis=1)
            self.trajectories[self.epoch, :, label] = _quantiles(scores)
            sorted_scores.append(scores)
        return sorted_scores

    def _set_tau(
        self,
        head: int,
        settings: HeadSettings,
        negatives: NDArray[np.float64],
        positives: NDArray[np.float64],
    ) -> None:
        if isinstance(settings.tau, float):
            found = dismissal_of_sorted(negatives, positives, settings.tau)
        else:
            found = closed_loop_of_sorted(negatives, positives, settings.loop_level, settings.loop_delta)
        self.taus[self.epoch, head] = found.tau
        self.dismissed[self.epoch, head] = found.dismissed
        self.positives_dismissed[self.epoch, head] = found.positives_dismissed
        self._arrays.floor[head] = found.tau + settings.margin


def _quantiles(sorted_scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return [head, quantile] by linear interpolation, as numpy's default but without sorting again."""
    heads, n = sorted_scores.shape
    if not n:
        return np.full((heads, len(QUANTILES)), np.nan)
    position = np.array(QUANTILES) * (n - 1)
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, n - 1)
    low, high = sorted_scores[:, below], sorted_scores[:, above]
    return np.asarray(low + (position - below) * (high - low))


def run_epochs(tasks: Sequence[FoldTask], threads: int) -> Generator[tuple[FoldTask, int], None, None]:
    """Train all tasks to their end; yield the task and the epochs it has done after each of its epochs.

    The task may be further by then. An error in a thread, an error of the caller's (who closes the generator)
    or Ctrl-C stops the threads within a fraction of a second. The results are the same bytes on any number of
    threads: one thread at a time works on a task.
    """
    waiting = [task for task in tasks if not task.finished]
    pool = _Pool(waiting, count_threads(threads))
    workers = [
        threading.Thread(target=pool.work, name=f"fold-{i}", daemon=True)
        for i in range(min(threads, len(waiting)))
    ]
    try:
        for worker in workers:
            worker.start()
        yield from pool.reported(workers)
    finally:
        pool.stop.set()
        for worker in workers:
            if worker.ident is not None:
                worker.join()


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
        """Run epochs until no task waits; a task that still runs has its own thread."""
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

    def reported(self, workers: Sequence[threading.Thread]) -> Generator[tuple[FoldTask, int], None, None]:
        """Yield what the threads report until all have ended."""
        while True:
            alive = any(worker.is_alive() for worker in workers)  # asked first: a report precedes the end
            try:
                report = self.reports.get(timeout=_POLL_SECONDS if alive else 0)
            except queue.Empty:
                if alive:
                    continue
                return
            if isinstance(report, BaseException):
                raise report
            if report is not None:  # None: a thread has ended
                yield report

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
