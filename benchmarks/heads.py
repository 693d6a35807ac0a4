"""Training on an RSNA-shaped cache: against a plain PyTorch loop, and against only gathering the rows."""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.cohort import rsna_cache, scratch
from benchmarks.rival import seconds_per_head_step
from trust_cache.cache.cache_reader import Cache
from trust_cache.cache.feature_rows import FeatureRows, load_rows
from trust_cache.heads import kernels
from trust_cache.heads.bank import make_source, make_workspace
from trust_cache.heads.draws import Draws
from trust_cache.heads.fit import fit_heads
from trust_cache.heads.folds import CALIBRATE, FIT, FOLDS, draw_folds
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings, presets
from trust_cache.heads.trainer import COMPILED, FoldImages, FoldJob
from trust_cache.manifest.cases import find_cases

EPOCHS = 20
BANK = 100
AT_LEAST_RIVAL, AT_MOST_GATHER, AT_LEAST_BANK = 50, 10, 100


def run() -> bool:
    """Print times and ratios; return whether the targets were met."""
    threads = os.cpu_count() or 1
    cache = rsna_cache()
    fit_heads(cache, scratch() / "run", epochs=1, overwrite=True)  # compiles on first use
    begin = time.perf_counter()
    rows = load_rows(cache)
    loading = time.perf_counter() - begin
    labels = cache.manifest["label"].cast(int).to_numpy()
    images = _folds(cache.manifest, labels)
    steps = sum(-(-part.fit.size // TrainingSettings().batch) for part in images) * EPOCHS
    features = np.asarray(rows.owner)  # the same array in memory
    rival = min(seconds_per_head_step(features, labels, count) for count in (1, 2))
    gathering = min(_gather(rows, images, steps // FOLDS, threads) for _ in range(3))
    bank = _bank(rows, images, threads)
    del rows, features
    grid = min(_grid(cache) for _ in range(2))
    shutil.rmtree(scratch() / "run")
    extrapolated = rival * steps * len(presets())
    gigabytes = cache.images * cache.views * cache.dim * 2 / 1e9
    print(f"heads: {cache.images:,} images, {cache.views} views, {threads} threads")
    print(f"  loading: {loading:.1f} s, {gigabytes / loading:.2f} GB/s, checksums included")
    print(
        f"  plain PyTorch, one head: {1e3 * rival:.2f} ms a step;"
        f" the grid by step count: {extrapolated:.0f} s"
    )
    print(f"  (a) the grid, 5 x 5 x {EPOCHS}, scoring and tau included: {grid:.1f} s,"
          f" {1e3 * grid / steps:.3f} ms a step of five heads: {extrapolated / grid:.0f}x faster"
          f" (at least {AT_LEAST_RIVAL}x)")  # fmt: skip
    print(f"  (b) only gathering and widening the same rows: {gathering:.1f} s; the grid takes"
          f" {grid / gathering:.1f}x of it (at most {AT_MOST_GATHER}x)")  # fmt: skip
    print(f"  (c) in a bank of {BANK}: {1e6 * bank:.1f} us a head-step, {rival / bank:.0f}x cheaper than the"
          f" rival's (at least {AT_LEAST_BANK}x)")  # fmt: skip
    return (
        extrapolated / grid >= AT_LEAST_RIVAL
        and grid / gathering <= AT_MOST_GATHER
        and rival / bank >= AT_LEAST_BANK
    )


def _folds(manifest: pl.DataFrame, labels: NDArray[np.int64]) -> list[FoldImages]:
    cases = find_cases(manifest)
    parts = draw_folds(cases, 0).parts
    return [
        FoldImages(labels, *(np.flatnonzero(part[cases.of_image] == kind) for kind in (FIT, CALIBRATE)))
        for part in parts
    ]


def _grid(cache: Cache) -> float:
    """The paper's grid after loading: training, tau, trajectories, scoring."""
    return fit_heads(cache, scratch() / "run", epochs=EPOCHS, overwrite=True).seconds["train"]


def _gather(rows: FeatureRows, images: list[FoldImages], steps: int, threads: int) -> float:
    """Gather and widen the batches of all folds, on as many threads as training has."""

    def fold(number: int, begin: int, end: int) -> None:
        part = images[number]
        pools = (part.of_class(part.fit, label) for label in (1, 0))
        source = make_source(rows, TrainingSettings(), *pools, Draws(0, number))
        work = make_workspace(TrainingSettings().batch, rows.dim)
        kernels.gather_rows(source, begin, end, work)

    fold(0, 0, 1)
    begin = time.perf_counter()
    half = steps // 2  # halves of folds divide evenly over two threads, as interleaved epochs do
    with ThreadPoolExecutor(threads) as pool:
        list(
            pool.map(
                lambda job: fold(*job),
                [(f, *part) for f in range(FOLDS) for part in ((0, half), (half, steps))],
            )
        )
    return time.perf_counter() - begin


def _bank(rows: FeatureRows, images: list[FoldImages], threads: int) -> float:
    """The wall time of a head-step with a bank of 100 settings on every thread."""
    settings = [
        HeadSettings(lambda_focal=1.0, lambda_dismiss=0.01 * n, margin=0.1, tau="closed-loop")
        for n in range(BANK)
    ]
    training = TrainingSettings(epochs=1)
    jobs = [FoldJob(rows, images[n % FOLDS], settings, training, Draws(0, n)) for n in range(threads)]
    steps = sum(-(-job.images.fit.size // training.batch) for job in jobs)
    begin = time.perf_counter()
    for _ in COMPILED.train(jobs, threads=threads, on_epoch=lambda _job, _epoch, _taus: None):
        pass
    return (time.perf_counter() - begin) / (steps * BANK)
