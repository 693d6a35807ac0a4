"""Synthetic EMBED tables in the published form and size; each hundred patients plant one trap."""

from pathlib import Path

import polars as pl

PATIENTS, EXAMS, IMAGES = 22_382, 76_373, 480_323
C_VIEWS, SPOTS, UNKNOWN_EXAMS, MEN, FIVES = 160_000, 14_831, 10, 50, 100
GROUP = 100  # patients of a trap
# By group: the days of the second and third examination after the first. Others are far apart.
_DAYS = {3: (100,), 4: (181,), 5: (365,), 6: (366,), 7: (30, 60)}
_FAR = 700


def embed_exams(patients: int = PATIENTS, exams: int = EXAMS) -> pl.DataFrame:
    """One row per examination with its patient, group, number and date."""
    least, more = divmod(exams, patients)
    count = least + (pl.col("patient") < more).cast(pl.Int64)
    table = pl.DataFrame({"patient": range(patients)}).with_columns(exam=pl.int_ranges(0, count))
    days = pl.col("exam") * _FAR
    for group, planted in _DAYS.items():
        for exam, day in enumerate(planted, start=1):
            here = (pl.col("patient") // GROUP == group) & (pl.col("exam") == exam)
            days = pl.when(here).then(day).otherwise(days)
    return (
        table.explode("exam")
        .with_columns(
            group=pl.col("patient") // GROUP,
            empi_anon=10_000_000 + pl.col("patient"),
            acc_anon=4_349_090_390_214_000 + 10 * pl.col("patient") + pl.col("exam"),
            study_date_anon=pl.date(2013, 1, 1) + pl.duration(days=days),
        )
        .with_row_index("row")
    )


def embed_clinical(exams: pl.DataFrame) -> pl.DataFrame:
    """One finding per examination: its side, assessment and pathology by the group of the patient."""
    group, first = pl.col("group"), pl.col("exam") == 0
    second, third = pl.col("exam") == 1, pl.col("exam") == 2
    severity = (
        pl.when((group == 0) & first).then(0)
        .when(group.is_in([1, 2]) & first).then(1)
        .when(group.is_in([3, 4, 5, 6]) & second).then(0)
        .when((group == 7) & third).then(1)
        .when((group == 8) & first).then(5)
        .when((group == 9) & first).then(2 + pl.col("patient") % 3)
    )  # fmt: skip
    side = (
        pl.when(group.is_in([0, 5, 6, 8])).then(pl.lit("L"))
        .when(group == 1).then(pl.lit("B"))
        .when(group.is_in([3, 4, 7, 9])).then(pl.lit("R"))
    )  # fmt: skip
    recalled = group.is_in([3, 4, 7]) & first
    asses = pl.when(recalled).then(pl.lit("A")).when(severity.is_in([0, 1])).then(pl.lit("S"))
    men = (pl.col("patient") >= 1_000) & (pl.col("patient") < 1_000 + MEN) & first
    without = (pl.col("patient") >= 2_000) & (pl.col("patient") < 2_000 + UNKNOWN_EXAMS) & first
    return exams.filter(~without).select(
        "empi_anon", "acc_anon", "study_date_anon",
        side=side,
        asses=asses.otherwise(pl.lit("N")),
        path_severity=severity.cast(pl.Float64),
        tissueden=pl.when(men).then(5.0).otherwise(2.0),
        age_at_study=pl.lit(61.25),
        loc_num=pl.lit("NA"),
        massshape=pl.lit("NA"),
    )  # fmt: skip


def embed_metadata(exams: pl.DataFrame, c_views: int = C_VIEWS, spots: int = SPOTS) -> pl.DataFrame:
    """Four standard images of each examination, C-views of the first ones, spot views of the first ones."""
    four = pl.DataFrame({"ImageLateralityFinal": ["L", "L", "R", "R"], "ViewPosition": ["CC", "MLO"] * 2})
    whole = exams.join(four, how="cross").with_columns(
        FinalImageType=pl.lit("2D"), spot=pl.lit(None, pl.Float64)
    )
    computed = whole.head(c_views).with_columns(FinalImageType=pl.lit("cview"))
    spot = exams.head(spots).join(four.head(1), how="cross")
    spot = spot.with_columns(FinalImageType=pl.lit("2D"), spot=pl.lit(1.0))
    table = pl.concat([whole, computed, spot]).with_row_index("file")
    return table.select(
        "empi_anon", "acc_anon", "study_date_anon", "ImageLateralityFinal", "ViewPosition", "FinalImageType",
        spot_mag="spot",
        anon_dicom_path=pl.format(
            "/mnt/NAS2/mammo/anon_dicom/cohort_1/{}/{}/{}.dcm", "empi_anon", "acc_anon", "file"
        ),
        Manufacturer=pl.lit("HOLOGIC, Inc."),
    )  # fmt: skip


def write_embed(
    folder: Path, exams: pl.DataFrame, metadata: pl.DataFrame, clinical: pl.DataFrame | None = None
) -> list[Path]:
    paths = [folder / "EMBED_OpenData_metadata.csv", folder / "EMBED_OpenData_clinical.csv"]
    metadata.write_csv(paths[0])
    (embed_clinical(exams) if clinical is None else clinical).write_csv(paths[1])
    return paths
