"""The manifest: its columns, the checks on reading, the only reader and the only writer.

A manifest is a CSV file with one row per image. Paths in it may come from Linux, macOS or Windows, or be
URLs; relative ones start from the manifest's folder. A path that is a URL of its own may name any server, so
it is opened only where the user allows it.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from urllib.parse import quote

import polars as pl

from trust_cache.base.csv_tables import LINE, read_text_table, restore
from trust_cache.base.errors import InputError
from trust_cache.base.places import is_url, redacted_urls, refuse_place
from trust_cache.manifest.cases import find_cases
from trust_cache.manifest.manifest_checks import ERRORS, Finding, Findings, Severity, counted_images
from trust_cache.manifest.metadata_file import Metadata, read_images, read_metadata, require_columns

REQUIRED_COLUMNS = ("image_id", "case_id", "label")
OPTIONAL_COLUMNS = ("laterality", "projection", "path")  # imported features need none of them
MANIFEST_COLUMNS = REQUIRED_COLUMNS + OPTIONAL_COLUMNS
_QUOTED = re.compile(r"https?://", re.IGNORECASE)


@dataclass(frozen=True)
class ManifestImage:
    """One image of a manifest; `location` is its path as the system (or a URL's library) opens it."""

    image_id: str
    case_id: str
    label: int
    laterality: str | None
    projection: str | None
    path: str | None
    location: str | None


@dataclass(frozen=True)
class Manifest:
    """A checked table, and the file it was read from.

    All columns are text, null where a cell is empty, except for the integer `label`.
    """

    table: pl.DataFrame
    path: Path | str

    def refused(self, *, allow_urls: bool) -> dict[str, str]:
        """Return the images whose path may not be opened, each with the reason."""
        rows = self.table.select("image_id", "path").drop_nulls().iter_rows()
        found = {image_id: refused_path(path, allow_urls=allow_urls) for image_id, path in rows}
        return {image_id: reason for image_id, reason in found.items() if reason is not None}

    def images(self) -> Iterator[ManifestImage]:
        """Yield the images in the order of the file."""
        for row in self.table.select(MANIFEST_COLUMNS).iter_rows(named=True):
            path = row["path"]
            yield ManifestImage(**row, location=None if path is None else resolve_path(self.path, path))


@dataclass(frozen=True)
class UnlabelledImage:
    """One image of a new case, which has no label yet; None for what its row lacks.

    `refused` is why its path may not be opened.
    """

    image_id: str
    case_id: str
    laterality: str | None
    projection: str | None
    location: str | None
    refused: str | None = None


def read_manifest(path: Path | str, *, filled: Sequence[str] = ()) -> Manifest:
    """Read and check a manifest; the columns in `filled` (laterality, path) must have a value for some image.

    An image without one stays a row, and counts as failed where the value is needed. Optional columns that
    the file lacks are null. Rows keep their order and further columns their text. `path` may be a URL.
    """
    metadata = read_metadata(path)
    hint = "; `trust-cache manifest` makes a manifest from a data set's metadata"
    require_columns(metadata, REQUIRED_COLUMNS, hint)
    images = read_manifest_columns(metadata)
    # A manifest has 0 or 1, L or R; other words are only read when a manifest is made.
    number = pl.col("label_text").cast(pl.Float64, strict=False).is_not_null()
    same = pl.col("laterality") == pl.col("laterality_text")
    images = images.with_columns(
        pl.when(number).then(pl.col("label")), pl.when(same).then(pl.col("laterality"))
    )
    if images["label_text"].is_null().all():
        raise InputError(
            f"{path}: expected labels, found none: `triage` takes a manifest without labels; for training,"
            " make it again with labels (`trust-cache manifest dicom FOLDER --labels FILE`)"
        )
    errors = [found for check in ERRORS for found in check(images)]
    for name in filled:
        if images[name].is_null().all():
            sentence = f"expected a {name} of each image, found none for any of {counted_images(images)}"
            errors.append(Finding(f"{name}-filled", Severity.ERROR, sentence))
    raise_errors(str(path), tuple(errors))
    # The path is copied to every later manifest. One with credentials is refused, hidden or not.
    hidden = [None if cell is None else redacted_urls(cell) for cell in images["path"].to_list()]
    images = images.with_columns(path=pl.Series(hidden, dtype=pl.String))
    return Manifest(join_columns(images, metadata, MANIFEST_COLUMNS), path)


def read_unlabelled(path: Path, folder: Path | None = None) -> list[UnlabelledImage]:
    """Read a manifest of new cases; relative paths start from `folder`, else from the manifest's folder.

    Only a row without a case is refused: all else that a row lacks is None.
    """
    table = read_text_table(path, ("case_id", *OPTIONAL_COLUMNS), lines=True)
    start = path if folder is None else folder / path.name
    images = []
    for row in table.iter_rows(named=True):
        if row["case_id"] is None:
            raise InputError(f"{path}: line {row[LINE]}: expected a case_id, found none")
        cell = row["path"]
        image_id = row.get("image_id", cell) or f"line {row[LINE]}"
        side = (row["laterality"] or "").upper()
        images.append(
            UnlabelledImage(
                restore(image_id),
                restore(row["case_id"]),
                side if side in ("L", "R") else None,
                (row["projection"] or "").upper() or None,
                None if cell is None else resolve_path(start, cell),
                "the path is a URL; expected a path of a file" if is_url(cell or "") else None,
            )
        )
    twice = [name for name, number in Counter(image.image_id for image in images).items() if number > 1]
    if twice:
        raise InputError(f"{path}: image_id {twice[0]} occurs more than once")
    return images


def read_manifest_columns(metadata: Metadata, ages: Sequence[str] = ()) -> pl.DataFrame:
    """Read metadata that have the manifest's own column names; optional columns may be absent."""
    table = metadata.table
    absent = {name: pl.lit(None, pl.String) for name in OPTIONAL_COLUMNS if name not in table.columns}
    complete = Metadata(table.with_columns(**absent), metadata.lines, metadata.source)
    same = {name: name for name in ("image_id", "case_id", "projection", "path")}
    return read_images(complete, ages=ages, label_text="label", laterality_text="laterality", **same)


def join_columns(
    images: pl.DataFrame, metadata: Metadata, used: Sequence[str], added: Sequence[str] = ()
) -> pl.DataFrame:
    """Return the manifest's and the `added` columns of these images, then the metadata's not `used`.

    The images name their rows of the metadata by `line`.
    """
    further = metadata.table.drop(used, strict=False).with_columns(metadata.lines.alias(LINE))
    rows = images.select(pl.col("line").alias(LINE)).join(further, on=LINE, how="left", maintain_order="left")
    table = pl.concat([images.select(*MANIFEST_COLUMNS, *added), rows.drop(LINE)], how="horizontal")
    try:
        # One patient per case, and labels of whole cases that are labels; new cases may have none.
        find_cases(table.with_columns(pl.col("label").fill_null(0)))
    except InputError as error:
        raise InputError(f"{metadata.source}: {error}") from error
    return table


def manifest_bytes(table: pl.DataFrame) -> bytes:
    """Return a manifest as the CSV file that `read_manifest` reads back unchanged."""
    # Null and the empty text are both written as nothing: a file cannot tell them apart.
    empty = table.with_columns(pl.when(pl.col(pl.String) != "").then(pl.col(pl.String)).name.keep())
    return empty.write_csv(line_terminator="\n").encode()


def raise_errors(source: str, errors: Findings) -> None:
    """Raise one error that lists all of these findings, if there are any."""
    if len(errors) == 1:
        raise InputError(f"{source}: {errors[0].sentence}")
    if errors:
        lines = "".join(f"\n  - {error.sentence}" for error in errors)
        raise InputError(f"{source}: no manifest, for {len(errors)} reasons:{lines}")


def is_absolute(cell: str) -> bool:
    """Tell whether a path starts at a root, of this system or another: /x, C:\\x, \\\\server\\share."""
    return cell.startswith("/") or PureWindowsPath(cell).is_absolute()


def with_slashes(cell: str) -> str:
    """Return a path with / between its parts, which all systems read; a URL stays as it is.

    A backslash is always a separator: metadata written on Windows must work on every system.
    """
    return cell if is_url(cell) else cell.replace("\\", "/")


def resolve_path(manifest_path: Path | str, cell: str | None) -> str:
    """Return the place of an image of a manifest: a URL, or a path that the system opens."""
    if cell is None or not cell:
        raise InputError(f"{manifest_path}: an image has no path; expected one in the column path")
    cell = with_slashes(cell)
    if is_url(cell) or is_absolute(cell):
        return cell
    if is_url(str(manifest_path)):
        return _join_url(str(manifest_path).rsplit("/", 1)[0], cell)
    return str(Path(manifest_path).parent / cell)


def refused_path(cell: str, *, allow_urls: bool) -> str | None:
    """Return why a path of a manifest may not be opened; None if it may."""
    if not is_url(cell):
        return None
    if not allow_urls:
        return "the path is a URL; expected a path of a file, or --allow-urls to open URLs"
    try:
        refuse_place(cell)
    except InputError as error:
        return str(error)
    return None


def images_prefix(images: str, manifest_path: Path) -> str:
    """Return what precedes the paths of a manifest whose images are under `images`: "" or a text ending in /.

    A URL or an absolute folder stays as given. A relative folder starts from the current folder and
    becomes relative to the manifest's folder: both can move together.
    """
    images = with_slashes(images)
    if is_url(images) or is_absolute(images):
        return _with_end(images)
    # The system follows links before it goes up by "..": only real folders may be compared as text.
    start = os.path.realpath(manifest_path.parent)
    target = Path(os.path.realpath(images)) if ".." in Path(images).parts else Path(images).absolute()
    try:
        relative = os.path.relpath(target, start)
    except ValueError:  # another drive of Windows
        return _with_end(target.as_posix())
    return "" if relative == "." else _with_end(Path(relative).as_posix())


def place_under(prefix: str, cell: str | None) -> str | None:
    """Return the manifest's path of an image from the metadata's, under a prefix of `images_prefix`."""
    if cell is None:
        return None
    cell = redacted_urls(with_slashes(cell))
    if is_url(cell) or is_absolute(cell):
        return cell
    cell = cell.removeprefix("./")
    return _join_url(prefix, cell) if is_url(prefix) else prefix + cell


def _join_url(prefix: str, relative: str) -> str:
    """Put a relative path under a URL; http quotes what other schemes take literally (a space, say)."""
    return _with_end(prefix) + (quote(relative) if _QUOTED.match(prefix) else relative)


def _with_end(prefix: str) -> str:
    return prefix if prefix.endswith("/") else f"{prefix}/"
