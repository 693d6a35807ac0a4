"""Group images into cases: a case's label and a case's score.

A case is positive if one of its images is, and its score is the maximum over its images.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True)
class Cases:
    """Cases sorted by case_id, their labels, and the position of each image's case."""

    case_ids: pl.Series
    labels: NDArray[np.int64]
    of_image: NDArray[np.int64]

    def score(self, images: NDArray[Number]) -> NDArray[Number]:
        """Return the case scores [..., case] of image scores [..., image]."""
        return case_maxima(images, self.of_image)


def find_cases(images: pl.DataFrame) -> Cases:
    """Return the cases of a table with the columns case_id and label, one row per image."""
    case_ids = images["case_id"].unique().sort()
    position = case_ids.to_frame().with_row_index("case")
    joined = images.select("case_id").join(position, on="case_id", how="left", maintain_order="left")
    of_image = joined["case"].cast(pl.Int64).to_numpy()
    labels = case_maxima(images["label"].cast(pl.Int64).to_numpy(), of_image)
    return Cases(case_ids, labels, of_image)


def case_maxima(images: NDArray[Number], of_image: NDArray[Any]) -> NDArray[Number]:
    """Aggregate image values [..., image] to cases 0, 1, ...: the maximum over each case's images."""
    order = np.argsort(of_image, kind="stable")
    grouped = of_image[order]
    starts = np.flatnonzero(np.append(True, grouped[1:] != grouped[:-1])[: grouped.size])
    return np.asarray(np.maximum.reduceat(images[..., order], starts, axis=-1))


def highest_images(scores: NDArray[np.floating], of_image: NDArray[Any]) -> NDArray[np.int64]:
    """Return for each case the image that sets its score."""
    order = np.lexsort((scores, of_image))
    last = np.append(of_image[order][1:] != of_image[order][:-1], True)
    return np.asarray(order[last], dtype=np.int64)


def deciding_image(scores: Mapping[str, float]) -> str | None:
    """Return the image that sets one case's score, the first by name among equals; None without images."""
    return max(sorted(scores), key=scores.__getitem__, default=None)
