"""Find an encoder by its name, identify it and load it."""

import re
from pathlib import Path

import torch

from trust_cache.base.errors import InputError, did_you_mean
from trust_cache.encoders.encoder import EncoderFamily, EncoderIdentity, FrozenEncoder
from trust_cache.encoders.huggingface_models import HuggingFaceModels
from trust_cache.encoders.mammo_clip import MammoClip
from trust_cache.encoders.recipe import (
    DEFAULT_ENCODER,
    IMAGE_SIZE,
    GivenRecipe,
    Size,
    complete_recipe,
    read_recipe,
)
from trust_cache.encoders.timm_models import TimmModels

RANDOM = "random"  # asks for weights from the seed; a file of that name is ./random

# The first family that offers a name is used.
FAMILIES: tuple[EncoderFamily, ...] = (
    MammoClip(),
    HuggingFaceModels(),
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
    weights: str | Path,
    encoder: str = DEFAULT_ENCODER,
    seed: int = 0,
    *,
    image_size: Size | None = None,
    recipe: GivenRecipe = None,
) -> EncoderIdentity:
    """Return the identity that `load_encoder` would load; the weights are read for their digest only."""
    source = None if weights == RANDOM else Path(weights)
    family = family_of(encoder)
    if source is not None:
        family.require_weights(encoder, source)
    complete = complete_recipe(family.recipe(encoder, source), read_recipe(recipe, image_size), encoder)
    return EncoderIdentity(
        encoder=encoder,
        weights_sha256=f"random:seed={seed}" if source is None else family.digest(source),
        dim=family.dim(encoder, complete, source),
        random=source is None,
        recipe=complete,
    )


def load_encoder(
    weights: str | Path,
    image_size: Size | None = IMAGE_SIZE,
    *,
    encoder: str = DEFAULT_ENCODER,
    recipe: GivenRecipe = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> FrozenEncoder:
    """Return a frozen encoder in evaluation mode: (N, channels, H, W) -> (N, dim).

    `weights` is a file that `trust-cache weights` wrote, for other timm models also any safetensors file of
    theirs, for `huggingface` the folder of a model, or the word `random`. Images are standardised by the
    caller as `identity.recipe` says. `image_size` (height, width) replaces the recipe's own size, None keeps
    it. `recipe` is a TOML file or a mapping with keys that replace others of the encoder's recipe.
    """
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:  # an unknown word; a torch without CUDA asserts
        reason = str(error).splitlines()[0]
        raise InputError(f"device {device!s}: not usable here ({reason}); use cpu") from error
    identity = identify_encoder(weights, encoder, seed, image_size=image_size, recipe=recipe)
    source = None if weights == RANDOM else Path(weights)
    network = family_of(encoder).load(encoder, identity.recipe, source, seed)
    return FrozenEncoder(network, identity).to(place)
