"""CMMD: TCIA's table of series lists the files, their headers name the sides, the clinical table the labels.

A breast without a row in the clinical table has no label: it is not proven normal, and its images are left
out.
"""

from collections.abc import Callable, Sequence

import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.manifest import manifest_checks as checks
from trust_cache.manifest.datasets.dataset import Dataset, MetadataTable, describe_dataset
from trust_cache.manifest.dicom_headers import ImageHeader
from trust_cache.manifest.metadata_file import (
    Metadata,
    code_of,
    id_of,
    laterality_of,
    require_shared,
    value,
)

_CLASSES = {"benign": 0, "malignant": 1}
# The pictures of these pairs are equal: each pair is one patient here. The labels of the second pair differ.
SAME_PICTURES = (("D1-0202", "D2-0284"), ("D1-0808", "D1-1292"))
_OF_BREASTS = ("Age", "abnormality", "subtype")  # where the clinical table has them


def dataset() -> Dataset:
    """Return the data set."""
    description = describe_dataset("cmmd")
    layout = description.layout
    return Dataset(
        required=tuple(layout[part] for part in ("case", "folder", "number")),
        read=_read,
        errors=(checks.ids_given, checks.images_distinct),
        warnings=(
            checks.images_plausible,
            sides_named,
            labels_used,
            breasts_differ,
            labels_leak,
            pictures_differ,
        ),
        expected=description.releases,
        table=layout["metadata"],
        beside=(
            MetadataTable(
                layout["clinical"],
                tuple(layout[part] for part in ("clinical_case", "side", "label")),
                excel=True,
                known=_OF_BREASTS,
            ),
        ),
        reads_headers=True,
        added=("patient_id", *_OF_BREASTS),
        label_definition="pathology",
    )


def _read(
    metadata: Metadata,
    clinical: Metadata,
    *,
    headers: Callable[[Sequence[str]], Sequence[ImageHeader | None]],
) -> pl.DataFrame:
    images = _files(metadata)
    found = headers(images["path"].to_list())
    side = [None if header is None else header.side for header in found]
    projection = [None if header is None else header.projection for header in found]
    images = images.with_columns(
        laterality=pl.Series(side, dtype=pl.String), projection=pl.Series(projection, dtype=pl.String)
    )
    breasts = _breasts(clinical)
    images = images.join(breasts, on=["case_id", "laterality"], how="left", maintain_order="left")
    worst = breasts.group_by("case_id").agg(worst=pl.col("label").max())
    images = images.join(worst, on="case_id", how="left", maintain_order="left")
    layout = describe_dataset("cmmd").layout
    require_shared(pl.col("worst").is_not_null(), images, metadata, clinical, layout["clinical_case"])
    # An image of an unknown side may be of the affected one: it keeps the label of the case.
    unknown = pl.col("laterality").is_null()
    left_out = (
        pl.when(checks.repeated("image_id", "case_id"))
        .then(pl.lit(checks.AGAIN))
        .when(pl.col("worst").is_null())
        .then(pl.lit("the patient is not in the clinical table"))
        .when(~unknown & pl.col("label").is_null())
        .then(pl.lit("of a breast without a label, which is not proven normal"))
    )
    twin = {other: first for first, other in SAME_PICTURES}
    return images.with_columns(
        left_out=left_out,
        label=pl.when(unknown).then(pl.col("worst")).otherwise(pl.col("label")),
        patient_id=pl.col("case_id").replace(twin),
        laterality_text=pl.col("laterality"),
        case_positive=pl.col("worst") == 1,
        unused=pl.lit(_unused(images, breasts)),
        n_images=pl.col("image_id").n_unique().over("case_id"),
    )


def _unused(images: pl.DataFrame, breasts: pl.DataFrame) -> str:
    """Return the labelled breasts without any image, as one text."""
    known = images.filter(pl.col("laterality").is_not_null())
    lost = breasts.join(known, on=["case_id", "laterality"], how="anti").sort("case_id", "laterality")
    return "\n".join(
        f"{case_id}\t{side}" for case_id, side in lost.select("case_id", "laterality").iter_rows()
    )


def _files(metadata: Metadata) -> pl.DataFrame:
    """Return the files of all series: 1-1.dcm, 1-2.dcm and so on in the folder of each."""
    layout = describe_dataset("cmmd").layout
    folder = value(layout["folder"]).str.replace_all("\\", "/", literal=True)
    series = metadata.table.select(
        metadata.lines,
        case_id=id_of(layout["case"]),
        folder=folder.str.replace(r"^(?:\.?/)+", "").str.strip_chars_end("/"),
        images=code_of(layout["number"]),
    )
    wrong = series.filter((pl.col("images") < 1).fill_null(value=True) | pl.col("folder").is_null())
    if wrong.height:
        raise InputError(
            f"{metadata.source}, line {wrong['line'][0]}: expected a {layout['folder']} and a positive"
            f" {layout['number']}, found none ({checks.counted(wrong.height, 'row')} in all)"
        )
    width = pl.col("images").cast(pl.String).str.len_chars()
    number = pl.col("number").cast(pl.String)
    files = series.with_columns(number=pl.int_ranges(1, pl.col("images") + 1), width=width).explode("number")
    return files.with_columns(
        image_id=pl.format("{}/1-{}", "folder", number.str.pad_start(pl.col("width"), "0"))
    ).with_columns(path=pl.format("{}.dcm", "image_id"))


def _breasts(clinical: Metadata) -> pl.DataFrame:
    """Return one row per labelled breast."""
    layout = describe_dataset("cmmd").layout
    words = value(layout["label"]).str.to_lowercase()
    further = [name for name in _OF_BREASTS if name in clinical.table.columns]
    table = clinical.table.select(
        clinical.lines,
        *further,
        case_id=id_of(layout["clinical_case"]),
        laterality=laterality_of(value(layout["side"])),
        label=words.replace_strict(_CLASSES, default=None, return_dtype=pl.Int8),
    )
    wrong = table.filter(pl.any_horizontal(pl.col("case_id", "laterality", "label").is_null()))
    if wrong.height:
        raise InputError(
            f"{clinical.source}, line {wrong['line'][0]}: expected ID1, LeftRight (L or R) and classification"
            f" (Benign or Malignant), found others ({checks.counted(wrong.height, 'row')} in all)"
        )
    both = table.group_by("case_id", "laterality").agg(pl.col("label").n_unique().alias("labels"))
    mixed = both.filter(pl.col("labels") > 1).sort("case_id")
    if mixed.height:
        raise InputError(
            f"{clinical.source}: expected one classification of a breast, found Benign and Malignant of"
            f" {mixed['case_id'][0]} {mixed['laterality'][0]}"
        )
    return table.drop("line").unique(["case_id", "laterality"], keep="first", maintain_order=True)


def sides_named(images: pl.DataFrame) -> checks.Findings:
    """Every file has a header that names its side."""
    without = images.filter(pl.col("laterality").is_null())
    summary = f"no side in the header of {checks.counted_images(without)}, with the label of the case"
    return checks.finding("sides-named", summary, checks.items_of(without))


def labels_used(images: pl.DataFrame) -> checks.Findings:
    """Every labelled breast has an image."""
    lost = [line.split("\t") for line in images["unused"][0].splitlines()]
    items = [checks.Item(case_id, None, side) for case_id, side in lost]
    summary = f"{checks.counted(len(items), 'labelled breast')} without an image of that side"
    return checks.finding("labels-used", summary, items)


def breasts_differ(images: pl.DataFrame) -> checks.Findings:
    """Both breasts of a case have one label; where they differ, each image has the label of its breast."""
    cases = checks.by_case(images, labels=pl.col("label").n_unique()).filter(pl.col("labels") > 1)
    items = [checks.Item(case_id, None, "") for case_id in cases["case_id"]]
    summary = (
        f"{checks.counted(len(items), 'case')} with one benign and one malignant breast, labelled by breast"
    )
    return checks.finding("breasts-differ", summary, items)


def labels_leak(images: pl.DataFrame) -> checks.Findings:
    """Neither the source of a case nor its number of images says what its label is."""
    cases = checks.by_case(images, label=pl.col("label").max(), number=pl.col("n_images").first())
    source = pl.col("case_id").str.split("-").list.first()
    told = []
    for group in (source, pl.format("{} images", "number")):
        rates = cases.group_by(group.alias("group")).agg(pl.col("label").sum(), pl.len()).sort("group")
        if rates.select((pl.col("label") / pl.col("len")).n_unique()).item() > 1:
            told += [f"{name} {positive:,} of {number:,}" for name, positive, number in rates.iter_rows()]
    if not told:
        return ()
    sentence = (
        f"the id and the number of images predict the label (positive: {', '.join(told)}); a model may learn"
        " them instead of cancer"
    )
    return (checks.Finding("labels-leak", checks.Severity.WARNING, sentence),)


def pictures_differ(images: pl.DataFrame) -> checks.Findings:
    """No two patients have equal pictures."""
    labels = dict(checks.by_case(images, label=pl.col("label").max()).iter_rows())
    words = {0: "benign", 1: "malignant"}
    items = [
        checks.Item(first, None, f"as {other}, {words[labels[first]]} and {words[labels[other]]}")
        for first, other in SAME_PICTURES
        if first in labels and other in labels
    ]
    summary = (
        f"{checks.counted(len(items), 'case')} with the pictures of another, each pair with one patient_id"
    )
    return checks.finding("pictures-differ", summary, items)
