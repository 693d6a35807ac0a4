"""Build a manifest: read the metadata, check them, look for the image files, write the result."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol, cast

import polars as pl

from trust_cache.base.csv_tables import write_rows
from trust_cache.base.errors import InputError
from trust_cache.base.files import refusals_in_words, write_file
from trust_cache.base.places import is_url, refuse_place
from trust_cache.manifest import manifest_file
from trust_cache.manifest.cases import CASE_LABEL, find_cases
from trust_cache.manifest.data_terms import DATASET, LABEL_DEFINITION
from trust_cache.manifest.datasets.dataset import Dataset, described_datasets
from trust_cache.manifest.datasets.known_datasets import find_dataset
from trust_cache.manifest.dicom_headers import ImageHeader
from trust_cache.manifest.image_files import MissingFile, files_present, look_for_files
from trust_cache.manifest.manifest_checks import (
    CASE_POSITIVE,
    LEFT_OUT,
    DatasetCounts,
    Findings,
    columns_free,
    count,
    counts_expected,
    images_left_out,
    positives_shown,
)
from trust_cache.manifest.metadata_file import Metadata
from trust_cache.manifest.metadata_tables import read_tables
from trust_cache.manifest.technical_tags import TAG_COLUMNS, TagValues, with_tags

_LOG = logging.getLogger(__name__)
MISSING_COLUMNS = ("image_id", "case_id", "path", "reason")
WARNING_COLUMNS = ("check", "case_id", "image_id", "found")


class FileReader(Protocol):
    """Reads the headers of image files, which is the work of `images`."""

    def headers(self, places: Sequence[str]) -> Sequence[ImageHeader | None]:
        """Return the header of each file; None where it cannot be read."""

    def tags(self, places: Sequence[str]) -> Sequence[TagValues]:
        """Return the technical tags of each file."""


@dataclass(frozen=True)
class BuiltManifest:
    """A manifest that was written, and the findings of the checks.

    `missing_file` lists the images without a usable file and `warnings_file` every case and image that a
    warning is about; None where there is nothing to list.
    """

    manifest: manifest_file.Manifest
    counts: DatasetCounts
    findings: Findings
    missing: tuple[MissingFile, ...]
    missing_file: Path | None
    warnings_file: Path | None
    left_out: Mapping[str, int]  # images by the reason why they are not in the manifest
    entries: str | None = None  # how the entries of a folder were counted

    def as_document(self) -> dict[str, object]:
        """Return the result as plain values, ready for JSON."""
        return {
            "manifest": str(self.manifest.path),
            "counts": asdict(self.counts),
            "findings": [asdict(found) | {"severity": str(found.severity)} for found in self.findings],
            "missing": None if self.missing_file is None else str(self.missing_file),
            "warnings": None if self.warnings_file is None else str(self.warnings_file),
            "left_out": dict(self.left_out),
            "entries": self.entries,
        }


def build_manifest(
    dataset: str | Dataset,
    metadata: Path | Sequence[Path],
    out: Path,
    *,
    images: str | None = None,
    look: bool = True,
    overwrite: bool = False,
    options: Mapping[str, str | None] | None = None,
    files: FileReader | None = None,
    tags: bool = False,
) -> BuiltManifest:
    """Build the manifest of a data set (one of the registry's names, or your own) and write it to `out`.

    `metadata` are the data set's tables in any order. `images` is the folder or URL prefix of the image
    files, by default the folder of the first table. `options` are those of this data set alone. `files` reads
    headers, for data sets that need them and for the columns of `tags`. Errors raise and write nothing.
    Warnings and missing files are in the result and, one row each, in files beside the manifest
    (`.warnings.csv`, `.missing.csv`).
    """
    folder = _image_folder(images, look=look)
    paths = (metadata,) if isinstance(metadata, Path) else tuple(metadata)
    name = dataset if isinstance(dataset, str) else None
    chosen = find_dataset(dataset, options) if isinstance(dataset, str) else dataset
    _check_reading(chosen, files, look=look, tags=tags)
    work = ManifestWork(
        out=out,
        prefix=manifest_file.images_prefix(str(paths[0].parent) if images is None else images, out),
        folder=folder,
        look=look,
        overwrite=overwrite,
        files=files,
        tags=tags,
        metadata=paths,
    )
    return build_from_tables(chosen, read_tables(chosen, paths), work, name)


def _check_reading(dataset: Dataset, files: FileReader | None, *, look: bool, tags: bool) -> None:
    """Refuse what needs the headers of files where none are to be read."""
    if dataset.reads_headers and (files is None or not look):
        raise InputError(
            "--no-files: expected the image files: the sides of this data set are only in their headers"
        )
    if tags and (files is None or not look):
        raise InputError(
            "--tags: expected the image files, whose headers have the tags; leave out --no-files"
        )


@dataclass(frozen=True)
class ManifestWork:
    """Where the files of a manifest are, and what to do with them."""

    out: Path
    prefix: str
    folder: Path | None
    look: bool
    overwrite: bool
    files: FileReader | None
    tags: bool
    metadata: tuple[Path, ...]

    def headers(self, cells: Sequence[str]) -> Sequence[ImageHeader | None]:
        """Return the headers of files by their paths in the metadata; None where one cannot be read."""
        places = [str(manifest_file.place_under(self.prefix, cell)) for cell in cells]
        reader = cast("FileReader", self.files)
        return reader.headers([manifest_file.resolve_path(self.out, place) for place in places])


def build_from_tables(
    dataset: Dataset, tables: Sequence[Metadata], work: ManifestWork, name: str | None = None
) -> BuiltManifest:
    """Build the manifest of tables that were read, and write it."""
    read = tables[0]
    further = {"headers": work.headers} if dataset.reads_headers else {}
    found = _with_left_out(dataset.read(*tables, **further))
    paths = [manifest_file.place_under(work.prefix, cell) for cell in found["path"].to_list()]
    found = found.with_columns(path=pl.Series(paths, dtype=pl.String))
    described = name in described_datasets()
    # A further column of such a name would replace the terms or labels of a known data set.
    own = (DATASET, LABEL_DEFINITION, CASE_LABEL) if described else ()
    kept, findings = _check(dataset, found, read, (*own, *(TAG_COLUMNS if work.tags else ())))
    added = [column for column in (*dataset.added, CASE_LABEL) if column in kept.columns]
    table = manifest_file.join_columns(kept, read, dataset.used, added)
    if described:
        table = table.with_columns(pl.lit(name).alias(DATASET))
    if dataset.label_definition is not None:
        table = table.with_columns(pl.lit(dataset.label_definition).alias(LABEL_DEFINITION))
    manifest = manifest_file.Manifest(table, work.out)
    missing: list[MissingFile] = []
    if work.look:
        _LOG.info("looking for the files of %d images", kept.height)
        missing = look_for_files(list(manifest.images()), work.folder)
    if work.tags and work.files is not None:
        places = [image.location or "" for image in manifest.images()]
        manifest = manifest_file.Manifest(with_tags(table, work.files.tags(places)), work.out)
    left_out = dict(found[LEFT_OUT].drop_nulls().value_counts(sort=True).iter_rows())
    # As everywhere else, a column case_label of the metadata counts too.
    positive = find_cases(table.with_columns(pl.col("label").fill_null(0))).labels.sum()
    return _write(
        manifest,
        replace(count(kept), positive_cases=int(positive)),
        findings,
        missing,
        left_out,
        metadata=work.metadata,
        overwrite=work.overwrite,
    )


def _with_left_out(found: pl.DataFrame) -> pl.DataFrame:
    return found if LEFT_OUT in found.columns else found.with_columns(pl.lit(None, pl.String).alias(LEFT_OUT))


def _check(
    dataset: Dataset, found: pl.DataFrame, read: Metadata, reserved: Sequence[str]
) -> tuple[pl.DataFrame, Findings]:
    """Return the images that are kept, and the warnings; errors raise.

    No further column may have a name of the `reserved`.
    """
    kept = found.filter(pl.col(LEFT_OUT).is_null())
    shown = positives_shown(kept)
    if shown:  # else the labels of the images say it
        positive = (pl.col(CASE_POSITIVE).any() | (pl.col("label") == 1).any()).over("case_id")
        kept = kept.with_columns(positive.cast(pl.Int8).alias(CASE_LABEL))
    made = {*manifest_file.MANIFEST_COLUMNS, *dataset.added, CASE_LABEL} & set(kept.columns)
    further = read.table.drop(dataset.used, strict=False).columns
    errors = columns_free(further, (*made, *reserved))
    for check in dataset.errors:
        errors += check(kept)
    manifest_file.raise_errors(read.source, errors)
    findings = images_left_out(found)
    if kept.is_empty():
        reasons = found[LEFT_OUT].value_counts(sort=True).iter_rows()
        listed = "; ".join(f"{number:,} {reason}" for reason, number in reasons)
        raise InputError(
            f"{read.source}: expected images to keep, all {found.height:,} are left out: {listed}"
        )
    findings += counts_expected(found, dataset.expected) if dataset.expected else ()
    findings += shown
    for check in dataset.warnings:
        findings += check(kept)
    return kept, findings


def files_beside(out: Path) -> tuple[Path, Path]:
    """Return the places of the lists of missing files and of warnings."""
    return out.with_name(f"{out.stem}.missing.csv"), out.with_name(f"{out.stem}.warnings.csv")


def _write(
    manifest: manifest_file.Manifest,
    counts: DatasetCounts,
    findings: Findings,
    missing: list[MissingFile],
    left_out: Mapping[str, int],
    *,
    metadata: Sequence[Path],
    overwrite: bool,
) -> BuiltManifest:
    out = Path(manifest.path)
    content = manifest_file.manifest_bytes(manifest.table)
    listed = [{"check": found.check, **asdict(item)} for found in findings for item in found.items]
    missing_file, warnings_file = files_beside(out)
    beside = {
        missing_file: write_rows(MISSING_COLUMNS, map(asdict, missing)) if missing else None,
        warnings_file: write_rows(WARNING_COLUMNS, listed) if listed else None,
    }
    with refusals_in_words(str(out)):
        _refuse_other(out, content, metadata=metadata, overwrite=overwrite)
        headers = {",".join(columns).encode() + b"\n" for columns in (MISSING_COLUMNS, WARNING_COLUMNS)}
        for path in filter(Path.exists, beside):
            with path.open("rb") as file:
                if file.readline() not in headers:  # this command has not written it
                    raise InputError(
                        f"{path}: expected no file there, or one of an earlier manifest; choose another --out"
                    )
        write_file(out, content)
        for path, rows in beside.items():
            if rows is not None:
                write_file(path, rows)
            else:  # a file of an earlier run would be taken for this one's
                path.unlink(missing_ok=True)
    return BuiltManifest(
        manifest,
        counts,
        findings + files_present(missing),
        tuple(missing),
        missing_file if missing else None,
        warnings_file if listed else None,
        left_out,
    )


def _image_folder(images: str | None, *, look: bool) -> Path | None:
    if images is not None and not images.strip():
        raise InputError("images: expected a folder or a URL, found an empty text")
    if images is None or is_url(images):
        refuse_place(images or "")
        return None
    folder = Path(manifest_file.with_slashes(images))
    if look and not folder.is_dir():
        raise InputError(
            f"{images}: no such folder; --no-files makes the manifest without looking for images"
        )
    return folder


def _refuse_other(out: Path, content: bytes, *, metadata: Sequence[Path], overwrite: bool) -> None:
    if out.is_dir():
        raise InputError(f"{out}: expected the name of a file to write, found a folder")
    if not out.exists():
        return
    if any(file.exists() and out.samefile(file) for file in metadata):
        raise InputError(f"{out}: is the metadata file itself; choose another --out")
    if not overwrite and out.read_bytes() != content:
        raise InputError(
            f"{out}: there is another file of that name; choose another --out, or --overwrite to replace it"
        )
