"""Draw synthetic features: a few shared coordinates plus isotropic noise.

An image's clean features are x = m + B c + s e. The mean m and the columns of B belong to the (synthetic)
encoder: column 0 is the true direction, drawn from the truth seed; the next ones, the same for every seed,
are nuisance such as density or positioning; a law with several true directions has the others behind them.
The coordinates c of an image are its case's plus its own, moved along the true directions where there is a
lesion and along the nuisances by the site. e is standard normal. An augmented view moves the coordinates a
little and adds new noise. Where patients have several cases, most of a case's coordinates are its patient's.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import polars as pl
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
from trust_cache.synthetic.feature_law import (
    NUISANCES,
    CaseTraits,
    FeatureLaw,
    choose_law,
    draw_traits,
    lesion_shifts,
    site_shifts,
)

DIM = 2048
LARGEST_COHORT = 10_000_000
_STRUCTURE, _COORDINATES, _FEATURES, _PATIENTS, _TRAITS = range(5)  # independent random streams of one seed
AMPLITUDE = 0.06  # root mean square change of one feature by one standard deviation of a coordinate
NUISANCE_DECAY = 0.85  # of one nuisance coordinate's spread to the next; the first is as wide as the truth
MEAN_SCALE = 0.4  # of the features' means, which are half-normal as after pooling
PLAIN = FeatureLaw()


@dataclass(frozen=True)
class FeatureModel:
    """What all cohorts share; only the true directions depend on the truth seed."""

    mean: NDArray[np.float64]  # [dim]
    basis: NDArray[np.float64]  # [dim, coordinate]
    law: FeatureLaw

    @property
    def dim(self) -> int:
        """The number of features."""
        return int(self.mean.size)

    @property
    def nuisances(self) -> int:
        """The number of nuisances, which are the coordinates 1, 2, ..."""
        return int(self.basis.shape[1]) - self.law.directions

    @cached_property
    def single(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The mean [dim] and the directions [coordinate, dim] in single precision."""
        return self.mean.astype(np.float32), np.ascontiguousarray(self.basis.T, dtype=np.float32)


def make_model(truth_seed: int, dim: int, law: FeatureLaw = PLAIN) -> FeatureModel:
    """Draw the encoder's mean and nuisances, the same for every seed, and this seed's true directions."""
    if dim < law.directions:
        raise InputError(f"dim: expected at least {law.directions} features, found {dim}")
    encoder = Generator(PCG64(SeedSequence([dim])))
    truth = Generator(PCG64(SeedSequence([dim, truth_seed, 1])))
    mean = MEAN_SCALE * np.abs(encoder.standard_normal(dim))
    nuisances = encoder.standard_normal((dim, min(NUISANCES, dim - law.directions)))
    true = truth.standard_normal((law.directions, dim)).T
    # The true directions are the last columns, so that the nuisances do not depend on them.
    columns, triangle = np.linalg.qr(np.column_stack([nuisances, true]))
    order = np.r_[nuisances.shape[1], : nuisances.shape[1], nuisances.shape[1] + 1 : columns.shape[1]]
    directions = (columns * np.sign(np.diag(triangle)))[:, order]
    spread = np.ones(order.size)
    spread[1 : nuisances.shape[1] + 1] = NUISANCE_DECAY ** np.arange(nuisances.shape[1])
    return FeatureModel(mean, directions * (AMPLITUDE * np.sqrt(dim) * spread), law)


def draw_coordinates(
    model: FeatureModel,
    images: ImageShapes,
    traits: CaseTraits,
    generator: Generator,
    patients: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Draw the coordinates of the images' clean views [image, coordinate]; `patients` are of the cases."""
    law, count = model.law, model.basis.shape[1]
    of_case = generator.standard_normal((traits.kind.size, count))
    of_image = generator.standard_normal((images.case.size, count))
    if patients is not None:
        of_patient = generator.standard_normal((int(patients.max()) + 1, count))[patients]
        of_case = np.sqrt(law.patient_share) * of_patient + np.sqrt(1.0 - law.patient_share) * of_case
    if law.degrees is not None:  # Student's t with the variance of a standard normal number
        of_case *= np.sqrt((law.degrees - 2) / generator.chisquare(law.degrees, size=(len(of_case), 1)))
        of_image *= np.sqrt((law.degrees - 2) / generator.chisquare(law.degrees, size=(len(of_image), 1)))
    coordinates = np.sqrt(law.case_share) * of_case[images.case] + np.sqrt(1.0 - law.case_share) * of_image
    last_nuisance = 1 + model.nuisances
    shifts = lesion_shifts(law)[traits.kind][images.case] * images.here[:, np.newaxis]
    coordinates[:, 0] += shifts[:, 0]
    coordinates[:, last_nuisance:] += shifts[:, 1:]
    coordinates[:, 1:last_nuisance] += site_shifts(law, model.nuisances)[traits.site][images.case]
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
    moved = coordinates.astype(np.float32) + np.float32(model.law.view_shift) * draws[:, model.dim :]
    moved[0] = coordinates
    features = np.float32(model.law.view_noise) * noise
    features[0] = 0.0
    features += np.float32(model.law.noise) * noise[0] + mean
    part = np.empty_like(features)
    for number, direction in enumerate(directions):
        np.multiply(moved[:, number, np.newaxis], direction, out=part)
        features += part
    return features.astype(np.float16)


class SimulatedCohort:
    """A cohort whose features are drawn on request, for any image in any order."""

    def __init__(
        self,
        like: str,
        seed: int = 0,
        truth_seed: int = 0,
        dim: int = DIM,
        cases: int | None = None,
        law: FeatureLaw = PLAIN,
    ) -> None:
        self._entropy = [seed, *like.encode()]
        counts, structure = cohort_shape.counts_of(like, cases), self._stream(_STRUCTURE)
        shapes = cohort_shape.draw_exact_cases(cohort_shape.law_of(like), counts, structure)
        images = cohort_shape.images_of(shapes)
        patients = None
        if law.patients:
            patients = cohort_shape.assign_patients(counts.cases, law.patients, self._stream(_PATIENTS))
        traits = draw_traits(law, shapes.positive, self._stream(_TRAITS))
        self.model: FeatureModel = make_model(truth_seed, dim, law)
        manifest = cohort_shape.manifest_of(like, images, structure, patients)
        self.manifest = manifest.with_columns(**_trait_columns(law, traits, images))
        stream = self._stream(_COORDINATES)
        self.coordinates = draw_coordinates(self.model, images, traits, stream, patients)

    def features(self, first: int, last: int, views: int) -> NDArray[np.float16]:
        """Return the features [image, view, dim] of images first..last-1, the same in any chunks."""
        out = np.empty((last - first, views, self.model.dim), dtype=np.float16)
        for image in range(first, last):
            stream = self._stream(_FEATURES, image)
            out[image - first] = draw_features(self.model, self.coordinates[image], views, stream)
        return out

    def _stream(self, *key: int) -> Generator:
        return Generator(SFC64(SeedSequence(self._entropy, spawn_key=key)))


def _trait_columns(law: FeatureLaw, traits: CaseTraits, images: ImageShapes) -> dict[str, pl.Series]:
    """Return the columns `site` and `lesion` of the images, where a law has several of them."""
    columns = {}
    if law.sites:
        sites = pl.Series([site.name for site in law.sites])
        columns["site"] = sites.gather(pl.Series(traits.site[images.case]))
    if len(law.lesions) > 1:
        columns["lesion"] = pl.Series(law.kind_names).gather(pl.Series(traits.kind[images.case]))
    return columns


def simulate_cache(
    like: str,
    out: Source,
    *,
    views: int = 8,
    seed: int = 0,
    truth_seed: int = 0,
    dim: int = DIM,
    cases: int | None = None,
    patients: float | None = None,
    preset: str = "plain",
    shard_images: int = SHARD_IMAGES,
    threads: int | None = None,
) -> Cache:
    """Write a cohort like `nlbs` or `rsna` (or a smaller one of `cases`) with `views` augmented views.

    `preset` names the law of the features, `patients` replaces its share of patients with several cases;
    where nobody has several there is no column of patients.
    """
    if views < 0:
        raise InputError(f"views: expected 0 or more augmented views, found {views}")
    for name, value in (("seed", seed), ("truth_seed", truth_seed)):
        if value < 0:
            raise InputError(f"{name}: expected 0 or more, found {value}")
    if cases is not None and cases > LARGEST_COHORT:
        raise InputError(f"cases: expected at most {LARGEST_COHORT}, found {cases}")
    law = choose_law(preset)
    if patients is not None:
        law = msgspec.structs.replace(law, patients=patients)
    cohort = SimulatedCohort(like, seed, truth_seed, dim, cases, law)
    fingerprint = simulated_fingerprint(seed, preset)
    pool = ThreadPoolExecutor(threads or os.cpu_count() or 1)
    with create_cache(out, cohort.manifest, views + 1, dim, fingerprint, shard_images) as writer, pool:

        def work(shard: int) -> None:
            writer.write_shard(shard, cohort.features(*writer.layout.bounds(shard), views + 1))

        for _ in pool.map(work, range(writer.layout.shards)):  # the first failure cancels what has not begun
            pass
    return open_cache(out)


def simulated_fingerprint(seed: int, preset: str = "plain") -> Fingerprint:
    """Return the fingerprint of the synthetic encoder: one for all cohorts, its views named by the preset."""
    parts = ("encoder", "weights_sha256", "recipe", "preprocessing", "runtime", "view_settings", "decoder")
    made = dict.fromkeys(parts, "simulated")
    if preset != "plain":
        made["view_settings"] = f"simulated, preset {preset}"
    return Fingerprint(**made, precision="float16", seed=seed)
