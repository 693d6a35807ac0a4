"""The training of a run's folds, each kept as soon as it is done; a resumed run trains what is missing."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from trust_cache.base.errors import InputError
from trust_cache.cache.rows import FeatureRows
from trust_cache.heads.draws import Draws
from trust_cache.heads.fold_task import FoldImages, FoldTask
from trust_cache.heads.folds import CALIBRATE, FIT
from trust_cache.heads.partial import PartialRun
from trust_cache.heads.preparation import FitSettings, Preparation
from trust_cache.heads.results import FoldResult
from trust_cache.heads.schedule import train


@dataclass(frozen=True)
class EpochReport:
    """What a progress bar shows after an epoch of a fold."""

    repeat: int
    fold: str
    epoch: int
    epochs: int  # in all, over folds and repeats, what an earlier run had done included
    done: int
    taus: dict[str, float]  # of the closed-loop configurations


Finish = Callable[[FoldTask, int, int], FoldResult]  # of a task trained to its end, in this repeat and fold


def train_missing(
    work: Preparation,
    rows: FeatureRows,
    partial: PartialRun,
    threads: int,
    finish: Finish,
    on_epoch: Callable[[EpochReport], None],
) -> int:
    """Train the folds that an interrupted run has not; return how many it had."""
    if work.settings.views is not None:
        rows = replace(rows, views=work.settings.views + 1)
    training, heads = work.settings.training, list(work.settings.configurations.values())
    names = work.fold_names
    tasks: dict[FoldTask, tuple[int, int]] = {}
    for repeat in range(work.settings.repeats):
        for fold, name in enumerate(names):
            if partial.finished(repeat, name) is None:
                parts = (work.images(repeat, fold, part) for part in (FIT, CALIBRATE))
                images = FoldImages(work.labels, *parts)
                draws = Draws(work.settings.seed, fold, repeat)
                tasks[FoldTask(rows, images, heads, training, draws)] = (repeat, fold)
    folds = work.settings.repeats * len(names)
    total = folds * training.epochs
    done = total - len(tasks) * training.epochs

    def after_epoch(task: FoldTask, epoch: int) -> None:
        nonlocal done
        done += 1
        repeat, fold = tasks[task]
        if epoch == training.epochs:
            result = finish(task, repeat, fold)
            _refuse_divergence(work.settings, result, names[fold])
            partial.keep(repeat, names[fold], result)
        taus = _taus(work.settings, task, epoch)
        on_epoch(EpochReport(repeat, names[fold], epoch, total, done, taus))

    train(list(tasks), threads, after_epoch)
    return folds - len(tasks)


def trained(partial: PartialRun, repeat: int, fold: str) -> FoldResult:
    """Return the result of a fold that was trained."""
    result = partial.finished(repeat, fold)
    if result is None:
        raise RuntimeError(f"repeat {repeat}, fold {fold} was trained and is not there")
    return result


def _refuse_divergence(settings: FitSettings, result: FoldResult, fold: str) -> None:
    """Refuse heads whose scores are no numbers, naming the configuration."""
    for name, scores in zip(settings.configurations, result.scores, strict=True):
        if not np.all(np.isfinite(scores)):
            raise InputError(
                f"{name}: training diverged in fold {fold}, its scores are not finite;"
                " lower its lr or the weights of its losses"
            )


def _taus(settings: FitSettings, task: FoldTask, epoch: int) -> dict[str, float]:
    return {
        name: float(task.taus[epoch - 1, head])
        for head, (name, configuration) in enumerate(settings.configurations.items())
        if configuration.closed_loop
    }
