"""Cut a picture down to its breast: the mask's box with a margin, black outside of the mask."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Box:
    """Rows `top` to `bottom` and columns `left` to `right`, the ends excluded."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def slices(self) -> tuple[slice, slice]:
        """Return what cuts the box out of an array."""
        return slice(self.top, self.bottom), slice(self.left, self.right)


def box_of(mask: NDArray[np.bool_], margin: float) -> Box:
    """Return the mask's bounding box with `margin` of its size on each side, clipped to the image."""
    rows = np.flatnonzero(mask.any(axis=1))
    columns = np.flatnonzero(mask.any(axis=0))
    top, bottom = _with_margin(rows, margin, mask.shape[0])
    left, right = _with_margin(columns, margin, mask.shape[1])
    return Box(top, bottom, left, right)


def cut_out(image: NDArray[np.uint16], mask: NDArray[np.bool_], box: Box) -> NDArray[np.uint16]:
    """Return the box's pixels, zero outside of the mask."""
    return image[box.slices] * mask[box.slices]


def mirror(image: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Mirror left and right."""
    return np.asarray(cv2.flip(image, 1), dtype=np.uint16)  # a tenth of the time of a reversed copy


def _with_margin(occupied: NDArray[np.intp], margin: float, size: int) -> tuple[int, int]:
    first, last = int(occupied[0]), int(occupied[-1]) + 1
    extra = round(margin * (last - first))
    return max(first - extra, 0), min(last + extra, size)
