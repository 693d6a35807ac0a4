"""An encoder on its device: an image's pixels to views, views to features."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from trust_cache.cache.extraction.queues import queue_of
from trust_cache.cache.extraction.recipe import ImageFile, Recipe
from trust_cache.cache.view_tensors import ImageViews, make_views

Encoder = Callable[[Tensor], Tensor]  # standardised views (N, 3, H, W) to features (N, dim)

_CHANNELS = 3
_NO_MEMORY = "can't allocate memory"  # what the CPU's allocator says; it has no error of its own


class Runner:
    """Makes views and features on one device. On CUDA its calls queue work and return at once."""

    def __init__(self, encoder: Encoder, device: str) -> None:
        self.device = torch.device(device)
        self.queue = queue_of(self.device)
        self._encoder = encoder
        self._room = torch.empty(0, device=self.device)

    def views(self, pixels: Tensor, file: ImageFile, recipe: Recipe) -> ImageViews:
        """Return the standardised views of an image."""
        with torch.inference_mode():
            here = self.queue.load(pixels)
            with self.queue.working():
                return make_views(here, recipe.image_size, recipe.parameters(file.image_id))

    def together(self, parts: Sequence[Tensor]) -> Tensor:
        """Return parts of a batch as one tensor; the next call may use its memory.

        New memory for each batch costs a processor more time than the copy: every page of it is a fault.
        """
        if len(parts) == 1:
            return parts[0]
        shape = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
        with torch.inference_mode():
            if self._room.numel() < math.prod(shape):
                self._room = torch.empty(math.prod(shape), device=self.device)
            return torch.cat(list(parts), out=self._room[: math.prod(shape)].view(shape))

    def encode(self, views: Tensor) -> Tensor:
        """Return the features of standardised views [N, 1, H, W], in float32."""
        with torch.inference_mode(), self.queue.working():
            if self.device.type != "cuda":
                # Three names for one channel: whether they must be three in memory is the encoder's to know.
                return self._encoder(views.expand(-1, _CHANNELS, -1, -1)).float()
            colours = views.half().expand(-1, _CHANNELS, -1, -1)
            # cuDNN's algorithms by rule, not by a race: a resumed run must give the same bytes.
            with (
                torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True),
                torch.autocast("cuda", dtype=torch.float16),
            ):
                return self._encoder(colours.contiguous(memory_format=torch.channels_last)).float()


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error means that the device has no memory for a batch."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and _NO_MEMORY in str(error)
    )


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch compute with this many threads for a while: their number changes the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
