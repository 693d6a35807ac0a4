"""Build the image encoders of Mammo-CLIP (B5, B2) and Mammo-FM: timm's networks with their fixed padding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from trust_cache.base.errors import InputError
from trust_cache.encoders.efficientnet_names import HEAD, is_efficientnet_pytorch, translate_names
from trust_cache.encoders.encoder import EncoderFamily
from trust_cache.encoders.random_weights import random_efficientnet
from trust_cache.encoders.recipe import DEFAULT_ENCODER, IMAGE_SIZE, Recipe, RecipeKeys
from trust_cache.encoders.timm_models import fit_to_network, import_timm

NAME, SMALL, MAMMO_FM = DEFAULT_ENCODER, "mammo-clip-b2", "mammo-fm"
RECIPE = Recipe(
    image_size=IMAGE_SIZE,
    resize="bilinear",
    antialias=False,  # as OpenCV and torch resize by default
    keep_proportions=False,
    intensity="min-max after resize",
    mean=(0.3089279,) * 3,
    std=(0.25053555408335154,) * 3,
    channels=3,
    pooling="avg",
)


@dataclass(frozen=True)
class NetworkKind:
    """A size of EfficientNet: timm's name, blocks of each stage, and the input that its padding is for."""

    architecture: str
    depths: tuple[int, ...]
    side: int
    dim: int


B5 = NetworkKind("tf_efficientnet_b5", (3, 5, 5, 7, 7, 9, 3), side=456, dim=2048)
B2 = NetworkKind("tf_efficientnet_b2", (2, 3, 3, 4, 4, 5, 2), side=260, dim=1408)
NETWORKS = {NAME: B5, SMALL: B2, MAMMO_FM: B5}
_STRIDED = ["conv_stem", *(f"blocks.{stage}.0.conv_dw" for stage in (1, 2, 3, 5))]


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
        self.pads = pads  # left, right, top, bottom

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as in torch
        """Pad, then convolve."""
        return super().forward(functional.pad(input, self.pads))


class MammoClip(EncoderFamily):
    """Mammo-CLIP and Mammo-FM. Networks are built on the meta device: every tensor is in their state."""

    def describe(self) -> str:
        """Return the names."""
        return ", ".join(map(repr, NETWORKS))

    def names(self) -> Sequence[str]:
        """Return the names."""
        return tuple(NETWORKS)

    def architecture(self, encoder: str) -> str:
        """Return timm's name."""
        return NETWORKS[encoder].architecture

    def padding(self, encoder: str) -> str:
        """Return TF-SAME padding as it falls for a square input of one size, at every input size."""
        return f"static-{NETWORKS[encoder].side}"

    def refusal(self, encoder: str) -> str:
        """Say that timm's own weights have the same names and shapes."""
        stock = NETWORKS[encoder].architecture
        return (
            f"Weights of timm's own {stock} would fit and be padded wrongly; for those say --encoder {stock}"
        )

    def recipe(self, encoder: str, weights: Path | None) -> RecipeKeys:  # noqa: ARG002 - the same for all
        """Return how their training read pictures."""
        return RecipeKeys(**RECIPE.as_document())

    def dim(self, encoder: str, recipe: Recipe, weights: Path | None) -> int:  # noqa: ARG002 - any size gives as many
        """Return the number of features."""
        _require_own(encoder, recipe)
        return NETWORKS[encoder].dim

    def build(self, encoder: str, recipe: Recipe | None, weights: Path | None) -> nn.Module:  # noqa: ARG002 - as above
        """Return the network without a classifier and without weights.

        timm computes the padding of strided convolutions from each input's size: at 1520 x 912 the features
        of B5 are then 6-8 % off. All other convolutions pad the same in both.
        """
        if recipe is not None:
            _require_own(encoder, recipe)
        kind = NETWORKS[encoder]
        with torch.device("meta"):
            network: nn.Module = import_timm().create_model(
                kind.architecture, pretrained=False, num_classes=0
            )
            strided = {
                name: module
                for name, module in network.named_modules()
                if isinstance(module, nn.Conv2d) and module.stride != (1, 1)
            }
            if list(strided) != _STRIDED:
                raise InputError(
                    f"this timm builds another {kind.architecture}: its strided convolutions are"
                    f" {list(strided)}"
                )
            side = kind.side
            for name, module in strided.items():
                network.set_submodule(name, StaticPaddingConv(module, same_pads(side, module.kernel_size[0])))
                side = -(-side // 2)
        return network

    def random_state(self, network: nn.Module, seed: int) -> Mapping[str, Tensor]:
        """Return weights that are equal on every start and machine."""
        return random_efficientnet(
            {name: tensor.shape for name, tensor in network.state_dict().items()}, seed
        )

    def adapt(
        self, network: nn.Module, found: Mapping[str, Tensor]
    ) -> tuple[Mapping[str, Tensor], tuple[str, ...]]:
        """Translate the names of an archive; those of timm are taken as they are."""
        if is_efficientnet_pytorch(found):
            return translate_names(found, network)
        return fit_to_network(network, found), ()

    def recognises(self, found: Mapping[str, Tensor], file_name: str) -> str | None:
        """Return the encoder of efficientnet_pytorch's tensors: B2 by the shape of its last convolution.

        Mammo-FM has the tensors of Mammo-CLIP's B5: it is known by the name of its file.
        """
        if not is_efficientnet_pytorch(found):
            return None
        if HEAD in found and found[HEAD].shape[0] == B2.dim:
            return SMALL
        return MAMMO_FM if file_name.casefold().startswith(MAMMO_FM) else NAME


def same_pads(side: int, kernel: int) -> tuple[int, int, int, int]:
    """Return TF-SAME padding of a convolution with stride 2 for a square input: left, right, top, bottom."""
    needed = max((-(-side // 2) - 1) * 2 + kernel - side, 0)
    before, after = needed // 2, needed - needed // 2
    return before, after, before, after


def _require_own(encoder: str, recipe: Recipe) -> None:
    """Refuse a recipe for another network: channels and pooling are part of this one."""
    if (recipe.channels, recipe.pooling) != (RECIPE.channels, RECIPE.pooling):
        raise InputError(
            f"encoder {encoder!r}: expected a recipe with {RECIPE.channels} channels and pooling"
            f" {RECIPE.pooling!r}, found {recipe.channels} and {recipe.pooling!r}"
        )
