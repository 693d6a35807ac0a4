"""Features as the rivals' linear models take them: clean views, normalised as a head's LayerNorm does."""

import ctypes

import numpy as np
from numpy.typing import NDArray

from trust_cache.cache.rows import FeatureRows

_EPSILON = 1e-5  # LayerNorm's
_TOGETHER = 1024  # images


def normalised_features(rows: FeatureRows, images: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return x' [image, dim] of the images' clean views: mean 0 and variance 1 over each image's features."""
    out = np.empty((images.size, rows.dim), dtype=np.float32)
    row = ctypes.c_uint16 * rows.dim
    for first in range(0, images.size, _TOGETHER):
        block = out[first : first + _TOGETHER]
        for target, image in zip(block, images[first : first + _TOGETHER], strict=True):
            target[:] = np.ctypeslib.as_array(row.from_address(int(rows.addresses[image]))).view(np.float16)
        block -= block.mean(axis=1, keepdims=True, dtype=np.float64)
        variance = np.mean(block * block, axis=1, keepdims=True, dtype=np.float64)
        block /= np.sqrt(variance + _EPSILON)
    return out
