"""Stage two: from a cache to a run folder with every configuration's heads and out-of-fold scores."""

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_current, refuse_foreign, write_folder
from trust_cache.base.versions import versions_of
from trust_cache.cache.loading import load_rows, map_rows
from trust_cache.cache.reading import Cache, open_cache
from trust_cache.heads.fold_task import FoldTask
from trust_cache.heads.folds import TEST
from trust_cache.heads.partial import PartialRun
from trust_cache.heads.preparation import FitSettings, Preparation, prepare
from trust_cache.heads.results import FoldResult, finish_fold
from trust_cache.heads.run_files import OWN, render_run
from trust_cache.heads.settings import HeadSettings, TrainingSettings, presets
from trust_cache.heads.training import EpochReport, train_missing, trained

_LOG = logging.getLogger(__name__)


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

    def finish(task: FoldTask, repeat: int, fold: int) -> FoldResult:
        return finish_fold(task, work.images(repeat, fold, TEST))

    with partial.lock():
        partial.begin(work.identity, resume=resume)
        resumed = train_missing(work, rows, partial, threads, finish, on_epoch)
        trained = time.perf_counter()
        _LOG.info("trained %d heads in %.1f s on %d threads", work.heads, trained - loaded, threads)
        seconds = {"load": loaded - begin, "train": trained - loaded}
        how = {"threads": threads, "low_memory": low_memory, "resumed_folds": resumed, "seconds": seconds}
        kept = write_folder(out, _render(work, partial, how), own=OWN, keep=not overwrite)
        partial.discard()
    seconds["write"] = time.perf_counter() - trained
    return Run(out, work.warnings, seconds, resumed, kept)


def refuse_existing(
    out: Path, partial: PartialRun, *, resume: bool, overwrite: bool, own: Collection[str] = OWN
) -> None:
    """Refuse to replace a run, or to start over an interrupted one, without being told to."""
    if resume and overwrite:
        raise InputError("expected --resume or --overwrite, found both")
    if overwrite:
        refuse_foreign(out, own=own)
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


def _render(work: Preparation, partial: PartialRun, how: Mapping[str, Any]) -> dict[str, bytes]:
    record = {
        **work.identity,
        "cache": str(work.cache.source),
        **how,
        "warnings": list(work.warnings),
        "versions": versions_of("numpy", "scipy", "numba", "scikit-learn"),
    }
    files: dict[str, bytes] = {}
    for repeat in range(work.settings.repeats):
        results = [trained(partial, repeat, fold) for fold in work.fold_names]
        rendered = render_run(
            results,
            manifest=work.cache.manifest,
            configurations=work.settings.configurations,
            folds=work.folds[repeat],
            record=record | {"repeat": repeat},
        )
        prefix = f"repeats/{repeat}/" if repeat else ""
        files |= {prefix + name: content for name, content in rendered.items()}
    return files
