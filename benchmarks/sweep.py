"""A sweep on an RSNA-shaped cache: a head's cost against the plain PyTorch loop's, and memory by settings."""

import resource
import shutil

import numpy as np

from benchmarks.cohort import rsna_cache, scratch
from benchmarks.memory import Usage, measure
from benchmarks.rival import seconds_per_head_step
from trust_cache.cache.cache_reader import Cache
from trust_cache.cache.feature_rows import load_rows
from trust_cache.heads.folds import FOLDS
from trust_cache.heads.head_settings import TrainingSettings
from trust_cache.heads.training_data import FitSettings, prepare
from trust_cache.studies.sweep.sweep_request import head_steps

SETTINGS, EPOCHS = 100, 20
AT_LEAST_RIVAL = 100
# Above the cache: Python and its libraries 0.3 GB, five folds' banks 0.2 GB, a bank's scores by image 0.1 GB.
OVERHEAD_BYTES = 1e9
# What three more banks may add: tables and allocator, not their weights or scores (0.1 GB for each bank).
GROWTH_BYTES = 0.1e9


def run() -> bool:
    """Print times, ratios and peaks; return whether the targets were met."""
    cache = rsna_cache()
    _sweep(cache, settings=1, epochs=1)  # compiles on first use
    rival = _rival(cache)
    before = _processor_seconds()
    ours = _sweep(cache, SETTINGS, EPOCHS)
    processor = _processor_seconds() - before
    rival = min(rival, _rival(cache))  # on either side: other load must not favour us
    work = prepare(cache, FitSettings({}, TrainingSettings(epochs=EPOCHS)), None)
    steps, heads = head_steps(work) / FOLDS, SETTINGS * FOLDS
    ratio = rival * steps / (ours.seconds / heads)
    one, four = (_sweep(cache, settings, epochs=1) for settings in (SETTINGS, 4 * SETTINGS))
    above = max(usage.resident for usage in (ours, one, four)) - _size(cache)
    growth = four.resident - one.resident
    print(f"sweep: {SETTINGS} settings x {FOLDS} folds x {EPOCHS} epochs, {cache.images:,} images")
    print(f"  the whole command, loading, certificates and figures included: {ours.seconds:.1f} s,"
          f" {processor:.1f} s of processor time")  # fmt: skip
    print(f"  a head: {ours.seconds / heads:.3f} s; the plain PyTorch loop's {rival * steps:.1f} s"
          f" ({1e3 * rival:.2f} ms a step): {ratio:.0f}x cheaper (at least {AT_LEAST_RIVAL}x)")  # fmt: skip
    print(f"  peak {above / 1e9:.2f} GB above the cache (at most {OVERHEAD_BYTES / 1e9:.1f} GB);"
          f" {4 * SETTINGS} settings take {growth / 1e9:+.3f} GB more than {SETTINGS}"
          f" (at most {GROWTH_BYTES / 1e9:.1f} GB)")  # fmt: skip
    return ratio >= AT_LEAST_RIVAL and above <= OVERHEAD_BYTES and growth <= GROWTH_BYTES


def _sweep(cache: Cache, settings: int, epochs: int) -> Usage:
    """Run the command with a grid of this many settings on all cores."""
    out = scratch() / "sweep"
    shutil.rmtree(out, ignore_errors=True)
    margins = settings // 10 or 1
    axes = ["--grid", f"margin={','.join(str(n / 100) for n in range(margins))}"]
    if settings > 1:
        axes += ["--grid", "lambda_dismiss=0..0.9:10"]
    usage = measure("sweep", str(cache.source), "--out", str(out), "--epochs", str(epochs), *axes)
    shutil.rmtree(out)
    return usage


def _rival(cache: Cache) -> float:
    features = np.asarray(load_rows(cache).owner)
    labels = cache.manifest["label"].cast(int).to_numpy()
    return min(seconds_per_head_step(features, labels, threads) for threads in (1, 2))


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _size(cache: Cache) -> int:
    return cache.images * cache.views * cache.dim * 2
