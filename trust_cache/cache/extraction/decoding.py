"""Decoding PNGs in threads ahead of the device, in order, a bounded number of images in memory."""

import time
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from trust_cache.cache.extraction.recipe import ImageFile
from trust_cache.images.errors import ImageError
from trust_cache.images.grey_png import read_grey_png


@dataclass(frozen=True)
class Decoded:
    """An image's pixels [height, width], or why there are none; and the seconds it took."""

    pixels: Tensor | None
    error: ImageError | None
    seconds: float


def decode_ahead(
    files: Sequence[ImageFile], threads: ThreadPoolExecutor, ahead: int, *, pinned: bool
) -> Generator[Decoded, None, None]:
    """Yield the images in order while the threads work on the next `ahead` of them."""
    remaining = iter(files)
    waiting: deque[Future[Decoded]] = deque()
    try:
        waiting.extend(threads.submit(decode, file, pinned=pinned) for file in islice(remaining, ahead))
        while waiting:
            first = waiting.popleft()
            waiting.extend(threads.submit(decode, file, pinned=pinned) for file in islice(remaining, 1))
            yield first.result()
    finally:
        for future in waiting:
            future.cancel()


def decode(file: ImageFile, *, pinned: bool) -> Decoded:
    """Decode one image; `pinned` memory is what CUDA copies from without waiting."""
    start = time.perf_counter()
    try:
        pixels = torch.from_numpy(read_grey_png(file.location))
        made = pixels.pin_memory() if pinned else pixels
        return Decoded(made, None, time.perf_counter() - start)
    except ImageError as error:
        return Decoded(None, error, time.perf_counter() - start)
