"""Making a manifest: read the metadata, check them, place the files, write the result."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from trust_cache.base.durable import refusals_in_words
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file
from trust_cache.base.places import is_url
from trust_cache.base.tables import write_rows
from trust_cache.manifest.adapters import adapter_for
from trust_cache.manifest.descriptions import ExpectedCounts
from trust_cache.manifest.evidence import STANDARD
from trust_cache.manifest.files import MissingFile, files_present, look_for_files
from trust_cache.manifest.findings import Finding, Findings
from trust_cache.manifest.oddities import count
from trust_cache.manifest.paths import images_prefix, place_under, with_slashes
from trust_cache.manifest.reading import raise_errors
from trust_cache.manifest.table import Manifest, manifest_bytes
from trust_cache.manifest.verbatim import read_metadata

_LOG = logging.getLogger(__name__)
MISSING_COLUMNS = ("image_id", "case_id", "path", "reason")
ODDITY_COLUMNS = ("check", "case_id", "image_id", "found")


@dataclass(frozen=True)
class Built:
    """A manifest that was made, with all that was found on the way."""

    manifest: Manifest
    counts: ExpectedCounts
    findings: Findings
    missing: tuple[MissingFile, ...]


def make_manifest(
    kind: str,
    metadata: Path,
    out: Path,
    *,
    images: str | None = None,
    look: bool = True,
    overwrite: bool = False,
) -> Built:
    """Make the manifest of metadata of a kind (rsna, nlbs, csv) and write it to `out`.

    `images` is the folder or URL prefix that the files lie under, by default the metadata's folder.
    Errors raise and write nothing. Oddities and missing files are in the result and, one row each, in
    files beside the manifest (`.oddities.csv`, `.missing.csv`).
    """
    built = build_manifest(kind, metadata, out, images=images, look=look)
    write_manifest(built, metadata=metadata, overwrite=overwrite)
    return built


def build_manifest(kind: str, metadata: Path, out: Path, *, images: str | None, look: bool) -> Built:
    """Return the manifest as it will stand at `out`, without writing anything."""
    folder = _folder(images, look=look)
    read = read_metadata(metadata)
    adapter = adapter_for(kind, read)
    adapted = adapter.adapt(read)
    raise_errors(str(metadata), adapter.errors(adapted))
    findings = adapter.odd(adapted.images)
    prefix = images_prefix(str(metadata.parent) if images is None else images, out)
    placed = [place_under(prefix, cell) for cell in adapted.images["path"].to_list()]
    standard = adapted.images.with_columns(pl.Series("path", placed, dtype=pl.String)).select(STANDARD)
    manifest = Manifest(pl.concat([standard, adapted.further], how="horizontal"), out)
    missing: Sequence[MissingFile] = ()
    if look:
        _LOG.info("looking for the files of %d images", standard.height)
        missing = look_for_files(manifest.images(), folder)
    return Built(manifest, count(standard), findings + files_present(missing), tuple(missing))


def write_manifest(built: Built, *, metadata: Path, overwrite: bool) -> None:
    """Write the manifest, and what was found beside it; another manifest is not replaced silently."""
    out = Path(built.manifest.path)
    content = manifest_bytes(built.manifest.table)
    beside = {
        missing_file(out): _rows_bytes(MISSING_COLUMNS, (asdict(file) for file in built.missing)),
        oddities_file(out): _rows_bytes(ODDITY_COLUMNS, _oddities(built.findings)),
    }
    with refusals_in_words(str(out)):
        _refuse_other(out, content, metadata=metadata, overwrite=overwrite)
        for path in beside:
            _refuse_foreign(path)
        write_file(out, content)
        for path, rows in beside.items():
            if rows is not None:
                write_file(path, rows)
            else:  # that of an earlier run would seem to speak of this one
                path.unlink(missing_ok=True)


def missing_file(out: Path) -> Path:
    """Return the file that lists the images without a usable file."""
    return out.with_name(f"{out.stem}.missing.csv")


def oddities_file(out: Path) -> Path:
    """Return the file that lists every odd case or image."""
    return out.with_name(f"{out.stem}.oddities.csv")


def as_document(built: Built) -> dict[str, object]:
    """Return what was made and found as a document for a program to read."""
    out = Path(built.manifest.path)
    return {
        "manifest": str(out),
        "counts": asdict(built.counts),
        "findings": [_document(found) for found in built.findings],
        "missing": str(missing_file(out)) if built.missing else None,
        "oddities": str(oddities_file(out)) if _oddities(built.findings) else None,
    }


def _folder(images: str | None, *, look: bool) -> Path | None:
    """Return the user's folder of images, if one was named."""
    if images is not None and not images.strip():
        raise InputError("images: expected a folder or a URL, found an empty text")
    if images is None or is_url(images):
        return None
    folder = Path(with_slashes(images))
    if look and not folder.is_dir():
        raise InputError(
            f"{images}: no such folder; --no-files makes the manifest without looking for images"
        )
    return folder


def _document(found: Finding) -> dict[str, object]:
    return {**asdict(found), "severity": str(found.severity), "items": [asdict(item) for item in found.items]}


def _oddities(findings: Findings) -> list[dict[str, object]]:
    failed = "files-present"  # listed in a file of its own
    return [
        {"check": found.check, **asdict(item)}
        for found in findings
        if found.check != failed
        for item in found.items
    ]


def _rows_bytes(columns: Sequence[str], rows: Iterable[dict[str, object]]) -> bytes | None:
    rows = list(rows)
    return write_rows(columns, rows) if rows else None


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


def _refuse_foreign(path: Path) -> None:
    """Refuse to replace or remove a file beside the manifest that this command has not written."""
    if not path.exists():
        return
    headers = {",".join(columns).encode() + b"\n" for columns in (MISSING_COLUMNS, ODDITY_COLUMNS)}
    with path.open("rb") as file:
        if file.readline() not in headers:
            raise InputError(
                f"{path}: expected no file there, or one of an earlier manifest; choose another --out"
            )
