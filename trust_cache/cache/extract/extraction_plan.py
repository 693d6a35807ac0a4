"""Plan an extraction: its settings, its cache (created or resumed) and the shards left to do."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from blake3 import blake3

from trust_cache.base.errors import InputError
from trust_cache.base.places import is_url, list_names
from trust_cache.cache.cache_writer import CacheWriter, create_cache, resume_cache
from trust_cache.cache.extract.extraction_record import (
    ExtractionRecord,
    read_origin,
    read_record,
    write_record,
)
from trust_cache.cache.extract.shard_work import ImageFile, ShardFiles
from trust_cache.cache.extract.view_features import EncoderChoice, make_fingerprint
from trust_cache.cache.known_stores import Source, backend_of, refuse_existing
from trust_cache.cache.layout import SHARD_IMAGES
from trust_cache.cache.views import ViewPlan
from trust_cache.encoders.encoder import IMAGE_SIZE, EncoderIdentity, Recipe
from trust_cache.encoders.torch_runtime import default_batch
from trust_cache.images.image_failures import ImageError
from trust_cache.images.png_files import is_dicom, read_png_bytes
from trust_cache.manifest.manifest_file import Manifest

_KEPT = ("batch", "threads", "compiled")  # a resumed cache keeps these
_MOST_WORKERS = 8  # more threads do not feed one GPU faster


@dataclass(frozen=True)
class ExtractSettings:
    """The encoder, the views and the resources of an extraction."""

    weights: str  # a file, or the word `random`
    encoder: str
    views: int = 8  # augmented ones
    image_size: tuple[int, int] = IMAGE_SIZE
    seed: int = 0
    device: str = "auto"
    shard_images: int | None = None
    batch: int | None = None  # views through the encoder at once
    workers: int | None = None  # decoding threads of each process
    processes: int | None = None
    compiled: bool = False

    def __post_init__(self) -> None:
        for name in ("batch", "workers", "processes", "shard_images"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name.replace('_', '-')}: expected 1 or more, found {value}")
        _ = self.view_plan, Recipe(self.image_size)  # both check their values

    @property
    def view_plan(self) -> ViewPlan:
        """The views of each image."""
        return ViewPlan(self.views, self.seed)

    @property
    def choice(self) -> EncoderChoice:
        """The encoder."""
        return EncoderChoice(self.weights, self.encoder, self.seed, self.image_size)

    def decoding_threads(self, processes: int) -> int:
        """Return the decoding threads of each process."""
        cores = os.cpu_count() or 1
        return self.workers or max(1, min(_MOST_WORKERS, cores // processes))


def parse_image_size(text: str) -> tuple[int, int]:
    """Read `1520x912`: height, then width."""
    height, cross, width = text.lower().partition("x")
    if not (cross and height.isdecimal() and width.isdecimal()):
        raise InputError(f"image-size: expected HEIGHTxWIDTH such as 1520x912, found {text!r}")
    return int(height), int(width)


@dataclass(frozen=True)
class OpenedCache:
    """The cache's writer, its record, and warnings about options that the cache overrides."""

    writer: CacheWriter
    record: ExtractionRecord
    warnings: tuple[str, ...]


def exists(out: Source) -> bool:
    """Return whether there is something at the path or URL."""
    return bool(list_names(os.fspath(out))) if is_url(out) else Path(out).exists()


def open_or_create(
    manifest: Manifest,
    out: Source,
    settings: ExtractSettings,
    identity: EncoderIdentity,
    devices: Sequence[str],
) -> OpenedCache:
    """Create the cache that the settings ask for, or resume one that was made in the same way; lock it."""
    views, origin = settings.view_plan.stored, read_origin(manifest.path)
    fingerprint = make_fingerprint(identity, origin, seed=settings.seed, device=devices[0])
    asked = ExtractionRecord(
        batch=settings.batch or default_batch(devices[0]),
        threads=max(1, torch.get_num_threads() // len(devices)),
        compiled=settings.compiled,
        device=",".join(devices),
        manifest=str(manifest.path),
    )
    if not exists(out):
        shard_images = settings.shard_images or SHARD_IMAGES
        try:
            new = create_cache(out, manifest.table, views, identity.dim, fingerprint, shard_images)
            with _closed_on_error(new):
                write_record(out, asked)
            return OpenedCache(new, asked, ())
        except InputError:
            if not exists(out):  # otherwise another process has just created it; its lock names it
                raise
    writer = resume_cache(out, manifest.table, fingerprint)
    with _closed_on_error(writer):
        found = writer.layout.views
        if found != views:
            raise InputError(
                f"{out}: expected {views - 1} augmented views of each image, found {found - 1};"
                f" resume with --views {found - 1} or choose another --out"
            )
        began = read_record(out)
        if began is None:
            write_record(out, asked)
            began = asked
        pairs = [(name, getattr(asked, name), getattr(began, name)) for name in _KEPT]
        if settings.shard_images is not None:
            pairs.append(("shard-images", settings.shard_images, writer.layout.shard_images))
        overridden = (
            f"{out}: resumes with {name} {theirs} as it began, not {ours}"
            for name, ours, theirs in pairs
            if ours != theirs
        )
        return OpenedCache(writer, began, tuple(overridden))


@contextmanager
def _closed_on_error(writer: CacheWriter) -> Iterator[None]:
    try:
        yield
    except BaseException:
        writer.close()
        raise


def refuse_impossible(manifest: Manifest, out: Source, files: Sequence[ImageFile], *, several: bool) -> None:
    """Refuse a place that cannot hold the cache, and a manifest whose files are not PNGs."""
    if not exists(out):
        refuse_existing(out)
    backend = backend_of(out)
    if several and backend.is_file:
        raise InputError(
            f"{out}: expected a .zarr cache for several processes, found {backend.suffix}, which has one"
            " writer; convert it afterwards with `trust-cache cache convert`"
        )
    places = [file.location for file in files if file.location]
    local = [Path(place) for place in places if not is_url(place)]
    if not places or len(local) < len(places):
        return
    first = next((path for path in local if path.is_file()), None)  # usually the first one
    if first is None:
        raise InputError(
            f"{manifest.path}: none of its {len(places):,} files exists (the first is {places[0]});"
            " expected the manifest in the folder of the PNGs, such as png/manifest.csv"
        )
    if is_dicom(first):
        raise InputError(
            f"{manifest.path}: expected a manifest of PNGs, found {first}, a DICOM file; run"
            " `trust-cache preprocess` first and give the manifest that it writes"
        )


@dataclass(frozen=True)
class StaleShards:
    """What of a resumed cache is made again."""

    pictures: int = 0  # that differ from those of the cache
    damaged: int = 0  # shards that do not fit their marks


def clear_stale_shards(writer: CacheWriter, files: Sequence[ImageFile], threads: int) -> StaleShards:
    """Remove the marks of shards whose pictures changed, or that are not as they were written.

    The features of a picture that is gone stay: there is nothing to compare.
    """
    layout, changed, damaged = writer.layout, 0, 0

    def differs(file: ImageFile, made_of: bytes | None) -> bool:
        try:
            return bool(blake3(read_png_bytes(file.location)).digest() != made_of)
        except ImageError as error:
            return error.reason != "no such file"

    with ThreadPoolExecutor(threads) as pool:
        done = [shard for shard in range(layout.shards) if writer.is_done(shard)]
        for shard, wrong in zip(done, pool.map(writer.is_damaged, done), strict=True):
            absent = set(writer.absent(shard))
            pairs = zip(files[slice(*layout.bounds(shard))], writer.pictures(shard), strict=True)
            present = [pair for number, pair in enumerate(pairs) if number not in absent]
            found = 0 if wrong else sum(pool.map(lambda pair: differs(*pair), present))
            if found or wrong:
                writer.clear(shard)
                changed, damaged = changed + found, damaged + wrong
    return StaleShards(changed, damaged)


def unfinished_shards(writer: CacheWriter, files: Sequence[ImageFile]) -> list[ShardFiles]:
    """Return the shards that are not done or have failed images, which are tried again."""
    layout = writer.layout
    return [
        ShardFiles(shard, tuple(files[slice(*layout.bounds(shard))]))
        for shard in range(layout.shards)
        if writer.absent(shard)
    ]
