"""Time and memory of stage two at one, two and four times the RSNA shape: near linear, or it says so."""

import shutil
import time
from pathlib import Path

import numpy as np

from benchmarks.cohort import scratch
from benchmarks.memory import Usage, measure
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.feature_rows import rows_of_array
from trust_cache.heads.draws import Draws
from trust_cache.heads.head_settings import TrainingSettings, presets
from trust_cache.heads.trainer import FoldImages, FoldJob, FoldTask
from trust_cache.synthetic.cohort_shape import counts_of
from trust_cache.synthetic.feature_cohort import simulate_cache

TIMES = (1, 2, 4)
EPOCHS = 5
AT_MOST_GROWTH = 1.3  # of the time for four times the cases, over four times the time
IMAGES, DIM, VIEWS = 8_000, 1_024, 12
RUNS = 5


def run() -> bool:
    """Print a table of processor time and peak memory; return whether time grows near linearly."""
    cases, folder = counts_of("rsna", None).cases, scratch() / "growth"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = {times: _measure(times, cases * times, folder) for times in TIMES}
    shutil.rmtree(folder)
    print(f"growth: {cases:,} cases x {', '.join(map(str, TIMES))}, one augmented view, {EPOCHS} epochs")
    good = True
    for command in rows[1]:
        seconds = [rows[times][command].processor_seconds for times in TIMES]
        peaks = [rows[times][command].anonymous / 1e9 for times in TIMES]
        growth = seconds[-1] / seconds[0] / TIMES[-1]
        good = good and growth <= AT_MOST_GROWTH
        print(
            f"  {command}: {', '.join(f'{one:.1f}' for one in seconds)} s of processor time,"
            f" {growth:.2f}x of linear (at most {AT_MOST_GROWTH}x);"
            f" {', '.join(f'{one:.2f}' for one in peaks)} GB of own memory"
        )
    views = _training_seconds(VIEWS) / _training_seconds(1)
    print(
        f"  training with {VIEWS} augmented views: {views:.2f}x of the time with one"
        f" (at most {AT_MOST_GROWTH}x)"
    )
    return good and views <= AT_MOST_GROWTH


def _training_seconds(views: int) -> float:
    """Return the processor seconds of training the paper's five on one fold, the least of several runs."""
    features = np.random.default_rng(0).standard_normal((IMAGES, views + 1, DIM), dtype=np.float32)
    labels = (np.arange(IMAGES) % 20 == 0).astype(np.int64)
    parts = FoldImages(labels, np.arange(IMAGES // 8, IMAGES), np.arange(IMAGES // 8))
    rows = rows_of_array(features.astype(np.float16))
    job = FoldJob(rows, parts, list(presets().values()), TrainingSettings(epochs=EPOCHS), Draws(0, 0))

    def once() -> float:
        task, begin = FoldTask(job), time.process_time()
        while not task.finished:
            task.run_epoch()
        return time.process_time() - begin

    once()  # compiles the kernels
    return min(once() for _ in range(RUNS))


def _measure(times: int, cases: int, folder: Path) -> dict[str, Usage]:
    here = folder / str(times)
    here.mkdir()
    cache = here / "cache.zarr"
    simulate_cache("rsna", cache, views=1, cases=cases)
    assert open_cache(cache).images > cases
    run_folder, certified = str(here / "run"), str(here / "certified")
    grid = ("--grid", "lambda_dismiss=0,0.05", "--epochs", str(EPOCHS))
    found = {
        "fit-heads": measure("fit-heads", str(cache), "--out", run_folder, "--epochs", str(EPOCHS)),
        "certify": measure("certify", run_folder, "--out", certified),
        "sweep": measure("sweep", str(cache), *grid, "--out", str(here / "sweep")),
        "report": measure("report", run_folder, certified, "--out", str(here / "page.html")),
    }
    shutil.rmtree(here)
    return found
