"""What an extraction is made of: the images of each shard, how views are made, what became of a shard."""

from dataclasses import dataclass

from trust_cache.base.errors import InputError
from trust_cache.cache.views import ViewParameters, decide_views
from trust_cache.images.failures import Failure


@dataclass(frozen=True)
class ImageFile:
    """An image and where its PNG lies."""

    image_id: str
    location: str


@dataclass(frozen=True)
class ShardFiles:
    """The images of one shard, in the cache's order: what a worker must know to make it."""

    shard: int
    files: tuple[ImageFile, ...]


@dataclass(frozen=True)
class Recipe:
    """How the views of an image are made, apart from the encoder."""

    image_size: tuple[int, int]  # height, width
    augmented: int  # views besides the clean one
    seed: int

    def __post_init__(self) -> None:
        if min(self.image_size) < 1:
            height, width = self.image_size
            raise InputError(
                f"image-size: expected a height and a width of 1 or more, found {height}x{width}"
            )
        if self.augmented < 0:
            raise InputError(f"views: expected 0 or more augmented views, found {self.augmented}")

    @property
    def views(self) -> int:
        """The number of stored views, the clean one included."""
        return 1 + self.augmented

    def parameters(self, image_id: str) -> tuple[ViewParameters, ...]:
        """Return the parameters of an image's augmented views."""
        return decide_views(self.seed, image_id, self.augmented)


@dataclass(frozen=True)
class Seconds:
    """Where time went. Decoding threads and processes add up: the sum may exceed the clock's."""

    decode: float = 0.0
    encode: float = 0.0  # the device at work: views and encoder
    write: float = 0.0

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.decode + other.decode, self.encode + other.encode, self.write + other.write)


@dataclass(frozen=True)
class ShardReport:
    """What became of a shard."""

    shard: int
    images: int
    failures: tuple[Failure, ...]
    seconds: Seconds
    written: bool = True  # false where a shard that lacks images still lacks the same
