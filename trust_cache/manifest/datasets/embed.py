"""EMBED: a table of image files and a table of findings, joined by examination and side.

The unaffected side often has no finding, and pathology is often only on the later diagnostic examination. So
a side is positive by its own pathology, or by that of the patient's first follow-up.
"""

from functools import partial

import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.manifest import manifest_checks as checks
from trust_cache.manifest.cases import merge_names
from trust_cache.manifest.datasets.dataset import Dataset, MetadataTable, describe_dataset
from trust_cache.manifest.metadata_file import (
    SIDES,
    Metadata,
    code_of,
    id_of,
    laterality_of,
    read_images,
    require_codes,
    require_shared,
    value,
)

CANCER = (0, 1)  # path_severity: invasive, in situ
NEGATIVE_OR_OTHER_CANCER = 5  # negative in the README, non-breast cancer in the notebooks
_CODES = range(7)
# asses, most urgent first: BI-RADS 0, 6, 5, 4, 3, 2, 1, none.
ASSESSMENTS = ("A", "K", "M", "S", "P", "B", "N", "X")
_BOTH_SIDES = "B"
_RECALLED, _NORMAL = ("A",), ("N", "B")
RECALL_DAYS, INTERVAL_DAYS = 180, 365
# Of the clinical table, where it has them and the table of files does not.
_OF_CASES = ("tissueden", "age_at_study", "loc_num", "desc", "study_date_anon")
# Of the table of files, which has hundreds of columns.
_FURTHER = (
    *("cohort_num", "StudyDescription", "SeriesDescription", "PatientAge", "anon_png_path", "num_roi"),
    *("ROI_coords", "Manufacturer", "ManufacturerModelName", "KVP", "Exposure", "ExposureInuAs"),
    *("BodyPartThickness", "CompressionForce", "BreastImplantPresent", "Rows", "Columns"),
)
_BIOPSY_SIDE = "bside"  # of the clinical table, where it has it: the side of the pathology
_SCREENING, _ULTRASOUND = "(?i)screen", r"\bUS\b"  # in desc
_MALE = 5  # tissueden
_FEW_DIFFER = (5, 0.01)  # examinations, or a share of them, with other patients in the other table
_STANDARD = "2D"
_DATES = ("%Y-%m-%d", "%m/%d/%Y", "%Y%m%d", "%Y/%m/%d")
_COHORT = r"(?:^|.*/)(cohort_?\d+/.+)$"  # published paths start with a folder of the publisher's machine


def dataset(label_horizon: str | None = "screen", severity5: str | None = None) -> Dataset:
    """Return the data set with the labels of a horizon; `severity5` says what path_severity 5 means."""
    description = describe_dataset("embed")
    layout = description.layout
    horizon = label_horizon or "screen"
    setting = f"; path_severity 5 is {severity5}" if severity5 else ""
    parts = ("path", "patient", "case", "laterality", "projection", "kind", "spot")
    of_findings = ("patient", "case", "date", "side", "severity", "assessment")
    return Dataset(
        required=tuple(layout[part] for part in parts),
        kept=(layout["kind"], layout["spot"]),
        read=partial(_read, interval=horizon == "screen+interval", severity5=severity5),
        errors=(checks.ids_given, checks.ids_whole, checks.images_distinct, checks.lateralities_known),
        warnings=(
            checks.images_plausible,
            checks.standard_images_given,
            dates_given,
            women,
            screenings,
            patients_agree,
            partial(checks.projections_known, severity=checks.Severity.WARNING),
            sides_given,
            follow_ups,
            partial(severities_agreed, meaning=severity5 or ""),
        ),
        expected=description.releases,
        table=layout["metadata"],
        known=_OF_CASES,
        further=_FURTHER,
        beside=(
            MetadataTable(
                layout["clinical"],
                tuple(layout[part] for part in of_findings),
                known=(*_OF_CASES, _BIOPSY_SIDE),
            ),
        ),
        added=("patient_id", "asses", *_OF_CASES),
        label_definition=horizon + setting,
    )


def _read(metadata: Metadata, clinical: Metadata, *, interval: bool, severity5: str | None) -> pl.DataFrame:
    layout = describe_dataset("embed").layout
    images = read_images(
        metadata,
        path=layout["path"],
        label_text=layout["kind"],
        laterality_text=layout["laterality"],
        projection=layout["projection"],
    )
    require_codes(metadata, layout["spot"], ("0", "1"))
    spot = value(layout["spot"])
    of_table = metadata.table.select(
        patient_id=id_of(layout["patient"]),
        case_id=id_of(layout["case"]),
        kind=value(layout["kind"]),
        spot=spot.is_not_null() & (code_of(layout["spot"]) != 0).fill_null(value=True),
    )
    path = pl.col("path").str.replace_all("\\", "/", literal=True)
    path = pl.coalesce(path.str.extract(_COHORT), path)
    images = pl.concat([images, of_table], how="horizontal").with_columns(path=path)
    findings = _findings(clinical, severity5)
    followed = _followed(findings, interval=interval)
    cancers = (
        findings.filter("cancer").drop("laterality").explode("biopsied").rename({"biopsied": "laterality"})
    )
    sides = _with_follow_up(cancers, followed, "laterality").with_columns(positive=pl.lit(value=True))
    images = images.join(sides, on=["case_id", "laterality"], how="left", maintain_order="left")
    unlabelled = _with_follow_up(findings.filter("unlabelled"), followed)
    both = _with_follow_up(findings.filter(pl.col("cancer") & (pl.col("biopsied").list.len() > 1)), followed)
    disputed = findings.filter(pl.col("severity") == NEGATIVE_OR_OTHER_CANCER)
    cases = _cases(clinical, findings, metadata.table.columns)
    cases = cases.with_columns(
        unlabelled=_is_one_of(unlabelled),
        no_side=_is_one_of(both),
        disputed=_is_one_of(disputed),
        own_cancer=_is_one_of(cancers),
        case_positive=_is_one_of(sides),
    )
    images = images.join(cases, on="case_id", how="left", maintain_order="left")
    require_shared(pl.col("known").is_not_null(), images, metadata, clinical, layout["case"])
    images = _with_one_patient(images)
    label = pl.when("known").then(pl.col("positive").fill_null(value=False)).cast(pl.Int8)
    images = images.with_columns(image_id=pl.col("path").str.replace(r"\.(?i:dcm)$", ""), label=label)
    return images.with_columns(left_out=_left_out())


def _is_one_of(table: pl.DataFrame) -> pl.Expr:
    return pl.col("case_id").is_in(table["case_id"].unique().implode())


def _left_out() -> pl.Expr:
    """Return why an image is left out: not a standard 2-D mammogram of a side, or without a label."""
    kind = pl.col("kind")
    unlabelled = pl.col("unlabelled") & ~pl.col("positive").fill_null(value=False).any().over("case_id")
    return (
        pl.when(checks.repeated("image_id", "case_id", "laterality", "projection", "label"))
        .then(pl.lit(checks.AGAIN))
        .when(kind.is_null())
        .then(pl.lit("no FinalImageType"))
        .when(kind.str.to_uppercase() != _STANDARD)
        .then(pl.format("FinalImageType is {}, not 2D", kind))
        .when("spot")
        .then(pl.lit("a spot or magnification view (spot_mag)"))
        .when(pl.col("laterality_text").is_null())
        .then(pl.lit("no side (ImageLateralityFinal)"))
        .when(pl.col("laterality_text").str.to_uppercase() == _BOTH_SIDES)
        .then(pl.lit("of both sides (ImageLateralityFinal)"))
        .when(pl.col("known").is_null())
        .then(pl.lit("the examination is not in the clinical table"))
        .when(unlabelled)
        .then(pl.lit("path_severity 5, which --severity5 leaves out"))
    )


def _findings(clinical: Metadata, severity5: str | None) -> pl.DataFrame:
    """Return one row per finding, with its sides, and `cancer` and `unlabelled` by its pathology."""
    layout = describe_dataset("embed").layout
    columns = clinical.table.columns
    require_codes(clinical, layout["severity"], [str(code) for code in _CODES], "0 to 6")
    require_codes(clinical, layout["assessment"], ASSESSMENTS)
    for column in (layout["side"], *((_BIOPSY_SIDE,) if _BIOPSY_SIDE in columns else ())):
        require_codes(clinical, column, (*SIDES, _BOTH_SIDES), "L, R, B")
    severity, side = code_of(layout["severity"]), value(layout["side"]).str.to_uppercase()
    both = side.is_null() | (side == _BOTH_SIDES)
    biopsied = laterality_of(value(_BIOPSY_SIDE)) if _BIOPSY_SIDE in columns else pl.lit(None, pl.String)
    desc = value("desc") if "desc" in columns else pl.lit(None, pl.String)
    table = clinical.table.select(
        case_id=id_of(layout["case"]),
        patient_id=id_of(layout["patient"]),
        date=_date(layout["date"]),
        severity=severity,
        asses=value(layout["assessment"]).str.to_uppercase(),
        desc=desc,
        laterality=pl.when(both).then(pl.lit(["L", "R"])).otherwise(pl.concat_list(laterality_of(side))),
        # The pathology of a finding on both sides, or on none, is of one side where the biopsy has one.
        biopsied=pl.when(both & biopsied.is_null())
        .then(pl.lit(["L", "R"]))
        .when(both)
        .then(pl.concat_list(biopsied))
        .otherwise(pl.concat_list(laterality_of(side))),
        cancer=severity.is_in(CANCER) | ((severity == NEGATIVE_OR_OTHER_CANCER) & (severity5 == "cancer")),
        unlabelled=(severity == NEGATIVE_OR_OTHER_CANCER) & (severity5 == "leave-out"),
    )
    number = table.filter(pl.col("severity") == NEGATIVE_OR_OTHER_CANCER).height
    if number and severity5 is None:
        raise InputError(
            f"{clinical.source}: path_severity 5 on {checks.counted(number, 'row')}: EMBED's README calls it"
            " negative, its notebooks non-breast cancer; expected --severity5 negative, cancer or leave-out"
        )
    false = pl.col("cancer", "unlabelled").fill_null(value=False)
    return table.with_columns(false)


def _date(column: str) -> pl.Expr:
    """Return dates, with or without a time behind them; null where none can be read."""
    text = value(column).str.extract(r"^([0-9/-]+)")
    return pl.coalesce(text.str.to_date(form, strict=False) for form in _DATES)


def _followed(findings: pl.DataFrame, *, interval: bool) -> pl.DataFrame:
    """Return the examinations whose first follow-up counts for them, each with its `follow_up`.

    A recalled examination (BI-RADS 0) is followed up within 180 days. With `interval`, a normal one (BI-RADS
    1 or 2) too, within 365 days. By its description, where there is one, a screening follows up nothing, and
    an ultrasound does not hide a later mammogram.
    """
    urgent = [name for name in ASSESSMENTS if name not in (*_NORMAL, "X")]
    exams = findings.group_by("case_id").agg(
        pl.col("patient_id").first(),
        pl.col("date").min(),
        screening=pl.col("desc").str.contains(_SCREENING).any(),
        ultrasound=pl.col("desc").str.contains(_ULTRASOUND).any(),
        recalled=pl.col("asses").is_in(_RECALLED).any(),
        normal=pl.col("asses").is_in(_NORMAL).any() & ~pl.col("asses").is_in(urgent).any(),
    )
    later = exams.filter(~pl.col("screening")).select(
        "patient_id", "ultrasound", follow_up="case_id", on="date"
    )
    days = (pl.col("on") - pl.col("date")).dt.total_days()
    pairs = (
        exams.drop("ultrasound")
        .join(later, on="patient_id")
        .filter(pl.col("case_id") != pl.col("follow_up"))
        .with_columns(days=days)
        # The work-up of a recalled examination may be on the same day.
        .filter((pl.col("days") > 0) | ((pl.col("days") == 0) & pl.col("recalled")))
        .filter(pl.col("days") == pl.col("days").min().over("case_id", "ultrasound"))
    )
    counts = pl.col("recalled") & (pl.col("days") <= RECALL_DAYS)
    if interval:
        counts |= pl.col("normal") & (pl.col("days") <= INTERVAL_DAYS)
    return pairs.filter(counts).select("case_id", "follow_up")


def _with_follow_up(findings: pl.DataFrame, followed: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Return the examinations of these findings, and those whose follow-up has one."""
    own = findings.select("case_id", *columns).unique()
    later = followed.join(own, left_on="follow_up", right_on="case_id")
    return pl.concat([own, later.select(own.columns)]).unique()


def _cases(clinical: Metadata, findings: pl.DataFrame, taken: list[str]) -> pl.DataFrame:
    """Return what the clinical table says about each examination, but for the columns already `taken`."""
    order = {name: position for position, name in enumerate(ASSESSMENTS)}
    rank = pl.col("asses").replace_strict(order, default=None, return_dtype=pl.Int64)
    cases = findings.group_by("case_id").agg(
        clinical_patient=pl.col("patient_id").drop_nulls().first(),
        asses=pl.col("asses").sort_by(rank, nulls_last=True).first(),
        date_known=pl.col("date").is_not_null().any(),
    )
    names = [name for name in _OF_CASES if name in clinical.table.columns and name not in taken]
    case_id = id_of(describe_dataset("embed").layout["case"]).alias("case_id")
    further = (
        clinical.table.select(case_id, *names).group_by("case_id").agg(pl.col(names).drop_nulls().first())
    )
    known = pl.lit(value=True).alias("known")
    return cases.join(further, on="case_id", how="left").with_columns(known)


def _with_one_patient(images: pl.DataFrame) -> pl.DataFrame:
    """Return images with the patient of the clinical table; patients who share an examination are one.

    The two tables name different patients for a few examinations. Whoever is right, none of their
    examinations may be in two folds.
    """
    pairs = images.select("case_id", "patient_id", "clinical_patient").unique()
    several = pairs.filter(
        (pl.col("patient_id") != pl.col("clinical_patient"))
        | (pl.col("patient_id").n_unique() > 1).over("case_id")
    )
    cases, wrong = pairs["case_id"].n_unique(), several["case_id"].n_unique()
    if wrong > _FEW_DIFFER[0] and wrong > _FEW_DIFFER[1] * cases:
        raise InputError(
            f"expected the same patients in both tables, found others for {wrong:,} of {cases:,}"
            " examinations; use two tables of one release, as downloaded"
        )
    same = merge_names(
        [*case["clinical_patient"].drop_nulls(), *case["patient_id"].drop_nulls()]
        for case in several.sort("case_id", "patient_id").partition_by("case_id")
    )
    return images.with_columns(
        patient_id=pl.coalesce("patient_id", "clinical_patient").replace(same),
        patients_differ=pl.col("case_id").is_in(several["case_id"].implode()),
    )


def patients_agree(images: pl.DataFrame) -> checks.Findings:
    """Both tables name one patient of an examination."""
    items = _items_of_cases(images.filter("patients_differ"))
    summary = f"{checks.counted(len(items), 'case')} with several patients in the two tables, taken as one"
    return checks.finding("patients-agree", summary, items)


def sides_given(images: pl.DataFrame) -> checks.Findings:
    """The pathology of a case with cancer names one side."""
    items = _items_of_cases(images.filter(pl.col("no_side") & (pl.col("label") == 1)))
    summary = (
        f"no single side of the cancer of {checks.counted(len(items), 'case')} (side B or nothing), both"
        " breasts count as positive"
    )
    return checks.finding("sides-given", summary, items)


def follow_ups(images: pl.DataFrame) -> checks.Findings:
    """The pathology of a case with cancer is on the case itself."""
    items = _items_of_cases(images.filter((pl.col("label") == 1) & ~pl.col("own_cancer")))
    summary = f"{checks.counted(len(items), 'case')} with cancer by the first follow-up alone"
    return checks.finding("follow-ups", summary, items)


def severities_agreed(images: pl.DataFrame, meaning: str) -> checks.Findings:
    """No case has a path_severity that EMBED's documents read differently."""
    items = _items_of_cases(images.filter("disputed"))
    number = checks.counted(len(items), "case")
    summary = f"{number} with path_severity 5, by --severity5 {meaning}"
    return checks.finding("severities-agreed", summary, items)


def _items_of_cases(images: pl.DataFrame) -> list[checks.Item]:
    return [checks.Item(case_id, None, "") for case_id in images["case_id"].unique(maintain_order=True)]


def dates_given(images: pl.DataFrame) -> checks.Findings:
    """Every examination has a date, without which its follow-up is not known."""
    items = _items_of_cases(images.filter(~pl.col("date_known")))
    summary = f"no readable date of {checks.counted(len(items), 'case')}, labelled without their follow-up"
    return checks.finding("dates-given", summary, items)


def women(images: pl.DataFrame) -> checks.Findings:
    """No examination is of a man (tissueden 5)."""
    if "tissueden" not in images.columns:
        return ()
    items = _items_of_cases(images.filter(code_of("tissueden") == _MALE))
    return checks.finding("women", f"{checks.counted(len(items), 'case')} of men (tissueden 5), kept", items)


def screenings(images: pl.DataFrame) -> checks.Findings:
    """Every examination is a screening, by its description."""
    if "desc" not in images.columns:
        return ()
    cases = checks.by_case(images, words=value("desc").str.to_lowercase().first())
    other = cases.filter(pl.col("words").is_not_null() & ~pl.col("words").str.contains("screen"))
    items = [checks.Item(case_id, None, words) for case_id, words in other.iter_rows()]
    summary = (
        f"{checks.counted(len(items), 'case')} that by desc is no screening, kept; choose the screenings"
        " with `cache subset` if your cases are screening examinations"
    )
    return checks.finding("screenings", summary, items)
