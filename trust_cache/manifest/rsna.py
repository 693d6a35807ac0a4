"""RSNA's train.csv: a column for everything, and a file path made of two of them."""

from functools import cache

import polars as pl

from trust_cache.manifest import oddities, requirements
from trust_cache.manifest.adapter import Adapter, text_columns
from trust_cache.manifest.descriptions import Description, describe_data_set
from trust_cache.manifest.evidence import age_of, label_of, laterality_of, value
from trust_cache.manifest.verbatim import Metadata

_STANDARD = ("image", "case", "label", "laterality", "projection")


@cache
def rsna_adapter() -> Adapter:
    """Return the adapter of RSNA's metadata."""
    description = describe_data_set("rsna")
    used = tuple(description.layout[part] for part in _STANDARD)
    return Adapter(
        name="rsna",
        required=used,
        used=used,
        read=lambda metadata: _read(metadata, description),
        requirements=(
            requirements.ids_given,
            requirements.images_distinct,
            requirements.labels_binary,
            requirements.lateralities_known,
            requirements.lateralities_given,
        ),
        oddities=(
            oddities.images_plausible,
            oddities.ages_agree,
            oddities.ages_given,
            oddities.standard_images_given,
            oddities.breasts_agree,
        ),
        expected=description.expected,
    )


def _read(metadata: Metadata, description: Description) -> pl.DataFrame:
    layout = description.layout
    images = text_columns(
        metadata,
        image_id=layout["image"],
        case_id=layout["case"],
        label_text=layout["label"],
        laterality_text=layout["laterality"],
        projection=layout["projection"],
    )
    images = images.with_columns(value("laterality_text"))
    images = images.with_columns(
        label=label_of(pl.col("label_text")),
        laterality=laterality_of(pl.col("laterality_text")),
        path=pl.format("{}/{}.dcm", "case_id", "image_id"),
    )
    if layout["age"] not in metadata.table.columns:
        return images
    return images.with_columns(metadata.table.select(age_of(layout["age"]).alias("age")))
