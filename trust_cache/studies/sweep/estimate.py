"""What a sweep would take, measured on a small bank, and the refusal to start a large one unasked."""

import time

import numpy as np

from trust_cache.base.errors import InputError
from trust_cache.cache.rows import rows_of_array
from trust_cache.heads.draws import Draws
from trust_cache.heads.fold_task import FoldImages, FoldTask
from trust_cache.heads.folds import FIT, FOLDS
from trust_cache.heads.preparation import Preparation
from trust_cache.heads.settings import HeadSettings, TrainingSettings
from trust_cache.studies.sweep.catalogue import BANK

ASKED_ABOVE = 5_000  # settings: more are more often a slip than a wish
MOST = 1_000_000  # settings of one sweep: their list is kept in memory and in sweep.json
_IMAGES = 1_600
_UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))


def refuse_large(work: Preparation, settings: int, threads: int, *, yes: bool) -> None:
    """Refuse a number of settings that a user should confirm, saying what it would take."""
    if settings <= ASKED_ABOVE or (yes and settings <= MOST):
        return
    heads = settings * FOLDS * work.settings.repeats
    seconds = settings * head_steps(work) * seconds_per_head_step(work.cache.dim) / threads
    size = settings * work.settings.repeats * work.cache.images * 8
    repeats = work.settings.repeats
    started = (
        f"one sweep holds at most {MOST:,} settings, so that --yes does not start this one"
        if settings > MOST
        else "start it all the same with --yes"
    )
    raise InputError(
        f"grid: {settings:,} settings x {FOLDS} folds x {repeats} repeat{'s' if repeats > 1 else ''} are"
        f" {heads:,} heads: about {say_time(seconds)} on {threads} threads, and {say_size(size)} of scores."
        f" Narrow the grid, draw some of it with --random N, or: {started}"
    )


def head_steps(work: Preparation) -> int:
    """Return the steps that one setting takes over all folds, repeats and epochs."""
    training = work.settings.training
    fits = (
        work.images(repeat, fold, FIT).size
        for repeat in range(work.settings.repeats)
        for fold in range(FOLDS)
    )
    return training.epochs * sum(-(-size // training.batch) for size in fits)


def seconds_per_head_step(dim: int) -> float:
    """Time a bank on invented rows with this many features, on one thread of this machine."""
    rows = rows_of_array(np.random.default_rng(0).standard_normal((_IMAGES, 1, dim)).astype(np.float16))
    labels = (np.arange(_IMAGES) % 4 == 0).astype(np.int64)
    images = FoldImages(labels, np.arange(_IMAGES), np.arange(0))
    settings = [HeadSettings(lambda_focal=1.0, lambda_dismiss=0.05, tau=0.05)] * BANK
    task = FoldTask(rows, images, settings, TrainingSettings(epochs=2), Draws(0, 0))
    task.run_epoch()  # the first loads or compiles the kernels
    begin = time.perf_counter()
    task.run_epoch()
    return (time.perf_counter() - begin) / (task.steps_per_epoch * BANK)


def say_time(seconds: float) -> str:
    """Write a time in the largest unit of which there is at least two."""
    for unit, length in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.1f} seconds"


def say_size(size: int) -> str:
    """Write a number of bytes."""
    for unit, length in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if size >= length:
            return f"{size / length:,.1f} {unit}"
    return f"{size:,} bytes"
