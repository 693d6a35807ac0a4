"""The feature gate: how unusual an image's features are beside those of the images that a head was fitted on.

No label is used. The fitting images' features, each scaled to deviation 1, are modelled by their first
principal components and equal variance in all other directions (probabilistic PCA): a shrunken covariance
whose Mahalanobis distance needs no large inverse. Held-out images say how the distance of an ordinary image
is distributed; their last twentieth is extrapolated by a generalised Pareto tail, which may be light or
heavy, so that a share of one in a thousand can be stated from fewer than a thousand images.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Item = TypeVar("Item", bound=np.generic)

COMPONENTS = 32  # at most
MOST_FITTED = 2048  # images, evenly spaced: more change the components by less than folds differ
FEWEST_HELD_OUT = 100  # images; with fewer every second fitting image is held out too
_IMAGES_PER_COMPONENT = 10
TAIL = 0.05  # share of the held-out images from which the tail begins
_SHAPE_IMAGES = 30  # of the tail; with fewer its shape is drawn more than half of the way to an exponential
_LARGEST_SHAPE = 0.5  # above, the second L-moment is mostly noise
_LARGEST_EXCESS = 20  # times the median: a few unusual held-out images must not hide others like them
_LEAST_EXCESS = 0.002  # mean, as a share of the distance: rounding and runtimes make differences that small
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
    spread: float  # of the generalised Pareto tail beyond it: its scale
    shape: float  # 0: exponential, above: heavier, below: it ends

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
        return tail_share(self.distances(features), self.start, self.spread, self.shape)


def _sums(values: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.asarray(values.sum(axis=1, dtype=np.float64), dtype=np.float64)


def tail_share(
    distances: NDArray[np.float64], start: float, spread: float, shape: float
) -> NDArray[np.float64]:
    """Return the generalised Pareto tail's share beyond each distance, with a few digits; 1 before it."""
    beyond = (distances - start) / spread
    logs = -beyond if shape == 0 else -np.log(np.maximum(1 + shape * beyond, 1e-300)) / shape
    shares = np.where(beyond > 0, TAIL * np.exp(np.minimum(logs, 0)), 1.0)
    return np.array([float(f"{share:.{_DIGITS}g}") for share in shares.tolist()], dtype=np.float64)


def evenly_spaced(images: NDArray[Item]) -> NDArray[Item]:
    """Return the images that a gate is fitted on where there are more than it needs."""
    chosen = np.linspace(0, len(images) - 1, min(len(images), MOST_FITTED)).astype(np.int64)
    return images[np.unique(chosen)]


def fit_gate(fitting: NDArray[np.floating], held_out: NDArray[np.floating]) -> FeatureGate:
    """Fit the gate on features [image, dim]; `held_out` are ordinary images that are not fitted on."""
    if len(held_out) < FEWEST_HELD_OUT and len(fitting) > 1:
        fitting, held_out = fitting[::2], np.concatenate([held_out, fitting[1::2]])
    features = np.asarray(evenly_spaced(fitting), dtype=np.float32)
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
        max(rest, floor) if dim > components else 0.0, start=1.0, spread=1.0, shape=0.0,
    )  # fmt: skip
    start, spread, shape = _tail_of(gate.distances(held_out if len(held_out) else features))
    return replace(gate, start=start, spread=spread, shape=shape)


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


def _tail_of(distances: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return start, scale and shape of a generalised Pareto tail by L-moments (Hosking and Wallis 1987).

    The scale is enlarged by one standard error, so that few held-out images seldom stop ordinary ones.
    """
    start = max(float(np.quantile(distances, 1 - TAIL)), 1e-30)
    excess = np.sort(distances[distances > start] - start)
    if excess.size:
        excess = np.minimum(excess, _LARGEST_EXCESS * np.median(excess))
    least, count = _LEAST_EXCESS * start, excess.size
    if count < 2 or (mean := float(excess.mean())) < least:  # noqa: PLR2004 - two are needed for a spread
        return start, least, 0.0
    half_gap = 2 * float(np.arange(count) @ excess) / (count * (count - 1)) - mean  # the second L-moment
    shape = (2 - mean / half_gap) if half_gap > 0 else 0.0
    shape = min(count * shape / (count + _SHAPE_IMAGES), _LARGEST_SHAPE)
    return start, (1 - shape) * mean * (1 + 1 / np.sqrt(count)), shape
