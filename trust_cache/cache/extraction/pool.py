"""Several processes on one cache: work items of whole shards, each process with a device of its own."""

import os
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from trust_cache.base.errors import InputError, StoppedError
from trust_cache.base.executor import run_items
from trust_cache.base.locks import FileLock
from trust_cache.base.work import WorkerDiedError
from trust_cache.cache.extraction.loading import EncoderWords, load_runner
from trust_cache.cache.extraction.recipe import Recipe, ShardFiles, ShardReport
from trust_cache.cache.extraction.records import Record, record_halving
from trust_cache.cache.extraction.runner import Runner, torch_threads
from trust_cache.cache.extraction.work import OnShard, extract_shards
from trust_cache.cache.writer import resume_cache

_MOST_SHARDS = 8  # in an item: enough that filling and draining its pipeline costs little
_ITEMS_EACH = 4  # per process at least, so that none idles long at the end
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Item:
    """Shards to extract, and all that a process must know to do it."""

    cache: str
    shards: tuple[ShardFiles, ...]
    recipe: Recipe
    encoder: EncoderWords
    record: Record
    workers: int
    devices: tuple[str, ...]
    # A folder that lives as long as the run: who finds it gone ends. Without one (on a cluster, which gives
    # each worker its device) the first device is taken.
    claims: str = ""


def extract_item(item: Item) -> tuple[ShardReport, ...]:
    """Do one item; whatever of it was done before is left alone, so that it may run twice."""
    runner = _runner(item.encoder, _claimed(item.devices, item.claims), item.record.compiled)
    reports: list[ShardReport] = []
    with torch_threads(item.record.threads), resume_cache(item.cache, locked=False) as writer:
        extract_shards(
            item.shards,
            item.recipe,
            runner,
            writer,
            batch=item.record.batch,
            workers=item.workers,
            on_shard=reports.append,
            on_halved=lambda *halving: record_halving(item.cache, *halving),
        )
    return tuple(reports)


def extract_in_processes(item: Item, on_shard: OnShard) -> None:
    """Divide an item's shards among one process for each of its devices."""
    died = 0
    with tempfile.TemporaryDirectory(prefix="trust-cache-", ignore_cleanup_errors=True) as claims:
        items = [replace(item, claims=claims, shards=part) for part in _parts(item.shards, len(item.devices))]
        with ExitStack() as stack:
            outcomes = run_items(extract_item, items, len(item.devices))
            stack.callback(getattr(outcomes, "close", lambda: None))  # ends the pool on an error of ours
            for outcome in outcomes:
                if isinstance(outcome.error, WorkerDiedError):
                    died += len(outcome.item.shards)
                elif outcome.error is not None:
                    raise outcome.error
                for report in outcome.value or ():
                    on_shard(report)
    if died:
        raise StoppedError(
            f"{item.cache}: the processes for {died} shards were ended from outside (not enough memory?);"
            " what is finished stays. Run the same command again, perhaps with fewer processes"
        )


def _parts(shards: Sequence[ShardFiles], processes: int) -> list[tuple[ShardFiles, ...]]:
    size = min(_MOST_SHARDS, max(1, len(shards) // (_ITEMS_EACH * processes)))
    return [tuple(shards[first : first + size]) for first in range(0, len(shards), size)]


@lru_cache(maxsize=1)
def _runner(encoder: EncoderWords, device: str, compiled: bool) -> Runner:
    return load_runner(encoder, device, compiled=compiled)


@lru_cache(maxsize=1)
def _claimed(devices: tuple[str, ...], claims: str) -> str:
    """Take a device for this process: a lock dies with its holder, so a dead one's is free again."""
    if not claims:
        return devices[0]
    threading.Thread(target=_end_with_the_run, args=(Path(claims),), daemon=True).start()
    for number, device in enumerate(devices):
        lock = FileLock(Path(claims) / f"{number}.lock", device)
        try:
            _HELD.append(lock.acquire())
        except InputError:
            continue
        return device
    raise StoppedError("every device is taken by another process of this run; run the same command again")


_HELD: list[FileLock] = []  # kept until the process ends


def _end_with_the_run(claims: Path) -> None:
    while claims.exists():
        time.sleep(_LOOK_SECONDS)
    os._exit(1)
