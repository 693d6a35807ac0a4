"""Extracting shards: the one work item of stage one. It owns whole shards and may be run again."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from types import TracebackType
from typing import Self

from trust_cache.base.errors import StoppedError, TrustCacheError
from trust_cache.cache.extraction.decoding import Decoded, decode, decode_ahead
from trust_cache.cache.extraction.recipe import Recipe, Seconds, ShardFiles, ShardReport
from trust_cache.cache.extraction.runner import Runner, is_out_of_memory
from trust_cache.cache.extraction.shard_features import EncodedShard, encode_shard, finish_shard
from trust_cache.cache.writer import CacheWriter
from trust_cache.images.failures import Failure

OnShard = Callable[[ShardReport], None]
OnHalved = Callable[[int, int, int], None]  # shard, batch before, batch after

_SHARDS_BEING_WRITTEN = 2


def extract_shards(
    shards: Sequence[ShardFiles],
    recipe: Recipe,
    runner: Runner,
    writer: CacheWriter,
    *,
    batch: int,
    workers: int,
    on_shard: OnShard,
    on_halved: OnHalved,
) -> None:
    """Make the features of these shards and write each when it is whole.

    What is done already is left alone; a shard that lacks images is made again as soon as one of them can be
    read. When the device has no memory for a batch, the shard is begun again with half of it.
    """
    with ThreadPoolExecutor(workers) as threads, _Writing(writer, on_shard) as writing:
        todo = deque(_shards_to_make(shards, writer, threads, on_shard))
        while todo:
            files = [file for shard in todo for file in shard.files]
            with closing(decode_ahead(files, threads, 2 * workers + 1, pinned=runner.queue.pinned)) as images:
                try:
                    while todo:
                        encoded = encode_shard(todo[0], images, recipe, runner, batch, writer.layout.dim)
                        writing.submit(todo.popleft(), encoded, runner.queue.take_busy_seconds())
                    return
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    smaller = _halved(batch, recipe, error)
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
        if not absent:
            continue
        if len(absent) < len(shard.files) or writer.is_done(shard.shard):
            tried = list(threads.map(lambda file: decode(file, pinned=False), absent))
            if not any(decoded.pixels is not None for decoded in tried):
                failures = [
                    Failure(file.image_id, decoded.error.stage, decoded.error.reason)
                    for file, decoded in zip(absent, tried, strict=True)
                    if decoded.error is not None
                ]
                on_shard(ShardReport(shard.shard, 0, tuple(failures), _decoding(tried), written=False))
                continue
        todo.append(shard)
    return todo


def _decoding(tried: Iterable[Decoded]) -> Seconds:
    return Seconds(decode=sum(decoded.seconds for decoded in tried))


def _halved(batch: int, recipe: Recipe, error: BaseException) -> int:
    if batch == 1:
        height, width = recipe.image_size
        raise StoppedError(
            f"the device has no memory for a single view of {height}x{width}; what is finished stays."
            " Free some and run the same command again"
        ) from error
    return batch // 2


class _Writing:
    """Writes shards in a thread of its own, in order; what was handed over is written even on an error."""

    def __init__(self, writer: CacheWriter, on_shard: OnShard) -> None:
        self._writer = writer
        self._on_shard = on_shard
        self._thread = ThreadPoolExecutor(1)
        self._under_way: deque[Future[ShardReport]] = deque()

    def submit(self, shard: ShardFiles, encoded: EncodedShard, busy: float) -> None:
        """Hand a shard over; wait while too many are under way."""
        self._under_way.append(self._thread.submit(self._write, shard, encoded, busy))
        while len(self._under_way) > _SHARDS_BEING_WRITTEN or self._under_way[0].done():
            self._report_first()
            if not self._under_way:
                break

    def _report_first(self) -> None:
        self._on_shard(self._under_way.popleft().result())

    def _write(self, shard: ShardFiles, encoded: EncodedShard, busy: float) -> ShardReport:
        finished = finish_shard(shard, encoded)
        start = time.perf_counter()
        self._writer.write_shard(shard.shard, finished.features, finished.present)
        seconds = Seconds(encoded.decode_seconds, busy, time.perf_counter() - start)
        return ShardReport(shard.shard, len(shard.files), finished.failures, seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while self._under_way:
                # The first error is the one to tell; later writes may fail for the same reason.
                with suppress(*([] if error is None else [TrustCacheError, OSError])):
                    self._report_first()
        finally:
            self._thread.shutdown(wait=True, cancel_futures=True)
