"""The settings of an extraction: what the user asks for."""

import os
from dataclasses import dataclass

from trust_cache.base.errors import InputError
from trust_cache.cache.extraction.recipe import Recipe

IMAGE_SIZE = (1520, 912)  # height, width
VIEWS = 8
_MOST_WORKERS = 8  # one GPU is fed by fewer


@dataclass(frozen=True)
class ExtractSettings:
    """Which encoder on which views, and how fast."""

    weights: str  # a file, or the word `random`
    encoder: str
    views: int = VIEWS  # augmented ones
    image_size: tuple[int, int] = IMAGE_SIZE
    seed: int = 0
    device: str = "auto"
    shard_images: int | None = None
    batch: int | None = None  # views through the encoder at once
    workers: int | None = None  # decoding threads of each process
    processes: int | None = None
    compiled: bool = False

    def __post_init__(self) -> None:
        for name in ("batch", "workers", "processes", "shard_images"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name.replace('_', '-')}: expected 1 or more, found {value}")
        _ = self.recipe  # checks the size and the views

    @property
    def recipe(self) -> Recipe:
        """How views are made."""
        return Recipe(self.image_size, self.views, self.seed)

    def decoding_threads(self, processes: int) -> int:
        """Return the decoding threads of each process."""
        cores = os.cpu_count() or 1
        return self.workers or max(1, min(_MOST_WORKERS, cores // processes))


def parse_image_size(text: str) -> tuple[int, int]:
    """Read `1520x912`: height, then width."""
    height, cross, width = text.lower().partition("x")
    if not (cross and height.isdecimal() and width.isdecimal()):
        raise InputError(f"image-size: expected HEIGHTxWIDTH such as 1520x912, found {text!r}")
    return int(height), int(width)
