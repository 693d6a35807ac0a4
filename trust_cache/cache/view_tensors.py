"""Views as tensors: every view of one decoded image, made on the device by one batched warp."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, radians, sin

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate

from trust_cache.cache.views import ViewParameters

# Mammo-CLIP's, which its encoder was trained with.
MEAN, STD = 0.3089279, 0.25053555408335154
# Without antialiasing, as OpenCV's and torch's bilinear resizing both have it by default.
STANDARDISATION = f"bilinear resize without antialiasing, min-max to [0, 1], mean {MEAN} std {STD}"

_ROUNDING = 2.0**-20  # interpolating equal values gives values that differ by a few parts in 2^23


@dataclass(frozen=True)
class ImageViews:
    """The standardised views of one image [1 + augmented, 1, height, width], the clean one first.

    `varied` is a tensor of one truth value: false where the resized image is constant. It stays on the
    device so that nobody waits for it; the views of such an image are finite and mean nothing.
    """

    views: Tensor
    varied: Tensor


def make_views(
    pixels: Tensor, image_size: tuple[int, int], parameters: Sequence[ViewParameters]
) -> ImageViews:
    """Return the clean view and one view for each of the parameters, of pixels [height, width] of any type.

    Every step works on this image alone and on each of its views alone: the same values come out whatever
    else is in the batch.
    """
    image, varied = rescale(resize(pixels, image_size))
    views = image[None]
    if parameters:
        views = torch.cat((views, adjust(warp(image, parameters), image.mean(), parameters)))
    return ImageViews(views.sub_(MEAN).div_(STD)[:, None], varied)


def resize(pixels: Tensor, image_size: tuple[int, int]) -> Tensor:
    """Return the pixels at the encoder's size in float32, interpolated bilinearly."""
    return interpolate(pixels.to(torch.float32)[None, None], image_size, mode="bilinear")[0, 0]


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
        # Sums of products rather than a matrix product: no element may depend on the size of the batch.
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
