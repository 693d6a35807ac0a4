"""Make random weights for an EfficientNet that are equal everywhere and keep the features of images apart."""

import hashlib
import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

# Moments of silu(x) for x ~ N(0, 1): mean, mean square, variance.
_SILU_MEAN, _SILU_SQUARE, _SILU_VARIANCE = 0.20662, 0.35578, 0.31308
_BRANCH = 0.5  # standard deviation of what a residual branch adds to an input of standard deviation 1
_CLOSING = 1.0  # logit by which a gate closes at that scale: a louder input closes it further
_HIDDEN = 2.0  # what the hidden layer of a gate holds at that scale
_GATE_NOISE = 0.5
_HALF_RANGE = 1 << 20  # of the integers drawn
_FILTERS = 4  # dimensions of a convolution's weight


def random_efficientnet(shapes: Mapping[str, torch.Size], seed: int) -> dict[str, torch.Tensor]:
    """Return weights for timm's EfficientNets, from names and shapes: the same bytes on every machine.

    Each filter bank has its own counter-based stream of integers, centred and scaled in exactly rounded
    steps: global generators, threads and instruction sets do not change the result.

    With batch normalisation at the identity, the scale of a random network with dozens of blocks of SiLU
    would explode or vanish. Two rules prevent this. Filters across channels sum to zero, so that SiLU's
    positive mean does not accumulate until all images look alike. Squeeze-and-excitation closes its gates
    more for larger inputs, so that the scale returns to about 1 whatever an image's contrast.
    """
    depths: dict[int, int] = {}  # blocks by stage
    for name in shapes:
        if name.startswith("blocks."):
            _, stage, block, *_ = name.split(".")
            depths[int(stage)] = max(depths.get(int(stage), 0), int(block) + 1)
    tensors = {}
    for name, shape in shapes.items():
        if len(shape) == _FILTERS:
            tensors[name] = torch.from_numpy(_filters(name, tuple(shape), seed, depths).astype(np.float32))
        elif name.endswith("num_batches_tracked"):
            tensors[name] = torch.zeros(shape, dtype=torch.int64)
        else:  # scales and variances of batch normalisation; its shifts and means, and the gates' biases
            ones = name.endswith((".weight", ".running_var"))
            tensors[name] = torch.ones(shape) if ones else torch.zeros(shape)
    return tensors


def _filters(name: str, shape: tuple[int, ...], seed: int, depths: Mapping[int, int]) -> NDArray[np.float64]:
    key = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:16], "little")
    generator = np.random.Generator(np.random.Philox(key=key))
    drawn = generator.integers(-_HALF_RANGE, _HALF_RANGE, size=shape, endpoint=True)
    channels = shape[1]
    if channels == 1 or name == "conv_stem.weight":  # depthwise; the stem's three channels are one image
        return _to_unit_sum(drawn.astype(np.float64)) * _gain(name, depths)
    zero_sum = _to_unit_sum(drawn - drawn.sum(axis=1, keepdims=True) / channels)  # a sum of integers is exact
    if name.endswith("se.conv_reduce.weight"):
        return zero_sum * _GATE_NOISE + _HIDDEN / (_SILU_MEAN * channels)
    if name.endswith("se.conv_expand.weight"):
        silu = _HIDDEN / (1 + math.exp(-_HIDDEN))
        return zero_sum * _GATE_NOISE - _CLOSING / (silu * channels)
    return zero_sum * _gain(name, depths)


def _gain(name: str, depths: Mapping[int, int]) -> float:
    """Return the factor that gives a convolution's outputs their intended scale."""
    if name == "conv_stem.weight":
        return 1.0
    if name == "conv_head.weight":
        return 1 / _scale_after(depths[max(depths)])
    _, stage_word, block_word, layer, _ = name.split(".")
    stage, block = int(stage_word), int(block_word)
    if layer == ("conv_dw" if stage == 0 else "conv_pw"):  # the first layer of a block
        if block:
            return 1 / _scale_after(block)
        return 1 / _scale_after(depths[stage - 1]) if stage else 1 / math.sqrt(_SILU_SQUARE)
    if layer == "conv_dw":
        return 1 / math.sqrt(_SILU_SQUARE)
    gate = 1 / (1 + math.exp(_CLOSING))
    return (_BRANCH if block else 1.0) / (gate * math.sqrt(_SILU_VARIANCE))


def _scale_after(blocks: int) -> float:
    """Return the standard deviation after so many blocks of a stage, the first without a shortcut."""
    return math.sqrt(1 + _BRANCH**2 * (blocks - 1))


def _to_unit_sum(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale uniform values so that a filter over independent inputs of variance 1 gives variance 1."""
    return values * (math.sqrt(3 / math.prod(values.shape[1:])) / _HALF_RANGE)
