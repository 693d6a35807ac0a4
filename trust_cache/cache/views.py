"""Make the views of an image: decide their parameters, then apply them.

The parameters are a pure function of seed, image and view number. They never change.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import cos, radians, sin

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate, pad

from trust_cache.base.errors import InputError
from trust_cache.encoders.recipe import Recipe, Size

_WORD_BYTES, _WORDS_SHIFT, _WORD_RANGE = 8, 11, 2**53  # 53 bits of each word: all that a float holds
_ROUNDING = 2.0**-20  # interpolating equal values gives values that differ by a few parts in 2^23


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

    rotation: float = 0.0  # degrees about the centre, counter-clockwise
    scale: float = 1.0  # above 1 the breast gets larger
    shift_x: float = 0.0  # to the right, as a share of the width
    shift_y: float = 0.0  # downwards, as a share of the height
    contrast: float = 1.0  # about the mean of the clean image
    brightness: float = 0.0  # added, where the image has 0 to 1


UNTOUCHED = ViewParameters()


def decide_view(seed: int, image_id: str, view: int, settings: ViewSettings | None = None) -> ViewParameters:
    """Return the parameters of a view of an image; view 0 is the clean one.

    They come from a hash and not from a library's generator, so that no release, machine, order, batch or
    worker changes them.
    """
    if view < 0:
        raise InputError(f"view: expected 0 or more, found {view}")
    if view == 0:
        return UNTOUCHED
    ranges = (settings or ViewSettings()).ranges().values()
    # JSON in ASCII is different for every (seed, image, view), whatever the id contains.
    digest = hashlib.sha512(json.dumps([int(seed), image_id, view]).encode("ascii")).digest()
    words = (digest[at : at + _WORD_BYTES] for at in range(0, len(digest), _WORD_BYTES))
    shares = ((int.from_bytes(word) >> _WORDS_SHIFT) / _WORD_RANGE for word in words)
    return ViewParameters(*(low + (high - low) * share for (low, high), share in zip(ranges, shares)))  # noqa: B905 (more words than ranges)


def decide_views(
    seed: int, image_id: str, augmented: int, settings: ViewSettings | None = None
) -> tuple[ViewParameters, ...]:
    """Return the parameters of views 1 to `augmented` of an image."""
    return tuple(decide_view(seed, image_id, view, settings) for view in range(1, augmented + 1))


@dataclass(frozen=True)
class ViewPlan:
    """Which views each image gets: one clean and `augmented` others, drawn from the seed."""

    augmented: int
    seed: int

    def __post_init__(self) -> None:
        if self.augmented < 0:
            raise InputError(f"views: expected 0 or more augmented views, found {self.augmented}")

    @property
    def stored(self) -> int:
        """The number of stored views, the clean one included."""
        return 1 + self.augmented

    def parameters(self, image_id: str) -> tuple[ViewParameters, ...]:
        """Return the parameters of an image's augmented views."""
        return decide_views(self.seed, image_id, self.augmented)


@dataclass(frozen=True)
class ImageViews:
    """The standardised views of one image [1 + augmented, planes, height, width], the clean one first.

    `varied` is a tensor of one boolean: false where the resized image is constant. It stays on the device so
    that no call waits for it. The views of such an image are finite and meaningless.
    """

    views: Tensor
    varied: Tensor


def make_views(pixels: Tensor, recipe: Recipe, parameters: Sequence[ViewParameters]) -> ImageViews:
    """Return the clean view and one view for each of the parameters, of pixels [height, width] of any type.

    Every step works on this image alone and on each of its views alone: the values do not depend on what
    else is in the batch.
    """
    image, varied = fit(pixels, recipe)
    views = image[None]
    if parameters:
        views = torch.cat((views, adjust(warp(image, parameters), image.mean(), parameters)))
    return ImageViews(standardise(views, recipe), varied)


def fit(pixels: Tensor, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Return the whole picture at the encoder's size from 0 to 1, and whether its values differ."""
    if recipe.intensity == "min-max after resize":
        image, varied = rescale(resize(pixels, recipe))
    else:
        whole, varied = rescale(pixels.to(torch.float32))
        image = resize(whole, recipe).clamp_(0, 1)  # a bicubic curve leaves the range
    left, top = ((recipe.image_size[side] - image.shape[side]) // 2 for side in (1, 0))
    right, bottom = recipe.image_size[1] - image.shape[1] - left, recipe.image_size[0] - image.shape[0] - top
    return (pad(image, (left, right, top, bottom)) if recipe.keep_proportions else image), varied


def resize(pixels: Tensor, recipe: Recipe) -> Tensor:
    """Return the pixels in float32, interpolated to the encoder's size or to what fits into it."""
    size = recipe.image_size
    if recipe.keep_proportions:
        size = _size_within(size, (pixels.shape[0], pixels.shape[1]))
    whole = pixels.to(torch.float32)[None, None]
    return interpolate(whole, size, mode=recipe.resize, antialias=recipe.antialias)[0, 0]


def _size_within(limit: Size, size: Size) -> Size:
    """Return the largest size of the same proportions within a limit."""
    ratio = max(size[0] / limit[0], size[1] / limit[1])
    height, width = (min(limit[side], max(1, round(size[side] / ratio))) for side in (0, 1))
    return height, width


def standardise(views: Tensor, recipe: Recipe) -> Tensor:
    """Subtract the mean and divide by the std of each channel; one plane stands for equal channels."""
    if recipe.planes == 1:
        return views.sub_(recipe.mean[0]).div_(recipe.std[0])[:, None]
    mean, std = (torch.tensor(values).to(views.device) for values in (recipe.mean, recipe.std))
    return (views[:, None] - mean[:, None, None]) / std[:, None, None]


def rescale(image: Tensor) -> tuple[Tensor, Tensor]:
    """Return the image from 0 (its least value) to 1 (its largest), and whether those differ."""
    low, high = torch.aminmax(image)
    varied = high - low > _ROUNDING * high
    return (image - low) / torch.where(varied, high - low, 1), varied


def warp(image: Tensor, parameters: Sequence[ViewParameters]) -> Tensor:
    """Rotate, scale and shift an image once for each of the parameters: bilinear, zeros outside."""
    height, width = image.shape
    rows = [_inverse_map(view, height, width) for view in parameters]
    maps = torch.tensor(rows, dtype=torch.float32).to(image.device)[:, :, :, None, None]
    # Centres of pixels in grid_sample's coordinates, where -1 and 1 are the outer edges.
    x = _centres(width, image)[None, None, :]
    y = _centres(height, image)[None, :, None]
    grid = torch.empty((len(rows), height, width, 2), device=image.device)
    for axis in (0, 1):
        # Sums of products, not a matrix product: no element may depend on the size of the batch.
        torch.add(maps[:, axis, 0] * x, maps[:, axis, 1] * y + maps[:, axis, 2], out=grid[..., axis])
    source = image.expand(len(rows), 1, height, width)
    return grid_sample(source, grid, mode="bilinear", padding_mode="zeros", align_corners=False)[:, 0]


def adjust(warped: Tensor, mean: Tensor, parameters: Sequence[ViewParameters]) -> Tensor:
    """Change each view's contrast about the image's mean and its brightness, then clip to [0, 1]."""
    rows = [(view.contrast, view.brightness) for view in parameters]
    contrast, brightness = torch.tensor(rows, dtype=torch.float32).to(warped.device).T[:, :, None, None]
    return warped.sub_(mean).mul_(contrast).add_(mean + brightness).clamp_(0, 1)


def _centres(side: int, like: Tensor) -> Tensor:
    return (torch.arange(side, device=like.device) * 2 + 1).to(torch.float32) / side - 1


def _inverse_map(view: ViewParameters, height: int, width: int) -> list[list[float]]:
    """Return the map from a view's coordinates to the image's, both from -1 to 1 along each side.

    A view's point p (pixels from the centre, y downwards) shows the image's point R^-1 (p - shift) / scale.
    The ratios of the sides make the rotation one of pixels, not of a stretched square.
    """
    turn = radians(view.rotation)
    c, s = cos(turn) / view.scale, sin(turn) / view.scale
    to_right, down = 2 * view.shift_x, 2 * view.shift_y  # a share of a side is twice that in coordinates
    across, along = s * height / width, s * width / height
    return [
        [c, -across, -c * to_right + across * down],
        [along, c, -along * to_right - c * down],
    ]
