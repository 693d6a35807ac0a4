"""Run stage one: from a manifest of DICOM files or PNGs to a cache of features. It can be resumed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trust_cache.base.errors import InputError
from trust_cache.base.executor import Cluster
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.extract.extraction_ledger import Ledger
from trust_cache.cache.extract.extraction_plan import (
    ExtractSettings,
    StaleShards,
    clear_stale_shards,
    encoder_threads,
    exists,
    holds_dicoms,
    open_or_create,
    refuse_impossible,
    refuse_kind,
    unfinished_shards,
)
from trust_cache.cache.extract.extraction_record import Origin, read_origin
from trust_cache.cache.extract.picture_source import ImageFile
from trust_cache.cache.extract.shard_pool import (
    ProbeItem,
    ShardItem,
    extract_in_processes,
    extract_on_cluster,
    probe_in_worker,
    run_item,
)
from trust_cache.cache.extract.shard_work import OnShard, Seconds
from trust_cache.cache.extract.view_features import Runner, encode_probe, load_runner
from trust_cache.cache.known_stores import Source, companion
from trust_cache.cache.layout import Layout
from trust_cache.encoders.encoder import EncoderIdentity
from trust_cache.encoders.known_runtimes import Runtime, choose_runtime
from trust_cache.encoders.probe import Probe
from trust_cache.encoders.torch_runtime import choose_cluster_device, choose_devices
from trust_cache.images.image_failures import FAILURES, Failure
from trust_cache.images.picture_folder import PICTURES, expected_pictures, folder_of, read_picture_failures
from trust_cache.images.preprocess import preprocess, row_failure
from trust_cache.manifest.manifest_file import Manifest, read_manifest


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

    DICOM files are preprocessed in worker processes, without PNGs; `settings.keep_pictures` is a folder that
    gets them as well. An existing cache is resumed if it has the same fingerprint and manifest; shards whose
    files changed or that do not fit their marks are made again. Pictures that differ from the record of
    `preprocess` fail; those that it did not make are examined: examined.csv of the cache has what was found.
    Images that fail, and rows without a path, become rows without features: the cache's failures.csv has the
    reasons, and the next start tries them again. The manifest, its files and `out` may be URLs; the workers
    of a cluster must reach them and the weights under the same names. A path in the manifest that is a URL of
    its own is a failure without `allow_urls`.
    """
    inputs = _read_inputs(manifest_path, settings, cluster, allow_urls=allow_urls)
    manifest, files, origin = inputs.manifest, inputs.files, inputs.origin
    devices = _devices(settings, cluster)
    several = cluster is not None or len(devices) > 1
    refuse_impossible(manifest, out, files, several=several)
    source = settings.picture_source(len(devices), dicoms=origin.dicoms)
    choice, identity = settings.choice, settings.choice.identify()
    begun = open_cache(out).fingerprint.runtime if exists(out) else None
    runtime = choose_runtime(settings.runtime, devices[0], begun)
    # Before the cache is created: weights that do not fit leave nothing behind.
    runner, probe = (None, None) if begun else _try_encoder(settings, devices, runtime, cluster)
    opened = open_or_create(manifest, out, settings, identity, devices, runtime, probe, origin)
    with opened.writer as writer:
        stale = clear_stale_shards(writer, files, source)
        before, todo, record = writer.images_done, unfinished_shards(writer, files), opened.record
        processes = None if cluster else len(devices)
        images = writer.layout.images
        on_start(ExtractionStart(images, before, devices, processes, stale, opened.warnings))
        ledger = Ledger(out, todo, record, on_shard)
        item = ShardItem(str(out), tuple(todo), settings.view_plan, choice, record, source, devices, runtime)
        with ledger.kept_on_error():
            if todo and cluster is not None:
                extract_on_cluster(item, cluster, ledger.enter)
            elif todo and several:
                extract_in_processes(item, ledger.enter)
            elif todo:
                runner = runner or _load(settings, devices, runtime, record.threads, record.compiled)
                run_item(item, runner, writer, ledger.enter)
            ledger.examine_rest(files, source)
            if origin.dicoms:
                ledger.look_together(manifest, files, source.workers)
        ledger.write()
    _finish_pictures(manifest_path, settings, source.workers, allow_urls=allow_urls)
    cache = open_cache(out)
    _ = cache.stored_manifest  # refused if it was changed
    counts, failures = (before, int(cache.done.sum()), stale), companion(out, FAILURES)
    return ExtractRun(str(out), cache.layout, identity, *counts, ledger.failures, failures, ledger.seconds)


def _finish_pictures(
    manifest: Path | str, settings: ExtractSettings, workers: int, *, allow_urls: bool
) -> None:
    """Write the tables of the kept pictures; their PNGs are there by now."""
    if settings.keep_pictures is not None:
        decoder = settings.decoder
        preprocess(manifest, settings.keep_pictures, workers=workers, decoder=decoder, allow_urls=allow_urls)


@dataclass(frozen=True)
class _Inputs:
    manifest: Manifest
    files: list[ImageFile]
    origin: Origin


def _read_inputs(
    manifest_path: Path | str, settings: ExtractSettings, cluster: Cluster | None, *, allow_urls: bool
) -> _Inputs:
    """Read the manifest, and tell whether it lists DICOM files or PNGs."""
    manifest = read_manifest(manifest_path, filled=("path",))
    refused = manifest.refused(allow_urls=allow_urls)
    dicoms = holds_dicoms(manifest, refused)
    refuse_kind(manifest, settings, cluster, dicoms=dicoms)
    if not dicoms:
        return _Inputs(manifest, _files(manifest, refused), read_origin(manifest.path))
    manifest = read_manifest(manifest_path, filled=("laterality", "path"))
    return _Inputs(manifest, _dicom_files(manifest, refused), settings.dicom_origin())


def _try_encoder(
    settings: ExtractSettings, devices: Sequence[str], runtime: Runtime, cluster: Cluster | None
) -> tuple[Runner | None, Probe | None]:
    """Encode the probe; also return the encoder, if it is in this process."""
    threads = encoder_threads(devices)
    if cluster is not None or len(devices) > 1:
        item = ProbeItem(settings.choice, devices[0], runtime, threads, settings.compiled)
        return None, probe_in_worker(item, cluster)
    runner = _load(settings, devices, runtime, threads, settings.compiled)
    return runner, encode_probe(runner, threads)


def _load(
    settings: ExtractSettings, devices: Sequence[str], runtime: Runtime, threads: int, compiled: bool
) -> Runner:
    return load_runner(settings.choice, devices[0], runtime=runtime, threads=threads, compiled=compiled)


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
            expected = recorded[name] if recorded else None
            files.append(ImageFile(name, location, expected=expected, projection=image.projection))
    return files


def _dicom_files(manifest: Manifest, refused: Mapping[str, str]) -> list[ImageFile]:
    """Return the images with their DICOM files, or the failures that `preprocess` would give."""
    files = []
    for image in manifest.images():
        failure = row_failure(image, refused)
        location = "" if failure is not None else image.location or ""
        side = image.laterality or ""
        files.append(
            ImageFile(image.image_id, location, failure, projection=image.projection, laterality=side)
        )
    return files


def _devices(settings: ExtractSettings, cluster: Cluster | None) -> tuple[str, ...]:
    if cluster is None:
        return choose_devices(settings.device, settings.processes)
    if settings.processes is not None:
        raise InputError("processes: expected none with a cluster, whose workers are the processes")
    return (choose_cluster_device(settings.device, cluster.resources),)
