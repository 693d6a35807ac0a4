"""Extract shards: the work item of stage one. It owns whole shards and may run again."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Self

import numpy as np
import torch
from blake3 import blake3
from torch import Tensor

from trust_cache.base.errors import InputError, StoppedError, TrustCacheError
from trust_cache.cache.cache_writer import CacheWriter
from trust_cache.cache.extract.view_features import Runner, is_out_of_memory, stored_features, unusable
from trust_cache.cache.layout import as_pictures, finite_images
from trust_cache.cache.views import ViewPlan
from trust_cache.encoders.torch_runtime import Fetched
from trust_cache.images.image_failures import Failure, ImageError
from trust_cache.images.png_files import decode_grey_png, read_png_bytes

_SHARDS_BEING_WRITTEN = 2


@dataclass(frozen=True)
class ImageFile:
    """An image and the place of its PNG, or why it has no PNG."""

    image_id: str
    location: str
    failure: Failure | None = None
    expected: str | None = None  # the BLAKE3 digest of its PNG, if `preprocess` recorded it


@dataclass(frozen=True)
class ShardFiles:
    """The images of one shard, in the cache's order: all that a worker needs to make it."""

    shard: int
    files: tuple[ImageFile, ...]


@dataclass(frozen=True)
class Seconds:
    """Time spent. Decoding threads and processes add up: the sum may exceed the clock's."""

    decode: float = 0.0
    encode: float = 0.0  # busy time of the device: views and encoder
    write: float = 0.0

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.decode + other.decode, self.encode + other.encode, self.write + other.write)


@dataclass(frozen=True)
class ShardReport:
    """The result of one shard."""

    shard: int
    images: int
    failures: tuple[Failure, ...]
    seconds: Seconds
    written: bool = True  # false for a shard that is as it was: whole, or without the same images


OnShard = Callable[[ShardReport], None]
OnHalved = Callable[[int, int, int], None]  # shard, batch before, batch after


@dataclass(frozen=True)
class Decoded:
    """An image's pixels [height, width] and the digest of its PNG, or its failure; the seconds it took."""

    pixels: Tensor | None
    failure: Failure | None
    seconds: float
    digest: bytes | None = None


def decode_ahead(
    files: Sequence[ImageFile], threads: ThreadPoolExecutor, ahead: int, *, pinned: bool
) -> Generator[Decoded, None, None]:
    """Yield the images in order while the threads work on the next `ahead` of them."""
    submitted = (threads.submit(decode, file, pinned=pinned) for file in files)
    waiting = deque(islice(submitted, ahead))
    try:
        while waiting:
            first = waiting.popleft()
            waiting.extend(islice(submitted, 1))
            yield first.result()
    finally:
        for future in waiting:
            future.cancel()


def decode(file: ImageFile, *, pinned: bool) -> Decoded:
    """Decode one image; CUDA copies from `pinned` memory without waiting."""
    if file.failure is not None:
        return Decoded(None, file.failure, 0.0)
    start = time.perf_counter()
    try:
        content = read_png_bytes(file.location)
        digest = blake3(content).digest()
        if file.expected not in (None, digest.hex()):
            reason = "changed since `trust-cache preprocess` made it; run preprocess again"
            raise ImageError("read", reason)
        pixels = torch.from_numpy(decode_grey_png(content))
        pixels = pixels.pin_memory() if pinned else pixels
        return Decoded(pixels, None, time.perf_counter() - start, digest)
    except ImageError as error:
        return Decoded(None, _failure(file, error), time.perf_counter() - start)


@dataclass(frozen=True)
class EncodedShard:
    """A shard's features on their way to the host, and the images that have none."""

    features: Fetched  # [image, view, dim], float32
    varied: Fetched  # [image]
    failures: tuple[Failure, ...]
    pictures: tuple[bytes | None, ...]  # the digests of the PNGs
    decode_seconds: float


def encode_shard(
    shard: ShardFiles, images: Iterator[Decoded], plan: ViewPlan, runner: Runner, batch: int, dim: int
) -> EncodedShard:
    """Encode the next images, which are those of the shard, in batches of `batch` views.

    An image that failed keeps its places in the batches, filled with zeros, so that the bits of its
    neighbours do not depend on it.
    """
    rows, count = plan.stored, len(shard.files) * plan.stored
    blank = torch.zeros((1, 1, 1, 1), device=runner.device).expand(rows, 1, *runner.recipe.image_size)
    parts: list[Tensor] = []
    real = False
    outputs, varied, failures, pictures, seconds = [], [], [], [], 0.0
    for number, file in enumerate(shard.files):
        decoded = next(images)
        seconds += decoded.seconds
        pictures.append(decoded.digest)
        views, differs = blank, torch.tensor(True, device=runner.device)
        if decoded.pixels is not None:
            made = runner.views(decoded.pixels, plan.parameters(file.image_id))
            views, differs = made.views, made.varied
        elif decoded.failure is not None:
            failures.append(decoded.failure)
        varied.append(differs)
        first, end = number * rows, (number + 1) * rows
        while first < end:
            last = min(end, (first // batch + 1) * batch)
            parts.append(views[first - number * rows : last - number * rows])
            real = real or views is not blank
            if last % batch == 0 or last == count:
                outputs.append(_encoded(parts, runner, dim, real=real))
                parts, real = [], False
            first = last
    features = torch.cat(outputs).reshape(len(shard.files), rows, dim)
    fetch = runner.queue.fetch
    held = fetch(features), fetch(torch.stack(varied))
    return EncodedShard(*held, tuple(failures), tuple(pictures), seconds)


def _encoded(parts: list[Tensor], runner: Runner, dim: int, *, real: bool) -> Tensor:
    count = sum(part.shape[0] for part in parts)
    if not real:
        return torch.zeros((count, dim), device=runner.device)
    features = runner.encode(runner.join(parts))
    if features.shape != (count, dim):
        raise InputError(
            f"encoder: expected {dim} features of each of {count} views, found {tuple(features.shape)}"
        )
    return features


def extract_shards(
    shards: Sequence[ShardFiles],
    plan: ViewPlan,
    runner: Runner,
    writer: CacheWriter,
    *,
    batch: int,
    workers: int,
    on_shard: OnShard,
    on_halved: OnHalved,
) -> None:
    """Make the features of these shards and write each shard when it is complete.

    Finished shards are only reported. A shard that lacks images is made again once one of them can be read.
    When the device has no memory for a batch, the shard starts again with half the batch.
    """
    with ThreadPoolExecutor(workers) as threads, _Writing(writer, on_shard) as writing:
        todo = deque(_shards_to_make(shards, writer, threads, on_shard))
        while todo:
            files = [file for shard in todo for file in shard.files]
            with closing(decode_ahead(files, threads, 2 * workers + 1, pinned=runner.queue.pinned)) as images:
                try:
                    while todo:
                        encoded = encode_shard(todo[0], images, plan, runner, batch, writer.layout.dim)
                        writing.submit(todo.popleft(), encoded, runner.queue.take_busy_seconds())
                    return
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    smaller = _halved(batch, runner, error)
            runner.queue.give_back_memory()
            on_halved(todo[0].shard, batch, smaller)
            batch = smaller


def _shards_to_make(
    shards: Iterable[ShardFiles], writer: CacheWriter, threads: ThreadPoolExecutor, on_shard: OnShard
) -> list[ShardFiles]:
    """Return the shards that are not done, or lack an image that can be read now; report the others."""
    todo = []
    for shard in shards:
        absent = [shard.files[number] for number in writer.absent(shard.shard)]
        if not absent:  # made by a worker that died before its report arrived
            on_shard(ShardReport(shard.shard, len(shard.files), (), Seconds(), written=False))
            continue
        if len(absent) < len(shard.files) or writer.is_done(shard.shard):
            tried = list(threads.map(lambda file: decode(file, pinned=False), absent))
            if not any(decoded.pixels is not None for decoded in tried):
                failures = [decoded.failure for decoded in tried if decoded.failure is not None]
                seconds = Seconds(decode=sum(decoded.seconds for decoded in tried))
                on_shard(ShardReport(shard.shard, 0, tuple(failures), seconds, written=False))
                continue
        todo.append(shard)
    return todo


def _failure(file: ImageFile, error: ImageError) -> Failure:
    return Failure(file.image_id, error.stage, error.reason)


def _halved(batch: int, runner: Runner, error: BaseException) -> int:
    if batch == 1:
        height, width = runner.recipe.image_size
        raise StoppedError(
            f"the device has no memory for a single view of {height}x{width}; finished shards are kept."
            " Free some memory and run the same command again"
        ) from error
    return batch // 2


class _Writing:
    """Writes shards in order in its own thread; submitted shards are written even after an error."""

    def __init__(self, writer: CacheWriter, on_shard: OnShard) -> None:
        self._writer = writer
        self._on_shard = on_shard
        self._thread = ThreadPoolExecutor(1)
        self._queued: deque[Future[ShardReport]] = deque()

    def submit(self, shard: ShardFiles, encoded: EncodedShard, busy: float) -> None:
        """Queue a shard for writing; wait while too many are queued."""
        self._queued.append(self._thread.submit(self._write, shard, encoded, busy))
        while len(self._queued) > _SHARDS_BEING_WRITTEN or self._queued[0].done():
            self._report_first()
            if not self._queued:
                break

    def _report_first(self) -> None:
        self._on_shard(self._queued.popleft().result())

    def _write(self, shard: ShardFiles, encoded: EncodedShard, busy: float) -> ShardReport:
        features = stored_features(encoded.features)
        failed = {failure.image_id: failure for failure in encoded.failures}
        checks = zip(shard.files, encoded.varied(), finite_images(features), strict=True)
        for file, varied, finite in checks:
            error = unusable(bool(varied), bool(finite))
            if error is not None and file.image_id not in failed:
                failed[file.image_id] = _failure(file, error)
        present = np.array([file.image_id not in failed for file in shard.files])
        start = time.perf_counter()
        self._writer.write_shard(shard.shard, features, present, as_pictures(encoded.pictures))
        seconds = Seconds(encoded.decode_seconds, busy, time.perf_counter() - start)
        return ShardReport(shard.shard, len(shard.files), tuple(failed.values()), seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            while self._queued:
                # Raise the first error; later writes may fail for the same reason.
                with suppress(*([] if error is None else [TrustCacheError, OSError])):
                    self._report_first()
        finally:
            self._thread.shutdown(wait=True, cancel_futures=True)
