"""Run torch on a device: choose it, transfer tensors, and measure its busy time."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trust_cache.base.errors import InputError

Fetched = Callable[[], NDArray[np.generic]]  # waits for a tensor on its way to the host; any thread may
_BATCH = {"cpu": 4, "cuda": 16}  # views at once at the paper's size: about 2.5 GB on a CPU, 6 GB on a GPU


def choose_devices(word: str, processes: int | None = None) -> tuple[str, ...]:
    """Return a device for each process: `auto`, `cpu`, `cuda`, or several such as `cuda:0,cuda:1`."""
    names = tuple(_resolved(part.strip()) for part in word.split(","))
    kinds = {name.partition(":")[0] for name in names}
    if len(kinds) > 1:
        raise InputError(f"device: expected devices of one kind, found {word}: their features would differ")
    if processes is None:
        return names
    if processes < len(names):
        raise InputError(f"processes: expected at least {len(names)}, one for each device, found {processes}")
    return tuple(names[number % len(names)] for number in range(processes))


def choose_cluster_device(word: str, resources: Iterable[str]) -> str:
    """Return the device of every worker of a cluster; this machine need not have it."""
    if word == "auto":
        return "cuda" if any(name.upper().startswith("GPU") for name in resources) else "cpu"
    if word not in _BATCH:
        raise InputError(
            f"device: expected auto, cpu or cuda on a cluster, found {word}: each of its workers has a device"
            " of its own"
        )
    return word


def default_batch(device: str) -> int:
    """Return the default number of views through the encoder at once."""
    return _BATCH[device.partition(":")[0]]


def _resolved(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, colon, number = name.partition(":")
    if name != "cpu" and (kind != "cuda" or (colon and not number.isdecimal())):
        raise InputError(f"device: expected auto, cpu, cuda or cuda:N, found {name!r}")
    if kind == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if found <= int(number or 0):
            raise InputError(
                f"device: expected {name}, found {found} CUDA devices (torch {torch.__version__});"
                " use --device cpu, or install a torch for your GPU"
            )
    return name


class HostQueue:
    """The processor: everything is done when a call returns."""

    pinned = False  # whether pixels should be in pinned memory, which a GPU copies from by itself

    def __init__(self) -> None:
        self._busy = 0.0

    def load(self, pixels: Tensor) -> Tensor:
        """Bring pixels to the device."""
        return pixels

    def fetch(self, tensor: Tensor) -> Fetched:
        """Start to bring a tensor back."""
        return tensor.numpy

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count the time inside as busy time of the device."""
        begin = time.perf_counter()
        yield
        self._busy += time.perf_counter() - begin

    def take_busy_seconds(self) -> float:
        """Return how long the device was busy since the last call, as far as it has finished."""
        busy, self._busy = self._busy, 0.0
        return busy

    def give_back_memory(self) -> None:
        """Release memory that a failed batch held; the processor's allocator does it by itself."""


class CudaParts:
    """The parts of torch that only work with a GPU. Tests on other machines replace them."""

    def new_stream(self, device: torch.device) -> Any:
        """Return a new stream of work."""
        return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's has no types

    def current_stream(self, device: torch.device) -> Any:
        """Return the stream that calls queue their work on."""
        return torch.cuda.current_stream(device)

    def on_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Queue work on a stream for a while."""
        return torch.cuda.stream(stream)

    def new_event(self) -> Any:
        """Return an event that can measure time."""
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # as above

    def pinned_like(self, tensor: Tensor) -> Tensor:
        """Return pinned memory of the host for a tensor."""
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)

    def autocast(self) -> AbstractContextManager[Any]:
        """Compute with float16 where that is safe."""
        return torch.autocast("cuda", dtype=torch.float16)

    def empty_cache(self) -> None:
        """Give memory that is not used back to the device."""
        torch.cuda.empty_cache()


CUDA_PARTS = CudaParts()


class CudaQueue(HostQueue):
    """A GPU: copies run beside the arithmetic, and no call waits for either."""

    pinned = True

    def __init__(self, device: torch.device, parts: CudaParts = CUDA_PARTS) -> None:
        super().__init__()
        self._device = device
        self._parts = parts
        self._copies = parts.new_stream(device)
        self._spans: list[tuple[Any, Any]] = []

    def load(self, pixels: Tensor) -> Tensor:
        """Copy pinned pixels on a separate stream."""
        arithmetic = self._parts.current_stream(self._device)
        with self._parts.on_stream(self._copies):
            here = pixels.to(self._device, non_blocking=True)
        arithmetic.wait_stream(self._copies)
        here.record_stream(arithmetic)  # else the next copy could overwrite memory that is still read
        return here

    def fetch(self, tensor: Tensor) -> Fetched:
        """Queue the copy to pinned memory and an event after it."""
        host = self._parts.pinned_like(tensor)
        host.copy_(tensor, non_blocking=True)
        copied = self._event_after_all()

        def wait() -> NDArray[np.generic]:
            copied.synchronize()
            return host.numpy()

        return wait

    @contextmanager
    def working(self) -> Iterator[None]:
        """Measure with the GPU's own events: the host only queues."""
        start = self._event_after_all()
        yield
        self._spans.append((start, self._event_after_all()))

    def take_busy_seconds(self) -> float:
        """Add up the spans that the GPU has finished."""
        finished = [span for span in self._spans if span[1].query()]
        self._spans = self._spans[len(finished) :]  # a GPU finishes them in order
        return float(sum(start.elapsed_time(end) for start, end in finished)) / 1000

    def give_back_memory(self) -> None:
        """Empty torch's cache: a smaller batch needs other blocks."""
        self._parts.empty_cache()

    def _event_after_all(self) -> Any:
        """Queue an event behind everything on the device's stream."""
        event = self._parts.new_event()
        event.record(self._parts.current_stream(self._device))
        return event


def queue_of(device: torch.device, parts: CudaParts = CUDA_PARTS) -> HostQueue:
    """Return the queue of a device."""
    return CudaQueue(device, parts) if device.type == "cuda" else HostQueue()
