"""Stage two: from a cache to a run folder with the heads and out-of-fold scores of every configuration."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_current, refuse_unknown, write_folder
from trust_cache.base.versions import versions_of
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.feature_rows import FeatureRows, open_rows
from trust_cache.heads.fold_training import FoldEpoch, PartialRun, lock_beside, train_folds
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings, presets
from trust_cache.heads.run_folder import OWN, FoldResult, RunRecord, render_run
from trust_cache.heads.trainer import COMPILED, Trainer, count_threads
from trust_cache.heads.training_data import FitSettings, Preparation, prepare

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
    kept: Path | None  # where an earlier run in this place went


def fit_heads(
    cache: Cache | Path | str,
    out: Path | str,
    *,
    configurations: Mapping[str, HeadSettings] | None = None,
    epochs: int = 20,
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

    The same seed gives the same scores, byte for byte, on any number of threads. `resume` continues an
    interrupted run fold by fold; an existing folder is an error without it or `overwrite`. `on_shard` gets
    the shards loaded and their number, then `on_epoch` a report of each epoch.
    """
    settings = FitSettings(
        dict(configurations or presets()), TrainingSettings(epochs=epochs), seed, repeats, views
    )
    out, begin = Path(out), time.perf_counter()
    partial = open_place(out, resume=resume, overwrite=overwrite)
    threads = count_threads(threads)
    opened = cache if isinstance(cache, Cache) else open_cache(cache)
    work = prepare(opened, settings, None if folds is None else Path(folds))
    if resume:
        partial.require_same(work.identity)
    rows = open_rows(opened, threads, low_memory=low_memory, on_shard=on_shard)
    loaded = time.perf_counter()
    _LOG.info(
        "%s: %d images, %d views, %d features opened in %.1f s",
        opened.source, opened.images, opened.views, opened.dim, loaded - begin,
    )  # fmt: skip
    with lock_beside(out):
        partial.begin(work.identity, resume=resume)
        resumed = train_missing(work, rows, partial, trainer=trainer, threads=threads, on_epoch=on_epoch)
        trained = time.perf_counter()
        _LOG.info("trained %d heads in %.1f s on %d threads", work.heads, trained - loaded, threads)
        seconds = {"load": loaded - begin, "train": trained - loaded}
        how = {"threads": threads, "low_memory": low_memory, "resumed_folds": resumed, "seconds": seconds}
        kept = write_folder(out, run_files(work, partial, how), own=OWN, keep=not overwrite)
        partial.discard()
    seconds["write"] = time.perf_counter() - trained
    return Run(out, work.warnings, seconds, resumed, kept)


def open_place(out: Path, *, resume: bool, overwrite: bool, own: Collection[str] = OWN) -> PartialRun:
    """Return the place of a run; refuse to replace or restart a run that is there without being asked to."""
    refuse_current(out)
    partial = PartialRun(out)
    if resume and overwrite:
        raise InputError("expected --resume or --overwrite, found both")
    if overwrite:
        refuse_unknown(out, own=own)
    elif resume and partial.exists:
        pass  # a finished run in this place is kept under a number
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(
            f"{out}: exists already; choose another --out, or replace it with --overwrite"
            + ("; it is complete, there is nothing to resume" if resume else "")
        )
    elif partial.exists:
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
