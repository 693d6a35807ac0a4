"""The law of simulated features: a few shared coordinates plus noise that is alike in every direction.

An image's clean features are x = m + B c + s e. The mean m and the columns of B belong to the (invented)
encoder: column 0 is the true direction, which comes from the truth seed; the others, the same for all, are
nuisance such as density or positioning. The coordinates c of an image are its case's plus its own, and on
the true direction `SHIFT` more where there is cancer. e is standard normal. An augmented view moves the
coordinates a little and adds fresh noise.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trust_cache.cache.cohorts import ImageShapes

# Chosen so that a head trained as the paper's reaches a case AUROC near 0.72 on both cohorts.
SHIFT = 1.15  # of cancer along the true direction, in standard deviations of a single image there
CASE_SHARE = 0.5  # of the variance of each coordinate that a case's images share
AMPLITUDE = 0.06  # root mean square change of one feature by one standard deviation of a coordinate
NUISANCES = 8
NUISANCE_DECAY = 0.85  # of one nuisance coordinate's spread to the next; the first is as wide as the truth
MEAN_SCALE = 0.4  # of the features' means, which are half-normal as after pooling
NOISE = 0.2
VIEW_SHIFT = 0.25  # of coordinates between views, in their standard deviations
VIEW_NOISE = 0.05


@dataclass(frozen=True)
class FeatureModel:
    """The parts of the law that all cohorts share; only the true direction is the truth seed's."""

    mean: NDArray[np.float64]  # [dim]
    basis: NDArray[np.float64]  # [dim, coordinate]

    @property
    def dim(self) -> int:
        """The number of features."""
        return int(self.mean.size)

    @property
    def coordinates(self) -> int:
        """The true direction and the nuisances."""
        return int(self.basis.shape[1])

    @cached_property
    def single(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The mean [dim] and the directions [coordinate, dim] as stored features are made from them."""
        return self.mean.astype(np.float32), np.ascontiguousarray(self.basis.T, dtype=np.float32)


def make_model(truth_seed: int, dim: int) -> FeatureModel:
    """Draw the encoder's mean and nuisances, the same for all, and the true direction of this seed."""
    encoder = np.random.Generator(np.random.PCG64(np.random.SeedSequence([dim])))
    truth = np.random.Generator(np.random.PCG64(np.random.SeedSequence([dim, truth_seed, 1])))
    mean = MEAN_SCALE * np.abs(encoder.standard_normal(dim))
    nuisances = encoder.standard_normal((dim, min(NUISANCES, dim - 1)))
    # The true direction comes last into the decomposition, so that the nuisances do not depend on it.
    columns, triangle = np.linalg.qr(np.column_stack([nuisances, truth.standard_normal(dim)]))
    directions = np.roll(columns * np.sign(np.diag(triangle)), 1, axis=1)
    spread = NUISANCE_DECAY ** np.maximum(0, np.arange(directions.shape[1]) - 1)
    return FeatureModel(mean, directions * (AMPLITUDE * np.sqrt(dim) * spread))


def draw_coordinates(
    model: FeatureModel, images: ImageShapes, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Draw the coordinates of the images' clean views [image, coordinate]."""
    cases = int(images.case[-1]) + 1 if images.case.size else 0
    of_case = generator.standard_normal((cases, model.coordinates))
    of_image = generator.standard_normal((images.case.size, model.coordinates))
    coordinates = np.sqrt(CASE_SHARE) * of_case[images.case] + np.sqrt(1.0 - CASE_SHARE) * of_image
    coordinates[:, 0] += SHIFT * images.label
    return np.asarray(coordinates)


def draw_features(
    model: FeatureModel, coordinates: NDArray[np.float64], views: int, generator: np.random.Generator
) -> NDArray[np.float16]:
    """Draw the stored features [view, dim] of one image from a stream of its own.

    The first views are the same however many there are, and every number is a chain of elementwise
    operations: matrix products would differ in the last bit between shapes and machines.
    """
    mean, directions = model.single
    draws = generator.standard_normal((views, model.dim + model.coordinates), dtype=np.float32)
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
