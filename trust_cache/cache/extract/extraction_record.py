"""Own extraction.json of a cache, and read the record of the pictures that it is made from.

extraction.json records what changes the last bits of features, so that a resumed run gives the same bytes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta, field
from msgspec.structs import replace

from trust_cache.base.documents import Document, read_json, sealed_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.places import RefusedError, write_bytes
from trust_cache.base.versions import versions_of
from trust_cache.cache.known_stores import EXTRACTION, Source, companion
from trust_cache.images import picture_folder
from trust_cache.images.gate.pixel_limits import LIMITS, PixelLimits
from trust_cache.images.picture_folder import ImageSettings

SCHEMA = 1
Positive = Annotated[int, Meta(ge=1)]


class Halving(Document, frozen=True):
    """A batch for which the device had no memory."""

    shard: int
    before: int
    after: int


class ExtractionRecord(Document, frozen=True, kw_only=True):
    """How a cache is made. Batch, threads and compilation stay the same whatever a later start asks for."""

    schema: int = SCHEMA
    batch: Positive  # views through the encoder at once
    threads: Positive  # of the encoder's library, in each process
    compiled: bool
    device: str
    manifest: str = ""  # its place
    dicoms: bool = False  # the manifest lists DICOM files, not PNGs
    limits: PixelLimits = LIMITS  # of the pixel gate, for external pictures
    halvings: tuple[Halving, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)


def read_record(cache: Source) -> ExtractionRecord | None:
    """Read the record of a cache; None if it has none."""
    place = companion(cache, EXTRACTION)
    try:
        return read_json(
            place, ExtractionRecord, what="the record of an extraction", schema=SCHEMA, sealed=True
        )
    except FileNotFoundError:
        return None
    except RefusedError:
        raise
    except InputError as error:
        raise InputError(f"{error}; remove it to resume with the options of the command") from error


def write_record(cache: Source, record: ExtractionRecord) -> None:
    """Write the record of a cache, with the versions in use."""
    versions = versions_of("numpy", "opencv-python-headless", "timm", "torch")
    document = replace(record, versions=versions).as_document()
    write_bytes(companion(cache, EXTRACTION), sealed_bytes(document))


def record_halving(cache: Source, shard: int, before: int, after: int) -> None:
    """Add a halved batch to the record; from now on no batch is larger."""
    record = read_record(cache)
    if record is not None:
        halvings = (*record.halvings, Halving(shard, before, after))
        write_record(cache, replace(record, batch=min(record.batch, after), halvings=halvings))


EXTERNAL = "external"


@dataclass(frozen=True)
class Origin:
    """Two fields of a cache's fingerprint."""

    preprocessing: str
    decoder: str
    dicoms: bool = False  # the pictures are made during the extraction


def read_origin(manifest: Path | str) -> Origin:
    """Return what the record beside a manifest says, or that the PNGs are external."""
    record = picture_folder.read_picture_record(picture_folder.folder_of(manifest))
    if record is None:
        return Origin(EXTERNAL, EXTERNAL)
    decoders = "; ".join(sorted(record.decoders))
    return Origin(describe_preprocessing(record.settings), decoders or EXTERNAL)


def describe_preprocessing(settings: ImageSettings) -> str:
    """Return what the fingerprint says of images that `preprocess` makes with these settings."""
    values = sorted(settings.as_document().items())
    return f"trust-cache {picture_folder.SCHEMA}: {', '.join(f'{name} {value}' for name, value in values)}"
