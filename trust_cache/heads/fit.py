"""Stage two: from a cache to a run folder with every configuration's heads and out-of-fold scores."""

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_current, refuse_foreign, write_folder
from trust_cache.base.versions import versions_of
from trust_cache.cache.loading import load_rows, map_rows
from trust_cache.cache.reading import Cache, open_cache
from trust_cache.cache.rows import FeatureRows
from trust_cache.heads.draws import Draws
from trust_cache.heads.fold_task import FoldImages, FoldTask
from trust_cache.heads.folds import CALIBRATE, FIT, FOLDS, TEST
from trust_cache.heads.partial import PartialRun
from trust_cache.heads.preparation import FitSettings, Preparation, prepare
from trust_cache.heads.results import FoldResult, finish_fold
from trust_cache.heads.run_files import OWN, render_run
from trust_cache.heads.schedule import train
from trust_cache.heads.settings import HeadSettings, TrainingSettings, presets

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpochReport:
    """What a progress bar shows after an epoch of a fold."""

    repeat: int
    fold: int
    epoch: int
    epochs: int  # in all, over folds and repeats, what an earlier run had done included
    done: int
    taus: dict[str, float]  # of the closed-loop configurations


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    warnings: tuple[str, ...]
    seconds: dict[str, float]
    resumed_folds: int
    kept: Path | None  # where an earlier run in this place went


def fit_heads(
    cache: Cache | Path | str,
    out: Path | str,
    *,
    configurations: Mapping[str, HeadSettings] | None = None,
    epochs: int = 20,
    seed: int = 0,
    views: int | None = None,
    splits: Path | str | None = None,
    repeats: int = 1,
    threads: int | None = None,
    low_memory: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    on_epoch: Callable[[EpochReport], None] = lambda _: None,
    on_shard: Callable[[int, int], None] = lambda _done, _of: None,
) -> Run:
    """Train the configurations over five folds and write the run folder.

    The same seed gives the same scores, byte for byte, whatever the number of threads. `resume` goes on
    with an interrupted run fold by fold; an existing folder is an error without it or `overwrite`. While
    features load, `on_shard` gets the shards done and their number; then `on_epoch` a report of each epoch.
    """
    settings = FitSettings(
        dict(configurations or presets()), TrainingSettings(epochs=epochs), seed, repeats, views
    )
    out = Path(out)
    refuse_current(out)
    partial = PartialRun(out)
    refuse_existing(out, partial, resume=resume, overwrite=overwrite)
    begin = time.perf_counter()
    opened = cache if isinstance(cache, Cache) else open_cache(cache)
    work = prepare(opened, settings, None if splits is None else Path(splits))
    if resume:
        partial.require_same(work.identity)
    threads = (os.cpu_count() or 1) if threads is None else threads
    if threads < 1:
        raise InputError(f"threads: expected 1 or more, found {threads}")
    rows = (map_rows if low_memory else load_rows)(opened, threads=threads, on_shard=on_shard)
    loaded = time.perf_counter()
    _LOG.info(
        "%s: %d images, %d views, %d features %s in %.1f s",
        opened.source, opened.images, opened.views, opened.dim, "mapped" if low_memory else "loaded",
        loaded - begin,
    )  # fmt: skip
    with partial.lock():
        partial.begin(work.identity, resume=resume)
        resumed = _train_missing(work, rows, partial, threads, on_epoch)
        trained = time.perf_counter()
        _LOG.info("trained %d heads in %.1f s on %d threads", work.heads, trained - loaded, threads)
        seconds = {"load": loaded - begin, "train": trained - loaded}
        how = {"threads": threads, "low_memory": low_memory, "resumed_folds": resumed, "seconds": seconds}
        kept = write_folder(out, _render(work, partial, how), own=OWN, keep=not overwrite)
        partial.discard()
    seconds["write"] = time.perf_counter() - trained
    return Run(out, work.warnings, seconds, resumed, kept)


def refuse_existing(out: Path, partial: PartialRun, *, resume: bool, overwrite: bool) -> None:
    """Refuse to replace a run, or to start over an interrupted one, without being told to."""
    if resume and overwrite:
        raise InputError("expected --resume or --overwrite, found both")
    if overwrite:
        refuse_foreign(out, own=OWN)
        return
    if resume and partial.exists:
        return  # an older run in this place, once to be overwritten, will be kept under a number
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(
            f"{out}: exists already; choose another --out, or replace it with --overwrite"
            + ("; it is complete, there is nothing to resume" if resume else "")
        )
    if partial.exists:
        raise InputError(
            f"{out}: an interrupted run is kept in {partial.folder.name}; go on with it by --resume,"
            " or start over with --overwrite"
        )


def _train_missing(
    work: Preparation,
    rows: FeatureRows,
    partial: PartialRun,
    threads: int,
    on_epoch: Callable[[EpochReport], None],
) -> int:
    """Train the folds that an interrupted run has not; return how many it had."""
    if work.settings.views is not None:
        rows = replace(rows, views=work.settings.views + 1)
    training, heads = work.settings.training, list(work.settings.configurations.values())
    tasks: dict[FoldTask, tuple[int, int]] = {}
    for repeat in range(work.settings.repeats):
        for fold in range(FOLDS):
            if partial.finished(repeat, str(fold)) is None:
                parts = (work.images(repeat, fold, part) for part in (FIT, CALIBRATE))
                images = FoldImages(work.labels, *parts)
                draws = Draws(work.settings.seed, fold, repeat)
                tasks[FoldTask(rows, images, heads, training, draws)] = (repeat, fold)
    total = work.settings.repeats * FOLDS * training.epochs
    done = total - len(tasks) * training.epochs

    def after_epoch(task: FoldTask, epoch: int) -> None:
        nonlocal done
        done += 1
        repeat, fold = tasks[task]
        if epoch == training.epochs:
            result = finish_fold(task, work.images(repeat, fold, TEST))
            _refuse_divergence(work.settings, result, fold)
            partial.keep(repeat, str(fold), result)
        on_epoch(EpochReport(repeat, fold, epoch, total, done, _taus(work.settings, task, epoch)))

    train(list(tasks), threads, after_epoch)
    return work.settings.repeats * FOLDS - len(tasks)


def _refuse_divergence(settings: FitSettings, result: FoldResult, fold: int) -> None:
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


def _render(work: Preparation, partial: PartialRun, how: Mapping[str, Any]) -> dict[str, bytes]:
    record = {
        **work.identity,
        "cache": str(work.cache.source),
        **how,
        "warnings": list(work.warnings),
        "versions": versions_of("numpy", "scipy", "numba", "scikit-learn"),
    }
    files: dict[str, bytes] = {}
    names = [str(fold) for fold in range(FOLDS)]
    for repeat in range(work.settings.repeats):
        results = [_whole(partial, repeat, fold) for fold in names]
        rendered = render_run(
            results,
            manifest=work.cache.manifest,
            configurations=work.settings.configurations,
            folds=work.folds[repeat],
            fold_names=names,
            record=record | {"repeat": repeat},
        )
        prefix = f"repeats/{repeat}/" if repeat else ""
        files |= {prefix + name: content for name, content in rendered.items()}
    return files


def _whole(partial: PartialRun, repeat: int, fold: str) -> FoldResult:
    result = partial.finished(repeat, fold)
    if result is None:
        raise RuntimeError(f"repeat {repeat}, fold {fold} was trained and is not there")
    return result
