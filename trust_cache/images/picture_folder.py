"""The picture folder that `preprocess` writes: file names, settings, the record, reading and writing.

It has one PNG per usable image, `manifest.csv`, `failures.csv`, `warnings.csv` and `preprocess.json`, the
record of the settings and decoders. The manifest has every row of the first manifest: its path is the PNG, or
empty for a failed image; its column `warning` has the warnings about the picture. The folder may be behind a
URL.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import polars as pl
from msgspec import field
from msgspec.structs import replace

from trust_cache.base.documents import Document, json_bytes, read_json
from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_current
from trust_cache.base.places import is_url, join, list_names, read_bytes, remove_file, write_bytes
from trust_cache.base.versions import versions_of
from trust_cache.images.image_failures import (
    FAILURES,
    WARNINGS,
    Failure,
    ImageWarning,
    failures_bytes,
    parse_failures,
    parse_warnings,
    warnings_bytes,
)
from trust_cache.images.png_files import MAX_PIXELS, is_whole_png
from trust_cache.manifest.cases import WARNING
from trust_cache.manifest.manifest_file import Manifest, manifest_bytes

MANIFEST, RECORD = "manifest.csv", "preprocess.json"
SCHEMA = 1
_PACKAGES = ("numpy", "pydicom", "opencv-python-headless", "python-gdcm", "pylibjpeg-openjpeg")
# A note beside a PNG has its warnings until the run ends: a killed run loses none of them.
_NOTE = ".png.warnings"
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

    def earlier_warnings(self) -> dict[str, tuple[str, ...]]:
        """Return the warnings by image that earlier starts left, finished or killed."""
        names = list_names(self.place)
        found: dict[str, tuple[str, ...]] = {}
        # A note is newer than warnings.csv and replaces what that says of the image.
        for name in (*names.intersection({WARNINGS}), *_notes(names)):
            texts: dict[str, list[str]] = {}
            for row in parse_warnings(read_bytes(join(self.place, name))):
                texts.setdefault(row.image_id, []).append(row.warning)
            found |= {image: tuple(rows) for image, rows in texts.items()}
        return found

    def finish(
        self,
        manifest: Manifest,
        failures: Sequence[Failure],
        warnings: Mapping[str, Sequence[str]],
        decoders: dict[str, int],
    ) -> None:
        """Write the manifest of the pictures, the failures, the warnings and the record; remove the notes."""
        failed = {failure.image_id for failure in failures}
        table, images = manifest.table, manifest.table["image_id"].to_list()
        paths = [None if image in failed else png_name(image) for image in images]
        given = table[WARNING].to_list() if WARNING in table.columns else [None] * len(images)
        texts = [
            "; ".join(dict.fromkeys((*filter(None, [text]), *warnings.get(image, ()))))
            for image, text in zip(images, given, strict=True)
        ]
        table = table.with_columns(pl.Series("path", paths, pl.String), pl.Series(WARNING, texts, pl.String))
        rows = [ImageWarning(image, text) for image, found in warnings.items() for text in found]
        record = replace(self.record, decoders=decoders)
        for name, content in (
            (MANIFEST, manifest_bytes(table)),
            (FAILURES, failures_bytes(failures)),
            (WARNINGS, warnings_bytes(rows)),
            (RECORD, json_bytes(record.as_document())),
        ):
            write_bytes(join(self.place, name), content)
        for name in _notes(list_names(self.place)):
            remove_file(join(self.place, name))


def _notes(names: set[str]) -> list[str]:
    return sorted(name for name in names if name.endswith(_NOTE))


def write_picture(picture: str, content: bytes, image_id: str, warnings: Sequence[str]) -> None:
    """Write an image's PNG; its warnings first, so that no complete picture lacks them."""
    if warnings:
        note = warnings_bytes(ImageWarning(image_id, text) for text in warnings)
        write_bytes(picture.removesuffix(".png") + _NOTE, note)
    write_bytes(picture, content)


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


def read_picture_failures(place: str) -> tuple[Failure, ...]:
    """Read failures.csv of a picture folder; empty if there is none."""
    try:
        return parse_failures(read_bytes(join(place, FAILURES)))
    except FileNotFoundError:
        return ()


def folder_of(manifest: Path | str) -> str:
    """Return the folder of a manifest, by path or URL."""
    place = str(manifest)
    return place.rsplit("/", 1)[0] if is_url(place) else str(Path(place).parent)


def png_name(image_id: str) -> str:
    """Return an image's file name: its id, escaped so that names are distinct and none leaves the folder."""
    escaped = quote(image_id, safe=" +,=@()[]")
    if len(escaped) > _LONGEST_NAME:
        raise InputError(f"image_id: expected at most {_LONGEST_NAME} characters escaped, found {image_id!r}")
    return f"{escaped.replace('.', '%2E') if set(escaped) == {'.'} else escaped}.png"
