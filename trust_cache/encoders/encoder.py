"""Define an encoder: views in, features out, with its recipe and its identity.

`known_encoders.py` lists the families. A new family is one module with an `EncoderFamily` and one line there.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from trust_cache.base.errors import InputError

Size = tuple[int, int]  # height, width
IMAGE_SIZE = (1520, 912)


@dataclass(frozen=True)
class Recipe:
    """What an encoder expects of its input. The defaults are those of Mammo-CLIP's training."""

    image_size: Size = IMAGE_SIZE
    mean: float = 0.3089279
    std: float = 0.25053555408335154
    channels: int = 3  # each one a copy of the grey picture

    def __post_init__(self) -> None:
        if min(self.image_size) < 1:
            height, width = self.image_size
            raise InputError(
                f"image-size: expected a height and a width of 1 or more, found {height}x{width}"
            )

    @property
    def standardisation(self) -> str:
        """The text for the fingerprint of a cache; OpenCV and torch resize like this by default."""
        return f"bilinear resize without antialiasing, min-max to [0, 1], mean {self.mean} std {self.std}"


@dataclass(frozen=True)
class EncoderIdentity:
    """What the features depend on: the network, its weights and its recipe."""

    encoder: str
    weights_sha256: str  # of the weights' file, as sha256sum prints it; random:seed=S for random weights
    dim: int
    random: bool
    recipe: Recipe


class Encoder(Protocol):
    """Features of standardised views: (N, channels, height, width) -> (N, dim)."""

    @property
    def identity(self) -> EncoderIdentity:
        """The name, weights and recipe that a cache's fingerprint records."""

    def __call__(self, views: Tensor, /) -> Tensor:
        """Return one row of features per view."""


class FrozenEncoder(nn.Module):
    """An encoder made of a torch network that is never trained."""

    def __init__(self, network: nn.Module, identity: EncoderIdentity) -> None:
        super().__init__()
        self.network = network
        self.identity = identity
        self.dim = identity.dim
        self.requires_grad_(False)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Return one row of features per image."""
        if images.ndim != 4 or images.shape[1] != self.identity.recipe.channels:  # noqa: PLR2004 - N, C, H, W
            raise InputError(
                f"images: expected a tensor of shape (N, {self.identity.recipe.channels}, height, width),"
                f" found {tuple(images.shape)}"
            )
        features: Tensor = self.network(images)
        return features

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 - as in torch
        """Stay in evaluation mode: batch statistics would make features depend on their neighbours."""
        return super().train(False)


class EncoderFamily(ABC):
    """Encoders that are built and filled with weights in one way."""

    padding = "timm"  # how convolutions pad; recorded in a converted file
    refusal = ""  # why weights without the record of `trust-cache weights` are refused; empty: they are used

    @abstractmethod
    def describe(self) -> str:
        """Return the family's names in words, for messages."""

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return the names of all its encoders."""

    @abstractmethod
    def build(self, encoder: str, image_size: Size | None) -> nn.Module:
        """Return the network without a classifier; torch's global generator is seeded by the caller.

        `image_size` is for networks that are built for one size; None builds them for their default size.
        """

    def offers(self, encoder: str) -> bool:
        """Return whether an encoder belongs to the family."""
        return encoder in self.names()

    def recipe(self, encoder: str) -> Recipe:  # noqa: ARG002 - for families that override it
        """Return what the encoder expects of its input."""
        return Recipe()

    def architecture(self, encoder: str) -> str:
        """Return the name of the network, as a converted file records it."""
        return encoder

    def dim(self, encoder: str, image_size: Size) -> int:
        """Return the number of features. It is found by shapes alone: nothing is computed or allocated."""
        with torch.device("meta"):
            network = self.build(encoder, image_size).eval()
            try:
                shape = network(torch.empty(2, self.recipe(encoder).channels, *image_size)).shape
            except Exception as error:  # each architecture refuses a size in its own way
                raise unsuitable_size(encoder, image_size, error) from error
        if len(shape) != 2:  # noqa: PLR2004 - images, features
            raise InputError(
                f"encoder {encoder!r}: expected a row of features per image, found shape {tuple(shape)}"
            )
        return int(shape[1])

    def random_state(self, network: nn.Module, seed: int) -> Mapping[str, Tensor]:  # noqa: ARG002 - as above
        """Return random weights; by default those that building under the seed gave."""
        return network.state_dict()

    def adapt(
        self,
        network: nn.Module,  # noqa: ARG002 - as above
        found: Mapping[str, Tensor],
    ) -> tuple[Mapping[str, Tensor], tuple[str, ...]]:
        """Return a file's tensors under the network's names, with notes on what was left out."""
        return found, ()

    def recognises(self, found: Mapping[str, Tensor]) -> bool:  # noqa: ARG002 - as above
        """Return whether a checkpoint's names show that it is for this family."""
        return False


def unsuitable_size(encoder: str, image_size: Size | None, error: Exception) -> InputError:
    """Return the error for a network that cannot be built for a size."""
    size = "its own size" if image_size is None else f"{image_size[0]}x{image_size[1]}"
    reason = " ".join(str(error).split()) or type(error).__name__
    return InputError(
        f"encoder {encoder!r} cannot take images of {size} ({reason}); choose another size or encoder"
    )
