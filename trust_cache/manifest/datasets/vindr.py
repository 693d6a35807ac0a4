"""VinDr-Mammo's breast-level annotations: a reader's BI-RADS category of each breast, and no pathology."""

from functools import partial

import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.manifest import manifest_checks as checks
from trust_cache.manifest.datasets.dataset import Dataset, describe_dataset
from trust_cache.manifest.metadata_file import Metadata, id_of, read_images, require_codes, value

_CATEGORY = r"(?i)^(?:BI[ _-]?RADS)?[ :_-]*([0-6])(?:\.0)?$"
_OF_FINDINGS = "finding_categories"  # a column of finding_annotations.csv, which has a row per finding
_LEAST, _MOST = 1, 5  # the categories that readers gave


def dataset(birads: str | None = None) -> Dataset:
    """Return the data set; breasts of at least the category `birads` are positive."""
    description = describe_dataset("vindr")
    layout = description.layout
    return Dataset(
        required=tuple(layout[part] for part in ("image", "case", "laterality", "projection", "label")),
        kept=(layout["label"],),
        read=partial(_read, least=int(birads or _MOST)),
        errors=(
            checks.ids_given,
            checks.ids_whole,
            checks.images_distinct,
            checks.lateralities_known,
            checks.lateralities_given,
            checks.projections_known,
            categories_given,
        ),
        warnings=(
            checks.images_plausible,
            checks.standard_images_given,
            checks.projections_distinct,
            checks.breasts_agree,
            series_agree,
            densities_agree,
        ),
        expected=description.releases,
        table=layout["metadata"],
        known=(layout["series"], layout["density"], _OF_FINDINGS),
        label_definition=f"birads-{birads}",
    )


def _read(metadata: Metadata, *, least: int) -> pl.DataFrame:
    layout = describe_dataset("vindr").layout
    if _OF_FINDINGS in metadata.table.columns:
        raise InputError(
            f"{metadata.source}: expected {layout['metadata']} with one row per image, found the table of"
            f" findings (column {_OF_FINDINGS})"
        )
    if layout["density"] in metadata.table.columns:
        words = [f"{start}{letter}" for start in ("DENSITY ", "") for letter in "ABCD"]
        require_codes(metadata, layout["density"], words, "DENSITY A to DENSITY D")
    images = read_images(
        metadata,
        image_id=layout["image"],
        case_id=layout["case"],
        label_text=layout["label"],
        laterality_text=layout["laterality"],
        projection=layout["projection"],
    )
    absent = pl.lit(None, pl.String)
    columns = metadata.table.columns
    of_table = metadata.table.select(
        category_text=value(layout["label"]),
        series=id_of(layout["series"]) if layout["series"] in columns else absent,
        density=value(layout["density"]) if layout["density"] in columns else absent,
    )
    images = pl.concat([images, of_table], how="horizontal")
    category = pl.col("category_text").str.extract(_CATEGORY).cast(pl.Int8)
    known = pl.when(category.is_between(_LEAST, _MOST)).then(category)
    images = images.with_columns(
        label=(known >= least).cast(pl.Int8), path=pl.format("images/{}/{}.dicom", "case_id", "image_id")
    )
    again = checks.repeated("image_id", "case_id", "laterality", "projection", "label")
    return images.with_columns(left_out=pl.when(again).then(pl.lit(checks.AGAIN)))


def categories_given(images: pl.DataFrame) -> checks.Findings:
    """Every breast has a BI-RADS category of 1 to 5."""
    wrong = images.filter(pl.col("label").is_null())
    text = pl.format("line {}: {}", "line", pl.col("label_text").fill_null("nothing"))
    summary = f"expected BI-RADS 1 to BI-RADS 5, found others on {checks.counted(wrong.height, 'row')}"
    return checks.finding("categories-given", summary, checks.items_of(wrong, text), checks.Severity.ERROR)


def series_agree(images: pl.DataFrame) -> checks.Findings:
    """All images of a case are of one series."""
    series = checks.by_case(images, series=pl.col("series").drop_nulls().n_unique())
    items = [
        checks.Item(case_id, None, f"{number} series")
        for case_id, number in series.filter(pl.col("series") > 1).iter_rows()
    ]
    summary = f"{checks.counted(len(items), 'case')} with images of several series"
    return checks.finding("series-agree", summary, items)


def densities_agree(images: pl.DataFrame) -> checks.Findings:
    """Both breasts of a case have one density."""
    found = checks.by_case(images, densities=pl.col("density").drop_nulls().unique().sort())
    items = [
        checks.Item(case_id, None, " and ".join(densities))
        for case_id, densities in found.filter(pl.col("densities").list.len() > 1).iter_rows()
    ]
    summary = f"{checks.counted(len(items), 'case')} whose breasts have different densities"
    return checks.finding("densities-agree", summary, items)
