"""The training of a sweep: the folds that have no scores yet, on this machine or on a cluster."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError, StoppedError
from trust_cache.base.executor import Cluster, WorkerDiedError, run_items
from trust_cache.base.places import absolute
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.feature_rows import FeatureRows, open_rows
from trust_cache.heads.bank import score_rows
from trust_cache.heads.draws import Draws
from trust_cache.heads.fold_training import FoldEpoch, train_fold, train_folds
from trust_cache.heads.folds import CALIBRATE, FIT, FOLDS, TEST
from trust_cache.heads.head_settings import TrainingSettings
from trust_cache.heads.run_folder import FoldResult, labels_sha256
from trust_cache.heads.trainer import FoldImages, FoldJob, Trainer
from trust_cache.heads.training_data import Preparation
from trust_cache.studies.sweep.sweep_folder import ScoreFiles
from trust_cache.studies.sweep.sweep_space import Bank


@dataclass(frozen=True)
class HeadsReport:
    """What a progress bar shows: heads, those of earlier calls included; an epoch counts as its share."""

    heads: int
    done: float
    reused: int


OnHeads = Callable[[HeadsReport], None]


@dataclass(frozen=True)
class Missing:
    """Each bank and repeat with the folds that have no scores yet, and the progress so far."""

    folds: list[tuple[Bank, int, list[int]]]
    report: HeadsReport


def find_missing(banks: Sequence[Bank], files: ScoreFiles) -> Missing:
    """Return what is left to train."""
    repeats = range(files.work.settings.repeats)
    heads = sum(len(bank.settings) for bank in banks) * FOLDS * len(repeats)
    todo = [(bank, repeat, files.missing(bank, repeat)) for bank in banks for repeat in repeats]
    reused = heads - sum(len(bank.settings) * len(folds) for bank, _, folds in todo)
    return Missing(todo, HeadsReport(heads, float(reused), reused))


def train_missing(
    missing: Missing, files: ScoreFiles, rows: FeatureRows, trainer: Trainer, threads: int, on_heads: OnHeads
) -> None:
    """Train every fold that has no scores yet.

    One bank of one repeat at a time: the weights of five folds are in memory, however large the sweep is.
    """
    work, report = files.work, missing.report
    for bank, repeat, folds in missing.folds:
        before, share = report.done, len(bank.settings) / work.settings.training.epochs

        def keep(repeat: int, fold: int, result: FoldResult, bank: Bank = bank) -> None:
            files.keep(bank, repeat, fold, result.scores)

        def advance(item: FoldEpoch, before: float = before, share: float = share) -> None:
            nonlocal report
            report = replace(report, done=before + share * item.done)
            on_heads(report)

        pairs = [(repeat, fold) for fold in folds]
        train_folds(
            work, rows, bank.settings, pairs, keep, trainer=trainer, threads=threads, on_epoch=advance
        )


@dataclass(frozen=True)
class ClusterSource:
    """A cache that every worker must find under the same name."""

    cache: str
    labels_sha256: str
    weights_sha256: str
    low_memory: bool


@dataclass(frozen=True)
class SweepItem:
    """One fold of a bank, with all that a process needs to train it."""

    source: ClusterSource
    trainer: Trainer
    bank: Bank
    training: TrainingSettings
    views: int | None
    draws: Draws
    images: FoldImages
    test: NDArray[np.int64]


def train_on_cluster(
    missing: Missing,
    files: ScoreFiles,
    cluster: Cluster,
    trainer: Trainer,
    on_heads: OnHeads,
    *,
    low_memory: bool,
) -> None:
    """Train every fold that has no scores yet; this process writes each file as its scores arrive."""
    cache, report = files.work.cache, missing.report
    weights = cache.fingerprint.weights_sha256
    source = ClusterSource(absolute(cache.source), labels_sha256(cache), weights, low_memory)
    items = _items(files.work, source, trainer, missing)
    died = 0
    with closing(run_items(train_item, items, cluster)) as outcomes:  # type: ignore[type-var]  # a generator
        for outcome in outcomes:
            item = outcome.item
            if isinstance(outcome.error, WorkerDiedError):
                died += 1
            elif outcome.value is None:
                raise outcome.error or RuntimeError("an outcome without value and error")
            else:
                files.keep(item.bank, item.draws.repeat, item.draws.fold, outcome.value)
                report = replace(report, done=report.done + len(item.bank.settings))
                on_heads(report)
    if died:
        raise StoppedError(
            f"{cluster.address}: the workers of {died} folds were killed (not enough memory?);"
            " finished folds are kept. Run the same command again, perhaps with --low-memory"
        )


def train_item(item: SweepItem) -> NDArray[np.float64]:
    """Train one bank's fold and return its scores [head, image] on the fold's test images."""
    with _LOADING:  # a worker may have several threads: they share the features
        rows = _rows(item.source)
    if item.views is not None:
        rows = replace(rows, views=item.views + 1)
    job = FoldJob(rows, item.images, item.bank.settings, item.training, item.draws)
    return score_rows(rows, item.test, train_fold(job, item.trainer).parameters)


def _items(
    work: Preparation, source: ClusterSource, trainer: Trainer, missing: Missing
) -> Iterator[SweepItem]:
    settings = work.settings
    for bank, repeat, folds in missing.folds:
        for fold in folds:
            fit, calibrate, test = (work.images(repeat, fold, part) for part in (FIT, CALIBRATE, TEST))
            images, draws = FoldImages(work.labels, fit, calibrate), Draws(settings.seed, fold, repeat)
            yield SweepItem(source, trainer, bank, settings.training, settings.views, draws, images, test)


_LOADING = threading.Lock()


@lru_cache(maxsize=1)  # loading may take longer than a fold: the features stay between items
def _rows(source: ClusterSource) -> FeatureRows:
    cache = open_cache(source.cache)
    found = labels_sha256(cache), cache.fingerprint.weights_sha256
    if found != (source.labels_sha256, source.weights_sha256):
        raise InputError(
            f"{source.cache}: a worker finds another cache under this name; give a place that is the same on"
            " all machines"
        )
    return open_rows(cache, 1, low_memory=source.low_memory)
