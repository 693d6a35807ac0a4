"""Several processes on one cache, here or on a cluster: work items of whole shards, a device for each."""

import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from trust_cache.base.errors import InputError, StoppedError
from trust_cache.base.executor import run_items
from trust_cache.base.locks import FileLock
from trust_cache.base.places import absolute
from trust_cache.base.work import Cluster, Outcome, WorkerDiedError
from trust_cache.cache.encoder import RANDOM, identify_encoder
from trust_cache.cache.extraction.loading import EncoderWords, load_runner
from trust_cache.cache.extraction.recipe import Recipe, ShardFiles, ShardReport
from trust_cache.cache.extraction.records import Record, record_halving
from trust_cache.cache.extraction.runner import Runner, torch_threads
from trust_cache.cache.extraction.work import OnShard, extract_shards
from trust_cache.cache.writer import resume_cache

_MOST_SHARDS = 8  # in an item: enough that filling and draining its pipeline costs little
_ITEMS_EACH = 4  # per process at least, so that none idles long at the end
# On a cluster, whose workers come and go: items of one shard up to this many, for their progress to be seen.
_CLUSTER_ITEMS = 1024
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
    reports: list[ShardReport] = []
    with _ONE_AT_A_TIME:
        runner = _runner(item.encoder, _claimed(item.devices, item.claims), item.record.compiled)
        shards = [shard.shard for shard in item.shards]
        with (
            torch_threads(item.record.threads),
            resume_cache(item.cache, locked=False, shards=shards) as writer,
        ):
            _require_weights(item, writer.fingerprint.weights_sha256)
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
    count = len(item.devices)
    size = min(_MOST_SHARDS, max(1, len(item.shards) // (_ITEMS_EACH * count)))
    with tempfile.TemporaryDirectory(prefix="trust-cache-", ignore_cleanup_errors=True) as claims:
        items = [replace(item, claims=claims, shards=part) for part in _parts(item.shards, size)]
        _collect(item, run_items(extract_item, items, count), on_shard)


def extract_on_cluster(item: Item, cluster: Cluster, on_shard: OnShard) -> None:
    """Divide an item's shards among a cluster's workers, which reach its files under the same names."""
    size = min(_MOST_SHARDS, max(1, len(item.shards) // _CLUSTER_ITEMS))
    weights = item.encoder.weights
    encoder = item.encoder if weights == RANDOM else replace(item.encoder, weights=absolute(weights))
    shards = [
        replace(shard, files=tuple(replace(file, location=absolute(file.location)) for file in shard.files))
        for shard in item.shards
    ]
    there = replace(item, cache=absolute(item.cache), encoder=encoder)
    items = [replace(there, shards=part) for part in _parts(shards, size)]
    try:
        _collect(item, run_items(extract_item, items, cluster), on_shard)
    except ImportError as error:
        raise InputError(
            f"{cluster.address}: a worker lacks a package ({error}); install"
            ' "trust-cache[extract,cluster]" there'
        ) from error


def _collect(
    item: Item, outcomes: Iterator[Outcome[Item, tuple[ShardReport, ...]]], on_shard: OnShard
) -> None:
    died = 0
    with ExitStack() as stack:
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


def _parts(shards: Sequence[ShardFiles], size: int) -> list[tuple[ShardFiles, ...]]:
    return [tuple(shards[first : first + size]) for first in range(0, len(shards), size)]


@lru_cache(maxsize=1)  # an encoder takes seconds to load, an item often less: it stays between items
def _runner(encoder: EncoderWords, device: str, compiled: bool) -> Runner:
    return load_runner(encoder, device, compiled=compiled)


def _require_weights(item: Item, expected: str) -> None:
    """Refuse a machine whose file of that name has other weights than the cache was begun with."""
    found = _weights_sha256(item.encoder)
    if found != expected:
        raise InputError(
            f"{item.encoder.weights}: expected the weights with SHA-256 {expected} on"
            f" {socket.gethostname()}, found {found}"
        )


@lru_cache(maxsize=1)
def _weights_sha256(words: EncoderWords) -> str:
    return identify_encoder(
        words.weights, words.encoder, words.seed, image_size=words.image_size
    ).weights_sha256


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
# A worker of a cluster may have several threads, but its device holds one encoder, which does one thing.
_ONE_AT_A_TIME = threading.Lock()


def _end_with_the_run(claims: Path) -> None:
    while claims.exists():
        time.sleep(_LOOK_SECONDS)
    os._exit(1)
