"""RSNA's train.csv: every fact has a column, and a file's path is made of two of them."""

import polars as pl

from trust_cache.manifest.datasets.dataset import Dataset, describe_dataset
from trust_cache.manifest.manifest_checks import (
    ERRORS,
    WARNINGS,
    breasts_agree,
    lateralities_given,
    projections_known,
)
from trust_cache.manifest.metadata_file import Metadata, id_of, read_images


def dataset() -> Dataset:
    """Return the data set."""
    description = describe_dataset("rsna")
    layout = description.layout
    return Dataset(
        required=tuple(layout[part] for part in ("image", "case", "label", "laterality", "projection")),
        read=_read,
        errors=(*ERRORS, lateralities_given, projections_known),
        warnings=(*WARNINGS, breasts_agree),
        expected=description.releases,
        table="train.csv",
        hints={layout["label"]: ". RSNA's test.csv has no labels: use train.csv"},
    )


def _read(metadata: Metadata) -> pl.DataFrame:
    layout = describe_dataset("rsna").layout
    images = read_images(
        metadata,
        ages=[layout["age"]],
        image_id=layout["image"],
        case_id=layout["case"],
        label_text=layout["label"],
        laterality_text=layout["laterality"],
        projection=layout["projection"],
    )
    images = images.with_columns(id_of(name) for name in ("image_id", "case_id"))
    return images.with_columns(path=pl.format("{}/{}.dcm", "case_id", "image_id"))
