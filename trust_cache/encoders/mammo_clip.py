"""Build Mammo-CLIP's image encoder: timm's B5 with the fixed padding of its training."""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from trust_cache.base.errors import InputError
from trust_cache.encoders.encoder import EncoderFamily, Size
from trust_cache.encoders.timm_models import fit_to_network, import_timm

NAME = "mammo-clip-b5"
ARCHITECTURE = "tf_efficientnet_b5"
STAGE_DEPTHS = (3, 5, 5, 7, 7, 9, 3)  # blocks

# Left, right, top, bottom of the strided convolutions; all others pad the same in both. timm computes the
# padding from each input's size instead: at 1520 x 912 its features are then 6-8 % off.
STATIC_PADS = {
    "conv_stem": (0, 1, 0, 1),
    "blocks.1.0.conv_dw": (0, 1, 0, 1),
    "blocks.2.0.conv_dw": (1, 2, 1, 2),
    "blocks.3.0.conv_dw": (1, 1, 1, 1),
    "blocks.5.0.conv_dw": (2, 2, 2, 2),
}

# From the names of efficientnet_pytorch to those of timm.
_CLASSIFIER = "_fc."

_OUTER = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}
_GATE = {"_se_reduce": "se.conv_reduce", "_se_expand": "se.conv_expand"}
_FIRST_STAGE = {
    "_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2", **_GATE
}  # fmt: skip
_LATER_STAGES = {
    "_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2",
    "_project_conv": "conv_pwl", "_bn2": "bn3", **_GATE,
}  # fmt: skip
_BLOCK = re.compile(r"_blocks\.(\d+)\.(_\w+)\.(\w+)")
_PLACES = [(stage, block) for stage, depth in enumerate(STAGE_DEPTHS) for block in range(depth)]

# Moments of silu(x) for x ~ N(0, 1): mean, mean square, variance.
_SILU_MEAN, _SILU_SQUARE, _SILU_VARIANCE = 0.20662, 0.35578, 0.31308
_BRANCH = 0.5  # standard deviation of what a residual branch adds to an input of standard deviation 1
_CLOSING = 1.0  # logit by which a gate closes at that scale: a louder input closes it further
_HIDDEN = 2.0  # what the hidden layer of a gate holds at that scale
_GATE_NOISE = 0.5
_HALF_RANGE = 1 << 20  # of the integers drawn
_FILTERS = 4  # dimensions of a convolution's weight


class StaticPaddingConv(nn.Conv2d):
    """A convolution with the same zeros around every input, whatever its size."""

    def __init__(self, original: nn.Conv2d, pads: tuple[int, int, int, int]) -> None:
        super().__init__(
            original.in_channels,
            original.out_channels,
            (original.kernel_size[0], original.kernel_size[1]),
            stride=(original.stride[0], original.stride[1]),
            groups=original.groups,
            bias=original.bias is not None,
            device=original.weight.device,
        )
        self.pads = pads

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as in torch
        """Pad, then convolve."""
        return super().forward(functional.pad(input, self.pads))


class MammoClip(EncoderFamily):
    """Mammo-CLIP's B5. Its network is built on the meta device: every tensor of it is in its state."""

    padding = "static-456"  # TF-SAME padding as it falls for a 456 x 456 input, at every input size
    refusal = (
        f"Weights of timm's own {ARCHITECTURE} would fit and be padded wrongly; for those say"
        f" --encoder {ARCHITECTURE}"
    )

    def describe(self) -> str:
        """Return the one name."""
        return repr(NAME)

    def names(self) -> Sequence[str]:
        """Return the one name."""
        return (NAME,)

    def architecture(self, encoder: str) -> str:  # noqa: ARG002 - there is one
        """Return timm's name."""
        return ARCHITECTURE

    def dim(self, encoder: str, image_size: Size) -> int:  # noqa: ARG002 - any size gives as many
        """Return the number of features."""
        return 2048

    def build(self, encoder: str, image_size: Size | None) -> nn.Module:  # noqa: ARG002 - as above
        """Return B5 without a classifier and without weights."""
        with torch.device("meta"):
            network: nn.Module = import_timm().create_model(ARCHITECTURE, pretrained=False, num_classes=0)
            strided = {
                name: module
                for name, module in network.named_modules()
                if isinstance(module, nn.Conv2d) and module.stride != (1, 1)
            }
            if set(strided) != set(STATIC_PADS):
                raise InputError(
                    f"this timm builds another {ARCHITECTURE}: its strided convolutions are {set(strided)}"
                )
            for name, pads in STATIC_PADS.items():
                network.set_submodule(name, StaticPaddingConv(strided[name], pads))
        return network

    def random_state(self, network: nn.Module, seed: int) -> Mapping[str, Tensor]:
        """Return weights that are equal on every start and machine."""
        return random_b5({name: tensor.shape for name, tensor in network.state_dict().items()}, seed)

    def adapt(
        self, network: nn.Module, found: Mapping[str, Tensor]
    ) -> tuple[Mapping[str, Tensor], tuple[str, ...]]:
        """Translate efficientnet_pytorch's names; names that B5 does not have stay as they are."""
        if not self.recognises(found):
            return fit_to_network(network, found), ()
        classifier = sorted(name for name in found if name.startswith(_CLASSIFIER))
        notes = (f"left out the classifier ({', '.join(classifier)})",) if classifier else ()
        return {timm_name(name) or name: found[name] for name in found if name not in classifier}, notes

    def recognises(self, found: Mapping[str, Tensor]) -> bool:
        """Return whether the names are those of efficientnet_pytorch's B5."""
        return any(timm_name(name) for name in found)


def timm_name(name: str) -> str | None:
    """Return timm's name for a tensor of efficientnet_pytorch's B5, or None if B5 has no such tensor."""
    if match := _BLOCK.fullmatch(name):
        number, layer, rest = int(match[1]), match[2], match[3]
        if number >= len(_PLACES):
            return None
        stage, block = _PLACES[number]
        translated = (_LATER_STAGES if stage else _FIRST_STAGE).get(layer)
        return translated and f"blocks.{stage}.{block}.{translated}.{rest}"
    layer, _, rest = name.partition(".")
    return f"{_OUTER[layer]}.{rest}" if layer in _OUTER and rest else None


def random_b5(shapes: dict[str, torch.Size], seed: int) -> dict[str, torch.Tensor]:
    """Return weights for timm's B5 from its names and shapes: the same bytes on every start and machine.

    Each filter bank has its own counter-based stream of integers, centred and scaled in exactly rounded
    steps: global generators, threads and instruction sets do not change the result.

    With batch normalisation at the identity, the scale of a random network with 39 blocks of SiLU would
    explode or vanish. Two rules prevent this. Filters across channels sum to zero, so that SiLU's positive
    mean does not accumulate until all images look alike. Squeeze-and-excitation closes its gates more for
    larger inputs, so that the scale returns to about 1 whatever an image's contrast.
    """
    tensors = {}
    for name, shape in shapes.items():
        if len(shape) == _FILTERS:
            tensors[name] = torch.from_numpy(_filters(name, tuple(shape), seed).astype(np.float32))
        elif name.endswith("num_batches_tracked"):
            tensors[name] = torch.zeros(shape, dtype=torch.int64)
        else:  # scales and variances of batch normalisation; its shifts and means, and the gates' biases
            ones = name.endswith((".weight", ".running_var"))
            tensors[name] = torch.ones(shape) if ones else torch.zeros(shape)
    return tensors


def _filters(name: str, shape: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    key = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:16], "little")
    generator = np.random.Generator(np.random.Philox(key=key))
    drawn = generator.integers(-_HALF_RANGE, _HALF_RANGE, size=shape, endpoint=True)
    channels = shape[1]
    if channels == 1 or name == "conv_stem.weight":  # depthwise; the stem's three channels are one image
        return _to_unit_sum(drawn.astype(np.float64)) * _gain(name)
    zero_sum = _to_unit_sum(drawn - drawn.sum(axis=1, keepdims=True) / channels)  # a sum of integers is exact
    if name.endswith("se.conv_reduce.weight"):
        return zero_sum * _GATE_NOISE + _HIDDEN / (_SILU_MEAN * channels)
    if name.endswith("se.conv_expand.weight"):
        silu = _HIDDEN / (1 + math.exp(-_HIDDEN))
        return zero_sum * _GATE_NOISE - _CLOSING / (silu * channels)
    return zero_sum * _gain(name)


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


def _to_unit_sum(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale uniform values so that a filter over independent inputs of variance 1 gives variance 1."""
    return values * (math.sqrt(3 / math.prod(values.shape[1:])) / _HALF_RANGE)
