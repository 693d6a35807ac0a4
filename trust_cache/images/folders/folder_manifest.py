"""Build the manifest of a folder of DICOM files from their headers, with labels from a table if there is one.

The same code decides as in `triage`: which entries are images, of which case, side and projection. Patients
are told apart by PatientID (by name and birth date where it is empty) and named by the least of their cases:
even a digest of a short id could be reversed by trying all of them.
"""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from trust_cache.images.folders.folder_cases import FolderFile, ScannedFolder, scan_files
from trust_cache.images.folders.folder_labels import (
    UNLABELLED,
    FolderLabels,
    join_folder_labels,
    read_folder_labels,
)
from trust_cache.images.folders.header_files import HeaderFiles
from trust_cache.manifest import manifest_checks as checks
from trust_cache.manifest.build_manifest import BuiltManifest, ManifestWork, build_from_tables, files_beside
from trust_cache.manifest.cases import merge_names
from trust_cache.manifest.datasets.dataset import Dataset
from trust_cache.manifest.dicom_headers import ImageHeader, digest_identity
from trust_cache.manifest.manifest_file import images_prefix
from trust_cache.manifest.metadata_file import Metadata
from trust_cache.manifest.picture_checks import check_of

_UNEXPLAINED = "unexplained"


def build_folder_manifest(
    folder: Path,
    out: Path,
    *,
    labels: Path | None = None,
    tags: bool = False,
    overwrite: bool = False,
) -> BuiltManifest:
    """Build the manifest of a folder and write it; without `labels` its label column is empty."""
    given = None if labels is None else read_folder_labels(labels)
    own = [out, *files_beside(out), *([] if labels is None else [labels])]
    scanned = scan_files(folder, own)
    table, findings = _rows(scanned)
    unused: list[checks.Item] = []
    dataset = Dataset(
        required=tuple(table.columns),
        read=partial(_read, labels=given, unused=unused),
        errors=(checks.ids_given, checks.images_distinct),
        warnings=(lambda _: _findings(findings, unused), checks.standard_images_given),
        added=("patient_id",),
    )
    work = ManifestWork(
        out=out,
        prefix=images_prefix(str(folder), out),
        folder=folder,
        look=False,
        overwrite=overwrite,
        files=HeaderFiles(),
        tags=tags,
        metadata=() if labels is None else (labels,),
    )
    lines = pl.Series("line", range(1, table.height + 1), dtype=pl.Int64)
    built = build_from_tables(dataset, [Metadata(table, lines, str(folder))], work)
    return replace(built, entries=scanned.counts.sentence)


def _rows(scanned: ScannedFolder) -> tuple[pl.DataFrame, list[checks.Item]]:
    """Return one row per image, and what is wrong with each; an unexplained entry is a row of its case."""
    rows, items = [], []
    for file in scanned.files:
        rows.append(_row(file, file.case_id))
        found = (*(file.header.findings if file.header else ()), *file.image.findings)
        # An image that cannot be decoded has the findings of its header too.
        items += [checks.Item(file.case_id, file.image.image_id, text) for text in dict.fromkeys(found)]
    for stray in scanned.strays:
        beside = scanned.beside[stray.image.image_id]
        case_id = beside[0] if len(beside) == 1 else scanned.case_of(stray)
        rows.append(_row(stray, case_id))
        items.append(checks.Item(case_id, stray.image.image_id, f"{_UNEXPLAINED}: {stray.image.problem}"))
    columns = ("image_id", "case_id", "laterality", "projection", "path", "patient")
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row"), items


def _row(file: FolderFile, case_id: str) -> tuple[str | None, ...]:
    image = file.image
    # A name that is not UTF-8 cannot be written as it is: its row has no path.
    path = file.name if image.location.endswith(file.name) else None
    return image.image_id, case_id, image.laterality, image.projection, path, _patient(file.header)


def _patient(header: ImageHeader | None) -> str | None:
    """Return the digest of PatientID, or of name and birth date; None where the header names nobody."""
    if header is None:
        return None
    patient_id, *other = header.patient
    return patient_id or (digest_identity(other) if any(other) else None)


def _read(metadata: Metadata, *, labels: FolderLabels | None, unused: list[checks.Item]) -> pl.DataFrame:
    images = metadata.table.with_columns(metadata.lines, laterality_text=pl.col("laterality"))
    # Patients whose images are in one case are one: none of their cases may be in another fold.
    named = images.group_by("case_id").agg(pl.col("patient").drop_nulls().unique().sort())
    same = merge_names(named.sort("case_id")["patient"].to_list())
    images = images.with_columns(pl.col("patient").min().over("case_id"))
    first = pl.col("case_id").min().over(pl.col("patient").replace(same))
    images = images.with_columns(patient_id=pl.when(pl.col("patient").is_not_null()).then(first))
    if labels is None:
        return images.with_columns(label=pl.lit(None, pl.Int8), label_text=pl.lit(None, pl.String))
    joined, lines = join_folder_labels(images, labels)
    unused += [checks.Item(None, None, f"line {line}") for line in lines]
    left_out = pl.when(pl.col("label").is_null()).then(pl.lit(f"{UNLABELLED} in {labels.source}"))
    return joined.with_columns(left_out=left_out, label_text=pl.col("label").cast(pl.String))


def _findings(items: list[checks.Item], unused: list[checks.Item]) -> checks.Findings:
    """Return one finding for each check of headers; the cases are reviewed under a protocol with gates."""
    by_check: dict[str, list[checks.Item]] = defaultdict(list)
    for item in items:
        by_check[check_of(item.found) or _UNEXPLAINED].append(item)
    summary = f"{checks.counted(len(unused), 'label')} of no image in the folder"
    found = list(checks.finding("labels-used", summary, unused))
    for check, members in by_check.items():
        images = len({item.image_id for item in members})
        found += checks.finding(check, f"{checks.counted(images, 'image')} to look at", members)
    return tuple(found)
