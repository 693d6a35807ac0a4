"""The arrays that the kernels work on, as named tuples: numba passes these by field."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Source(NamedTuple):
    """Where a fold's batches come from, and the streams of random numbers that choose them."""

    addresses: NDArray[np.int64]  # of every image of the cache
    stored_views: int
    dim: int
    positives: NDArray[np.int64]  # images to fit on
    negatives: NDArray[np.int64]
    batch_positives: int
    batch_negatives: int
    dropped: int  # of 256
    batch_key: np.uint64
    mask_key: np.uint64


class Weights(NamedTuple):
    """The state of a bank, dim padded to whole vectors and heads to whole blocks."""

    parameters: NDArray[np.float32]  # [head, gamma / beta / weight, dim]
    bias: NDArray[np.float64]  # [head]; in float32 a step of 3e-5 would be misrounded at a bias of 17
    first: NDArray[np.float32]  # [head, 3, dim], AdamW's moments
    second: NDArray[np.float32]  # [head, 3, dim]
    bias_moments: NDArray[np.float64]  # [head, first / second]
    products: NDArray[np.float32]  # [block, vector, head, gamma*weight / beta*weight, lane]


class HeadArrays(NamedTuple):
    """The settings of the heads, one number a head."""

    lambda_brier: NDArray[np.float64]
    lambda_focal: NDArray[np.float64]
    gamma: NDArray[np.float64]
    lambda_dismiss: NDArray[np.float64]
    floor: NDArray[np.float64]  # tau + margin: what a positive's score should reach
    lr: NDArray[np.float64]
    weight_decay: NDArray[np.float64]
    clip: NDArray[np.float64]


class Workspace(NamedTuple):
    """The buffers of one running kernel."""

    images: NDArray[np.int64]  # [row]
    views: NDArray[np.int64]  # [row]
    addresses: NDArray[np.int64]  # [row]
    centred: NDArray[np.float32]  # [row of a block, dim]
    factors: NDArray[np.float32]  # [row of a block], what a centred row is multiplied by
    words: NDArray[np.uint64]  # [row of a block, word], a random byte for each feature
    rows: NDArray[np.float32]  # [row block, vector, row, lane], masked
    sums: NDArray[np.float32]  # [row block, row, head, lane]
    slopes: NDArray[np.float32]  # [row, head]
    gradients: NDArray[np.float32]  # [head, by gamma*weight / by beta*weight, dim]
    head_gradients: NDArray[np.float32]  # [by gamma / beta / weight, dim]
