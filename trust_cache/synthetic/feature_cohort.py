"""Draw synthetic features: a few shared coordinates plus isotropic noise.

An image's clean features are x = m + B c + s e. The mean m and the columns of B belong to the (synthetic)
encoder: column 0 is the true direction, drawn from the truth seed; the others, the same for every seed, are
nuisance such as density or positioning. The coordinates c of an image are its case's plus its own, with
`SHIFT` added on the true direction where there is cancer. e is standard normal. An augmented view moves the
coordinates a little and adds new noise. Where patients have several cases, most of a case's coordinates are
its patient's.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import PCG64, SFC64, Generator, SeedSequence
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.cache_writer import create_cache
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.cache.known_stores import Source
from trust_cache.cache.layout import SHARD_IMAGES
from trust_cache.synthetic import cohort_shape
from trust_cache.synthetic.cohort_shape import ImageShapes

DIM = 2048
LARGEST_COHORT = 10_000_000
_STRUCTURE, _COORDINATES, _FEATURES, _PATIENTS = range(4)  # independent random streams of one seed
# Chosen so that a head trained as in the paper reaches a case AUROC near 0.72 on both cohorts.
SHIFT = 1.15  # of cancer along the true direction, in standard deviations of a single image there
CASE_SHARE = 0.5  # of the variance of each coordinate that a case's images share
PATIENT_SHARE = 0.8  # of the variance that a case's images share, where patients have several cases
AMPLITUDE = 0.06  # root mean square change of one feature by one standard deviation of a coordinate
NUISANCES = 8
NUISANCE_DECAY = 0.85  # of one nuisance coordinate's spread to the next; the first is as wide as the truth
MEAN_SCALE = 0.4  # of the features' means, which are half-normal as after pooling
NOISE = 0.2
VIEW_SHIFT = 0.25  # of coordinates between views, in their standard deviations
VIEW_NOISE = 0.05


@dataclass(frozen=True)
class FeatureModel:
    """What all cohorts share; only the true direction depends on the truth seed."""

    mean: NDArray[np.float64]  # [dim]
    basis: NDArray[np.float64]  # [dim, coordinate]

    @property
    def dim(self) -> int:
        """The number of features."""
        return int(self.mean.size)

    @cached_property
    def single(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The mean [dim] and the directions [coordinate, dim] in single precision."""
        return self.mean.astype(np.float32), np.ascontiguousarray(self.basis.T, dtype=np.float32)


def make_model(truth_seed: int, dim: int) -> FeatureModel:
    """Draw the encoder's mean and nuisances, the same for every seed, and this seed's true direction."""
    encoder = Generator(PCG64(SeedSequence([dim])))
    truth = Generator(PCG64(SeedSequence([dim, truth_seed, 1])))
    mean = MEAN_SCALE * np.abs(encoder.standard_normal(dim))
    nuisances = encoder.standard_normal((dim, min(NUISANCES, dim - 1)))
    # The true direction is the last column, so that the nuisances do not depend on it.
    columns, triangle = np.linalg.qr(np.column_stack([nuisances, truth.standard_normal(dim)]))
    directions = np.roll(columns * np.sign(np.diag(triangle)), 1, axis=1)
    spread = NUISANCE_DECAY ** np.maximum(0, np.arange(directions.shape[1]) - 1)
    return FeatureModel(mean, directions * (AMPLITUDE * np.sqrt(dim) * spread))


def draw_coordinates(
    model: FeatureModel,
    images: ImageShapes,
    generator: Generator,
    patients: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Draw the coordinates of the images' clean views [image, coordinate]; `patients` are of the cases."""
    cases = int(images.case[-1]) + 1 if images.case.size else 0
    of_case = generator.standard_normal((cases, model.basis.shape[1]))
    of_image = generator.standard_normal((images.case.size, model.basis.shape[1]))
    if patients is not None:
        of_patient = generator.standard_normal((int(patients.max()) + 1, model.basis.shape[1]))[patients]
        of_case = np.sqrt(PATIENT_SHARE) * of_patient + np.sqrt(1.0 - PATIENT_SHARE) * of_case
    coordinates = np.sqrt(CASE_SHARE) * of_case[images.case] + np.sqrt(1.0 - CASE_SHARE) * of_image
    coordinates[:, 0] += SHIFT * images.label
    return np.asarray(coordinates)


def draw_features(
    model: FeatureModel, coordinates: NDArray[np.float64], views: int, generator: Generator
) -> NDArray[np.float16]:
    """Draw the stored features [view, dim] of one image from its own random stream.

    The first views do not depend on the number of views, and only elementwise operations are used: matrix
    products would differ in the last bit between shapes and machines.
    """
    mean, directions = model.single
    draws = generator.standard_normal((views, sum(model.basis.shape)), dtype=np.float32)
    noise = draws[:, : model.dim]
    moved = coordinates.astype(np.float32) + np.float32(VIEW_SHIFT) * draws[:, model.dim :]
    moved[0] = coordinates
    features = np.float32(VIEW_NOISE) * noise
    features[0] = 0.0
    features += np.float32(NOISE) * noise[0] + mean
    part = np.empty_like(features)
    for number, direction in enumerate(directions):
        np.multiply(moved[:, number, np.newaxis], direction, out=part)
        features += part
    return features.astype(np.float16)


class SimulatedCohort:
    """A cohort whose features are drawn on request, for any image in any order.

    `patients` is the share of patients with several cases; their features are alike.
    """

    def __init__(
        self,
        like: str,
        seed: int = 0,
        truth_seed: int = 0,
        dim: int = DIM,
        cases: int | None = None,
        patients: float = 0.0,
    ) -> None:
        self._entropy = [seed, *like.encode()]
        law, counts = cohort_shape.law_of(like), cohort_shape.counts_of(like, cases)
        structure = self._stream(_STRUCTURE)
        images = cohort_shape.images_of(cohort_shape.draw_exact_cases(law, counts, structure))
        of_cases = (
            cohort_shape.assign_patients(counts.cases, patients, self._stream(_PATIENTS))
            if patients
            else None
        )
        self.model: FeatureModel = make_model(truth_seed, dim)
        self.manifest = cohort_shape.manifest_of(like, images, structure, of_cases)
        self.coordinates = draw_coordinates(self.model, images, self._stream(_COORDINATES), of_cases)

    def features(self, first: int, last: int, views: int) -> NDArray[np.float16]:
        """Return the features [image, view, dim] of images first..last-1, the same in any chunks."""
        out = np.empty((last - first, views, self.model.dim), dtype=np.float16)
        for image in range(first, last):
            stream = self._stream(_FEATURES, image)
            out[image - first] = draw_features(self.model, self.coordinates[image], views, stream)
        return out

    def _stream(self, *key: int) -> Generator:
        return Generator(SFC64(SeedSequence(self._entropy, spawn_key=key)))


def simulate_cache(
    like: str,
    out: Source,
    *,
    views: int = 8,
    seed: int = 0,
    truth_seed: int = 0,
    dim: int = DIM,
    cases: int | None = None,
    patients: float = 0.0,
    shard_images: int = SHARD_IMAGES,
    threads: int | None = None,
) -> Cache:
    """Write a cohort like `nlbs` or `rsna` (or a smaller one of `cases`) with `views` augmented views.

    `patients` is the share of patients with several cases; by default there is no column of patients.
    """
    if views < 0:
        raise InputError(f"views: expected 0 or more augmented views, found {views}")
    for name, value in (("seed", seed), ("truth_seed", truth_seed)):
        if value < 0:
            raise InputError(f"{name}: expected 0 or more, found {value}")
    if cases is not None and cases > LARGEST_COHORT:
        raise InputError(f"cases: expected at most {LARGEST_COHORT}, found {cases}")
    if not 0.0 <= patients <= 1.0:
        raise InputError(f"patients: expected a share from 0 to 1, found {patients}")
    cohort = SimulatedCohort(like, seed, truth_seed, dim, cases, patients)
    fingerprint = simulated_fingerprint(seed)
    pool = ThreadPoolExecutor(threads or os.cpu_count() or 1)
    with create_cache(out, cohort.manifest, views + 1, dim, fingerprint, shard_images) as writer, pool:

        def work(shard: int) -> None:
            writer.write_shard(shard, cohort.features(*writer.layout.bounds(shard), views + 1))

        for _ in pool.map(work, range(writer.layout.shards)):  # the first failure cancels what has not begun
            pass
    return open_cache(out)


def simulated_fingerprint(seed: int) -> Fingerprint:
    """Return the fingerprint of the synthetic encoder, the same for all cohorts."""
    parts = ("encoder", "weights_sha256", "preprocessing", "standardisation", "view_settings", "decoder")
    made = dict.fromkeys(parts, "simulated")
    return Fingerprint(**made, image_size=None, precision="float16", seed=seed)
