"""Run stage one: from a manifest of PNGs to a cache of features. It can be resumed."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trust_cache.base.errors import InputError, TrustCacheError
from trust_cache.base.executor import Cluster
from trust_cache.cache.cache_reader import open_cache, read_failures
from trust_cache.cache.cache_writer import write_failures
from trust_cache.cache.extract.extraction_plan import (
    ExtractSettings,
    StaleShards,
    clear_stale_shards,
    exists,
    open_or_create,
    refuse_impossible,
    unfinished_shards,
)
from trust_cache.cache.extract.shard_pool import ShardItem, extract_in_processes, extract_on_cluster, run_item
from trust_cache.cache.extract.shard_work import ImageFile, OnShard, Seconds, ShardFiles, ShardReport
from trust_cache.cache.extract.view_features import load_runner
from trust_cache.cache.known_stores import Source, companion
from trust_cache.cache.layout import Layout
from trust_cache.encoders.encoder import EncoderIdentity
from trust_cache.encoders.torch_runtime import choose_cluster_device, choose_devices
from trust_cache.images.image_failures import FAILURES, Failure
from trust_cache.images.picture_folder import PICTURES, expected_pictures, folder_of, read_picture_failures
from trust_cache.manifest.manifest_file import Manifest, read_manifest


class Ledger:
    """Collects the reports of shards; a failure of an earlier start stays until its shard is reported."""

    def __init__(self, cache: Source, shards: Sequence[ShardFiles], on_shard: OnShard) -> None:
        self._cache = cache
        self._on_shard = on_shard
        self._ids = {shard.shard: [file.image_id for file in shard.files] for shard in shards}
        open_ids = {image_id for ids in self._ids.values() for image_id in ids}
        self._rows = {row.image_id: row for row in read_failures(cache) if row.image_id in open_ids}
        self.seconds = Seconds()

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The images that are known to have no features."""
        return tuple(self._rows.values())

    def enter(self, report: ShardReport) -> None:
        """Record a shard's report and pass it on; new failures are written at once."""
        for image_id in self._ids[report.shard]:
            self._rows.pop(image_id, None)
        self._rows |= {failure.image_id: failure for failure in report.failures}
        self.seconds += report.seconds
        if report.failures:
            self.write()
        self._on_shard(report)

    def write(self) -> None:
        """Write failures.csv of the cache."""
        write_failures(self._cache, self._rows.values())


@dataclass(frozen=True)
class ExtractionStart:
    """What is known when the work begins."""

    images: int
    images_before: int
    devices: tuple[str, ...]
    processes: int | None  # unknown on a cluster
    stale: StaleShards  # made again
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class ExtractRun:
    """The result of an extraction."""

    out: str
    layout: Layout
    identity: EncoderIdentity
    images_before: int
    images_done: int
    stale: StaleShards  # made again
    failures: tuple[Failure, ...]
    failures_file: str
    seconds: Seconds


def extract(
    manifest_path: Path | str,
    out: Source,
    settings: ExtractSettings,
    *,
    cluster: Cluster | None = None,
    allow_urls: bool = False,
    on_start: Callable[[ExtractionStart], None] = lambda _start: None,
    on_shard: OnShard = lambda _report: None,
) -> ExtractRun:
    """Encode every image of a manifest that has no features in the cache; create the cache if needed.

    An existing cache is resumed if it has the same fingerprint and manifest; shards whose pictures changed
    or that do not fit their marks are made again. Pictures that differ from the record of `preprocess` fail.
    Images that fail, and rows without a path, become rows without features: the cache's failures.csv has the
    reasons, and the next start tries them again. The manifest, the PNGs and `out` may be URLs; the workers of
    a cluster must reach them and the weights under the same names. A path in the manifest that is a URL of
    its own is a failure without `allow_urls`.
    """
    manifest = read_manifest(manifest_path, filled=("path",))
    files = _files(manifest, manifest.refused(allow_urls=allow_urls))
    choice = settings.choice
    devices = _devices(settings, cluster)
    several = cluster is not None or len(devices) > 1
    refuse_impossible(manifest, out, files, several=several)
    identity = choice.identify()
    runner = None
    if not several and not exists(out):
        # Before the cache is created: weights that do not fit leave nothing behind.
        runner = load_runner(choice, devices[0], compiled=settings.compiled)
    opened = open_or_create(manifest, out, settings, identity, devices)
    with opened.writer as writer:
        workers = settings.decoding_threads(len(devices))
        stale = clear_stale_shards(writer, files, workers)
        before, todo, record = writer.images_done, unfinished_shards(writer, files), opened.record
        processes = None if cluster else len(devices)
        start = ExtractionStart(writer.layout.images, before, devices, processes, stale, opened.warnings)
        on_start(start)
        ledger = Ledger(out, todo, on_shard)
        item = ShardItem(str(out), tuple(todo), settings.view_plan, choice, record, workers, devices)
        try:
            if todo and cluster is not None:
                extract_on_cluster(item, cluster, ledger.enter)
            elif todo and several:
                extract_in_processes(item, ledger.enter)
            elif todo:
                runner = runner or load_runner(choice, devices[0], compiled=record.compiled)
                run_item(item, runner, writer, ledger.enter)
        except BaseException:
            with suppress(TrustCacheError, OSError):  # raise the first error
                ledger.write()
            raise
        ledger.write()
    cache = open_cache(out)
    _ = cache.manifest  # refused if it was changed
    counts, failures = (before, int(cache.done.sum()), stale), companion(out, FAILURES)
    return ExtractRun(str(out), cache.layout, identity, *counts, ledger.failures, failures, ledger.seconds)


def _files(manifest: Manifest, refused: Mapping[str, str]) -> list[ImageFile]:
    """Return the images with their places; one without a path has the reason that `preprocess` gave."""
    images = list(manifest.images())
    recorded = expected_pictures(manifest.path)
    lost = any(image.location is None for image in images)
    reasons = {row.image_id: row for row in read_picture_failures(folder_of(manifest.path))} if lost else {}
    files = []
    for image in images:
        name, location = image.image_id, image.location
        if location is None:
            failure = reasons.get(name, Failure(name, "read", "the manifest has no path for it"))
            files.append(ImageFile(name, "", failure))
        elif name in refused:
            files.append(ImageFile(name, "", Failure(name, "read", refused[name])))
        elif recorded is not None and name not in recorded:
            files.append(ImageFile(name, "", Failure(name, "read", f"not in {PICTURES} of its folder")))
        else:
            files.append(ImageFile(name, location, expected=recorded[name] if recorded else None))
    return files


def _devices(settings: ExtractSettings, cluster: Cluster | None) -> tuple[str, ...]:
    if cluster is None:
        return choose_devices(settings.device, settings.processes)
    if settings.processes is not None:
        raise InputError("processes: expected none with a cluster, whose workers are the processes")
    return (choose_cluster_device(settings.device, cluster.resources),)
