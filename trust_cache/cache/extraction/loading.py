"""The encoder of an extraction: described in words that travel to a process, loaded there."""

import logging
from dataclasses import dataclass

import torch

from trust_cache.cache.encoder import load_encoder
from trust_cache.cache.extraction.runner import Runner

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncoderWords:
    """What names an encoder: its weights (a file or `random`), its architecture, the seed of random ones."""

    weights: str
    encoder: str
    seed: int
    image_size: tuple[int, int]


def load_runner(words: EncoderWords, device: str, *, compiled: bool) -> Runner:
    """Load an encoder on a device, ready to run."""
    _logger.info("loading %s (%s) on %s", words.encoder, words.weights, device)
    module = load_encoder(
        words.weights, words.image_size, encoder=words.encoder, seed=words.seed, device=device
    )
    if torch.device(device).type == "cuda":
        # Mixed-precision convolutions want channels last; on CPUs it was slower.
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Runner(torch.compile(module) if compiled else module, device)
