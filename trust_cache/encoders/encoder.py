"""Define an encoder: views in, features out, with its recipe and its identity.

`known_encoders.py` lists the families. A new family is one module with an `EncoderFamily` and one line there.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from trust_cache.base.digests import file_sha256
from trust_cache.base.errors import InputError
from trust_cache.encoders.checkpoints import (
    WHERE_FROM,
    checked_tensors,
    is_safetensors,
    read_record,
    read_safetensors,
    require_file,
)
from trust_cache.encoders.recipe import Recipe, RecipeKeys, Size


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
    """Encoders that are built and filled with weights in one way.

    `weights` is where a user's weights are, None for random ones.
    """

    @abstractmethod
    def describe(self) -> str:
        """Return the family's names in words, for messages."""

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return the names of all its encoders."""

    @abstractmethod
    def recipe(self, encoder: str, weights: Path | None) -> RecipeKeys:
        """Return what is known of the input that the encoder expects; the user gives the rest."""

    @abstractmethod
    def build(self, encoder: str, recipe: Recipe | None, weights: Path | None) -> nn.Module:
        """Return the network without a classifier; torch's global generator is seeded by the caller.

        Networks for one size are built for that of the recipe; None builds them as they are published.
        """

    def offers(self, encoder: str) -> bool:
        """Return whether an encoder belongs to the family."""
        return encoder in self.names()

    def architecture(self, encoder: str) -> str:
        """Return the name of the network, as a converted file records it."""
        return encoder

    def padding(self, encoder: str) -> str:  # noqa: ARG002 - for families that override it
        """Return how convolutions pad, as a converted file records it."""
        return "timm"

    def refusal(self, encoder: str) -> str:  # noqa: ARG002 - as above
        """Say why weights without the record of `trust-cache weights` are refused; empty: they are used."""
        return ""

    def require_weights(self, encoder: str, weights: Path) -> None:
        """Refuse weights that would fit the network but belong to another encoder."""
        require_file(weights)
        if not is_safetensors(weights):
            raise InputError(
                f"{weights}: expected a safetensors file, found another kind (or a truncated one)."
                f" {WHERE_FROM}"
            )
        record = read_record(weights)
        if record is not None and record.encoder != encoder:
            raise InputError(
                f"{weights}: expected weights for {encoder}, found those for {record.encoder} (padding"
                f" {record.padding}); say --encoder {record.encoder}"
            )
        if record is None and self.refusal(encoder):
            raise InputError(
                f"{weights}: expected a file that `trust-cache weights` wrote, found one without its record."
                f" {self.refusal(encoder)}. {WHERE_FROM}"
            )

    def digest(self, weights: Path) -> str:
        """Return the SHA-256 that identifies the weights."""
        return file_sha256(weights)

    def dim(self, encoder: str, recipe: Recipe, weights: Path | None) -> int:
        """Return the number of features. It is found by shapes alone: nothing is computed or allocated."""
        with torch.device("meta"):
            network = self.build(encoder, recipe, weights).eval()
            try:
                shape = network(torch.empty(2, recipe.channels, *recipe.image_size)).shape
            except InputError:
                raise
            except Exception as error:  # each architecture refuses a size in its own way
                raise unsuitable_size(encoder, recipe.image_size, error) from error
        if len(shape) != 2:  # noqa: PLR2004 - images, features
            raise InputError(
                f"encoder {encoder!r}: expected a row of features per image, found shape {tuple(shape)}"
            )
        return int(shape[1])

    def load(self, encoder: str, recipe: Recipe, weights: Path | None, seed: int) -> nn.Module:
        """Return the network with its weights."""
        with torch.random.fork_rng(devices=[]):  # networks are initialised from the global generator
            torch.default_generator.manual_seed(seed)
            network = self.build(encoder, recipe, weights)
        if weights is None:
            state = self.random_state(network, seed)
        else:
            found, _ = self.adapt(network, read_safetensors(weights))
            state, _ = checked_tensors(found, network.state_dict(), encoder, str(weights))
        network.load_state_dict(state, assign=True)
        return network

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

    def recognises(self, found: Mapping[str, Tensor], file_name: str) -> str | None:  # noqa: ARG002 - as above
        """Return the encoder of this family that a checkpoint is for, if its tensors show it."""
        return None


def require_whole_patches(encoder: str, image_size: Size, patch: int) -> None:
    """Refuse a size that patches do not fill: the network would ignore the rest of the picture."""
    height, width = image_size
    if height % patch or width % patch:
        raise InputError(
            f"image-size: expected multiples of {patch}, the patch of {encoder}, found {height}x{width}: the"
            " rest of the picture would be ignored"
        )


def unsuitable_size(encoder: str, image_size: Size | None, error: Exception) -> InputError:
    """Return the error for a network that cannot be built for a size."""
    size = "its own size" if image_size is None else f"{image_size[0]}x{image_size[1]}"
    reason = " ".join(str(error).split()) or type(error).__name__
    return InputError(
        f"encoder {encoder!r} cannot take images of {size} ({reason}); choose another size or encoder"
    )
