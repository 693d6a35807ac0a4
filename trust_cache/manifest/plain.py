"""A plain CSV file with the manifest's own column names, as users make it for a data set of theirs."""

from functools import cache

import polars as pl

from trust_cache.manifest import oddities, requirements
from trust_cache.manifest.adapter import Adapter, first_of, text_columns
from trust_cache.manifest.evidence import STANDARD, age_of, label_of, laterality_of, value
from trust_cache.manifest.verbatim import Metadata

REQUIRED = ("image_id", "case_id", "label")
_OPTIONAL = ("laterality", "projection", "path")  # features made elsewhere do without
_AGES = ("age", "Age")


@cache
def plain_adapter() -> Adapter:
    """Return the adapter of a CSV file that has the manifest's columns already."""
    return Adapter(
        name="csv",
        required=REQUIRED,
        used=STANDARD,
        read=_read,
        requirements=(
            requirements.ids_given,
            requirements.images_distinct,
            requirements.labels_binary,
            requirements.lateralities_known,
        ),
        oddities=(
            oddities.lateralities_present,
            oddities.paths_present,
            oddities.files_distinct,
            oddities.images_plausible,
            oddities.ages_agree,
            oddities.ages_given,
            oddities.standard_images_given,
        ),
    )


def _read(metadata: Metadata) -> pl.DataFrame:
    table = metadata.table
    absent = [pl.lit(None, dtype=pl.String).alias(name) for name in _OPTIONAL if name not in table.columns]
    images = text_columns(
        Metadata(table.with_columns(absent), metadata.lines, metadata.source),
        image_id="image_id",
        case_id="case_id",
        label_text="label",
        laterality_text="laterality",
        projection="projection",
        path="path",
    )
    images = images.with_columns(value("laterality_text"))
    images = images.with_columns(
        label=label_of(pl.col("label_text")), laterality=laterality_of(pl.col("laterality_text"))
    )
    age = first_of(_AGES, table)
    return images if age is None else images.with_columns(table.select(age_of(age).alias("age")))
