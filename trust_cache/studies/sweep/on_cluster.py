"""The training of a sweep on a cluster: a work item is one bank's fold, whose scores come back whole."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError, StoppedError
from trust_cache.base.executor import run_items
from trust_cache.base.places import absolute
from trust_cache.base.work import Cluster, WorkerDiedError
from trust_cache.cache.loading import load_rows, map_rows
from trust_cache.cache.reading import open_cache
from trust_cache.cache.rows import FeatureRows
from trust_cache.heads.bank import score_rows
from trust_cache.heads.draws import Draws
from trust_cache.heads.fold_task import FoldImages, FoldTask
from trust_cache.heads.folds import CALIBRATE, FIT, TEST
from trust_cache.heads.preparation import Preparation, labels_sha256
from trust_cache.heads.schedule import train
from trust_cache.heads.settings import TrainingSettings
from trust_cache.studies.sweep.catalogue import Bank
from trust_cache.studies.sweep.score_files import ScoreFiles
from trust_cache.studies.sweep.training import OnHeads, find_missing


@dataclass(frozen=True)
class Source:
    """A cache as every worker must find it."""

    cache: str
    labels_sha256: str
    weights_sha256: str
    low_memory: bool


@dataclass(frozen=True)
class Item:
    """One bank's fold, and all that a process must know to train it."""

    source: Source
    bank: Bank
    training: TrainingSettings
    views: int | None
    seed: int
    repeat: int
    fold: int
    labels: NDArray[np.int64]
    fit: NDArray[np.int64]
    calibrate: NDArray[np.int64]
    test: NDArray[np.int64]


def train_on_cluster(
    work: Preparation,
    banks: Sequence[Bank],
    files: ScoreFiles,
    cluster: Cluster,
    on_heads: OnHeads,
    *,
    low_memory: bool,
) -> None:
    """Train every fold that has no scores yet; the files are written here, as they come."""
    todo, report = find_missing(work, banks, files)
    source = Source(
        absolute(work.cache.source),
        labels_sha256(work.cache),
        work.cache.fingerprint.weights_sha256,
        low_memory,
    )
    items = _items(work, source, todo)
    died = 0
    with closing(run_items(train_item, items, cluster)) as outcomes:  # type: ignore[type-var]  # a generator
        for outcome in outcomes:
            item = outcome.item
            if isinstance(outcome.error, WorkerDiedError):
                died += 1
            elif outcome.value is None:
                raise outcome.error or RuntimeError("an outcome without value and error")
            else:
                files.keep(item.bank, item.repeat, item.fold, outcome.value)
                report = replace(report, done=report.done + len(item.bank.settings))
                on_heads(report)
    if died:
        raise StoppedError(
            f"{cluster.address}: the workers of {died} folds were ended from outside (not enough memory?);"
            " what is finished stays. Run the same command again, perhaps with --low-memory"
        )


def train_item(item: Item) -> NDArray[np.float64]:
    """Train one bank's fold and return its scores [head, image] on the fold's test images."""
    with _LOADING:  # a worker may have several threads: they share the features
        rows = _rows(item.source)
    if item.views is not None:
        rows = replace(rows, views=item.views + 1)
    images = FoldImages(item.labels, item.fit, item.calibrate)
    draws = Draws(item.seed, item.fold, item.repeat)
    task = FoldTask(rows, images, item.bank.settings, item.training, draws)
    train([task], threads=1)
    return score_rows(rows, item.test, task.parameters)


def _items(work: Preparation, source: Source, todo: Sequence[tuple[Bank, int, list[int]]]) -> Iterator[Item]:
    settings = work.settings
    for bank, repeat, folds in todo:
        for fold in folds:
            parts = (work.images(repeat, fold, part) for part in (FIT, CALIBRATE, TEST))
            yield Item(
                source,
                bank,
                settings.training,
                settings.views,
                settings.seed,
                repeat,
                fold,
                work.labels,
                *parts,
            )


_LOADING = threading.Lock()


@lru_cache(maxsize=1)  # loading takes longer than many a fold: the features stay between items
def _rows(source: Source) -> FeatureRows:
    cache = open_cache(source.cache)
    found = labels_sha256(cache), cache.fingerprint.weights_sha256
    if found != (source.labels_sha256, source.weights_sha256):
        raise InputError(
            f"{source.cache}: a worker finds another cache under that name; give a place that is the same for"
            " all machines"
        )
    return (map_rows if source.low_memory else load_rows)(cache, threads=1)
