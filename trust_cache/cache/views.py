"""The parameters of an image's views: a pure function of seed, image and view number, the same for ever."""

import hashlib
import json
from dataclasses import dataclass, fields

from trust_cache.base.errors import InputError

_WORD_BYTES, _WORDS_SHIFT, _WORD_RANGE = 8, 11, 2**53  # 53 bits of each word: all that a float holds


@dataclass(frozen=True)
class ViewSettings:
    """The ranges, each uniform, from which the parameters of augmented views are drawn."""

    rotation: tuple[float, float] = (-10.0, 10.0)
    scale: tuple[float, float] = (0.9, 1.1)
    shift_x: tuple[float, float] = (-0.05, 0.05)
    shift_y: tuple[float, float] = (-0.05, 0.05)
    contrast: tuple[float, float] = (0.9, 1.1)
    brightness: tuple[float, float] = (-0.05, 0.05)

    def __post_init__(self) -> None:
        for name, (low, high) in self.ranges().items():
            if not low <= high:
                raise InputError(f"view settings: {name}: expected a range, found {low} to {high}")
        if self.scale[0] <= 0:
            raise InputError(f"view settings: expected a scale above 0, found {self.scale[0]}")

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Return the range of each parameter, in the order in which they are drawn."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def words(self) -> str:
        """Return the settings as the fingerprint of a cache has them."""
        ranges = ", ".join(f"{name} {low:g}..{high:g}" for name, (low, high) in self.ranges().items())
        return f"{ranges}; affine bilinear with zeros outside; parameters by sha512 of [seed, image, view]"


@dataclass(frozen=True)
class ViewParameters:
    """How one view differs from the clean image."""

    rotation: float = 0.0  # degrees about the centre, counter-clockwise as one looks at the picture
    scale: float = 1.0  # above 1 the breast gets larger
    shift_x: float = 0.0  # to the right, as a share of the width
    shift_y: float = 0.0  # downwards, as a share of the height
    contrast: float = 1.0  # about the mean of the clean image
    brightness: float = 0.0  # added, where the image has 0 to 1


UNTOUCHED = ViewParameters()


def decide_view(seed: int, image_id: str, view: int, settings: ViewSettings | None = None) -> ViewParameters:
    """Return the parameters of a view of an image; view 0 is the clean one.

    They come from a hash rather than from a library's generator: no release, machine, order, batch or
    worker changes them.
    """
    if view < 0:
        raise InputError(f"view: expected 0 or more, found {view}")
    if view == 0:
        return UNTOUCHED
    ranges = (settings or ViewSettings()).ranges().values()
    # JSON in ASCII tells every (seed, image, view) from every other, whatever the id contains.
    digest = hashlib.sha512(json.dumps([int(seed), image_id, view]).encode("ascii")).digest()
    words = (digest[at : at + _WORD_BYTES] for at in range(0, len(digest), _WORD_BYTES))
    shares = ((int.from_bytes(word) >> _WORDS_SHIFT) / _WORD_RANGE for word in words)
    return ViewParameters(*(low + (high - low) * share for (low, high), share in zip(ranges, shares)))  # noqa: B905 (more words than ranges)


def decide_views(
    seed: int, image_id: str, augmented: int, settings: ViewSettings | None = None
) -> tuple[ViewParameters, ...]:
    """Return the parameters of views 1 to `augmented` of an image."""
    return tuple(decide_view(seed, image_id, view, settings) for view in range(1, augmented + 1))
