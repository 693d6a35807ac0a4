"""The settings of the way from a DICOM to its picture: what two runs must share to be mixed."""

from dataclasses import dataclass

from trust_cache.base.errors import InputError


@dataclass(frozen=True)
class ImageSettings:
    """Everything that changes the pixels of a result, and the size beyond which a file is refused."""

    margin: float = 0.10  # of the mask's bounding box, on each side
    closing: int = 9  # edge of the square that closes the mask, in pixels of the image
    max_pixels: int = 64_000_000  # the largest detectors have 28 million

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 1:
            raise InputError(f"margin: expected a share from 0 to 1, found {self.margin}")
        if self.closing < 1 or self.closing % 2 == 0:
            raise InputError(f"closing: expected an odd number of pixels, found {self.closing}")
        if self.max_pixels < 1:
            raise InputError(f"max_pixels: expected 1 or more, found {self.max_pixels}")
