"""The picture folder that `preprocess` writes: file names, settings, the record, reading and writing.

It has one PNG per usable image, `manifest.csv`, `failures.csv`, `warnings.csv`, `pictures.csv` and
`preprocess.json`, the record of the settings, the decoders and the digests of the tables. The manifest has
every row of the first manifest: its path is the PNG, or empty for a failed image; its column `warning` has
the warnings about the picture. `pictures.csv` says what each picture was made from, and its digest. Until a
run ends, a note beside each new PNG says it: a killed run loses nothing. The folder may be behind a URL.
"""

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import polars as pl
from msgspec import field
from msgspec.structs import replace

from trust_cache.base.csv_tables import restore, write_rows
from trust_cache.base.digests import bytes_blake3, digests_of
from trust_cache.base.documents import Document, read_json, sealed_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.files import PARTIAL, refuse_current
from trust_cache.base.places import is_url, join, list_names, read_bytes, remove_file, write_bytes
from trust_cache.base.versions import versions_of
from trust_cache.images.gate.pixel_limits import LIMITS, PixelLimits
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
from trust_cache.manifest.cases import add_warnings
from trust_cache.manifest.manifest_file import Manifest, manifest_bytes, read_manifest
from trust_cache.manifest.picture_checks import TOGETHER, check_of

MANIFEST, PICTURES, RECORD = "manifest.csv", "pictures.csv", "preprocess.json"
SCHEMA = 1
_PACKAGES = ("numpy", "pydicom", "opencv-python-headless", "imagecodecs")
_NOTE = ".png.note"
CLOSING = 9
MAX_PIXELS = 64_000_000  # the largest detectors have 28 million
_LONGEST_NAME = 200  # bytes of a file's name before its ending


class ImageSettings(Document, frozen=True):
    """The settings that change the pixels of a picture, and the size above which a file is refused."""

    margin: float = 0.10  # of the mask's bounding box, on each side
    closing: int = CLOSING  # edge of the square that closes the mask, in pixels of the image
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 1:
            raise InputError(f"margin: expected a share from 0 to 1, found {self.margin}")
        if self.closing < 1 or self.closing % 2 == 0:
            raise InputError(f"closing: expected an odd number of pixels, found {self.closing}")
        if self.max_pixels < 1:
            raise InputError(f"max_pixels: expected 1 or more, found {self.max_pixels}")


class MadePicture(Document, frozen=True, kw_only=True):
    """What a picture was made from, beside the settings of its folder, and what was made."""

    image_id: str
    laterality: str
    projection: str
    dicom_blake3: str
    png_blake3: str
    decoder: str  # with the transfer syntax
    sketch: str = ""  # by which equal pictures are recognised
    warnings: tuple[str, ...] = ()


# Warnings have a table of their own, with a row for each.
_COLUMNS = tuple(name for name in MadePicture.__struct_fields__ if name != "warnings")


class PictureRecord(Document, frozen=True):
    """preprocess.json: how the pictures of a folder are made."""

    schema: int
    settings: ImageSettings
    limits: PixelLimits = LIMITS  # of the pixel gate
    versions: dict[str, str] = field(default_factory=dict)
    decoders: dict[str, int] = field(default_factory=dict)  # pictures by decoder and transfer syntax
    finished: bool = False
    files: dict[str, str] = field(default_factory=dict)  # SHA-256 of the tables by name


@dataclass(frozen=True)
class PictureFolder:
    """A folder that was claimed for pictures with the settings of its record."""

    place: str
    record: PictureRecord

    def picture(self, image_id: str) -> str:
        """Return the place of an image's PNG."""
        return join(self.place, png_name(image_id))

    def earlier(self) -> dict[str, MadePicture]:
        """Return the pictures by image that earlier starts made, finished or killed.

        Tables that were changed since they were written say nothing: their pictures are made again.
        """
        try:
            found = {made.image_id: made for made in _read_table(self.place, self.record)}
        except (InputError, FileNotFoundError):
            found = {}
        for name in _notes(list_names(self.place)):
            with suppress(InputError):  # damaged: the picture is made again
                note = read_json(join(self.place, name), MadePicture, what="a note", sealed=True)
                found[note.image_id] = note  # newer than the tables
        return found

    def begin(self) -> None:
        """Write the record of a run that is not finished yet."""
        self._write_record(replace(self.record, finished=False))

    def finish(
        self,
        manifest: Manifest,
        failures: Sequence[Failure],
        pictures: Mapping[str, MadePicture],
        together: Mapping[str, Sequence[str]],
    ) -> PictureRecord:
        """Write the manifest of the pictures, the other tables and the record; remove the notes.

        `together` has what is wrong with images beside others; it is found anew by every run.
        """
        failed = {failure.image_id for failure in failures}
        images = manifest.table["image_id"].to_list()
        paths = [None if image in failed else png_name(image) for image in images]
        made = [pictures[image] for image in images if image in pictures]
        warnings = {
            picture.image_id: (*picture.warnings, *together.get(picture.image_id, ())) for picture in made
        }
        table = add_warnings(manifest.table, warnings).with_columns(pl.Series("path", paths, pl.String))
        rows = [ImageWarning(image, text) for image, found in warnings.items() for text in found]
        ordered = sorted(made, key=lambda picture: picture.image_id)
        files = {
            MANIFEST: manifest_bytes(table),
            FAILURES: failures_bytes(failures),
            WARNINGS: warnings_bytes(rows),
            PICTURES: write_rows(_COLUMNS, (picture.as_document() for picture in ordered), neutral=True),
        }
        for name, content in files.items():
            write_bytes(join(self.place, name), content)
        record = replace(
            self.record,
            decoders=dict(sorted(Counter(picture.decoder for picture in made).items())),
            finished=True,
            files=digests_of(files),
        )
        self._write_record(record)
        left = list_names(self.place)
        stale = left & {png_name(image) for image in failed}  # of a file that could be read before
        halves = [name for name in left if name.endswith(PARTIAL)]  # of a start that was killed
        for name in (*_notes(left), *stale, *halves):
            remove_file(join(self.place, name))
        return record

    def _write_record(self, record: PictureRecord) -> None:
        write_bytes(join(self.place, RECORD), sealed_bytes(record.as_document()))


def _notes(names: set[str]) -> list[str]:
    return sorted(name for name in names if name.endswith(_NOTE))


def write_picture(picture: str, content: bytes, made: MadePicture) -> None:
    """Write an image's PNG; the note first, so that no complete picture lacks it."""
    write_bytes(picture.removesuffix(".png") + _NOTE, sealed_bytes(made.as_document()))
    write_bytes(picture, content)


def _read_table(place: str, record: PictureRecord) -> list[MadePicture]:
    texts: dict[str, tuple[str, ...]] = {}
    for row in parse_warnings(read_unchanged(place, record, WARNINGS)):
        if check_of(row.warning) in TOGETHER:
            continue
        texts[row.image_id] = (*texts.get(row.image_id, ()), row.warning)
    content = read_unchanged(place, record, PICTURES).decode()
    return [
        msgspec.convert(_restored(row) | {"warnings": texts.get(restore(row["image_id"]), ())}, MadePicture)
        for row in csv.DictReader(io.StringIO(content, newline=""))
    ]


def _restored(row: Mapping[str, str]) -> dict[str, Any]:
    return {name: restore(cell) for name, cell in row.items()}


def read_unchanged(place: str, record: PictureRecord, name: str) -> bytes:
    """Read a table of a picture folder; refuse one that was changed since it was written."""
    content = read_bytes(join(place, name))
    if hashlib.sha256(content).hexdigest() != record.files.get(name):
        raise InputError(
            f"{join(place, name)}: changed since `trust-cache preprocess` wrote it (another SHA-256 than in"
            f" {RECORD}); run preprocess again, which writes it again"
        )
    return content


def pictures_of(folder: str) -> dict[str, str]:
    """Return the places of a folder's pictures by image id, in the order of the ids."""
    table = read_manifest(join(folder, MANIFEST)).table.drop_nulls("path").sort("image_id")
    names = table.select("image_id", "path").iter_rows()
    return {image_id: join(folder, name) for image_id, name in names}


def expected_pictures(manifest: Path | str) -> dict[str, str] | None:
    """Return the digest of each picture by image that the record beside a manifest has; None without one.

    Refuses a folder in which a run of `preprocess` did not end, and tables that were changed since.
    """
    place = folder_of(manifest)
    record = read_picture_record(place)
    if record is None:
        return None
    if not record.finished:
        raise InputError(
            f"{place}: `trust-cache preprocess` did not finish there; run the same command again first"
        )
    try:
        if str(manifest) == join(place, MANIFEST):
            read_unchanged(place, record, MANIFEST)
        read_unchanged(place, record, FAILURES)
        return {made.image_id: made.png_blake3 for made in _read_table(place, record)}
    except FileNotFoundError as error:
        name = Path(str(error.filename or PICTURES)).name
        raise InputError(f"{place}: {name} is missing; run `trust-cache preprocess` again") from error


def picture_problems(place: str) -> list[str]:
    """Compare a picture folder with its record and return what does not fit, a sentence each."""
    problems: list[str] = []
    try:
        recorded = expected_pictures(join(place, MANIFEST)) or {}
    except InputError as error:
        return [str(error)]
    for image_id, digest in recorded.items():
        picture = join(place, png_name(image_id))
        try:
            if bytes_blake3(read_bytes(picture)) != digest:
                problems.append(f"{picture}: changed since it was made; run `trust-cache preprocess` again")
        except FileNotFoundError:
            problems.append(f"{picture}: is missing; run `trust-cache preprocess` again")
    return problems


def claim_folder(place: str, settings: ImageSettings) -> PictureFolder:
    """Return a new folder, or one that was begun with the same settings; refuse any other."""
    if not is_url(place):
        refuse_current(Path(place))
    found = read_picture_record(place)
    if found is None:
        # A start that was killed before it wrote the record may have left half of it.
        if any(not name.endswith(PARTIAL) for name in list_names(place)):
            raise InputError(f"{place}: expected a new or empty folder, found files without {RECORD}")
        found = PictureRecord(schema=SCHEMA, settings=settings, versions=versions_of(*_PACKAGES))
    elif (found.settings, found.limits) != (settings, LIMITS):
        raise InputError(
            f"{place}: was made with other settings: expected {settings.as_document()} and limits"
            f" {LIMITS.as_document()}, found {found.settings.as_document()} and"
            f" {found.limits.as_document()}; choose another --out"
        )
    folder = PictureFolder(place, found)
    folder.begin()
    return folder


def read_picture_record(place: str) -> PictureRecord | None:
    """Read the record of a picture folder; None for a folder without one."""
    try:
        what = "the record of `trust-cache preprocess`"
        return read_json(join(place, RECORD), PictureRecord, what=what, schema=SCHEMA, sealed=True)
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
