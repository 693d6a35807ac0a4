"""NLBS's NLBSD_Metadata.csv: the folders of a Windows path name the case, side, cancer and projection."""

import polars as pl

from trust_cache.manifest import manifest_checks as checks
from trust_cache.manifest.datasets.dataset import Dataset, describe_dataset
from trust_cache.manifest.metadata_file import Metadata, laterality_of, read_images, value

LAYOUT = "<category>/p_XXXX/<left|right>[-c]/<projection>/<name>.dcm"
POSITIVE_CATEGORY = "abnormal"
CATEGORIES = ("normal", "False Positive", POSITIVE_CATEGORY)
_PATH = (
    r"^(?<category>[^/]+)/(?<case_id>p_[^/]+)/(?<side>(?i:left|right))(?<cancer>(?i:-c)?)"
    r"/(?<folder_projection>[^/]+)/[^/]+\.(?i:dcm)$"
)


def dataset() -> Dataset:
    """Return the data set."""
    description = describe_dataset("nlbs")
    return Dataset(
        required=tuple(description.layout[part] for part in ("path", "label", "laterality", "projection")),
        read=_read,
        errors=(
            paths_known,
            checks.images_distinct,
            checks.labels_binary,
            checks.lateralities_known,
            checks.projections_known,
        ),
        warnings=(
            *checks.WARNINGS,
            lateralities_read,
            lateralities_agree,
            projections_agree,
            labels_agree,
            categories_known,
            categories_agree,
        ),
        expected=description.releases,
        table="NLBSD_Metadata.csv",
    )


def _read(metadata: Metadata) -> pl.DataFrame:
    layout = describe_dataset("nlbs").layout
    images = read_images(
        metadata,
        ages=[layout["age"]],
        path=layout["path"],
        label_text=layout["label"],
        laterality_text=layout["laterality"],
        projection=layout["projection"],
    )
    path = pl.col("path").str.replace_all("\\", "/", literal=True).str.replace(r"^(?:\.?/)+", "")
    images = images.with_columns(path.alias("path"))
    images = images.with_columns(pl.col("path").str.extract_groups(_PATH).alias("parts")).unnest("parts")
    images = images.with_columns(
        image_id=pl.col("path").str.replace(r"\.(?i:dcm)$", ""),
        folder_laterality=laterality_of(pl.col("side")),
        folder_label=pl.when(pl.col("case_id").is_not_null()).then(pl.col("cancer") != "").cast(pl.Int8),
    )
    # The folders fill in what the metadata lack; where both have a value, the metadata's is kept.
    missing = pl.col("laterality_text").is_null()
    return images.with_columns(
        laterality=pl.when(missing).then(pl.col("folder_laterality")).otherwise(pl.col("laterality")),
        projection=pl.coalesce(value("projection"), "folder_projection"),
    )


def paths_known(images: pl.DataFrame) -> checks.Findings:
    """Every path has the published layout: only the path names the case."""
    strange = images.filter(pl.col("case_id").is_null())
    items = [
        checks.Item(None, path or "nothing", f"line {line}")
        for path, line in strange.select("path", "line").iter_rows()
    ]
    summary = f"expected paths {LAYOUT}, found others on {checks.counted(len(items), 'row')}"
    return checks.finding("paths-known", summary, items, checks.Severity.ERROR)


def lateralities_read(images: pl.DataFrame) -> checks.Findings:
    """No laterality had to be taken from the folder because the metadata have none."""
    taken = images.filter(pl.col("laterality_text").is_null() & pl.col("laterality").is_not_null())
    summary = f"no laterality of {checks.counted_images(taken)}, taken from the side folder"
    return checks.finding("lateralities-read", summary, checks.items_of(taken))


def lateralities_agree(images: pl.DataFrame) -> checks.Findings:
    """The laterality is that of the folder."""
    wrong = images.filter(pl.col("laterality") != pl.col("folder_laterality"))
    text = pl.format("laterality {}, folder {}", "laterality", "folder_laterality")
    number = checks.counted_images(wrong)
    summary = f"laterality and side folder disagree for {number}, the metadata's is kept"
    return checks.finding("lateralities-agree", summary, checks.items_of(wrong, text))


def projections_agree(images: pl.DataFrame) -> checks.Findings:
    """The projection is that of the folder."""
    given = pl.col("projection").str.to_uppercase()
    wrong = images.filter(given != pl.col("folder_projection").str.to_uppercase())
    text = pl.format("projection {}, folder {}", "projection", "folder_projection")
    summary = f"projection and folder disagree for {checks.counted_images(wrong)}, the metadata's is kept"
    return checks.finding("projections-agree", summary, checks.items_of(wrong, text))


def labels_agree(images: pl.DataFrame) -> checks.Findings:
    """An image is positive iff its side folder is that of a cancer (`-c`)."""
    wrong = images.filter(pl.col("label") != pl.col("folder_label"))
    text = pl.format("label {}, side folder {}", "label", "folder_label")
    number = checks.counted_images(wrong)
    summary = f"label and side folder (-c is cancer) disagree for {number}, the metadata's is kept"
    return checks.finding("labels-agree", summary, checks.items_of(wrong, text))


def categories_known(images: pl.DataFrame) -> checks.Findings:
    """Every category is one of the published three."""
    strange = images.filter(~pl.col("category").is_in(CATEGORIES))
    summary = f"a category other than {', '.join(CATEGORIES)} of {checks.counted_images(strange)}"
    return checks.finding("categories-known", summary, checks.items_of(strange, pl.col("category")))


def categories_agree(images: pl.DataFrame) -> checks.Findings:
    """A case is in one category, and exactly the cases of `abnormal` have positive images."""
    categories = pl.col("category").unique(maintain_order=True)
    cases = checks.by_case(images, categories=categories, label=pl.col("label").max())
    spread = cases.filter(pl.col("categories").list.len() > 1)
    one = cases.filter(pl.col("categories").list.len() == 1).with_columns(pl.col("categories").list.first())
    wrong = one.filter((pl.col("categories") == POSITIVE_CATEGORY) != (pl.col("label") == 1))
    items = [
        checks.Item(case_id, None, f"in {' and '.join(found)}") for case_id, found, _ in spread.iter_rows()
    ]
    items += [
        checks.Item(case_id, None, f"in {found}, {'a' if label else 'no'} positive image")
        for case_id, found, label in wrong.iter_rows()
    ]
    summary = f"{checks.counted(len(items), 'case')} whose category does not fit"
    return checks.finding("categories-agree", summary, items)
