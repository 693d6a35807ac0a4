"""An encoder on its device: pixels in, features out; on CUDA the host runs ahead and never waits."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trust_cache.cache.extraction.recipe import ImageFile, Recipe
from trust_cache.cache.view_tensors import ImageViews, make_views

Encoder = Callable[[Tensor], Tensor]  # standardised views (N, 3, H, W) to features (N, dim)

_CHANNELS = 3
_NO_MEMORY = "can't allocate memory"  # what the CPU's allocator says; it has no error of its own


class Fetched:
    """A tensor on its way to the host; `wait` returns it there."""

    def __init__(self, tensor: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        if tensor.device.type == "cuda":
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(tensor.device))
        else:
            self._host = tensor

    def wait(self) -> NDArray[np.generic]:
        """Return the values when they have arrived; any thread may wait."""
        if self._event is not None:
            self._event.synchronize()
        return self._host.numpy()


class Runner:
    """Makes views and features on one device. On CUDA its calls queue work and return at once."""

    def __init__(self, encoder: Encoder, device: str) -> None:
        self.device = torch.device(device)
        self._encoder = encoder
        self._on_cuda = self.device.type == "cuda"
        self._copies = torch.cuda.Stream(self.device) if self._on_cuda else None
        self._spans: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._busy = 0.0

    @property
    def pinned(self) -> bool:
        """Whether pixels should come in pinned memory."""
        return self._on_cuda

    def views(self, pixels: Tensor, file: ImageFile, recipe: Recipe) -> ImageViews:
        """Return the standardised views of an image."""
        with torch.inference_mode():
            here = self._load(pixels)
            with self._working():
                return make_views(here, recipe.image_size, recipe.parameters(file.image_id))

    def encode(self, views: Tensor) -> Tensor:
        """Return the features of standardised views [N, 1, H, W], in float32."""
        with torch.inference_mode(), self._working(), self._repeatable():
            if not self._on_cuda:
                return self._encoder(views.expand(-1, _CHANNELS, -1, -1).contiguous()).float()
            colours = views.half().expand(-1, _CHANNELS, -1, -1)
            with torch.autocast("cuda", dtype=torch.float16):
                return self._encoder(colours.contiguous(memory_format=torch.channels_last)).float()

    def take_busy_seconds(self) -> float:
        """Return how long the device was at work since the last call, as far as it has finished."""
        finished = [span for span in self._spans if span[1].query()]
        self._spans = self._spans[len(finished) :]
        busy = self._busy + sum(start.elapsed_time(end) for start, end in finished) / 1000
        self._busy = 0.0
        return busy

    def give_back_memory(self) -> None:
        """Let go of memory that a failed batch held."""
        if self._on_cuda:
            torch.cuda.empty_cache()

    def _load(self, pixels: Tensor) -> Tensor:
        """Bring pixels to the device, on CUDA beside what it computes."""
        if self._copies is None:
            return pixels
        compute = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self._copies):
            here = pixels.to(self.device, non_blocking=True)
        compute.wait_stream(self._copies)
        here.record_stream(compute)  # else its memory could be given to the next copy while in use
        return here

    @contextmanager
    def _working(self) -> Iterator[None]:
        if self._on_cuda:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record(torch.cuda.current_stream(self.device))
            yield
            end.record(torch.cuda.current_stream(self.device))
            self._spans.append((start, end))
        else:
            begin = time.perf_counter()
            yield
            self._busy += time.perf_counter() - begin

    @contextmanager
    def _repeatable(self) -> Iterator[None]:
        """Choose cuDNN's algorithms by rule, not by a race: a resumed run must give the same bytes."""
        if not self._on_cuda:
            yield
            return
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
            yield


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
