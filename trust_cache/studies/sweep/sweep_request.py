"""What a user asks of a sweep: its axes, and the time and space that a large one takes."""

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from trust_cache.base.documents import Document, typed
from trust_cache.base.errors import InputError
from trust_cache.cache.feature_rows import rows_of_array
from trust_cache.heads.draws import Draws
from trust_cache.heads.fold_training import train_fold
from trust_cache.heads.folds import FIT, FOLDS
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings, read_toml
from trust_cache.heads.trainer import COMPILED, FoldImages, FoldJob, Trainer
from trust_cache.heads.training_data import Preparation
from trust_cache.studies.sweep.sweep_space import BANK, Axis, Space, choose_base, make_axis, parse_axis

DEFAULT_BASE = "closed-loop"
ASKED_ABOVE = 5_000  # settings: more are rather a typing error
MOST = 1_000_000  # settings of one sweep: their list is kept in memory and in sweep.json
_IMAGES = 1_600
_UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))
_SIZES = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6))


class SpaceFile(Document, frozen=True):
    """A TOML file with the axes of a sweep."""

    base: str = DEFAULT_BASE
    random: int | None = None
    grid: dict[str, Any] = msgspec.field(default_factory=dict)


def describe_space(
    grid: Sequence[str] = (), file: Path | None = None, base: str | None = None, random: int | None = None
) -> Space | None:
    """Return the space, or None where no axis is given; `base` and `random` replace those of the file."""
    if not grid and file is None:
        if random is not None:
            raise InputError("random: expected axes to draw from, for example --grid lr=1e-5..1e-3:log")
        if base is not None:
            raise InputError("base: expected axes that change it, for example --grid margin=0.05,0.1")
        return None
    content = SpaceFile()
    if file is not None:
        table, what = read_toml(file, "a table [grid]"), "the axes of a sweep (base, random, [grid])"
        content = typed(table, SpaceFile, where=file, what=what)
    start = choose_base(base or content.base)
    axes: list[Axis] = []
    for name, values in content.grid.items():
        try:
            axes.append(make_axis(name, values, start))
        except InputError as error:
            raise InputError(f"{file}: [grid] {error}") from error
    axes += [parse_axis(text, start) for text in grid]
    return Space(start, tuple(axes), content.random if random is None else random)


def refuse_large(work: Preparation, settings: int, threads: int, *, yes: bool) -> None:
    """Refuse a number of settings that a user should confirm, with an estimate of time and space."""
    if settings <= ASKED_ABOVE or (yes and settings <= MOST):
        return
    repeats = work.settings.repeats
    seconds = settings * head_steps(work) * seconds_per_head_step(work.cache.dim) / threads
    size = settings * repeats * work.cache.images * 8
    started = "start it anyway with --yes"
    if settings > MOST:
        started = f"one sweep holds at most {MOST:,} settings, so --yes does not start this one"
    raise InputError(
        f"grid: {settings:,} settings x {FOLDS} folds x {repeats} repeat{'s' if repeats > 1 else ''} are"
        f" {settings * FOLDS * repeats:,} heads: about {say_time(seconds)} on {threads} threads, and"
        f" {say_size(size)} of scores. Narrow the grid, draw some of it with --random N, or: {started}"
    )


def head_steps(work: Preparation) -> int:
    """Return the steps that one setting takes over all folds, repeats and epochs."""
    training, folds = work.settings.training, itertools.product(range(work.settings.repeats), range(FOLDS))
    return training.epochs * sum(-(-work.images(*fold, FIT).size // training.batch) for fold in folds)


def seconds_per_head_step(dim: int, trainer: Trainer = COMPILED) -> float:
    """Time a bank on random rows with this many features, on one thread of this machine."""
    rows = rows_of_array(np.random.default_rng(0).standard_normal((_IMAGES, 1, dim)).astype(np.float16))
    labels = (np.arange(_IMAGES) % 4 == 0).astype(np.int64)
    images = FoldImages(labels, np.arange(_IMAGES), np.arange(0))
    settings = [HeadSettings(lambda_focal=1.0, lambda_dismiss=0.05, tau=0.05)] * BANK
    training = TrainingSettings(epochs=2)
    times: list[float] = []  # the first epoch loads or compiles the kernels
    job = FoldJob(rows, images, settings, training, Draws(0, 0))
    train_fold(job, trainer, on_epoch=lambda _: times.append(time.perf_counter()))
    return (times[-1] - times[0]) / (-(-_IMAGES // training.batch) * BANK)


def say_time(seconds: float) -> str:
    """Write a time in the largest unit that it has at least two of."""
    written = (f"{seconds / length:,.0f} {unit}" for unit, length in _UNITS if seconds >= 2 * length)
    return next(written, f"{seconds:.1f} seconds")


def say_size(size: int) -> str:
    """Write a number of bytes."""
    written = (f"{size / length:,.1f} {unit}" for unit, length in _SIZES if size >= length)
    return next(written, f"{size:,} bytes")
