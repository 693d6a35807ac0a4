"""Large cohorts: memory does not grow with resamples times positives."""

import tracemalloc

import numpy as np

from trust_cache.studies.compare.paired_tests import Pair, difference_intervals, make_pair, swap_test


def cohort(cases: int, positives: int) -> Pair:
    generator = np.random.default_rng(0)
    labels = (np.arange(cases) < positives).astype(np.int64)
    columns = generator.normal(size=cases) + labels + 0.4 * generator.normal(size=(2, cases))
    return make_pair(columns[0], columns[1], labels)


def test_memory_is_bounded() -> None:
    """All weights of these resamples together would be 80 MB, all masks 120 MB."""
    pair = cohort(120_000, 10_000)
    tracemalloc.start()
    try:
        difference_intervals(pair, [200], 1_000, seed=0)
        _, of_interval = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        swap_test(pair, [200], 1_000, seed=0)
        _, of_test = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert of_interval < 80e6
    assert of_test < 80e6
