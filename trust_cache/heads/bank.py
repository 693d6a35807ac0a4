"""A bank: many heads in the arrays that the kernels train and score."""

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.feature_rows import FeatureRows
from trust_cache.heads.draws import Draws
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings
from trust_cache.heads.losses import sigmoid

if TYPE_CHECKING:
    import torch

    from trust_cache.heads.kernel_parts import HeadArrays, RowSource, Weights, Workspace

# The kernels are imported where they are used: numba takes 0.2 s, and features load meanwhile.

Images = NDArray[np.int64]  # by their number in the cache
Floats = NDArray[np.float32]
_CACHE_LINE = 64  # bytes; a vector that crosses one costs twice
_EPSILON = 1e-5  # LayerNorm's
_NORMALISED_TOGETHER = 1024  # images
_SCORED_TOGETHER = 80  # rows: with their masks 1.3 MB of float32, a second-level cache


@dataclass(frozen=True)
class HeadParameters:
    """The parameters of heads: logit = weight . (gamma x' + beta) + bias, x' the normalised features."""

    gamma: Floats  # [head, dim]
    beta: Floats
    weight: Floats
    bias: Floats  # [head]

    @property
    def heads(self) -> int:
        """The number of heads."""
        return int(self.weight.shape[0])

    @property
    def dim(self) -> int:
        """The number of features."""
        return int(self.weight.shape[1])


def initial_parameters(draws: Draws, heads: int, dim: int) -> HeadParameters:
    """Return PyTorch's default initialisation, the same for every head of a fold."""
    weight, bias = draws.initial_weights(dim)
    shape = (heads, dim)
    return HeadParameters(
        np.ones(shape, dtype=np.float32),
        np.zeros(shape, dtype=np.float32),
        np.broadcast_to(weight, shape),
        np.full(heads, bias, dtype=np.float32),
    )


def to_torch(
    gamma: Floats, beta: Floats, weight: Floats, bias: float, dropout: float = 77 / 256
) -> "torch.nn.Sequential":
    """Return LayerNorm, Dropout and Linear in evaluation mode: features [n, dim] to logits [n, 1]."""
    import torch

    dim = weight.size
    module = torch.nn.Sequential(torch.nn.LayerNorm(dim), torch.nn.Dropout(dropout), torch.nn.Linear(dim, 1))
    arrays = {"0.weight": gamma, "0.bias": beta, "2.weight": weight[None], "2.bias": np.array([bias])}
    state = {name: torch.tensor(np.asarray(array, dtype=np.float32)) for name, array in arrays.items()}
    module.load_state_dict(state)
    return module.eval()


def normalised_features(
    rows: FeatureRows, images: Images, views: Images | int = 0, *, centred: bool = True
) -> Floats:
    """Return x' [image, dim]: mean 0 and variance 1 over each image's features; view 0 is the clean one.

    With `centred` false the mean stays: a faint feature beside huge ones keeps its digits.
    """
    out = np.empty((images.size, rows.dim), dtype=np.float32)
    row = ctypes.c_uint16 * rows.dim
    addresses = rows.addresses[images] + np.dtype(np.float16).itemsize * rows.dim * np.asarray(views)
    for first in range(0, images.size, _NORMALISED_TOGETHER):
        block = out[first : first + _NORMALISED_TOGETHER]
        for target, address in zip(
            block, addresses[first : first + _NORMALISED_TOGETHER].tolist(), strict=True
        ):
            target[:] = np.ctypeslib.as_array(row.from_address(address)).view(np.float16)
        apart = block - block.mean(axis=1, keepdims=True, dtype=np.float64)
        if centred:
            block[:] = apart
        variance = np.mean(apart * apart, axis=1, keepdims=True, dtype=np.float64)
        block /= np.sqrt(variance + _EPSILON)
    return out


def score_rows(rows: FeatureRows, images: Images, parameters: HeadParameters) -> NDArray[np.float64]:
    """Return the scores [head, image] of the images' clean views, without dropout; NaN without features.

    A score depends on its head and image alone, bit for bit.
    """
    if parameters.dim != rows.dim:
        raise InputError(f"heads: expected {rows.dim} features, as the cache has, found {parameters.dim}")
    source = make_source(rows, TrainingSettings(), images[:0], images[:0], Draws(0, 0))
    scores = score_images(source, images, make_weights(parameters), parameters.heads)
    scores[:, ~rows.present[images]] = np.nan
    return scores


def score_images(
    source: "RowSource", images: Images, weights: "Weights", heads: int, work: "Workspace | None" = None
) -> NDArray[np.float64]:
    """Score images with the first heads of a bank: float32 logits, their sigmoid in float64."""
    from trust_cache.heads import kernels

    work = work or make_workspace(_SCORED_TOGETHER, source.dim)
    logits = np.empty((heads, images.size), dtype=np.float32)
    kernels.find_logits(source, np.ascontiguousarray(images, dtype=np.int64), weights, work, logits)
    return sigmoid(logits)


def train_steps(
    source: "RowSource",
    arrays: "HeadArrays",
    weights: "Weights",
    heads: int,
    begin: int,
    end: int,
    work: "Workspace",
) -> None:
    """Train the first heads of a bank in place, from step `begin` to before `end`."""
    from trust_cache.heads import kernels

    kernels.train_steps(source, arrays, weights, heads, begin, end, work)


def make_source(
    rows: FeatureRows, training: TrainingSettings, positives: Images, negatives: Images, draws: Draws
) -> "RowSource":
    """Return the rows that a fold's batches are drawn from."""
    from trust_cache.heads.kernel_parts import RowSource

    return RowSource(
        np.ascontiguousarray(rows.addresses),
        rows.views,
        rows.dim,
        np.ascontiguousarray(positives, dtype=np.int64),
        np.ascontiguousarray(negatives, dtype=np.int64),
        training.batch_positives,
        training.batch_negatives,
        training.dropped_of_256,
        draws.batch_key,
        draws.mask_key,
    )


def make_weights(parameters: HeadParameters) -> "Weights":
    """Return a bank that starts at these parameters; padding is zero and stays so."""
    from trust_cache.heads import kernels
    from trust_cache.heads.kernel_parts import LANES, Weights

    heads, dim = parameters.heads, parameters.dim
    blocks, vectors = -(-heads // kernels.HEADS), -(-dim // LANES)
    shape = (blocks * kernels.HEADS, 3, vectors * LANES)
    weights = Weights(
        _aligned(shape),
        np.zeros(shape[0]),
        _aligned(shape),
        _aligned(shape),
        np.zeros((shape[0], 2)),
        _aligned((blocks, vectors, kernels.HEADS, 2, LANES)),
    )
    for i, values in enumerate((parameters.gamma, parameters.beta, parameters.weight)):
        weights.parameters[:heads, i, :dim] = values
    weights.bias[:heads] = parameters.bias
    for head in range(heads):
        kernels.pack_products(weights, head)
    return weights


def read_parameters(weights: "Weights", heads: int, dim: int) -> HeadParameters:
    """Return a copy of the first heads' parameters."""
    gamma, beta, weight = (weights.parameters[:heads, i, :dim].copy() for i in range(3))
    return HeadParameters(gamma, beta, weight, weights.bias[:heads].astype(np.float32))


def make_head_arrays(heads: Sequence[HeadSettings]) -> "HeadArrays":
    """Return the heads' settings as arrays; the trainer sets `floor` where tau moves."""
    from trust_cache.heads.kernel_parts import HeadArrays

    floors = [head.margin + (head.tau if isinstance(head.tau, float) else 0.0) for head in heads]
    names = [name for name in HeadArrays._fields if name != "floor"]
    columns = {name: np.array([getattr(head, name) for head in heads], dtype=np.float64) for name in names}
    return HeadArrays(**columns, floor=np.array(floors))


def make_workspace(rows: int, dim: int) -> "Workspace":
    """Return the buffers for batches of at most `rows` rows."""
    from trust_cache.heads import kernels
    from trust_cache.heads.kernel_parts import LANES, Workspace

    blocks, vectors = -(-rows // kernels.ROWS), -(-dim // LANES)
    padded = vectors * LANES
    return Workspace(
        images=np.zeros(rows, dtype=np.int64),
        views=np.zeros(rows, dtype=np.int64),
        addresses=np.zeros(rows, dtype=np.int64),
        centred=_aligned((kernels.ROWS, padded)),
        factors=np.zeros(kernels.ROWS, dtype=np.float32),
        words=_aligned((kernels.ROWS, padded // 4)).view(np.uint64),
        rows=_aligned((blocks, vectors, kernels.ROWS, LANES)),
        sums=_aligned((blocks, kernels.ROWS, kernels.HEADS, LANES)),
        slopes=_aligned((blocks * kernels.ROWS, kernels.HEADS)),
        gradients=_aligned((kernels.HEADS, 2, padded)),
        head_gradients=_aligned((3, padded)),
    )


def _aligned(shape: tuple[int, ...]) -> Floats:
    """Return zeros aligned to a cache line."""
    size = 4 * math.prod(shape)
    memory = np.zeros(size + _CACHE_LINE, dtype=np.uint8)
    start = -memory.ctypes.data % _CACHE_LINE
    return memory[start : start + size].view(np.float32).reshape(shape)
