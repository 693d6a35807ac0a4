"""What training and loading cost: linear in images, epochs and bytes, the same for any number of views."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.heads.cohorts import a_cohort, write_cohort
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.feature_rows import load_rows, rows_of_array
from trust_cache.heads.draws import Draws
from trust_cache.heads.head_settings import TrainingSettings, presets
from trust_cache.heads.trainer import FoldImages, FoldJob, FoldTask

pytestmark = pytest.mark.slow

DIM = 1024
SLACK = 1.3  # for a noisy machine; processor time, the least of several


def least(work: Callable[[], object], times: int = 5) -> float:
    def once() -> float:
        begin = time.process_time()
        work()
        return time.process_time() - begin

    work()
    return min(once() for _ in range(times))


def training(images: int, views: int = 3, epochs: int = 4) -> float:
    features = (
        np.random.default_rng(0).standard_normal((images, views, DIM), dtype=np.float32).astype(np.float16)
    )
    rows = rows_of_array(features)
    labels = (np.arange(images) % 20 == 0).astype(np.int64)
    calibrate = np.arange(images // 8)
    parts = FoldImages(labels, np.arange(images // 8, images), calibrate)
    settings = TrainingSettings(epochs=epochs)

    def train() -> None:
        task = FoldTask(FoldJob(rows, parts, list(presets().values()), settings, Draws(0, 0)))
        while not task.finished:
            task.run_epoch()

    return least(train)


def test_training_is_linear_in_images_and_epochs_and_free_of_views() -> None:
    base = training(8_000)
    assert 2 / SLACK < training(16_000) / base < 2 * SLACK
    assert 2 / SLACK < training(8_000, epochs=8) / base < 2 * SLACK
    assert 1 / SLACK < training(8_000, views=12) / base < SLACK


def test_loading_is_linear_in_bytes(tmp_path: Path) -> None:
    def loading(views: int) -> float:
        path = write_cohort(tmp_path / f"{views}.zarr", *a_cohort(cases=1_500, dim=DIM, views=views))
        cache = open_cache(path)
        _ = cache.manifest
        return least(lambda: load_rows(cache, threads=1))

    few, many = loading(4), loading(16)
    assert many / few < 4 * SLACK
