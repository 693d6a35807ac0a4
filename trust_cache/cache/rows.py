"""Rows of features by address: the one form in which memory, HDF5 and shards reach the kernels."""

import ctypes
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class FeatureRows:
    """float16 features [image, view, dim], each image's block contiguous but lying anywhere.

    `addresses[i]` is where image i's view 0 starts; view v follows `v * dim` elements later. `owner` keeps
    the memory (an array or memory maps) alive as long as the addresses are in use.
    """

    addresses: NDArray[np.int64]
    views: int  # stored views, the clean one included
    dim: int
    owner: object = field(repr=False)

    @property
    def images(self) -> int:
        """The number of images."""
        return int(self.addresses.size)

    def clean(self, image: int) -> NDArray[np.float16]:
        """Return the clean view [dim] of one image, not a copy: of use as long as this record is kept."""
        memory = (ctypes.c_uint16 * self.dim).from_address(int(self.addresses[image]))
        return np.ctypeslib.as_array(memory).view(np.float16)


def rows_of_array(features: NDArray[np.float16]) -> FeatureRows:
    """Return the rows of a C-contiguous float16 array [image, view, dim] without copying it."""
    if features.dtype != np.float16 or features.ndim != 3 or not features.flags.c_contiguous:  # noqa: PLR2004
        raise TypeError("expected a C-contiguous float16 array [image, view, dim]")
    images, views, dim = features.shape
    base, step = features.ctypes.data, views * dim * features.itemsize
    addresses = base + step * np.arange(images, dtype=np.int64)
    return FeatureRows(addresses, views, dim, owner=features)
