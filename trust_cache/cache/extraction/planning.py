"""From what the user asks for to the cache that is wanted, refusing at once what cannot work."""

from collections.abc import Sequence
from pathlib import Path

import torch

from trust_cache.base.errors import InputError
from trust_cache.cache.backends import Source, is_url, refuse_existing
from trust_cache.cache.encoder import EncoderIdentity
from trust_cache.cache.extraction.devices import default_batch
from trust_cache.cache.extraction.identity import make_fingerprint
from trust_cache.cache.extraction.opening import Plan, exists
from trust_cache.cache.extraction.origin import read_origin
from trust_cache.cache.extraction.recipe import ImageFile, ShardFiles
from trust_cache.cache.extraction.records import Record
from trust_cache.cache.extraction.settings import ExtractSettings
from trust_cache.cache.writer import CacheWriter
from trust_cache.images.grey_png import is_dicom
from trust_cache.manifest.table import Manifest


def image_files(manifest: Manifest) -> list[ImageFile]:
    """Return the images of a manifest with the places of their PNGs, in its order."""
    return [ImageFile(image.image_id, image.location or "") for image in manifest.images()]


def refuse_impossible(manifest: Manifest, out: Source, files: Sequence[ImageFile], *, several: bool) -> None:
    """Refuse a place that can hold no such cache, and a manifest whose files are not PNGs at all."""
    if not exists(out):
        refuse_existing(out)
    if several and not is_url(out) and Path(out).suffix == ".h5":
        raise InputError(
            f"{out}: expected a .zarr cache for several processes, found .h5, which has one writer;"
            " convert it afterwards with `trust-cache cache convert`"
        )
    local = [Path(file.location) for file in files if not is_url(file.location)]
    if len(local) < len(files):
        return
    first = next((path for path in local if path.is_file()), None)  # one look where all is well
    if first is None:
        raise InputError(
            f"{manifest.path}: none of its {len(files):,} files is there (the first is {files[0].location});"
            " expected the manifest that lies with the PNGs, such as png/manifest.csv"
        )
    if is_dicom(first):
        raise InputError(
            f"{manifest.path}: expected a manifest of PNGs, found {first}, a DICOM file; run"
            " `trust-cache preprocess` first and give the manifest that it writes"
        )


def make_plan(
    manifest: Manifest,
    out: Source,
    settings: ExtractSettings,
    identity: EncoderIdentity,
    devices: Sequence[str],
) -> Plan:
    """Return the cache that the settings ask for, with its fingerprint."""
    fingerprint = make_fingerprint(
        identity,
        read_origin(manifest.path),
        image_size=settings.image_size,
        seed=settings.seed,
        device=devices[0],
    )
    record = Record(
        batch=settings.batch or default_batch(devices[0]),
        threads=max(1, torch.get_num_threads() // len(devices)),
        compiled=settings.compiled,
        device=",".join(devices),
    )
    views = settings.recipe.views
    return Plan(out, manifest.table, views, identity.dim, fingerprint, settings.shard_images, record)


def unfinished_shards(writer: CacheWriter, files: Sequence[ImageFile]) -> list[ShardFiles]:
    """Return the shards that are not done or lack images."""
    layout = writer.layout
    return [
        ShardFiles(shard, tuple(files[slice(*layout.bounds(shard))]))
        for shard in range(layout.shards)
        if writer.absent(shard)
    ]
