"""Random weights for B5: they depend on a seed alone and keep the differences between images alive."""

import hashlib
import math

import numpy as np
import torch
from numpy.typing import NDArray

from trust_cache.cache.backbone.mammo_clip import STAGE_DEPTHS

# Moments of silu(x) for x ~ N(0, 1): mean, mean square, variance.
_SILU_MEAN, _SILU_SQUARE, _SILU_VARIANCE = 0.20662, 0.35578, 0.31308
_BRANCH = 0.5  # standard deviation of what a residual branch adds to an input of standard deviation 1
_CLOSING = 1.0  # logit by which a gate closes at that scale: a louder input closes it further
_HIDDEN = 2.0  # what the hidden layer of a gate holds at that scale
_GATE_NOISE = 0.5
_HALF_RANGE = 1 << 20  # of the integers drawn
_FILTERS = 4  # dimensions of a convolution's weight


def random_b5(shapes: dict[str, torch.Size], seed: int) -> dict[str, torch.Tensor]:
    """Return weights for timm's B5 from its names and shapes: the same bytes on every start and machine.

    Each filter bank has its own counter-based stream of integers, centred and scaled in exactly rounded
    steps: neither global generators nor threads nor instruction sets have a say.

    With batch normalisation at the identity nothing holds a random network's scale, and 39 blocks of
    SiLU let it explode or fade. Two things do here. Filters across channels sum to zero, so that SiLU's
    positive mean does not pile up until all images look alike. And squeeze-and-excitation closes its gates
    the more, the larger their inputs: whatever an image's contrast, the scale returns to about 1.
    """
    return {name: _tensor(name, tuple(shape), seed) for name, shape in shapes.items()}


def _tensor(name: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    if len(shape) == _FILTERS:
        return torch.from_numpy(_filters(name, shape, seed).astype(np.float32))
    if name.endswith("num_batches_tracked"):
        return torch.zeros(shape, dtype=torch.int64)
    # Scales and variances of batch normalisation; its shifts and means, and the biases of the gates.
    return torch.ones(shape) if name.endswith((".weight", ".running_var")) else torch.zeros(shape)


def _filters(name: str, shape: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    channels = shape[1]
    if name.endswith("se.conv_reduce.weight"):
        return _zero_sum(name, shape, seed) * _GATE_NOISE + _HIDDEN / (_SILU_MEAN * channels)
    if name.endswith("se.conv_expand.weight"):
        silu = _HIDDEN / (1 + math.exp(-_HIDDEN))
        return _zero_sum(name, shape, seed) * _GATE_NOISE - _CLOSING / (silu * channels)
    if channels == 1 or name == "conv_stem.weight":  # depthwise; the stem's three channels are one image
        return _unit(name, shape, seed) * _gain(name)
    return _zero_sum(name, shape, seed) * _gain(name)


def _gain(name: str) -> float:
    """Return the factor that gives a convolution's outputs their intended scale."""
    if name == "conv_stem.weight":
        return 1.0
    if name == "conv_head.weight":
        return 1 / _scale_after(STAGE_DEPTHS[-1])
    _, stage_word, block_word, layer, _ = name.split(".")
    stage, block = int(stage_word), int(block_word)
    if layer == ("conv_dw" if stage == 0 else "conv_pw"):  # the first layer of a block
        if block:
            return 1 / _scale_after(block)
        return 1 / _scale_after(STAGE_DEPTHS[stage - 1]) if stage else 1 / math.sqrt(_SILU_SQUARE)
    if layer == "conv_dw":
        return 1 / math.sqrt(_SILU_SQUARE)
    gate = 1 / (1 + math.exp(_CLOSING))
    return (_BRANCH if block else 1.0) / (gate * math.sqrt(_SILU_VARIANCE))


def _scale_after(blocks: int) -> float:
    """Return the standard deviation after so many blocks of a stage, the first without a shortcut."""
    return math.sqrt(1 + _BRANCH**2 * (blocks - 1))


def _unit(name: str, shape: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    return _to_unit_sum(_integers(name, shape, seed).astype(np.float64))


def _zero_sum(name: str, shape: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    drawn = _integers(name, shape, seed)
    return _to_unit_sum(drawn - drawn.sum(axis=1, keepdims=True) / shape[1])  # a sum of integers is exact


def _to_unit_sum(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale uniform values so that a filter over independent inputs of variance 1 gives variance 1."""
    return values * (math.sqrt(3 / math.prod(values.shape[1:])) / _HALF_RANGE)


def _integers(name: str, shape: tuple[int, ...], seed: int) -> NDArray[np.int64]:
    key = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:16], "little")
    generator = np.random.Generator(np.random.Philox(key=key))
    return generator.integers(-_HALF_RANGE, _HALF_RANGE, size=shape, endpoint=True)
