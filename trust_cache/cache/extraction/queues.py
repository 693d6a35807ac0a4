"""How work reaches a device: at once on the host, or queued on CUDA, where the host runs ahead."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Fetched(Protocol):
    """A tensor on its way to the host."""

    def wait(self) -> NDArray[np.generic]:
        """Return the values when they have arrived; any thread may wait."""
        ...


class Queue(Protocol):
    """Transfers to and from a device, and the time it is at work."""

    pinned: bool  # whether pixels should come in memory that the device copies from by itself

    def load(self, pixels: Tensor) -> Tensor:
        """Bring pixels to the device."""
        ...

    def fetch(self, tensor: Tensor) -> Fetched:
        """Start bringing a tensor back."""
        ...

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count what is done inside as work of the device."""
        ...

    def take_busy_seconds(self) -> float:
        """Return how long the device was at work since the last call, as far as it has finished."""
        ...

    def give_back_memory(self) -> None:
        """Let go of memory that a failed batch held."""
        ...


def queue_of(device: torch.device) -> Queue:
    """Return the queue of a device."""
    return CudaQueue(device) if device.type == "cuda" else HostQueue()


class HostQueue:
    """The processor: everything is there and done when a call returns."""

    pinned = False

    def __init__(self) -> None:
        self._busy = 0.0

    def load(self, pixels: Tensor) -> Tensor:
        """Return the pixels: they are there."""
        return pixels

    def fetch(self, tensor: Tensor) -> Fetched:
        """Return the tensor as one that has arrived."""
        return _OnHost(tensor)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Measure by the clock."""
        begin = time.perf_counter()
        yield
        self._busy += time.perf_counter() - begin

    def take_busy_seconds(self) -> float:
        """Return the time measured since the last call."""
        busy, self._busy = self._busy, 0.0
        return busy

    def give_back_memory(self) -> None:
        """Do nothing: the allocator gives back by itself."""


class _OnHost:
    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def wait(self) -> NDArray[np.generic]:
        return self._tensor.numpy()


class CudaQueue:
    """A GPU: copies run beside the arithmetic, and nothing here waits for either."""

    pinned = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's has no types
        self._spans: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def load(self, pixels: Tensor) -> Tensor:
        """Copy pinned pixels on a stream of their own."""
        arithmetic = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._copies):
            here = pixels.to(self._device, non_blocking=True)
        arithmetic.wait_stream(self._copies)
        here.record_stream(arithmetic)  # else the next copy could be given memory that is still read
        return here

    def fetch(self, tensor: Tensor) -> Fetched:
        """Queue the copy to pinned memory, and what tells of its end."""
        return _FromCuda(tensor)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let the GPU take its own time: the host only queues."""
        start = _event_after_all(self._device)
        yield
        self._spans.append((start, _event_after_all(self._device)))

    def take_busy_seconds(self) -> float:
        """Add up the spans that the GPU has finished."""
        finished = [span for span in self._spans if span[1].query()]  # type: ignore[no-untyped-call]  # as above
        self._spans = self._spans[len(finished) :]  # a GPU finishes them in order
        return float(sum(start.elapsed_time(end) for start, end in finished)) / 1000

    def give_back_memory(self) -> None:
        """Empty torch's cache: a smaller batch needs other blocks."""
        torch.cuda.empty_cache()


class _FromCuda:
    def __init__(self, tensor: Tensor) -> None:
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._host.copy_(tensor, non_blocking=True)
        self._copied = _event_after_all(tensor.device)

    def wait(self) -> NDArray[np.generic]:
        self._copied.synchronize()
        return self._host.numpy()


def _event_after_all(device: torch.device) -> torch.cuda.Event:
    """Queue an event behind everything that is queued on the device's stream."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # as above
    event.record(torch.cuda.current_stream(device))
    return event
