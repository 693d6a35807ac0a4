"""Plan an extraction: its settings, its cache (created or resumed) and the shards left to do."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from trust_cache.base.errors import InputError
from trust_cache.base.executor import Cluster
from trust_cache.base.places import is_url, list_names
from trust_cache.cache.cache_writer import CacheWriter, create_cache, resume_cache
from trust_cache.cache.extract.extraction_record import (
    ExtractionRecord,
    Origin,
    describe_preprocessing,
    read_record,
    write_record,
)
from trust_cache.cache.extract.picture_source import DicomSource, ImageFile, PictureSource, PngSource
from trust_cache.cache.extract.shard_work import ShardFiles
from trust_cache.cache.extract.view_features import EncoderChoice, make_fingerprint
from trust_cache.cache.known_stores import Source, backend_of, refuse_existing
from trust_cache.cache.layout import SHARD_IMAGES
from trust_cache.cache.views import ViewPlan
from trust_cache.encoders.encoder import EncoderIdentity
from trust_cache.encoders.known_runtimes import AUTO, Runtime
from trust_cache.encoders.probe import Probe
from trust_cache.encoders.recipe import NO_KEYS, RecipeKeys, Size, read_recipe
from trust_cache.encoders.torch_runtime import default_batch
from trust_cache.images.decoding.decode import IMAGECODECS, describe_decoder, require_decoder
from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture_folder import ImageSettings, claim_folder
from trust_cache.images.png_files import starts_as_dicom
from trust_cache.manifest.manifest_file import Manifest

_KEPT = ("batch", "threads", "compiled")  # a resumed cache keeps these
_URLS_TRIED = 20  # files of a manifest that are looked at behind URLs
_MOST_WORKERS = 8  # more threads do not feed one GPU faster


@dataclass(frozen=True)
class ExtractSettings:
    """The encoder, the views and the resources of an extraction."""

    weights: str  # a file, or the word `random`
    encoder: str
    views: int = 8  # augmented ones
    image_size: Size | None = None  # height, width; None: that of the recipe
    recipe: RecipeKeys = NO_KEYS  # instead of those of the encoder's own recipe
    seed: int = 0
    device: str = "auto"
    shard_images: int | None = None
    batch: int | None = None  # views through the encoder at once
    workers: int | None = None  # of each process: threads that read PNGs, or processes for DICOM files
    processes: int | None = None
    compiled: bool = False
    decoder: str = IMAGECODECS  # of DICOM files
    keep_pictures: str | None = None  # a picture folder that gets the PNGs of DICOM files as well
    runtime: str = AUTO

    def __post_init__(self) -> None:
        for name in ("batch", "workers", "processes", "shard_images"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name.replace('_', '-')}: expected 1 or more, found {value}")
        _ = self.view_plan, self.choice  # both check their values

    @property
    def view_plan(self) -> ViewPlan:
        """The views of each image."""
        return ViewPlan(self.views, self.seed)

    @property
    def choice(self) -> EncoderChoice:
        """The encoder."""
        return EncoderChoice(self.weights, self.encoder, self.seed, read_recipe(self.recipe, self.image_size))

    def decoding_threads(self, processes: int) -> int:
        """Return the decoding threads of each process."""
        cores = os.cpu_count() or 1
        return self.workers or max(1, min(_MOST_WORKERS, cores // processes))

    def picture_source(self, processes: int, *, dicoms: bool) -> PictureSource:
        """Return the source of pixels of each process."""
        if not dicoms:
            return PngSource(self.decoding_threads(processes))
        workers = self.workers or max(1, (os.cpu_count() or 1) // processes)
        return DicomSource(workers, ImageSettings(), self.decoder, self.keep_pictures or "")

    def dicom_origin(self) -> Origin:
        """Return what the fingerprint says of pictures that are made from DICOM files here."""
        return Origin(describe_preprocessing(ImageSettings()), describe_decoder(self.decoder), dicoms=True)


def parse_image_size(text: str | None) -> Size | None:
    """Read `1520x912`: height, then width; None stays None."""
    if text is None:
        return None
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


def encoder_threads(devices: Sequence[str]) -> int:
    """Return the threads of the encoder's library in each process."""
    return max(1, torch.get_num_threads() // len(devices))


def exists(out: Source) -> bool:
    """Return whether there is something at the path or URL."""
    return bool(list_names(os.fspath(out))) if is_url(out) else Path(out).exists()


def open_or_create(
    manifest: Manifest,
    out: Source,
    settings: ExtractSettings,
    identity: EncoderIdentity,
    devices: Sequence[str],
    runtime: Runtime,
    probe: Probe | None,
    origin: Origin,
) -> OpenedCache:
    """Create the cache that the settings ask for, or resume one that was made in the same way; lock it.

    `probe` is for a new cache.
    """
    views = settings.view_plan.stored
    fingerprint = make_fingerprint(identity, origin, seed=settings.seed, device=devices[0], runtime=runtime)
    asked = ExtractionRecord(
        batch=settings.batch or default_batch(devices[0]),
        threads=encoder_threads(devices),
        compiled=settings.compiled,
        device=",".join(devices),
        manifest=str(manifest.path),
        dicoms=origin.dicoms,
    )
    if not exists(out):
        shard_images = settings.shard_images or SHARD_IMAGES
        try:
            new = create_cache(out, manifest.table, views, identity.dim, fingerprint, shard_images, probe)
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


def holds_dicoms(manifest: Manifest, refused: Mapping[str, str]) -> bool:
    """Tell by its first file whether a manifest lists DICOM files; refuse names of both kinds."""
    places = [
        image.location
        for image in manifest.images()
        if image.location is not None and image.image_id not in refused
    ]
    tried = places[:_URLS_TRIED] if any(map(is_url, places)) else places
    kinds = ((place, starts_as_dicom(place)) for place in tried)
    first, dicom = next((found for found in kinds if found[1] is not None), ("", False))
    if not dicom:
        return False
    others = [place for place in places if place.lower().endswith(".png")]
    if others:
        raise InputError(
            f"{manifest.path}: expected DICOM files or PNGs, found both ({first} and {others[0]}); make a"
            " manifest and a cache of each"
        )
    return True


def refuse_kind(
    manifest: Manifest, settings: ExtractSettings, cluster: Cluster | None, *, dicoms: bool
) -> None:
    """Refuse options that do not fit the kind of files; claim the folder of pictures to keep."""
    if not dicoms:
        given = {"decoder": settings.decoder != IMAGECODECS, "keep-pictures": settings.keep_pictures}
        for name in (name for name, found in given.items() if found):
            raise InputError(f"{name}: expected a manifest of DICOM files, found PNGs in {manifest.path}")
        return
    if cluster is not None:
        raise InputError(
            f"{manifest.path}: expected PNGs for a cluster, whose workers start no processes, found DICOM"
            " files; run `trust-cache preprocess --scheduler` first and give the manifest that it writes"
        )
    require_decoder(settings.decoder)
    if settings.keep_pictures is not None:
        claim_folder(settings.keep_pictures, ImageSettings())


@dataclass(frozen=True)
class StaleShards:
    """What of a resumed cache is made again."""

    pictures: int = 0  # that differ from those of the cache
    damaged: int = 0  # shards that do not fit their marks


def clear_stale_shards(writer: CacheWriter, files: Sequence[ImageFile], source: PictureSource) -> StaleShards:
    """Remove the marks of shards whose pictures changed, or that are not as they were written.

    The features of a picture that is gone stay: there is nothing to compare.
    """
    layout, changed, damaged = writer.layout, 0, 0

    def differs(file: ImageFile, made_of: bytes | None) -> bool:
        try:
            return source.digest(file) != made_of
        except ImageError as error:
            return error.reason != "no such file"

    with ThreadPoolExecutor(source.workers) as pool:
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
