"""Sketches: sixteen numbers an image by which the same picture is known again, whatever its id.

A sketch is a projection of the clean features, centred and of unit length, on fixed random signs. Its numbers
spread like standard normal ones over different images; decoders, batches and devices move them by about 1e-3.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from trust_cache.cache.rows import FeatureRows

Sketches = NDArray[np.int16]

NUMBERS = 16
TELLING_DIMS = 16  # with fewer features two images may agree by chance
_UNIT = 1000  # steps to one standard deviation
_SAME = 30  # steps in each number; images that differ by a tenth of their length agree once in 10^10 pairs
_SEED = 20  # of the signs: part of the format of model folders


def sketch_images(rows: FeatureRows) -> Sketches:
    """Return the sketch [image, number] of every image; zeros where features are constant or too few."""
    found = np.zeros((rows.images, NUMBERS), dtype=np.int16)
    if rows.dim < TELLING_DIMS:
        return found
    signs = _signs(rows.dim)
    for image in range(rows.images):
        clean = rows.clean(image).astype(np.float64)
        clean -= clean.mean()
        length = float(np.linalg.norm(clean))
        if length > 0:
            found[image] = np.rint(signs @ (clean / length) * _UNIT).clip(-(2**15), 2**15 - 1)
    return found


def same_images(known: Sketches, others: Sketches) -> NDArray[np.int64]:
    """Return the positions of `others` that show a picture of `known`."""
    telling = known[known.any(axis=1)].astype(np.float64)
    asked = np.flatnonzero(others.any(axis=1))
    if not telling.size or not asked.size:
        return np.empty(0, dtype=np.int64)
    nearest, _ = cKDTree(telling).query(
        others[asked].astype(np.float64), p=np.inf, distance_upper_bound=_SAME + 1
    )
    return np.asarray(asked[nearest <= _SAME], dtype=np.int64)


@lru_cache(maxsize=4)
def _signs(dim: int) -> NDArray[np.float64]:
    """Return fixed signs [number, dim] from a bit generator's raw output, which numpy keeps stable."""
    words = np.random.PCG64(np.random.SeedSequence(_SEED)).random_raw(NUMBERS * dim)
    return np.where(np.asarray(words, dtype=np.uint64) >> np.uint64(63), 1.0, -1.0).reshape(NUMBERS, dim)
