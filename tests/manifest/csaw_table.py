"""Synthetic CSAW-CC tables in the published form, with the published counts and traps."""

from pathlib import Path

import polars as pl

PATIENTS, EXAMS, WITH_CANCER, REPEATED = 8_723, 24_694, 873, 12
SIDES = ("Left", "Right")


def csaw_exams(patients: int = PATIENTS, exams: int = EXAMS, with_cancer: int = WITH_CANCER) -> pl.DataFrame:
    """One row per examination: the first patients have cancer, at several times before the diagnosis."""
    number = pl.DataFrame({"number": range(patients)})
    least, more = divmod(exams, patients)
    count = least + (pl.col("number") < more).cast(pl.Int64)
    table = number.with_columns(exam=pl.int_ranges(0, count), count=count).explode("exam")
    cancer = pl.col("number") < with_cancer
    before = pl.col("count") - 1 - pl.col("exam")  # examinations until the last one
    # Two of three cancers are found by the last examination, the others in the interval after it.
    found_at_once = pl.col("number") % 3 != 0
    timing = pl.when(before > 0).then(3).when(found_at_once).then(1).otherwise(2)
    left = pl.col("number") % 2 == 0
    side = pl.when(left).then(pl.lit("Left")).otherwise(pl.lit("Right"))
    # Of every tenth patient the other side was recalled.
    recalled_left = cancer & (left ^ (pl.col("number") % 10 == 0))
    recalled_right = cancer & ~recalled_left
    return table.with_columns(
        anon_patientid=pl.col("number").cast(pl.String).str.zfill(5),
        exam_year=2008 + 2 * pl.col("exam"),
        x_case=cancer.cast(pl.Int64),
        x_cancer_laterality=pl.when(cancer).then(side).otherwise(pl.lit("NA")),
        rad_timing=pl.when(cancer).then(timing.cast(pl.String)).otherwise(pl.lit("NA")),
        rad_recall=pl.when(cancer & (before == 0)).then(1).otherwise(0),
        rad_recall_type_left=pl.when(recalled_left).then(pl.lit("1")).otherwise(pl.lit("NA")),
        rad_recall_type_right=pl.when(recalled_right).then(pl.lit("1")).otherwise(pl.lit("NA")),
        x_age=1 + pl.col("number") % 2,
    )


def csaw_images(exams: pl.DataFrame, repeated: int = REPEATED) -> pl.DataFrame:
    """Four images of each examination, and a second L CC of the last ones."""
    four = pl.DataFrame(
        {
            "imagelaterality": [side for side in SIDES for _ in range(2)],
            "viewposition": ["CC", "MLO"] * 2,
        }
    )
    images = exams.join(four, how="cross").with_columns(take=pl.lit(1))
    last = exams.tail(repeated).join(four.head(1), how="cross").with_columns(take=pl.lit(2))
    table = pl.concat([images, last]).with_row_index("row")
    return table.with_columns(
        libra_percentdensity=(pl.col("row") % 70).cast(pl.Float64),
        anon_filename=pl.format(
            "{}_20990909_{}_{}_{}.dcm",
            "anon_patientid",
            pl.col("imagelaterality").str.head(1),
            "viewposition",
            10 * pl.col("exam") + pl.col("take"),
        ),
    ).select(
        "anon_patientid", "exam_year", "x_age", "x_case", "x_cancer_laterality", "rad_timing", "rad_recall",
        "rad_recall_type_left", "rad_recall_type_right", "imagelaterality", "viewposition",
        "libra_percentdensity", "anon_filename",
    )  # fmt: skip


def write_csaw(path: Path, images: pl.DataFrame | None = None) -> Path:
    (csaw_images(csaw_exams()) if images is None else images).write_csv(path)
    return path
