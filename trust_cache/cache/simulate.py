"""Feature cohorts with known truth in the shape of a public data set, written as real caches."""

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.backends import Source
from trust_cache.cache.cohorts import counts_of, draw_exact_cases, images_of, law_of, manifest_of
from trust_cache.cache.feature_model import FeatureModel, draw_coordinates, draw_features, make_model
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.cache.layout import SHARD_IMAGES
from trust_cache.cache.reading import Cache, open_cache
from trust_cache.cache.writer import CacheWriter, create_cache

DIM = 2048
LARGEST_COHORT = 10_000_000
_STRUCTURE, _COORDINATES, _FEATURES = range(3)  # independent random streams of one seed


class SimulatedCohort:
    """A cohort whose features are drawn when asked for, any image at any time."""

    def __init__(
        self, like: str, seed: int = 0, truth_seed: int = 0, dim: int = DIM, cases: int | None = None
    ) -> None:
        self._entropy = [seed, *like.encode()]
        counts = counts_of(like, cases)
        structure = self._stream(_STRUCTURE)
        images = images_of(draw_exact_cases(law_of(like), counts, structure))
        self.model: FeatureModel = make_model(truth_seed, dim)
        self.manifest = manifest_of(like, images, structure)
        self.coordinates = draw_coordinates(self.model, images, self._stream(_COORDINATES))

    def features(self, first: int, last: int, views: int) -> NDArray[np.float16]:
        """Return the features [image, view, dim] of images first..last-1: the same in whatever portions."""
        out = np.empty((last - first, views, self.model.dim), dtype=np.float16)
        for image in range(first, last):
            stream = self._stream(_FEATURES, image)
            out[image - first] = draw_features(self.model, self.coordinates[image], views, stream)
        return out

    def _stream(self, *key: int) -> np.random.Generator:
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence(self._entropy, spawn_key=key)))


def simulate_cache(
    like: str,
    out: Source,
    *,
    views: int = 8,
    seed: int = 0,
    truth_seed: int = 0,
    dim: int = DIM,
    cases: int | None = None,
    shard_images: int = SHARD_IMAGES,
    threads: int | None = None,
) -> Cache:
    """Write a cohort like `nlbs` or `rsna` (or a smaller one of `cases`) with `views` augmented views."""
    if views < 0:
        raise InputError(f"views: expected 0 or more augmented views, found {views}")
    for name, value in (("seed", seed), ("truth_seed", truth_seed)):
        if value < 0:
            raise InputError(f"{name}: expected 0 or more, found {value}")
    if cases is not None and cases > LARGEST_COHORT:
        raise InputError(f"cases: expected at most {LARGEST_COHORT}, found {cases}")
    cohort = SimulatedCohort(like, seed, truth_seed, dim, cases)
    fingerprint = simulated_fingerprint(seed)
    with create_cache(out, cohort.manifest, views + 1, dim, fingerprint, shard_images) as writer:
        _write(writer, cohort, threads or os.cpu_count() or 1)
    return open_cache(out)


def simulated_fingerprint(seed: int) -> Fingerprint:
    """Return the identity of the invented encoder: one for all cohorts, whatever their truth."""
    return Fingerprint(
        encoder="simulated",
        weights_sha256="simulated",
        image_size=None,
        preprocessing="simulated",
        standardisation="simulated",
        precision="float16",
        view_settings="simulated",
        seed=seed,
        decoder="simulated",
    )


def _write(writer: CacheWriter, cohort: SimulatedCohort, threads: int) -> None:
    layout = writer.layout

    def work(shard: int) -> None:
        writer.write_shard(shard, cohort.features(*layout.bounds(shard), layout.views))

    with ThreadPoolExecutor(threads) as pool:
        under_way: deque[Future[None]] = deque(pool.submit(work, shard) for shard in range(layout.shards))
        try:
            while under_way:
                under_way.popleft().result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
