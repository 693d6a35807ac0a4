"""Find an encoder by its name, identify it and load it."""

import re
from dataclasses import replace
from pathlib import Path

import torch

from trust_cache.base.digests import file_sha256
from trust_cache.base.errors import InputError, did_you_mean
from trust_cache.encoders.checkpoints import (
    WHERE_FROM,
    checked_tensors,
    is_safetensors,
    read_record,
    read_safetensors,
    require_file,
)
from trust_cache.encoders.encoder import IMAGE_SIZE, EncoderFamily, EncoderIdentity, FrozenEncoder, Size
from trust_cache.encoders.mammo_clip import NAME, MammoClip
from trust_cache.encoders.timm_models import TimmModels

DEFAULT_ENCODER = NAME
RANDOM = "random"  # asks for weights from the seed; a file of that name is ./random

# The first family that offers a name is used.
FAMILIES: tuple[EncoderFamily, ...] = (
    MammoClip(),
    TimmModels(),
)


def family_of(encoder: str) -> EncoderFamily:
    """Return the family of an encoder; an unknown name is refused with the nearest known one."""
    for family in FAMILIES:
        if family.offers(encoder):
            return family
    names = [name for family in FAMILIES for name in family.names()]
    expected = " or ".join(family.describe() for family in FAMILIES)
    hint = did_you_mean(re.split("[:/]", encoder)[-1], names)
    raise InputError(f"encoder {encoder!r}: expected {expected}{hint}")


def identify_encoder(
    weights: str | Path, encoder: str = DEFAULT_ENCODER, seed: int = 0, *, image_size: Size = IMAGE_SIZE
) -> EncoderIdentity:
    """Return the identity that `load_encoder` would load, without building the network."""
    source = None if weights == RANDOM else require_file(weights)
    family = family_of(encoder)
    if source is not None:
        _require_weights(source, encoder, family)
    return EncoderIdentity(
        encoder=encoder,
        weights_sha256=f"random:seed={seed}" if source is None else file_sha256(source),
        dim=family.dim(encoder, image_size),
        random=source is None,
        recipe=replace(family.recipe(encoder), image_size=image_size),
    )


def load_encoder(
    weights: str | Path,
    image_size: Size = IMAGE_SIZE,
    *,
    encoder: str = DEFAULT_ENCODER,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> FrozenEncoder:
    """Return a frozen encoder in evaluation mode: (N, 3, H, W) -> (N, dim).

    `weights` is a file that `trust-cache weights` wrote, for other timm models also any safetensors file of
    theirs, or the word `random`. Images are standardised by the caller. Convolutional encoders take any size;
    `image_size` (height, width) builds those that are made for one.
    """
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:  # an unknown word; a torch without CUDA asserts
        reason = str(error).splitlines()[0]
        raise InputError(f"device {device!s}: not usable here ({reason}); use cpu") from error
    identity = identify_encoder(weights, encoder, seed, image_size=image_size)
    family = family_of(encoder)
    with torch.random.fork_rng(devices=[]):  # networks are initialised from the global generator
        torch.default_generator.manual_seed(seed)
        network = family.build(encoder, image_size)
    if weights == RANDOM:
        state = family.random_state(network, seed)
    else:
        found, _ = family.adapt(network, read_safetensors(Path(weights)))
        state, _ = checked_tensors(found, network.state_dict(), encoder, str(weights))
    network.load_state_dict(state, assign=True)
    return FrozenEncoder(network, identity).to(place)


def _require_weights(path: Path, encoder: str, family: EncoderFamily) -> None:
    """Refuse a file whose tensors fit the network but belong to another encoder."""
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
    if record is None and family.refusal:
        raise InputError(
            f"{path}: expected a file that `trust-cache weights` wrote, found one without its record."
            f" {family.refusal}. {WHERE_FROM}"
        )
