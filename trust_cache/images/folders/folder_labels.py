"""Join a table of labels to the images of a folder: by file, by case, or by patient, each also by side."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from trust_cache.base.csv_tables import LINE
from trust_cache.base.errors import InputError
from trust_cache.base.table_files import as_ids, as_labels, read_table_file
from trust_cache.manifest.dicom_headers import digest_identity
from trust_cache.manifest.manifest_checks import counted
from trust_cache.manifest.metadata_file import laterality_of

LABEL, SIDE = "label", "laterality"
# The columns that name an image, a case or a patient; the first that the table has counts.
KEYS = {"path": "file", "file": "file", "image_id": "file", "case_id": "case", "patient_id": "patient"}
_FORM = 40  # characters
UNLABELLED = "without a label"


@dataclass(frozen=True)
class FolderLabels:
    """One row per label: `key` (text or digest), `laterality` or null for both sides, `label`, LINE."""

    table: pl.DataFrame
    kind: str  # file, case or patient
    source: str
    column: str = ""  # with the keys
    form: str = ""  # of the keys, without their letters and digits


def read_folder_labels(path: Path) -> FolderLabels:
    """Read a table of labels: CSV, Parquet or Excel."""
    table = read_table_file(path).table
    column = next((name for name in KEYS if name in table.columns), None)
    if column is None or LABEL not in table.columns:
        names = ", ".join(name for name in table.columns if name != LINE)
        raise InputError(
            f"{path}: expected the column {LABEL} and one of {', '.join(KEYS)}, with {SIDE} for labels of"
            f" single breasts; found {names}"
        )
    kind = KEYS[column]
    labels = as_labels(table[LABEL], None, str(path)).rename(LABEL)
    given = table[LABEL].cast(pl.String)
    wrong = table.filter(given.is_not_null() & ~labels.is_in([0.0, 1.0]).fill_null(value=False))
    if wrong.height:
        raise InputError(
            f"{path}, line {wrong[LINE][0]}: expected a label of 0 or 1, found {wrong[LABEL][0]!r}"
            f" ({counted(wrong.height, 'row')} in all)"
        )
    keys = as_ids(table[column], str(path)).str.strip_chars()
    side = table[SIDE].cast(pl.String) if SIDE in table.columns else pl.Series([None] * table.height)
    side = side.cast(pl.String).str.strip_chars()
    made = pl.DataFrame(
        {
            "key": pl.Series([_key(text, kind) for text in keys], dtype=pl.String),
            SIDE: pl.select(laterality_of(pl.lit(side))).to_series(),
            LABEL: labels.cast(pl.Int8),
            LINE: table[LINE],
        }
    )
    strange = made.filter(made[SIDE].is_null() & side.is_not_null())
    if strange.height:
        raise InputError(f"{path}, line {strange[LINE][0]}: expected a {SIDE} of L, R or nothing")
    shapes = keys if kind == "patient" else made["key"]  # of a patient the key is a digest
    labelled = _distinct(made.drop_nulls(["key", LABEL]), str(path))
    return FolderLabels(labelled, kind, str(path), column, _form_of(shapes.drop_nulls()))


def _form_of(keys: pl.Series) -> str:
    """Return the commonest form of keys: each run of digits as 9, each run of letters as a."""
    forms = Counter(re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "9", key))[:_FORM] for key in keys)
    return min(forms, key=lambda form: (-forms[form], form), default="")


def _key(text: str | None, kind: str) -> str | None:
    if not text:
        return None
    if kind == "patient":
        return digest_identity([text])
    return text.replace("\\", "/").removeprefix("./").removesuffix(".dcm") if kind == "file" else text


def _distinct(table: pl.DataFrame, source: str) -> pl.DataFrame:
    labels = table.group_by("key", SIDE).agg(pl.col(LABEL).n_unique().alias("labels"), pl.col(LINE))
    mixed = labels.filter(pl.col("labels") > 1).sort(pl.col(LINE).list.first())
    if mixed.height:
        lines = ", ".join(map(str, mixed[LINE][0].to_list()))
        raise InputError(
            f"{source}, lines {lines}: expected one label of an image, case or breast, found two"
        )
    return table.unique(["key", SIDE], keep="first", maintain_order=True)


def join_folder_labels(images: pl.DataFrame, labels: FolderLabels) -> tuple[pl.DataFrame, list[int]]:
    """Return the images with `label`, null without one, and the lines of labels that no image has.

    `case_positive` is of the whole case: its only positive label may be of a side without an image.
    `images` has image_id, case_id, laterality and `patient`, the digest of its PatientID. An image of an
    unknown side in a labelled case has the highest label of the case: it may be of the affected side.
    """
    column = {"file": "image_id", "case": "case_id", "patient": "patient"}[labels.kind]
    suffix = r"\.dcm$"
    keyed = images.with_columns(key=pl.col(column).str.replace(suffix, "")).with_row_index("row")
    found = keyed.join(labels.table, on="key", how="inner", suffix="_given")
    side = pl.col(f"{SIDE}_given")
    fitting = found.filter(side.is_null() | (side == pl.col(SIDE)))
    if fitting.is_empty():
        raise InputError(_none_fits(keyed, labels, of_keys=found.height > 0))
    if labels.kind == "patient":
        _refuse_several_cases(fitting, labels.source)
    of_image = fitting.group_by("row").agg(pl.col(LABEL).max())
    joined = keyed.join(of_image, on="row", how="left", maintain_order="left")
    of_case = found.group_by("case_id").agg(pl.col(LABEL).max().alias("of_case"))
    joined = joined.join(of_case, on="case_id", how="left", maintain_order="left")
    label = pl.when(pl.col(SIDE).is_null()).then(pl.coalesce(LABEL, "of_case")).otherwise(LABEL)
    unused = labels.table.filter(~pl.col(LINE).is_in(fitting[LINE].unique().implode()))
    joined = joined.with_columns(label.alias(LABEL), case_positive=(pl.col("of_case") == 1))
    return joined.drop("row", "key", "of_case"), unused[LINE].to_list()


def _none_fits(keyed: pl.DataFrame, labels: FolderLabels, *, of_keys: bool) -> str:
    """Say which keys the file and the folder have, without a word of a patient's header."""
    start = (
        f"{labels.source}: expected labels of the images in the folder, found none that fits by {labels.kind}"
    )
    if of_keys:
        return f"{start} and {SIDE}: the keys are there, but no image of the side that is labelled"
    keys = keyed["key"].drop_nulls().unique()
    number, here = labels.table["key"].n_unique(), keys.filter(keys != "").len()
    names = {"file": "file", "case": "StudyInstanceUID", "patient": "PatientID"}
    # Of a PatientID only a digest is kept: its form is not known.
    form = "" if labels.kind == "patient" else f" of the form {_form_of(keys)}"
    return (
        f"{start}: the file has {counted(number, 'key')} of the form {labels.form} in the column"
        f" {labels.column}, the folder {counted(here, names[labels.kind])}{form}"
    )


def _refuse_several_cases(found: pl.DataFrame, source: str) -> None:
    """Refuse a label by patient where she has several cases: it is of one of them."""
    several = found.group_by("key").agg(pl.col("case_id").n_unique(), pl.col(LINE).min())
    wrong = several.filter(pl.col("case_id") > 1).sort(LINE)
    if wrong.height:
        raise InputError(
            f"{source}, line {wrong[LINE][0]}: the patient has {wrong['case_id'][0]} cases in the folder;"
            " expected labels by case_id (the StudyInstanceUID) or by file"
        )
