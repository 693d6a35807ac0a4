"""NLBS's NLBSD_Metadata.csv: case, side, cancer and projection stand in the folders of a Windows path."""

from functools import cache

import polars as pl

from trust_cache.manifest import oddities, requirements
from trust_cache.manifest.adapter import Adapter, text_columns
from trust_cache.manifest.descriptions import Description, describe_data_set
from trust_cache.manifest.evidence import age_of, label_of, laterality_of, value
from trust_cache.manifest.findings import Findings, Item, Severity, counted, finding
from trust_cache.manifest.verbatim import Metadata

LAYOUT = "<category>/p_XXXX/<left|right>[-c]/<projection>/<name>.dcm"
_PATH = (
    r"^(?<category>[^/]+)/(?<case_id>p_[^/]+)/(?<side>(?i:left|right))(?<cancer>(?i:-c)?)"
    r"/(?<folder_projection>[^/]+)/[^/]+\.(?i:dcm)$"
)
_USED = ("path", "label", "laterality", "projection")


@cache
def nlbs_adapter() -> Adapter:
    """Return the adapter of NLBS's metadata."""
    description = describe_data_set("nlbs")
    used = tuple(description.layout[part] for part in _USED)
    return Adapter(
        name="nlbs",
        required=used,
        used=used,
        read=lambda metadata: _read(metadata, description),
        requirements=(
            paths_known,
            requirements.images_distinct,
            requirements.labels_binary,
            requirements.lateralities_known,
        ),
        oddities=(
            oddities.images_plausible,
            oddities.ages_agree,
            oddities.ages_given,
            oddities.standard_images_given,
            oddities.lateralities_read,
            oddities.lateralities_agree,
            oddities.projections_agree,
            oddities.labels_agree,
            oddities.categories_known,
            oddities.categories_agree,
        ),
        expected=description.expected,
    )


def paths_known(images: pl.DataFrame) -> Findings:
    """Every path has the published layout: the case's name stands in it and nowhere else."""
    strange = images.filter(pl.col("case_id").is_null())
    items = [
        Item(None, path or "nothing", f"line {line}")
        for path, line in strange.select("path", "line").iter_rows()
    ]
    summary = f"expected paths {LAYOUT}, found others on {counted(len(items), 'row')}"
    return finding("paths-known", Severity.ERROR, summary, items)


def _read(metadata: Metadata, description: Description) -> pl.DataFrame:
    layout = description.layout
    images = text_columns(
        metadata,
        path=layout["path"],
        label_text=layout["label"],
        laterality_text=layout["laterality"],
        projection=layout["projection"],
    )
    path = pl.col("path").str.replace_all("\\", "/", literal=True).str.replace(r"^(?:\.?/)+", "")
    images = images.with_columns(path.alias("path"), value("laterality_text"), value("projection"))
    parts = pl.col("path").str.extract_groups(_PATH)
    images = images.with_columns(parts.alias("parts")).unnest("parts")
    images = images.with_columns(
        image_id=pl.col("path").str.replace(r"\.(?i:dcm)$", ""),
        label=label_of(pl.col("label_text")),
        folder_laterality=laterality_of(pl.col("side")),
        folder_label=pl.when(pl.col("case_id").is_not_null()).then(pl.col("cancer") != "").cast(pl.Int8),
    )
    # What the metadata lack the folders tell; where both speak, the metadata are kept.
    missing = pl.col("laterality_text").is_null()
    images = images.with_columns(
        laterality=pl.when(missing)
        .then(pl.col("folder_laterality"))
        .otherwise(laterality_of(pl.col("laterality_text"))),
        projection=pl.coalesce("projection", "folder_projection"),
    )
    if layout["age"] not in metadata.table.columns:
        return images
    return images.with_columns(metadata.table.select(age_of(layout["age"]).alias("age")))
