"""Extract shards: the work item of stage one. It owns whole shards and may run again."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from trust_cache.base.errors import InputError, StoppedError, TrustCacheError
from trust_cache.cache.cache_writer import CacheWriter
from trust_cache.cache.extract.picture_source import Decoded, ImageFile, PictureSource
from trust_cache.cache.extract.view_features import Runner, is_out_of_memory, stored_features, unusable
from trust_cache.cache.layout import as_pictures, finite_images
from trust_cache.cache.views import ViewPlan
from trust_cache.encoders.torch_runtime import Fetched
from trust_cache.images.examined_table import ExaminedPicture
from trust_cache.images.image_failures import Failure, ImageError
from trust_cache.manifest.dicom_headers import ImageHeader

_SHARDS_BEING_WRITTEN = 2


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
    examined: tuple[ExaminedPicture, ...] = ()  # pictures that `preprocess` did not record
    headers: tuple[tuple[str, ImageHeader], ...] = ()  # of DICOM files, by image
    written: bool = True  # false for a shard that is as it was: whole, or without the same images


OnShard = Callable[[ShardReport], None]
OnHalved = Callable[[int, int, int], None]  # shard, batch before, batch after


@dataclass(frozen=True)
class EncodedShard:
    """A shard's features on their way to the host, and the images that have none."""

    features: Fetched  # [image, view, dim], float32
    varied: Fetched  # [image]
    failures: tuple[Failure, ...]
    pictures: tuple[bytes | None, ...]  # the digests of the files
    examined: tuple[ExaminedPicture, ...]
    headers: tuple[tuple[str, ImageHeader], ...]
    decode_seconds: float


def encode_shard(
    shard: ShardFiles, images: Iterator[Decoded], plan: ViewPlan, runner: Runner, batch: int, dim: int
) -> EncodedShard:
    """Encode the next images, which are those of the shard, in batches of `batch` views.

    An image that failed keeps its places in the batches, filled with zeros, so that the bits of its
    neighbours do not depend on it.
    """
    rows, count = plan.stored, len(shard.files) * plan.stored
    recipe = runner.recipe
    blank = torch.zeros((1, 1, 1, 1), device=runner.device).expand(rows, recipe.planes, *recipe.image_size)
    parts: list[Tensor] = []
    real = False
    outputs, varied, failures, pictures, examined, seconds = [], [], [], [], [], 0.0
    headers = []
    for number, file in enumerate(shard.files):
        decoded = next(images)
        seconds += decoded.seconds
        pictures.append(decoded.digest)
        examined += [] if decoded.examined is None else [decoded.examined]
        headers += [] if decoded.header is None else [(file.image_id, decoded.header)]
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
    return EncodedShard(*held, tuple(failures), tuple(pictures), tuple(examined), tuple(headers), seconds)


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
    source: PictureSource,
    on_shard: OnShard,
    on_halved: OnHalved,
) -> None:
    """Make the features of these shards and write each shard when it is complete.

    Finished shards are only reported. A shard that lacks images is made again once one of them can be read.
    When the device has no memory for a batch, the shard starts again with half the batch.
    """
    with _Writing(writer, on_shard) as writing:
        todo = deque(_shards_to_make(shards, writer, source, on_shard))
        while todo:
            files = [file for shard in todo for file in shard.files]
            with closing(source.decoded(files, pinned=runner.queue.pinned)) as images:
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
    shards: Iterable[ShardFiles], writer: CacheWriter, source: PictureSource, on_shard: OnShard
) -> list[ShardFiles]:
    """Return the shards that are not done, or lack an image that can be read now; report the others."""
    todo, partly = [], []
    for shard in shards:
        absent = [shard.files[number] for number in writer.absent(shard.shard)]
        if not absent:  # made by a worker that died before its report arrived
            on_shard(ShardReport(shard.shard, len(shard.files), (), Seconds(), written=False))
        elif len(absent) < len(shard.files) or writer.is_done(shard.shard):
            partly.append((shard, absent))
        else:
            todo.append(shard)
    wanted = [file for _, absent in partly for file in absent]
    with closing(source.decoded(wanted, pinned=False)) as images:
        for shard, absent in partly:
            tried = [replace(next(images), pixels=None) for _ in absent]
            failures = [decoded.failure for decoded in tried if decoded.failure is not None]
            if len(failures) < len(tried):
                todo.append(shard)
                continue
            seconds = Seconds(decode=sum(decoded.seconds for decoded in tried))
            on_shard(ShardReport(shard.shard, 0, tuple(failures), seconds, written=False))
    return sorted(todo, key=lambda shard: shard.shard)


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
        return ShardReport(
            shard.shard, len(shard.files), tuple(failed.values()), seconds, encoded.examined, encoded.headers
        )

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
