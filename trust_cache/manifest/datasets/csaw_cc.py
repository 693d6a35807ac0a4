"""CSAW-CC: one row per image; the time from examination to diagnosis makes the label, on the cancer's side.

A patient has several years with different times, so a label by patient (`x_case`) would be wrong. The date in
the file names is constant and says nothing.
"""

from functools import partial

import polars as pl

from trust_cache.manifest import manifest_checks as checks
from trust_cache.manifest.datasets.dataset import Dataset, describe_dataset
from trust_cache.manifest.metadata_file import (
    SIDES,
    Metadata,
    code_of,
    id_of,
    laterality_of,
    read_images,
    require_codes,
    value,
)

# rad_timing: 1 within 60 days, 2 within 60 to 729 days (interval cancer), 3 later.
TIMINGS = {"screen": (1,), "screen+interval": (1, 2)}
_LATER = 3
RECALLS = {"rad_recall_type_left": "L", "rad_recall_type_right": "R"}  # where the table has them
_NOT_RECALLED = ("0", "false", "no")
_BOTH = ("b", "both", "bilateral", "left/right", "right/left")


def dataset(label_horizon: str | None = "screen") -> Dataset:
    """Return the data set with the labels of a horizon."""
    description = describe_dataset("csaw-cc")
    layout = description.layout
    parts = ("patient", "laterality", "projection", "image", "year", "timing", "cancer_side", "patient_label")
    horizon = label_horizon or "screen"
    return Dataset(
        required=tuple(layout[part] for part in parts),
        kept=tuple(layout[part] for part in parts[4:]),
        read=partial(_read, timings=TIMINGS[horizon]),
        errors=(
            checks.ids_given,
            checks.ids_whole,
            checks.images_distinct,
            checks.lateralities_known,
            checks.lateralities_given,
            checks.projections_known,
            timings_known,
        ),
        warnings=(
            checks.images_plausible,
            checks.standard_images_given,
            checks.projections_distinct,
            timings_agree,
            sides_given,
            recall_sides_agree,
            patients_agree,
        ),
        expected=description.releases,
        table=layout["metadata"],
        known=tuple(RECALLS),
        added=("patient_id",),
        label_definition=horizon,
    )


def _read(metadata: Metadata, *, timings: tuple[int, ...]) -> pl.DataFrame:
    layout = describe_dataset("csaw-cc").layout
    images = read_images(
        metadata,
        image_id=layout["image"],
        label_text=layout["timing"],
        laterality_text=layout["laterality"],
        projection=layout["projection"],
    )
    require_codes(metadata, layout["cancer_side"], (*SIDES, *_BOTH), "Left, Right, both")
    require_codes(metadata, layout["patient_label"], ("0", "1"))
    side = value(layout["cancer_side"]).str.to_lowercase()
    recalled = [
        pl.when(~id_of(column).str.to_lowercase().is_in(_NOT_RECALLED)).then(pl.lit(letter))
        for column, letter in RECALLS.items()
        if column in metadata.table.columns
    ]
    of_table = metadata.table.select(
        patient_id=id_of(layout["patient"]),
        year=id_of(layout["year"]),
        timing=code_of(layout["timing"]),
        timing_text=value(layout["timing"]),
        cancer_side=pl.when(side.is_in(_BOTH)).then(pl.lit("B")).otherwise(laterality_of(side)),
        patient_label=code_of(layout["patient_label"]),
        recalled=pl.concat_list(recalled).list.drop_nulls() if recalled else pl.lit(None, pl.List(pl.String)),
    )
    images = pl.concat([images, of_table], how="horizontal")
    here = (pl.col("cancer_side") == pl.col("laterality")) | (pl.col("cancer_side") == "B")
    in_time = pl.col("timing").is_in(timings).fill_null(value=False)
    positive = in_time & (here | pl.col("cancer_side").is_null())
    unknown = (pl.col("patient_label") == 1) & pl.col("timing_text").is_null()
    path = pl.col("image_id").str.replace_all("\\", "/", literal=True)
    images = images.with_columns(
        image_id=path.str.replace(r"\.(?i:dcm)$", ""),
        path=path,
        case_id=pl.concat_str("patient_id", "year", separator="_"),
        label=positive.fill_null(value=False).cast(pl.Int8),
        case_positive=in_time,
    )
    return images.with_columns(
        left_out=pl.when(checks.repeated("image_id", "case_id", "laterality", "projection", "label"))
        .then(pl.lit(checks.AGAIN))
        .when(unknown)
        .then(pl.lit("of a patient with cancer at an unknown time (no rad_timing)")),
    )


def timings_known(images: pl.DataFrame) -> checks.Findings:
    """Every time that is given is 1, 2 or 3."""
    known = pl.col("timing").is_between(1, _LATER)
    wrong = images.filter(pl.col("timing_text").is_not_null() & ~known.fill_null(value=False))
    text = pl.format("line {}: {}", "line", "timing_text")
    summary = f"expected a rad_timing of 1, 2, 3 or nothing, found others on {wrong.height:,} rows"
    return checks.finding("timings-known", summary, checks.items_of(wrong, text), checks.Severity.ERROR)


def timings_agree(images: pl.DataFrame) -> checks.Findings:
    """All images of a case have one time and one side of the cancer."""
    values = pl.struct("timing", "cancer_side").n_unique()
    several = checks.by_case(images, values=values).filter(pl.col("values") > 1)
    items = [checks.Item(case_id, None, "") for case_id in several["case_id"]]
    summary = f"{checks.counted(len(items), 'case')} whose images have different times or sides of the cancer"
    return checks.finding("timings-agree", summary, items)


def sides_given(images: pl.DataFrame) -> checks.Findings:
    """A case with cancer names its side."""
    without = images.filter((pl.col("label") == 1) & pl.col("cancer_side").is_null())
    cases = without["case_id"].unique(maintain_order=True)
    items = [checks.Item(case_id, None, "") for case_id in cases]
    summary = f"no side of the cancer of {checks.counted(len(items), 'case')}, both breasts count as positive"
    return checks.finding("sides-given", summary, items)


def patients_agree(images: pl.DataFrame) -> checks.Findings:
    """Only patients with cancer have a time to it."""
    wrong = images.filter(pl.col("timing").is_not_null() & (pl.col("patient_label") == 0))
    cases = wrong["case_id"].unique(maintain_order=True)
    items = [checks.Item(case_id, None, "") for case_id in cases]
    number = checks.counted(len(items), "case")
    summary = f"{number} with a rad_timing of patients whose x_case is 0, labelled by it"
    return checks.finding("patients-agree", summary, items)


def recall_sides_agree(images: pl.DataFrame) -> checks.Findings:
    """A recalled case with cancer was recalled for the side of the cancer."""
    positive = images.filter((pl.col("label") == 1) & (pl.col("recalled").list.len() > 0))
    sided = positive.filter(~pl.col("recalled").list.contains(pl.col("laterality")))
    cases = sided["case_id"].unique(maintain_order=True)
    items = [checks.Item(case_id, None, "") for case_id in cases]
    summary = (
        f"{checks.counted(len(items), 'case')} recalled for another side than that of the cancer, labelled by"
        " the cancer's side"
    )
    return checks.finding("recall-sides-agree", summary, items)
