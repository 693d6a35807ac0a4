"""The picture folder that `preprocess` writes: file names, settings, the record, reading and writing.

It has one PNG per image, `manifest.csv` (whose paths are the PNGs), `failures.csv` and `preprocess.json`, the
record of the settings and decoders. The folder may be behind a URL.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import polars as pl
from msgspec import field
from msgspec.structs import replace

from trust_cache.base.documents import Document, json_bytes, read_json
from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_current
from trust_cache.base.places import is_url, join, list_names, write_bytes
from trust_cache.base.versions import versions_of
from trust_cache.images.image_failures import FAILURES, Failure, failures_bytes
from trust_cache.images.png_files import MAX_PIXELS, is_whole_png
from trust_cache.manifest.manifest_file import Manifest, manifest_bytes

MANIFEST, RECORD = "manifest.csv", "preprocess.json"
SCHEMA = 1
_PACKAGES = ("numpy", "pydicom", "opencv-python-headless", "python-gdcm", "pylibjpeg-openjpeg")
_LONGEST_NAME = 200  # bytes of a file's name before its ending


class ImageSettings(Document, frozen=True):
    """The settings that change the pixels of a picture, and the size above which a file is refused."""

    margin: float = 0.10  # of the mask's bounding box, on each side
    closing: int = 9  # edge of the square that closes the mask, in pixels of the image
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 1:
            raise InputError(f"margin: expected a share from 0 to 1, found {self.margin}")
        if self.closing < 1 or self.closing % 2 == 0:
            raise InputError(f"closing: expected an odd number of pixels, found {self.closing}")
        if self.max_pixels < 1:
            raise InputError(f"max_pixels: expected 1 or more, found {self.max_pixels}")


class PictureRecord(Document, frozen=True):
    """preprocess.json: how the pictures of a folder are made."""

    schema: int
    settings: ImageSettings
    versions: dict[str, str] = field(default_factory=dict)
    decoders: dict[str, int] = field(default_factory=dict)  # pictures by decoder and transfer syntax


@dataclass(frozen=True)
class PictureFolder:
    """A folder that was claimed for pictures with the settings of its record."""

    place: str
    record: PictureRecord

    def picture(self, image_id: str) -> str:
        """Return the place of an image's PNG."""
        return join(self.place, png_name(image_id))

    def unfinished(self, image_ids: Iterable[str]) -> set[str]:
        """Return the images without a complete PNG; behind a URL every file is complete."""
        if is_url(self.place):
            there = list_names(self.place)
            return {image_id for image_id in image_ids if png_name(image_id) not in there}
        return {image_id for image_id in image_ids if not is_whole_png(Path(self.picture(image_id)))}

    def finish(self, manifest: Manifest, failures: Sequence[Failure], decoders: dict[str, int]) -> None:
        """Write the manifest of the pictures, the failures and the record."""
        names = [png_name(image_id) for image_id in manifest.table["image_id"].to_list()]
        failed = [failure.image_id for failure in failures]
        table = manifest.table.with_columns(path=pl.Series(names))
        table = table.filter(~pl.col("image_id").is_in(failed))
        write_bytes(join(self.place, MANIFEST), manifest_bytes(table))
        write_bytes(join(self.place, FAILURES), failures_bytes(failures))
        record = replace(self.record, decoders=decoders)
        write_bytes(join(self.place, RECORD), json_bytes(record.as_document()))


def claim_folder(place: str, settings: ImageSettings) -> PictureFolder:
    """Return a new folder, or one that was begun with the same settings; refuse any other."""
    if not is_url(place):
        refuse_current(Path(place))
    found = read_picture_record(place)
    if found is None:
        if list_names(place):
            raise InputError(f"{place}: expected a new or empty folder, found files without {RECORD}")
        found = PictureRecord(schema=SCHEMA, settings=settings, versions=versions_of(*_PACKAGES))
        write_bytes(join(place, RECORD), json_bytes(found.as_document()))
    elif found.settings != settings:
        raise InputError(
            f"{place}: was made with other settings: expected {settings.as_document()},"
            f" found {found.settings.as_document()}; choose another --out"
        )
    return PictureFolder(place, found)


def read_picture_record(place: str) -> PictureRecord | None:
    """Read the record of a picture folder; None for a folder without one."""
    try:
        what = "the record of `trust-cache preprocess`"
        return read_json(join(place, RECORD), PictureRecord, what=what, schema=SCHEMA)
    except FileNotFoundError:
        return None


def png_name(image_id: str) -> str:
    """Return an image's file name: its id, escaped so that names are distinct and none leaves the folder."""
    escaped = quote(image_id, safe=" +,=@()[]")
    if len(escaped) > _LONGEST_NAME:
        raise InputError(f"image_id: expected at most {_LONGEST_NAME} characters escaped, found {image_id!r}")
    return f"{escaped.replace('.', '%2E') if set(escaped) == {'.'} else escaped}.png"
