"""Stage two: from a cache to a run folder with the heads and out-of-fold scores of every configuration."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_current, refuse_existing, refuse_unknown, write_folder
from trust_cache.base.versions import versions_of
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.feature_rows import FeatureRows, open_rows_aside
from trust_cache.heads.fold_training import FoldEpoch, PartialRun, lock_beside, train_folds
from trust_cache.heads.head_settings import HeadSettings, presets
from trust_cache.heads.run_folder import OWN, FoldResult, RunRecord, render_run
from trust_cache.heads.trainer import COMPILED, Trainer, count_threads, load_kernels_aside
from trust_cache.heads.training_data import Preparation, fit_settings, prepare

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpochReport:
    """What a progress bar shows after an epoch of a fold."""

    repeat: int
    fold: str
    epoch: int
    epochs: int  # in all, over folds and repeats, those of an interrupted run included
    done: int
    taus: dict[str, float]  # of the closed-loop configurations


OnEpoch = Callable[[EpochReport], None]


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    warnings: tuple[str, ...]
    seconds: dict[str, float]
    resumed_folds: int


def fit_heads(
    cache: Cache | Path | str,
    out: Path | str,
    *,
    configurations: Mapping[str, HeadSettings] | None = None,
    epochs: int = 20,
    lr: float | None = None,
    weight_decay: float | None = None,
    clip: float | None = None,
    batch_positives: int = 20,
    batch_negatives: int = 60,
    dropout: float = 0.3,
    seed: int = 0,
    views: int | None = None,
    folds: Path | str | None = None,
    repeats: int = 1,
    threads: int | None = None,
    low_memory: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    trainer: Trainer = COMPILED,
    on_epoch: OnEpoch = lambda _: None,
    on_shard: Callable[[int, int], None] = lambda _done, _of: None,
) -> Run:
    """Train the configurations over five folds and write the run folder.

    `lr`, `weight_decay` and `clip` replace those of every configuration. The same seed gives the same scores,
    byte for byte, on any number of threads. `resume` continues an interrupted run fold by fold; an existing
    folder is an error without it or `overwrite`. `on_shard` gets the shards loaded and their number, then
    `on_epoch` a report of each epoch.
    """
    settings = fit_settings(
        configurations or presets(), epochs=epochs, lr=lr, weight_decay=weight_decay,
        clip=clip, batch_positives=batch_positives, batch_negatives=batch_negatives, dropout=dropout,
        seed=seed, views=views, repeats=repeats,
    )  # fmt: skip
    out, threads, begin = Path(out), count_threads(threads), time.perf_counter()
    partial = open_place(out, resume=resume, overwrite=overwrite)
    opened = cache if isinstance(cache, Cache) else open_cache(cache)
    with open_rows_aside(opened, threads, low_memory=low_memory, on_shard=on_shard) as opening:
        work = prepare(opened, settings, None if folds is None else Path(folds))
        load_kernels_aside(trainer)
        if resume:
            partial.require_same(work.identity)
        rows = opening()
    loaded = time.perf_counter()
    shape = opened.images, opened.views, opened.dim
    _LOG.info("%s: %d images, %d views, %d features opened in %.1f s", opened.source, *shape, loaded - begin)
    with lock_beside(out):
        partial.begin(work.identity, resume=resume)
        resumed = train_missing(work, rows, partial, trainer=trainer, threads=threads, on_epoch=on_epoch)
        trained = time.perf_counter()
        _LOG.info("trained %d heads in %.1f s on %d threads", work.heads, trained - loaded, threads)
        seconds = {"load": loaded - begin, "train": trained - loaded}
        how = {"threads": threads, "low_memory": low_memory, "resumed_folds": resumed, "seconds": seconds}
        work = replace(work, warnings=(*work.warnings, *stuck_warnings(work, partial)))
        write_folder(out, run_files(work, partial, how), own=OWN, keep=False)
        partial.discard()
    seconds["write"] = time.perf_counter() - trained
    return Run(out, work.warnings, seconds, resumed)


def open_place(out: Path, *, resume: bool, overwrite: bool, own: Collection[str] = OWN) -> PartialRun:
    """Return the place of a run; refuse to replace or restart a run that is there without being asked to."""
    refuse_current(out)
    partial = PartialRun(out)
    if resume and overwrite:
        raise InputError("expected --resume or --overwrite, found both")
    if resume and partial.exists:
        refuse_unknown(
            out, own=own
        )  # a finished run in this place is replaced, as the start of this one asked
    elif resume and out.exists() and any(out.iterdir()):
        raise InputError(
            f"{out}: is complete, there is nothing to resume; choose another --out, or replace it with"
            " --overwrite"
        )
    else:
        refuse_existing(out, own=own, overwrite=overwrite)
    if partial.exists and not resume and not overwrite:
        raise InputError(
            f"{out}: an interrupted run is kept in {partial.folder.name}; continue it with --resume,"
            " or start over with --overwrite"
        )
    return partial


def train_missing(
    work: Preparation,
    rows: FeatureRows,
    partial: PartialRun,
    *,
    scored: FeatureRows | None = None,
    trainer: Trainer,
    threads: int,
    on_epoch: OnEpoch,
) -> int:
    """Train the folds that an interrupted run has not finished; return how many it had."""
    settings, names = work.settings, work.fold_names
    folds = [(repeat, fold) for repeat in range(settings.repeats) for fold in range(len(names))]
    missing = [(repeat, fold) for repeat, fold in folds if not partial.has(repeat, names[fold])]
    resumed = len(folds) - len(missing)
    epochs = settings.training.epochs
    present = work.present if scored is None else scored.present

    def keep(repeat: int, fold: int, result: FoldResult) -> None:
        for name, diverged in zip(settings.configurations, result.diverged(present), strict=True):
            if diverged:
                raise InputError(
                    f"{name}: training diverged in fold {names[fold]}, its scores are not finite;"
                    " lower its lr or the weights of its losses"
                )
        partial.keep(repeat, names[fold], result)

    def report(item: FoldEpoch) -> None:
        heads = zip(settings.configurations.items(), item.taus, strict=True)
        taus = {name: float(tau) for (name, head), tau in heads if head.closed_loop}
        total, done = len(folds) * epochs, resumed * epochs + item.done
        on_epoch(EpochReport(item.repeat, names[item.fold], item.epoch, total, done, taus))

    heads = list(settings.configurations.values())
    train_folds(
        work, rows, heads, missing, keep, scored=scored, gated=True, trainer=trainer, threads=threads,
        on_epoch=report,
    )  # fmt: skip
    return resumed


def stuck_warnings(work: Preparation, partial: PartialRun) -> list[str]:
    """Warn of closed loops whose tau was 0 in every epoch of some folds: they dismissed nothing there."""
    repeats = range(work.settings.repeats)
    taus = [partial.read(repeat, fold).trained.taus for repeat in repeats for fold in work.fold_names]
    warnings = []
    for position, (name, head) in enumerate(work.settings.configurations.items()):
        stuck = sum(not np.any(found[:, position] > 0) for found in taus) if head.closed_loop else 0
        if stuck:
            folds = f"{stuck} of {len(taus)} fold{'s' if len(taus) > 1 else ''}"
            warnings.append(
                f"{name}: tau stayed at 0 in {folds}: no threshold kept the bound of the calibration images"
                f" at or below {head.loop_level:g}, so the loop dismissed nothing there; more images"
                " or a higher loop_level may help"
            )
    return warnings


def run_files(
    work: Preparation, partial: PartialRun, how: Mapping[str, Any], test: Cache | None = None
) -> dict[str, bytes]:
    """Return the files of a run by name. With `test`, manifest and scores are those of this cache."""
    files: dict[str, bytes] = {}
    for repeat in range(work.settings.repeats):
        record = RunRecord(
            **msgspec.structs.asdict(work.identity),
            repeat=repeat,
            cache=str(work.cache.source),
            test_cache=None if test is None else str(test.source),
            **how,
            warnings=list(work.warnings),
            versions=versions_of("numpy", "scipy", "numba", "scikit-learn"),
            files={},
        )
        results = [partial.read(repeat, fold) for fold in work.fold_names]
        files |= render_run(record, results, work.folds[repeat], (test or work.cache).manifest)
    return files
