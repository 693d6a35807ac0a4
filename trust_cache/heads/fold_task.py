"""The training of one fold's bank, an epoch at a time, with the closed loop at each epoch's start."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.rows import FeatureRows
from trust_cache.heads import kernels
from trust_cache.heads.bank import (
    HeadParameters,
    initial_parameters,
    make_head_arrays,
    make_source,
    make_weights,
    make_workspace,
    read_parameters,
    score_images,
)
from trust_cache.heads.draws import Draws
from trust_cache.heads.settings import HeadSettings, TrainingSettings
from trust_cache.heads.threshold import Dismissal, closed_loop_of_sorted, dismissal_of_sorted

QUANTILES = (0.05, 0.25, 0.50, 0.75, 0.95)
_HEAD_STEPS = 2000  # between two looks at whether to stop: less than 0.1 s


@dataclass(frozen=True)
class FoldImages:
    """The images of a fold by their number in the cache, with the labels of all images."""

    labels: NDArray[np.int64]  # of every image of the cache
    fit: NDArray[np.int64]
    calibrate: NDArray[np.int64]

    def of_class(self, images: NDArray[np.int64], label: int) -> NDArray[np.int64]:
        """Return those of the images that have this label."""
        return np.asarray(images[self.labels[images] == label], dtype=np.int64)


class FoldTask:
    """One fold's bank in training.

    After each epoch: `taus`, `dismissed`, `positives_dismissed` [epoch, head], with which the epoch was
    trained (meaningful only where `has_tau`), and `trajectories` [epoch, head, label, quantile] of the
    calibration images' scores before the epoch, with one row more after the last epoch (NaN where a label has
    no image).
    """

    def __init__(
        self,
        rows: FeatureRows,
        images: FoldImages,
        heads: Sequence[HeadSettings],
        training: TrainingSettings,
        draws: Draws,
        initial: HeadParameters | None = None,
    ) -> None:
        positives, negatives = (images.of_class(images.fit, label) for label in (1, 0))
        for name, pool in (("positive", positives), ("negative", negatives)):
            if not pool.size:
                raise InputError(f"fold {draws.fold}: expected {name} images to fit on, found none")
        if not heads:
            raise InputError("heads: expected at least one configuration, found none")
        self.rows, self.heads, self.training, self.draws = rows, tuple(heads), training, draws
        self.epoch = 0
        self.steps_per_epoch = -(-images.fit.size // training.batch)
        self._calibrate = [images.of_class(images.calibrate, label) for label in (0, 1)]
        self._source = make_source(rows, training, positives, negatives, draws)
        self._weights = make_weights(initial or initial_parameters(draws, len(heads), rows.dim))
        self._arrays = make_head_arrays(heads)
        self._work = make_workspace(training.batch, rows.dim)
        shape = (training.epochs, len(heads))
        self.has_tau = np.array([head.tau is not None for head in heads])
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
        return read_parameters(self._weights, len(self.heads), self.rows.dim)

    def run_epoch(self, stopped: Callable[[], bool] | None = None) -> bool:
        """Train one epoch; return False, with the task then of no use, if `stopped` became true meanwhile."""
        if self.epoch >= self.training.epochs:
            raise RuntimeError(f"all {self.training.epochs} epochs are done")
        scores = self._look_at_calibration()
        for head, settings in enumerate(self.heads):
            if settings.tau is not None:
                self._set_tau(head, _dismissal(settings, scores[0][head], scores[1][head]))
        begin = self.epoch * self.steps_per_epoch
        end = begin + self.steps_per_epoch
        stride = max(_HEAD_STEPS // len(self.heads), 1)
        for step in range(begin, end, stride):
            if stopped is not None and stopped():
                return False
            until = min(step + stride, end)
            kernels.train_steps(
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
            scores = score_images(self._source, images, self._weights, len(self.heads), self._work)
            scores.sort(axis=1)
            self.trajectories[self.epoch, :, label] = _quantiles(scores)
            sorted_scores.append(scores)
        return sorted_scores

    def _set_tau(self, head: int, dismissal: Dismissal) -> None:
        self.taus[self.epoch, head] = dismissal.tau
        self.dismissed[self.epoch, head] = dismissal.dismissed
        self.positives_dismissed[self.epoch, head] = dismissal.positives_dismissed
        self._arrays.floor[head] = dismissal.tau + self.heads[head].margin


def _dismissal(
    settings: HeadSettings, negatives: NDArray[np.float64], positives: NDArray[np.float64]
) -> Dismissal:
    if isinstance(settings.tau, float):
        return dismissal_of_sorted(negatives, positives, settings.tau)
    return closed_loop_of_sorted(negatives, positives, settings.level, settings.delta)


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
