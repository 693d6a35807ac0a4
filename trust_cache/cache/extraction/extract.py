"""Stage one: from a manifest of PNGs to a cache of features, resumable, failures in a table."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trust_cache.base.errors import InputError, TrustCacheError
from trust_cache.base.work import Cluster
from trust_cache.cache.backends import Source
from trust_cache.cache.encoder import EncoderIdentity, identify_encoder
from trust_cache.cache.extraction.devices import choose_cluster_device, choose_devices
from trust_cache.cache.extraction.ledger import FAILURES, Ledger
from trust_cache.cache.extraction.loading import EncoderWords, load_runner
from trust_cache.cache.extraction.opening import Opened, exists, open_or_create
from trust_cache.cache.extraction.planning import (
    image_files,
    make_plan,
    refuse_impossible,
    unfinished_shards,
)
from trust_cache.cache.extraction.pool import Item, extract_in_processes, extract_on_cluster
from trust_cache.cache.extraction.recipe import Seconds, ShardFiles
from trust_cache.cache.extraction.records import record_halving
from trust_cache.cache.extraction.runner import Runner, torch_threads
from trust_cache.cache.extraction.settings import ExtractSettings
from trust_cache.cache.extraction.side_files import side_place
from trust_cache.cache.extraction.work import OnShard, extract_shards
from trust_cache.cache.layout import Layout
from trust_cache.cache.reading import open_cache
from trust_cache.images.failures import Failure
from trust_cache.manifest.reading import read_manifest


@dataclass(frozen=True)
class Start:
    """What is known when the work begins."""

    images: int
    images_before: int
    devices: tuple[str, ...]
    processes: int | None  # unknown on a cluster
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class ExtractRun:
    """What a run did."""

    out: str
    layout: Layout
    identity: EncoderIdentity
    images_before: int
    images_done: int
    failures: tuple[Failure, ...]
    failures_file: str
    seconds: Seconds


def extract(
    manifest_path: Path | str,
    out: Source,
    settings: ExtractSettings,
    *,
    cluster: Cluster | None = None,
    on_start: Callable[[Start], None] = lambda _start: None,
    on_shard: OnShard = lambda _report: None,
) -> ExtractRun:
    """Encode every image of a manifest that the cache has no features of; make the cache if there is none.

    A cache that is there is resumed if it has the same fingerprint and manifest. Images that fail are rows
    of failures.csv with the cache; they are tried again at the next start. The manifest, the PNGs and `out`
    may each lie behind a URL; a cluster's workers must reach them and the weights under the same names.
    """
    manifest = read_manifest(manifest_path, filled=("path",))
    files = image_files(manifest)
    devices = _devices(settings, cluster)
    several = cluster is not None or len(devices) > 1
    refuse_impossible(manifest, out, files, several=several)
    words = EncoderWords(settings.weights, settings.encoder, settings.seed, settings.image_size)
    identity = identify_encoder(words.weights, words.encoder, words.seed, image_size=words.image_size)
    runner = None
    if not several and not exists(out):
        # Before a new cache is made: weights that do not fit leave nothing behind.
        runner = load_runner(words, devices[0], compiled=settings.compiled)
    opened = open_or_create(make_plan(manifest, out, settings, identity, devices))
    with opened.writer as writer:
        before, todo = writer.images_done, unfinished_shards(writer, files)
        processes = None if cluster else len(devices)
        on_start(Start(writer.layout.images, before, devices, processes, opened.remarks))
        ledger = Ledger(out, todo, on_shard)
        try:
            if todo and not several:
                runner = runner or load_runner(words, devices[0], compiled=opened.record.compiled)
                _extract_here(out, todo, settings, runner, opened, ledger)
            elif todo:
                workers = settings.decoding_threads(len(devices))
                item = Item(str(out), tuple(todo), settings.recipe, words, opened.record, workers, devices)
                if cluster is None:
                    extract_in_processes(item, ledger.enter)
                else:
                    extract_on_cluster(item, cluster, ledger.enter)
        except BaseException:
            with suppress(TrustCacheError, OSError):  # the first error is the one to tell
                ledger.write()
            raise
        ledger.write()
        layout = writer.layout
    done = int(open_cache(out).done.sum())
    failures_file = side_place(out, FAILURES)
    return ExtractRun(
        str(out), layout, identity, before, done, ledger.failures, failures_file, ledger.seconds
    )


def _devices(settings: ExtractSettings, cluster: Cluster | None) -> tuple[str, ...]:
    if cluster is None:
        return choose_devices(settings.device, settings.processes)
    if settings.processes is not None:
        raise InputError("processes: expected none with a cluster, whose workers are the processes")
    return (choose_cluster_device(settings.device, cluster.resources),)


def _extract_here(
    out: Source,
    shards: list[ShardFiles],
    settings: ExtractSettings,
    runner: Runner,
    opened: Opened,
    ledger: Ledger,
) -> None:
    with torch_threads(opened.record.threads):
        extract_shards(
            shards,
            settings.recipe,
            runner,
            opened.writer,
            batch=opened.record.batch,
            workers=settings.decoding_threads(1),
            on_shard=ledger.enter,
            on_halved=lambda *halving: record_halving(out, *halving),
        )
