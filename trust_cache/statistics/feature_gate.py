"""The feature gate: how unusual an image's features are beside those of the images that a head was fitted on.

No label is used. The fitting images' features, each scaled to deviation 1, are modelled by their first
principal components and equal variance in all other directions (probabilistic PCA): a shrunken covariance
whose Mahalanobis distance needs no large inverse. Held-out images say how the distance of an ordinary image
is distributed; beyond the last tenth the tail is extrapolated by Hill's estimator, so that a share of one in
a thousand can be stated from fewer than a thousand images.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

COMPONENTS = 32  # at most
MOST_FITTED = 2048  # images, evenly spaced: more change the components by less than folds differ
FEWEST_HELD_OUT = 100  # images; with fewer every second fitting image is held out too
_IMAGES_PER_COMPONENT = 10
_TAIL = 0.1  # share of the held-out images from which the tail begins
_LEAST_SLOPE = 0.02  # of log distance: floating point makes no difference that small
_LEAST_DEVIATION = 1e-6  # of a feature, as a share of the largest
_SEED = 16  # of the random start of the components
_ITERATIONS = 2
_DIGITS = 4  # significant, of a share


@dataclass(frozen=True)
class FeatureGate:
    """A model of ordinary features, and the tail of the distances of ordinary images."""

    centre: Floats  # [dim]
    scale: Floats  # [dim]
    basis: Floats  # [component, dim], orthonormal
    variances: Floats  # [component]
    residual: float  # variance in every other direction; 0 if there is none
    start: float  # the distance from which the tail begins
    slope: float  # mean excess of log distance beyond it

    def distances(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the distance [image] of features [image, dim]; about 1 for an ordinary image."""
        scaled = (np.asarray(features, dtype=np.float32) - self.centre) / self.scale
        along = scaled @ self.basis.T
        squares = _sums(np.square(along) / self.variances)
        if self.residual > 0:
            rest = _sums(np.square(scaled)) - _sums(np.square(along))
            squares = squares + np.maximum(rest, 0) / self.residual
        return np.asarray(np.sqrt(squares / self.centre.size), dtype=np.float64)

    def tails(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the share of ordinary images that are at least as far, for each image [image, dim].

        1 for most images: only the tail is told apart.
        """
        return tail_share(self.distances(features), self.start, self.slope)


def _sums(values: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.asarray(values.sum(axis=1, dtype=np.float64), dtype=np.float64)


def tail_share(distances: NDArray[np.float64], start: float, slope: float) -> NDArray[np.float64]:
    """Return the Pareto tail's share beyond each distance, with a few digits."""
    beyond = np.log(np.maximum(distances, np.finfo(np.float64).tiny) / start) / slope
    shares = np.minimum(_TAIL * np.exp(np.minimum(-beyond, 50)), 1.0)
    return np.array([float(f"{share:.{_DIGITS}g}") for share in shares.tolist()], dtype=np.float64)


def fit_gate(fitting: NDArray[np.floating], held_out: NDArray[np.floating]) -> FeatureGate:
    """Fit the gate on features [image, dim]; `held_out` are ordinary images that are not fitted on."""
    if len(held_out) < FEWEST_HELD_OUT and len(fitting) > 1:
        fitting, held_out = fitting[::2], np.concatenate([held_out, fitting[1::2]])
    chosen = np.linspace(0, len(fitting) - 1, min(len(fitting), MOST_FITTED)).astype(np.int64)
    features = np.asarray(fitting[np.unique(chosen)], dtype=np.float32)
    centre = features.mean(axis=0, dtype=np.float64).astype(np.float32)
    centred = features - centre
    deviation = np.sqrt(np.mean(np.square(centred), axis=0, dtype=np.float64))
    scale = np.maximum(deviation, max(_LEAST_DEVIATION * float(deviation.max()), 1e-12)).astype(np.float32)
    centred /= scale
    dim = centre.size
    components = max(1, min(COMPONENTS, dim, len(features) // _IMAGES_PER_COMPONENT))
    basis = _components(centred, components)
    along = centred @ basis.T
    total = float(_sums(np.square(centred)).mean())
    variances = np.mean(np.square(along), axis=0, dtype=np.float64)
    floor = max(1e-6 * total / dim, 1e-12)
    rest = (total - float(variances.sum())) / (dim - components) if dim > components else 0.0
    gate = FeatureGate(
        centre, scale, basis, np.maximum(variances, max(rest, floor)).astype(np.float32),
        max(rest, floor) if dim > components else 0.0, 1.0, 1.0,
    )  # fmt: skip
    start, slope = _tail_of(gate.distances(held_out if len(held_out) else features))
    return FeatureGate(centre, scale, basis, gate.variances, gate.residual, start, slope)


def _components(centred: Floats, count: int) -> Floats:
    """Return the first principal components [component, dim] by block power iteration."""
    images, dim = centred.shape
    if min(images, dim) <= 4 * count:
        return np.ascontiguousarray(np.linalg.svd(centred, full_matrices=False)[2][:count])
    start = np.random.default_rng(_SEED).standard_normal((dim, count + count // 4 + 8)).astype(np.float32)
    basis = np.linalg.qr(start)[0]
    for _ in range(_ITERATIONS):
        basis = np.linalg.qr(centred.T @ (centred @ basis))[0]
    rotation = np.linalg.svd(centred @ basis, full_matrices=False)[2]
    return np.ascontiguousarray((rotation @ basis.T)[:count].astype(np.float32))


def _tail_of(distances: NDArray[np.float64]) -> tuple[float, float]:
    """Return where the tail of distances begins and its slope by Hill's estimator, rounded up for few."""
    start = max(float(np.quantile(distances, 1 - _TAIL)), 1e-30)
    beyond = distances[distances > start]
    if not beyond.size:
        return start, _LEAST_SLOPE
    mean = float(np.mean(np.log(beyond / start)))
    return start, max(mean * (1 + 2 / np.sqrt(beyond.size)), _LEAST_SLOPE)
