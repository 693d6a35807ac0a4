"""The frozen encoder: images in, features out, and the identity that a cache's fingerprint records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from trust_cache.base.errors import InputError
from trust_cache.cache.backbone import mammo_clip
from trust_cache.cache.backbone.checkpoints import is_safetensors, read_safetensors
from trust_cache.cache.backbone.networks import DEFAULT_ENCODER, build_network, fit_to_network, output_dim
from trust_cache.cache.backbone.random_weights import random_b5
from trust_cache.cache.backbone.tensors import checked_tensors
from trust_cache.cache.weights import WHERE_FROM, file_sha256, read_record, require_file

__all__ = ["DEFAULT_ENCODER", "RANDOM", "Encoder", "EncoderIdentity", "identify_encoder", "load_encoder"]

RANDOM = "random"  # the word that asks for weights from the seed; a file of that name is ./random
IMAGE_SIZE = (1520, 912)  # height, width
_CHANNELS = 3


@dataclass(frozen=True)
class EncoderIdentity:
    """What makes features the same: the network and its weights."""

    encoder: str
    weights_sha256: str  # of the weights' file, as sha256sum prints it; random:seed=S for random ones
    dim: int
    random: bool


class Encoder(nn.Module):
    """A network that is never trained: (N, 3, H, W) -> (N, dim)."""

    def __init__(self, network: nn.Module, identity: EncoderIdentity) -> None:
        super().__init__()
        self.network = network
        self.identity = identity
        self.dim = identity.dim
        self.requires_grad_(False)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Return one row of features per image."""
        if images.ndim != 4 or images.shape[1] != _CHANNELS:  # noqa: PLR2004 - N, 3, H, W
            raise InputError(
                f"images: expected a tensor of shape (N, 3, height, width), found {tuple(images.shape)}"
            )
        features: Tensor = self.network(images)
        return features

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 - as in torch
        """Stay in evaluation mode: batch statistics would make features depend on their neighbours."""
        return super().train(False)


def identify_encoder(
    weights: str | Path,
    encoder: str = DEFAULT_ENCODER,
    seed: int = 0,
    *,
    image_size: tuple[int, int] = IMAGE_SIZE,
) -> EncoderIdentity:
    """Return what `load_encoder` would load, without building the network."""
    source = None if weights == RANDOM else _require_weights(weights, encoder)
    dim = mammo_clip.DIM if encoder == DEFAULT_ENCODER else output_dim(encoder, image_size)
    if source is None:
        return EncoderIdentity(encoder, f"random:seed={seed}", dim, random=True)
    return EncoderIdentity(encoder, file_sha256(source), dim, random=False)


def load_encoder(
    weights: str | Path,
    image_size: tuple[int, int] = IMAGE_SIZE,
    *,
    encoder: str = DEFAULT_ENCODER,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> Encoder:
    """Return a frozen encoder in evaluation mode: (N, 3, H, W) -> (N, dim).

    `weights` is a file that `trust-cache weights` wrote, for other timm models also any safetensors file of
    theirs, or the word `random`. Images are standardised by the caller. Convolutional encoders take any size;
    `image_size` (height, width) builds those that are made for one.
    """
    place = _require_device(device)
    identity = identify_encoder(weights, encoder, seed, image_size=image_size)
    network = _build(encoder, image_size, seed)
    state = network.state_dict()
    if weights != RANDOM:
        found = fit_to_network(network, read_safetensors(Path(weights)))
        state, _ = checked_tensors(found, state, encoder, str(weights))
    elif encoder == DEFAULT_ENCODER:
        state = random_b5({name: tensor.shape for name, tensor in state.items()}, seed)
    network.load_state_dict(state, assign=True)
    return Encoder(network, identity).to(place)


def _build(encoder: str, image_size: tuple[int, int], seed: int) -> nn.Module:
    if encoder == DEFAULT_ENCODER:
        with torch.device("meta"):  # every tensor of it is in its state
            return build_network(encoder)
    with torch.random.fork_rng(devices=[]):  # timm initialises from the global generator
        torch.default_generator.manual_seed(seed)
        return build_network(encoder, image_size)


def _require_weights(weights: str | Path, encoder: str) -> Path:
    """Refuse a file that would load and yet compute something else than its encoder did."""
    path = require_file(weights)
    if not is_safetensors(path):
        raise InputError(
            f"{path}: expected a safetensors file, found another kind (or a truncated one). {WHERE_FROM}"
        )
    record = read_record(path)
    if record is not None and record.encoder != encoder:
        raise InputError(
            f"{path}: expected weights for {encoder}, found those for {record.encoder} (padding"
            f" {record.padding}); say --encoder {record.encoder}"
        )
    if record is None and encoder == DEFAULT_ENCODER:
        raise InputError(
            f"{path}: expected a file that `trust-cache weights` wrote, found one without its record."
            f" Weights of timm's own {mammo_clip.ARCHITECTURE} would fit and be padded wrongly; for those say"
            f" --encoder {mammo_clip.ARCHITECTURE}. {WHERE_FROM}"
        )
    return path


def _require_device(device: str | torch.device) -> torch.device:
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:  # an unknown word; a torch without CUDA asserts
        reason = str(error).splitlines()[0]
        raise InputError(f"device {device!s}: not usable here ({reason}); use cpu") from error
    return place
