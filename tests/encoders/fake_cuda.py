"""Stands in for a GPU over tensors of the processor: nothing runs late, but the order is checked.

Every stream counts its steps and knows up to which step of each other stream it has waited. A tensor knows
the step that wrote it. Whoever reads it earlier than it is surely written, a stream or the host, is refused.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from trust_cache.encoders.torch_runtime import CudaParts

Clock = dict[int, int]  # by stream, the last step that has surely been done
_READS = {"numpy", "item", "tolist", "__bool__", "__float__", "__int__", "cpu", "__array__"}
_PLAIN = {"shape", "dtype", "device", "is_contiguous", "size", "dim", "ndim", "numel", "record_stream"}


class WrongOrderError(AssertionError):
    """A tensor was read before it was surely written, or its memory was not kept."""


class Stream:
    def __init__(self, number: int) -> None:
        self.number = number
        self.clock: Clock = {}

    def step(self) -> tuple[int, int]:
        self.clock[self.number] = self.clock.get(self.number, 0) + 1
        return self.number, self.clock[self.number]

    def wait_stream(self, other: "Stream") -> None:
        merge(self.clock, other.clock)


class Event:
    def __init__(self, gpu: "FakeCuda") -> None:
        self._gpu = gpu
        self._clock: Clock | None = None

    def record(self, stream: Stream) -> None:
        stream.step()
        self._clock = dict(stream.clock)

    def synchronize(self) -> None:
        assert self._clock is not None, "waits for an event that was never recorded"
        merge(self._gpu.host, self._clock)

    def query(self) -> bool:
        assert self._clock is not None
        return all(self._gpu.host.get(stream, 0) >= step for stream, step in self._clock.items())

    def elapsed_time(self, end: "Event") -> float:
        """A millisecond for each step between two events that are both over, as a GPU demands."""
        if not (self.query() and end.query()):
            raise WrongOrderError("asked for the time of an event that is not over")
        assert self._clock is not None
        assert end._clock is not None
        return float(sum(end._clock.values()) - sum(self._clock.values()))


def merge(clock: Clock, other: Mapping[int, int]) -> None:
    for stream, step in other.items():
        clock[stream] = max(clock.get(stream, 0), step)


class FakeCuda(CudaParts):
    """One GPU whose tensors are on the processor, or on the meta device, where only shapes are computed."""

    def __init__(self, place: str = "cpu") -> None:
        self.place = place
        self.host: Clock = {}
        self.streams = [Stream(0)]
        self.current = self.streams[0]
        self.emptied = self.waits = 0

    def new_stream(self, device: torch.device) -> Stream:
        assert device.type == "cuda"
        self.streams.append(Stream(len(self.streams)))
        return self.streams[-1]

    def current_stream(self, device: torch.device) -> Stream:
        assert device.type == "cuda"
        return self.current

    @contextmanager
    def on_stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def new_event(self) -> Event:
        return Event(self)

    def pinned_like(self, tensor: Tensor) -> Tensor:
        return pinned(torch.empty(tensor.shape, dtype=tensor.dtype))

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast("cpu", dtype=torch.float16)

    def empty_cache(self) -> None:
        self.emptied += 1

    def device_tensor(self, plain: Tensor) -> "DeviceTensor":
        made = plain.as_subclass(DeviceTensor)
        made.gpu, made.born, made.used_on = self, self.current.number, {self.current.number}
        made.written = self.current.step()
        return made


def pinned(plain: Tensor) -> "PinnedTensor":
    made = plain.as_subclass(PinnedTensor)
    made.gpu, made.written = None, None
    return made


class PinnedTensor(Tensor):
    """Memory of the host that a GPU copies to and from; the host reads a copy only after its event."""

    gpu: FakeCuda | None
    written: tuple[int, int] | None

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name, first = func.__name__, args[0]
        if name == "copy_" and isinstance(args[1], DeviceTensor):
            assert (kwargs or {}).get("non_blocking"), "a copy to the host that waits"
            source = args[1]
            source.check()
            if source.gpu.place != "meta":
                first.as_subclass(Tensor).copy_(source.as_subclass(Tensor))
            first.gpu, first.written = source.gpu, source.gpu.current.step()
            return first
        if name in _READS and first.gpu is not None:
            stream, step = first.written
            if first.gpu.host.get(stream, 0) < step:
                raise WrongOrderError("the host reads a copy before its event")
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class DeviceTensor(Tensor):
    """A tensor of the GPU."""

    gpu: FakeCuda
    born: int  # the stream whose allocator owns its memory
    used_on: set[int]  # streams that the allocator knows to use it
    written: tuple[int, int]

    def record_stream(self, stream: Any) -> None:
        self.used_on.add(stream.number)

    def check(self) -> None:
        """Refuse a use on the current stream that may come too early, or outlive the memory."""
        stream, step = self.written
        now = self.gpu.current
        if now.number != stream and now.clock.get(stream, 0) < step:
            raise WrongOrderError(f"stream {now.number} reads what stream {stream} may still write")
        if now.number not in self.used_on:
            raise WrongOrderError("the allocator does not know that this stream uses the memory")

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = func.__name__, kwargs or {}
        leaves = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, DeviceTensor)]
        if name in _READS:
            raise WrongOrderError(f"{name} of a GPU's tensor waits for the whole GPU")
        gpu = leaves[0].gpu
        with torch._C.DisableTorchFunctionSubclass():
            if name in _PLAIN or name == "__get__":
                return func(*args, **kwargs)
            for leaf in leaves:
                leaf.check()
            result = func(*args, **kwargs)
        return tree_map(lambda leaf: gpu.device_tensor(leaf) if isinstance(leaf, Tensor) else leaf, result)


class OnFakeCuda(TorchFunctionMode):
    """Puts tensors that are made on, or sent to, the device `cuda` on the fake one."""

    def __init__(self, gpu: FakeCuda) -> None:
        super().__init__()
        self._gpu = gpu

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func.__name__ == "to" and len(args) > 1 and _is_cuda(args[1]):
            source = args[0]
            assert kwargs == {"non_blocking": True}
            self._gpu.waits += not isinstance(source, PinnedTensor)  # a copy from other memory waits
            return self._gpu.device_tensor(source.as_subclass(Tensor).to(self._gpu.place, copy=True))
        if _is_cuda(kwargs.get("device")):
            return self._gpu.device_tensor(func(*args, **kwargs | {"device": self._gpu.place}))
        return func(*args, **kwargs)


def _is_cuda(device: object) -> bool:
    return isinstance(device, torch.device | str) and torch.device(device).type == "cuda"
