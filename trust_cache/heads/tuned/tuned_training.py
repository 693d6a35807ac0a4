"""Train the jobs of folds: heads with losses by the trainer, tuned heads by logistic regression beside it."""

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from trust_cache.heads.bank import HeadParameters, normalised_features
from trust_cache.heads.head_settings import HeadSettings
from trust_cache.heads.trainer import QUANTILES, FoldJob, OnEpoch, TrainedFold, TrainedFolds, Trainer
from trust_cache.heads.tuned.tuned_head import FittingImages, TunedHead, fit_tuned

Number = TypeVar("Number", bound=np.generic)
_POLL_SECONDS = 0.2  # a wait without an end cannot be interrupted on Windows


def train_jobs(trainer: Trainer, jobs: Sequence[FoldJob], *, threads: int, on_epoch: OnEpoch) -> TrainedFolds:
    """Train all heads of the jobs and yield each job's when its last head is done; see `Trainer.train`.

    Tuned heads come last: they take longer, and each fold is kept as it ends.
    """
    if not any(head.tuned for job in jobs for head in job.heads):
        yield from trainer.train(jobs, threads=threads, on_epoch=on_epoch)
        return
    with_losses = [replace(job, heads=[head for head in job.heads if not head.tuned]) for job in jobs]
    numbers = [number for number, job in enumerate(with_losses) if job.heads]
    trained: dict[int, TrainedFold] = {}
    given = [with_losses[number] for number in numbers]
    if given:

        def report(place: int, epoch: int, taus: NDArray[np.float64]) -> None:
            on_epoch(numbers[place], epoch, _with_tuned(jobs[numbers[place]].heads, taus, np.nan))

        with closing(trainer.train(given, threads=threads, on_epoch=report)) as results:
            trained = {numbers[place]: result for place, result in results}
    stop = threading.Event()
    # One thread for each fold: BLAS splits its sums by the number of threads, and the bytes must not change.
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        futures = {pool.submit(_tune, job, stop.is_set): number for number, job in enumerate(jobs)}
        try:
            for future in _as_they_end(list(futures)):
                number = futures[future]
                yield number, _merge(jobs[number], trained.get(number), future.result())
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


def _as_they_end(futures: list[Future[list[TunedHead]]]) -> Generator[Future[list[TunedHead]], None, None]:
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=_POLL_SECONDS, return_when="FIRST_COMPLETED")
        yield from sorted(done, key=futures.index)


def _tune(job: FoldJob, stopped: Callable[[], bool]) -> list[TunedHead]:
    """Fit the tuned heads of a job on its fitting and calibration images: no threshold needs the latter."""
    kinds = [head.aggregation for head in job.heads if head.tuned]
    if not kinds or stopped():
        return []
    seed = np.random.SeedSequence([job.draws.seed, job.draws.fold, job.draws.repeat])
    return fit_tuned(_fitting_images(job), kinds, int(seed.generate_state(1)[0]), stopped)


def _fitting_images(job: FoldJob) -> FittingImages:
    """Gather the clean views of a job's images, as a head normalises them."""
    images = job.images
    chosen = np.sort(np.concatenate([images.fit, images.calibrate]))
    alone = np.arange(images.labels.size)
    cases = alone if images.cases is None else images.cases
    patients = cases if images.patients is None else images.patients
    return FittingImages(
        normalised_features(job.rows, chosen, centred=False),
        images.labels[chosen],
        cases[chosen],
        patients[chosen],
        (alone if images.breasts is None else images.breasts)[chosen],
    )


def _merge(job: FoldJob, trained: TrainedFold | None, tuned: list[TunedHead]) -> TrainedFold:
    """Return the heads of a job in its order; a tuned head has no thresholds and no course."""
    epochs, heads = job.training.epochs, job.heads
    if trained is None:
        none = np.full((epochs, 0), np.nan)
        blank = np.empty((0, job.rows.dim), np.float32)
        empty = HeadParameters(blank, blank, blank, np.empty(0, np.float32))
        counts = np.zeros((epochs, 0), np.int64)
        trained = TrainedFold(
            empty, none, counts, counts, np.full((epochs + 1, 0, 2, len(QUANTILES)), np.nan)
        )
    waiting = iter(tuned)
    own = [next(waiting) if head.tuned else None for head in heads]
    parts = {}
    for name in ("gamma", "beta", "weight", "bias"):
        of_losses = iter(getattr(trained.parameters, name))
        rows = [next(of_losses) if item is None else getattr(item.parameters, name)[0] for item in own]
        parts[name] = np.stack(rows)
    return TrainedFold(
        HeadParameters(**parts),
        _with_tuned(heads, trained.taus, np.nan),
        _with_tuned(heads, trained.dismissed, 0),
        _with_tuned(heads, trained.positives_dismissed, 0),
        _with_tuned(heads, trained.trajectories.swapaxes(1, -1), np.nan).swapaxes(1, -1),
        tuple(None if item is None else item.choice for item in own),
    )


def _with_tuned(heads: Sequence[HeadSettings], values: NDArray[Number], absent: float) -> NDArray[Number]:
    """Return values [..., head] of the heads with losses as those of all heads."""
    found = np.full((*values.shape[:-1], len(heads)), absent, dtype=values.dtype)
    found[..., [not head.tuned for head in heads]] = values
    return found
