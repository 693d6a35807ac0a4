"""Build a manifest: read the metadata, check them, look for the image files, write the result."""

import logging
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from trust_cache.base.csv_tables import write_rows
from trust_cache.base.errors import InputError
from trust_cache.base.files import refusals_in_words, write_file
from trust_cache.base.places import is_url, refuse_place
from trust_cache.manifest import manifest_file
from trust_cache.manifest.data_terms import DATASET
from trust_cache.manifest.datasets.dataset import Dataset, described_datasets
from trust_cache.manifest.datasets.known_datasets import find_dataset, fitting_datasets
from trust_cache.manifest.image_files import MissingFile, files_present, look_for_files
from trust_cache.manifest.manifest_checks import DatasetCounts, Findings, columns_free, count, counts_expected
from trust_cache.manifest.metadata_file import read_metadata, require_columns

_LOG = logging.getLogger(__name__)
MISSING_COLUMNS = ("image_id", "case_id", "path", "reason")
WARNING_COLUMNS = ("check", "case_id", "image_id", "found")


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

    def as_document(self) -> dict[str, object]:
        """Return the result as plain values, ready for JSON."""
        return {
            "manifest": str(self.manifest.path),
            "counts": asdict(self.counts),
            "findings": [asdict(found) | {"severity": str(found.severity)} for found in self.findings],
            "missing": None if self.missing_file is None else str(self.missing_file),
            "warnings": None if self.warnings_file is None else str(self.warnings_file),
        }


def build_manifest(
    dataset: str | Dataset,
    metadata: Path,
    out: Path,
    *,
    images: str | None = None,
    look: bool = True,
    overwrite: bool = False,
) -> BuiltManifest:
    """Build the manifest of a data set (one of the registry's names, or your own) and write it to `out`.

    `images` is the folder or URL prefix of the image files, by default the metadata's folder. Errors
    raise and write nothing. Warnings and missing files are in the result and, one row each, in files
    beside the manifest (`.warnings.csv`, `.missing.csv`).
    """
    folder = _image_folder(images, look=look)
    read = read_metadata(metadata)
    name = dataset if isinstance(dataset, str) else None
    dataset = find_dataset(dataset) if isinstance(dataset, str) else dataset
    require_columns(read, dataset.required, _hint(dataset, read.table.columns))
    found = dataset.read(read)
    used = dataset.required + dataset.optional
    errors = columns_free(read.table.drop(used, strict=False).columns, manifest_file.MANIFEST_COLUMNS)
    for check in dataset.errors:
        errors += check(found)
    manifest_file.raise_errors(str(metadata), errors)
    findings = () if dataset.expected is None else counts_expected(found, dataset.expected)
    for check in dataset.warnings:
        findings += check(found)
    prefix = manifest_file.images_prefix(str(metadata.parent) if images is None else images, out)
    paths = [manifest_file.place_under(prefix, cell) for cell in found["path"].to_list()]
    found = found.with_columns(path=pl.Series(paths, dtype=pl.String))
    table = manifest_file.join_columns(found, read, used)
    if name in described_datasets() and DATASET not in table.columns:
        table = table.with_columns(pl.lit(name).alias(DATASET))
    manifest = manifest_file.Manifest(table, out)
    missing: list[MissingFile] = []
    if look:
        _LOG.info("looking for the files of %d images", found.height)
        missing = look_for_files(list(manifest.images()), folder)
    return _write(manifest, findings, missing, metadata=metadata, overwrite=overwrite)


def _write(
    manifest: manifest_file.Manifest,
    findings: Findings,
    missing: list[MissingFile],
    *,
    metadata: Path,
    overwrite: bool,
) -> BuiltManifest:
    out = Path(manifest.path)
    content = manifest_file.manifest_bytes(manifest.table)
    listed = [{"check": found.check, **asdict(item)} for found in findings for item in found.items]
    missing_file = out.with_name(f"{out.stem}.missing.csv")
    warnings_file = out.with_name(f"{out.stem}.warnings.csv")
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
        count(manifest.table),
        findings + files_present(missing),
        tuple(missing),
        missing_file if missing else None,
        warnings_file if listed else None,
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


def _hint(dataset: Dataset, header: list[str]) -> str:
    missing = [name for name in dataset.required if name not in header]
    if not missing:
        return ""
    fitting = fitting_datasets(header)
    if fitting:
        return f". These are the columns of another kind: use `trust-cache manifest {fitting[0]}`"
    return dataset.hints.get(missing[0], "") if len(missing) == 1 else ""


def _refuse_other(out: Path, content: bytes, *, metadata: Path, overwrite: bool) -> None:
    if out.is_dir():
        raise InputError(f"{out}: expected the name of a file to write, found a folder")
    if not out.exists():
        return
    if out.samefile(metadata):
        raise InputError(f"{out}: is the metadata file itself; choose another --out")
    if not overwrite and out.read_bytes() != content:
        raise InputError(
            f"{out}: there is another file of that name; choose another --out, or --overwrite to replace it"
        )
