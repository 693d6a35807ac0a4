"""Extract with several processes, here or on a cluster: items of whole shards, one device per process."""

import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from trust_cache.base.errors import InputError, StoppedError
from trust_cache.base.executor import Cluster, ItemOutcome, WorkerDiedError, run_items
from trust_cache.base.locks import FileLock
from trust_cache.base.places import absolute
from trust_cache.cache.cache_writer import CacheWriter, resume_cache
from trust_cache.cache.extract.extraction_record import ExtractionRecord, record_halving
from trust_cache.cache.extract.picture_source import PictureSource
from trust_cache.cache.extract.shard_work import OnShard, ShardFiles, ShardReport, extract_shards
from trust_cache.cache.extract.view_features import (
    EncoderChoice,
    Runner,
    encode_probe,
    load_runner,
    torch_threads,
)
from trust_cache.cache.views import ViewPlan
from trust_cache.encoders.known_encoders import RANDOM
from trust_cache.encoders.known_runtimes import Runtime
from trust_cache.encoders.probe import Probe

_MOST_SHARDS = 8  # per item: filling and draining its pipeline then costs little
_ITEMS_EACH = 4  # per process at least, so that no process idles long at the end
# Workers of a cluster come and go: up to this many items have one shard each, so that progress is visible.
_CLUSTER_ITEMS = 1024


@dataclass(frozen=True)
class ShardItem:
    """Shards to extract, with all that a process needs for it."""

    cache: str
    shards: tuple[ShardFiles, ...]
    plan: ViewPlan
    encoder: EncoderChoice
    record: ExtractionRecord
    source: PictureSource
    devices: tuple[str, ...]
    runtime: Runtime
    # A folder of lock files, one per device. Without one (on a cluster, which gives each worker its device)
    # the first device is used.
    claims: str = ""


def extract_item(item: ShardItem) -> tuple[ShardReport, ...]:
    """Extract one item; finished shards are skipped, so that it may run twice."""
    reports: list[ShardReport] = []
    with _DEVICE_LOCK:
        device, record = _claimed(item.devices, item.claims), item.record
        runner = _runner(
            item.encoder, device, runtime=item.runtime, threads=record.threads, compiled=record.compiled
        )
        shards = [shard.shard for shard in item.shards]
        with resume_cache(item.cache, locked=False, shards=shards) as writer:
            expected, found = writer.fingerprint.weights_sha256, _weights_sha256(item.encoder)
            if found != expected:  # this machine's file of that name holds other weights
                raise InputError(
                    f"{item.encoder.weights}: expected the weights with SHA-256 {expected} on"
                    f" {socket.gethostname()}, found {found}"
                )
            if item.runtime.words != writer.fingerprint.runtime:
                raise InputError(
                    f"runtime: expected {writer.fingerprint.runtime} on {socket.gethostname()}, as the cache"
                    f" began, found {item.runtime.words}; install that version there"
                )
            run_item(item, runner, writer, reports.append)
    return tuple(reports)


@dataclass(frozen=True)
class ProbeItem:
    """What a process needs to encode the probe."""

    encoder: EncoderChoice
    device: str
    runtime: Runtime
    threads: int
    compiled: bool


def probe_item(item: ProbeItem) -> Probe | None:
    """Encode the probe on a worker's device."""
    with _DEVICE_LOCK:
        runner = _runner(
            item.encoder, item.device, runtime=item.runtime, threads=item.threads, compiled=item.compiled
        )
        return encode_probe(runner, item.threads)


def probe_in_worker(item: ProbeItem, cluster: Cluster | None) -> Probe | None:
    """Encode the probe in another process, here or on a cluster, before there is a cache."""
    if cluster is not None:
        item = replace(item, encoder=_reached(item.encoder))
    with _lacks_in_words(cluster):
        (outcome,) = run_items(probe_item, [item], cluster or 1)
        if isinstance(outcome.error, WorkerDiedError):
            raise StoppedError(
                "the process that loads the encoder was ended from outside (not enough memory?); nothing was"
                " written. Run the same command again, perhaps with fewer processes"
            )
        if outcome.error is not None:
            raise outcome.error
        return outcome.value


def run_item(item: ShardItem, runner: Runner, writer: CacheWriter, on_shard: OnShard) -> None:
    """Extract an item's shards with this runner and writer."""
    with torch_threads(item.record.threads):
        extract_shards(
            item.shards,
            item.plan,
            runner,
            writer,
            batch=item.record.batch,
            source=item.source,
            on_shard=on_shard,
            on_halved=lambda *halving: record_halving(item.cache, *halving),
        )


def extract_in_processes(item: ShardItem, on_shard: OnShard) -> None:
    """Divide an item's shards among one process for each of its devices."""
    count = len(item.devices)
    size = min(_MOST_SHARDS, max(1, len(item.shards) // (_ITEMS_EACH * count)))
    with tempfile.TemporaryDirectory(prefix="trust-cache-", ignore_cleanup_errors=True) as claims:
        items = [replace(item, claims=claims, shards=part) for part in _parts(item.shards, size)]
        _collect(item, run_items(extract_item, items, count), on_shard)


def extract_on_cluster(item: ShardItem, cluster: Cluster, on_shard: OnShard) -> None:
    """Divide an item's shards among a cluster's workers, which reach its files under the same names."""
    size = min(_MOST_SHARDS, max(1, len(item.shards) // _CLUSTER_ITEMS))
    shards = [
        replace(shard, files=tuple(replace(file, location=absolute(file.location)) for file in shard.files))
        for shard in item.shards
    ]
    there = replace(item, cache=absolute(item.cache), encoder=_reached(item.encoder))
    items = [replace(there, shards=part) for part in _parts(shards, size)]
    with _lacks_in_words(cluster):
        _collect(item, run_items(extract_item, items, cluster), on_shard)


def _reached(encoder: EncoderChoice) -> EncoderChoice:
    """Name the weights so that another process finds them."""
    return encoder if encoder.weights == RANDOM else replace(encoder, weights=absolute(encoder.weights))


@contextmanager
def _lacks_in_words(cluster: Cluster | None) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        if cluster is None:
            raise
        raise InputError(
            f"{cluster.address}: a worker lacks a package ({error}); install"
            ' "trust-cache[extract,cluster]" there'
        ) from error


def _collect(
    item: ShardItem, outcomes: Iterator[ItemOutcome[ShardItem, tuple[ShardReport, ...]]], on_shard: OnShard
) -> None:
    died = 0
    with ExitStack() as stack:
        stack.callback(getattr(outcomes, "close", lambda: None))  # an error here ends the pool
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
            " finished shards are kept. Run the same command again, perhaps with fewer processes"
        )


def _parts(shards: Sequence[ShardFiles], size: int) -> list[tuple[ShardFiles, ...]]:
    return [tuple(shards[first : first + size]) for first in range(0, len(shards), size)]


# An encoder takes seconds to load, an item often less: items share it.
_runner = lru_cache(maxsize=1)(load_runner)


@lru_cache(maxsize=1)
def _weights_sha256(encoder: EncoderChoice) -> str:
    return encoder.identify().weights_sha256


@lru_cache(maxsize=1)
def _claimed(devices: tuple[str, ...], claims: str) -> str:
    """Claim a device for this process; the lock of a dead process is free again."""
    if not claims:
        return devices[0]
    for number, device in enumerate(devices):
        lock = FileLock(Path(claims) / f"{number}.lock", device)
        try:
            _HELD.append(lock.acquire())
        except InputError:
            continue
        return device
    raise StoppedError("every device is taken by another process of this run; run the same command again")


_HELD: list[FileLock] = []  # kept until the process ends
# A cluster's worker may have several threads, but its device runs one encoder, one item at a time.
_DEVICE_LOCK = threading.Lock()
