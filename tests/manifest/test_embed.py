"""EMBED: two tables joined by examination and side, labels by pathology and first follow-up."""

from pathlib import Path

import polars as pl
import pytest

from tests.manifest.embed_tables import (
    C_VIEWS,
    EXAMS,
    FIVES,
    IMAGES,
    MEN,
    PATIENTS,
    SPOTS,
    UNKNOWN_EXAMS,
    embed_clinical,
    embed_exams,
    embed_metadata,
    write_embed,
)
from trust_cache.base.errors import InputError
from trust_cache.manifest.build_manifest import BuiltManifest, build_manifest
from trust_cache.manifest.cases import CASE_LABEL, find_cases
from trust_cache.manifest.manifest_file import read_manifest

PICTURE = {"c": "FinalImageType is cview, not 2D", "spot": "a spot or magnification view (spot_mag)"}
UNKNOWN, FIVE = (
    "the examination is not in the clinical table",
    "path_severity 5, which --severity5 leaves out",
)
# Positive cases and images by hand, from the groups of tests/manifest/embed_tables.py.
SCREEN = (900, 2_200)
INTERVAL = (1_100, 2_600)


def build(paths: list[Path], **options: str) -> BuiltManifest:
    out = paths[0].with_name("manifest.csv")
    return build_manifest("embed", paths, out, images="/x", look=False, overwrite=True, options=options)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    exams = embed_exams()
    return write_embed(tmp_path_factory.mktemp("embed"), exams, embed_metadata(exams))


@pytest.mark.slow
def test_full_size_with_all_traps(full: list[Path]) -> None:
    built = build(full[::-1], label_horizon="screen", severity5="negative")
    assert {found.check: len(found.items) for found in built.findings if found.check != "left-out"} == {
        "women": MEN,
        "sides-given": 200,  # groups 1 and 2: side B, and none
        "follow-ups": 100,  # group 3
        "severities-agreed": FIVES,
    }
    assert built.left_out == {PICTURE["c"]: C_VIEWS, PICTURE["spot"]: SPOTS, UNKNOWN: 4 * UNKNOWN_EXAMS}
    counts = built.counts
    assert counts.images == IMAGES - C_VIEWS - SPOTS - 4 * UNKNOWN_EXAMS
    assert (counts.cases, built.manifest.table["patient_id"].n_unique()) == (EXAMS - UNKNOWN_EXAMS, PATIENTS)
    assert (counts.positive_cases, counts.positive_images) == SCREEN


def some() -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The patients of all traps, without the many others."""
    exams = embed_exams(2_100, 7_000)
    return exams, embed_metadata(exams, 400, 30), embed_clinical(exams)


@pytest.mark.parametrize(
    ("options", "more", "left_out"),
    [
        ({"label_horizon": "screen", "severity5": "negative"}, (0, 0), 0),
        ({"label_horizon": "screen", "severity5": "cancer"}, (FIVES, 2 * FIVES), 0),
        ({"label_horizon": "screen+interval", "severity5": "negative"}, (200, 400), 0),
        ({"label_horizon": "screen", "severity5": "leave-out"}, (0, 0), 4 * FIVES),
    ],
)
def test_labels_by_definition(
    tmp_path: Path, options: dict[str, str], more: tuple[int, int], left_out: int
) -> None:
    exams, metadata, clinical = some()
    built = build(write_embed(tmp_path, exams, metadata, clinical), **options)
    found = (built.counts.positive_cases, built.counts.positive_images)
    assert found == (SCREEN[0] + more[0], SCREEN[1] + more[1])
    assert built.left_out.get(FIVE, 0) == left_out


def by_group(table: pl.DataFrame, group: int, exam: int) -> set[tuple[str, int]]:
    """The side and label of the images of an examination of each patient of a group."""
    number = pl.col("case_id").cast(pl.Int64) - 4_349_090_390_214_000
    here = table.filter((number // 10 // 100 == group) & (number % 10 == exam))
    return set(here.select("laterality", "label").iter_rows())


def test_labels_by_side_and_follow_up(tmp_path: Path) -> None:
    exams, metadata, clinical = some()
    paths = write_embed(tmp_path, exams, metadata, clinical)
    screen = build(paths, label_horizon="screen", severity5="negative").manifest.table
    interval = build(paths, label_horizon="screen+interval", severity5="negative").manifest.table
    left, right, both, none = (
        {("L", int("L" in sides)), ("R", int("R" in sides))} for sides in ("L", "R", "LR", "")
    )
    expected = {  # group and examination: on its screen, and with interval cancers
        (0, 0): (left, left), (1, 0): (both, both), (2, 0): (both, both), (3, 0): (right, right),
        (3, 1): (right, right), (4, 0): (none, none), (5, 0): (none, left), (5, 1): (left, left),
        (6, 0): (none, none), (7, 0): (none, none), (7, 1): (none, right), (7, 2): (right, right),
        (8, 0): (none, none), (9, 0): (none, none),
    }  # fmt: skip
    for (group, exam), labels in expected.items():
        assert (by_group(screen, group, exam), by_group(interval, group, exam)) == labels, (group, exam)


def test_columns_paths_and_values_that_look_like_none(tmp_path: Path) -> None:
    exams, metadata, clinical = few()
    floats = pl.col("empi_anon", "acc_anon").cast(pl.String) + ".0"
    clinical = clinical.with_columns(floats, study_date_anon=pl.format("{} 00:00:00", "study_date_anon"))
    built = build(write_embed(tmp_path, exams, metadata, clinical), severity5="negative")
    assert (built.counts.positive_cases, built.counts.positive_images) == (45, 110)
    assert built.manifest.table.row(0, named=True) == {
        "image_id": "cohort_1/10000000/4349090390214000/0", "case_id": "4349090390214000", "label": 1,
        "laterality": "L", "projection": "CC", "path": "/x/cohort_1/10000000/4349090390214000/0.dcm",
        "patient_id": "10000000", "asses": "S", "tissueden": "2.0", "age_at_study": "61.25", "loc_num": "NA",
        "study_date_anon": "2013-01-01", "FinalImageType": "2D", "spot_mag": None,
        "Manufacturer": "HOLOGIC, Inc.", "dataset": "embed",
        "label_definition": "screen; path_severity 5 is negative",
    }  # fmt: skip


def test_what_cannot_be_guessed_is_refused(tmp_path: Path) -> None:
    exams, metadata, clinical = some()
    paths = write_embed(tmp_path, exams, metadata, clinical)
    with pytest.raises(InputError, match=r"path_severity 5 on 100 rows: .* --severity5 negative, cancer or"):
        build(paths)
    with pytest.raises(
        InputError, match=r"expected 2 files \(EMBED_OpenData_metadata.csv and EMBED_.*found 1"
    ):
        build(paths[:1], severity5="negative")
    with pytest.raises(
        InputError, match=r"expected one EMBED_OpenData_metadata.csv, found its columns in both"
    ):
        build([paths[0], paths[0]], severity5="negative")
    other = metadata.rename({"ImageLateralityFinal": "ImageLaterality"})
    with pytest.raises(InputError, match=r"missing column ImageLateralityFinal;.*mean ImageLaterality\?"):
        build(write_embed(tmp_path, exams, other, clinical), severity5="negative")
    wrong = clinical.with_columns(path_severity=pl.lit("benign"))
    with pytest.raises(
        InputError, match=r"line 2: expected a path_severity of 0 to 6 or .*'benign' .6,990 rows"
    ):
        build(write_embed(tmp_path, exams, metadata, wrong), severity5="negative")
    for column in ("asses", "side", "bside"):
        wrong = clinical.with_columns(pl.lit("Z").alias(column))
        with pytest.raises(InputError, match=rf"expected a {column} of .* or nothing, found 'Z'"):
            build(write_embed(tmp_path, exams, metadata, wrong), severity5="negative")
    for column, words in (("spot_mag", "spot_mag of 0, 1 or nothing"), ("ImageLateralityFinal", "of L or R")):
        wrong = metadata.with_columns(pl.lit("X").alias(column))
        with pytest.raises(InputError, match=rf"expected a .*{words}, found"):
            build(write_embed(tmp_path, exams, wrong, clinical), severity5="negative")
    paths = write_embed(tmp_path, exams, metadata, clinical.with_columns(acc_anon=pl.lit("4.34909E+15")))
    with pytest.raises(InputError, match=r"^\S*metadata.csv: expected acc_anon of \S*, found none of"):
        build(paths, severity5="negative")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    for wrong_first in (paths[:1], paths[1:]):
        with pytest.raises(InputError, match=r"other.csv: missing column .*; found a, b"):
            build([*wrong_first, tmp_path / "other.csv"], severity5="negative")
    computed = metadata.with_columns(FinalImageType=pl.lit("cview"))
    with pytest.raises(InputError, match=r"all [\d,]+ are left out: [\d,]+ FinalImageType is cview, not 2D$"):
        build(write_embed(tmp_path, exams, computed, clinical), severity5="negative")
    odd = metadata.with_columns(
        ViewPosition=pl.lit("QQ"),
        ImageLateralityFinal=pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("B")).otherwise(pl.lit("L")),
    )
    built = build(write_embed(tmp_path, exams, odd, clinical), severity5="negative")
    assert built.left_out["of both sides (ImageLateralityFinal)"] == 1
    (found,) = (found for found in built.findings if found.check == "projections-known")
    assert len(found.items) == built.counts.images


def few() -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Five patients of each trap."""
    exams = embed_exams(1_000, 3_300).filter(pl.col("patient") % 100 < 5)
    return exams, embed_metadata(exams, 8, 3), embed_clinical(exams)


def test_what_a_follow_up_leaves_open_is_left_out(tmp_path: Path) -> None:
    """A recalled screening whose follow-up has path_severity 5 is as unlabelled as the follow-up."""
    exams, metadata, clinical = few()
    fives = pl.col("path_severity") == 5
    follow_up = (pl.col("empi_anon") // 100 == 10_000_300 // 100) & (pl.col("path_severity") == 0)
    changed = clinical.with_columns(
        path_severity=pl.when(follow_up).then(5.0).when(fives).then(None).otherwise("path_severity")
    )
    assert changed.filter(fives).height == 5  # group 3: recalled, followed up after 100 days
    built = build(write_embed(tmp_path, exams, metadata, changed), severity5="leave-out")
    assert built.left_out[FIVE] == 4 * (5 + 5)
    left = {"4349090390217000", "4349090390217001"}
    assert not left & set(built.manifest.table["case_id"])


def test_other_forms_of_the_same_tables(tmp_path: Path) -> None:
    """Capitals and spaces in names, index columns, rows twice, and words for nothing change no label."""
    exams, metadata, clinical = few()
    plain = build(write_embed(tmp_path, exams, metadata, clinical), severity5="negative")
    metadata = pl.concat([metadata, metadata.head(3)]).with_row_index("Unnamed: 0").rename(str.upper)
    clinical = pl.concat([clinical, clinical.tail(2)]).with_row_index("").rename(str.title)
    severity = pl.col("Path_Severity").cast(pl.String).fill_null("nan")
    clinical = clinical.with_columns(severity, pl.col("Side").fill_null("NaN"))
    built = build(write_embed(tmp_path, exams, metadata, clinical)[::-1], severity5="negative")
    assert built.left_out == {**plain.left_out, "the same image again": 3}
    columns = ("image_id", "case_id", "label", "patient_id", "asses", "tissueden", "path")
    assert built.manifest.table.select(columns).equals(plain.manifest.table.select(columns))


def test_of_hundreds_of_columns_only_those_of_use_are_kept(tmp_path: Path) -> None:
    exams, metadata, clinical = few()
    plain = build(write_embed(tmp_path, exams, metadata, clinical), severity5="negative").manifest.table
    wide = metadata.with_columns(pl.lit("x").alias(f"Tag{number}") for number in range(200))
    built = build(write_embed(tmp_path, exams, wide, clinical), severity5="negative")
    assert built.manifest.table.equals(plain)
    assert set(plain["Manufacturer"]) == {"HOLOGIC, Inc."}


def test_ids_that_a_spreadsheet_shortened_are_refused(tmp_path: Path) -> None:
    exams, metadata, clinical = few()
    shortened = {"acc_anon": pl.lit("4.34909E+15"), "empi_anon": pl.lit("1")}
    paths = write_embed(
        tmp_path, exams, metadata.with_columns(**shortened), clinical.with_columns(**shortened)
    )
    with pytest.raises(InputError, match=r"expected a whole case_id, found a number shortened"):
        build(paths, severity5="negative")


def test_examinations_that_are_no_screening_are_counted(tmp_path: Path) -> None:
    exams, metadata, clinical = few()
    diagnostic = pl.col("asses") == "S"
    words = pl.when(diagnostic).then(pl.lit("MG Diagnostic Left")).otherwise(pl.lit("MG Screening Bilat"))
    built = build(
        write_embed(tmp_path, exams, metadata, clinical.with_columns(desc=words)), severity5="negative"
    )
    (found,) = (found for found in built.findings if found.check == "screenings")
    cases = clinical.filter(diagnostic)["acc_anon"].n_unique()
    assert (len(found.items), found.items[0].found) == (cases, "mg diagnostic left")


def test_patients_that_the_tables_name_differently_are_one(tmp_path: Path) -> None:
    """As published: the same 72,770 examinations, of 23,256 patients in one table and 23,253 in the other."""
    exams, metadata, clinical = few()
    image = pl.int_range(pl.len())
    accession = 4_349_090_390_214_000
    moved = (pl.col("acc_anon") == accession) | ((pl.col("acc_anon") == accession + 10) & (image % 2 == 0))
    other = pl.when(moved).then(pl.lit(10_000_504)).otherwise("empi_anon")
    built = build(
        write_embed(tmp_path, exams, metadata.with_columns(empi_anon=other), clinical), severity5="negative"
    )
    (found,) = (found for found in built.findings if found.check == "patients-agree")
    assert {item.case_id for item in found.items} == {str(accession), str(accession + 10)}
    patients = built.manifest.table.select("case_id", "patient_id").unique()
    assert patients.height == built.counts.cases
    # All examinations of the three are of one patient, whoever is right.
    three = pl.col("case_id").cast(pl.Int64).sub(accession) // 10
    assert patients.filter(three.is_in([0, 1, 504]))["patient_id"].n_unique() == 1
    assert patients["patient_id"].n_unique() == 50 - 2
    unnamed = metadata.with_columns(empi_anon=pl.lit(None, pl.Int64))
    table = build(write_embed(tmp_path, exams, unnamed, clinical), severity5="negative").manifest.table
    assert (table["patient_id"].null_count(), table["patient_id"].n_unique()) == (0, 50)
    shifted = clinical.with_columns(pl.col("empi_anon") + 1)
    with pytest.raises(InputError, match=r"expected the same patients in both tables, found others for"):
        build(write_embed(tmp_path, exams, metadata, shifted), severity5="negative")


def test_a_screening_follows_up_nothing_and_an_ultrasound_hides_nothing(tmp_path: Path) -> None:
    """Group 5 has cancer 365 days after a normal examination; group 7 30 and 60 days after a recall."""
    exams, metadata, clinical = few()
    group, number = (pl.col("empi_anon") - 10_000_000) // 100, pl.col("acc_anon") % 10
    ultrasound = (group == 7) & (number == 1)
    diagnostic = (number > 0) & group.is_in([3, 4, 7])

    def positive(words: pl.Expr, horizon: str) -> dict[int, set[int]]:
        tables = write_embed(tmp_path, exams, metadata, clinical.with_columns(desc=words))
        table = build(tables, label_horizon=horizon, severity5="negative").manifest.table
        return {group: {label for _, label in by_group(table, group, 0)} for group in (3, 4, 5, 7)}

    words = (
        pl.when(ultrasound).then(pl.lit("US Breast Right"))
        .when(diagnostic).then(pl.lit("MG Diagnostic Right w/CAD"))
        .otherwise(pl.lit("MG Screening Bilateral"))
    )  # fmt: skip
    assert positive(words, "screen") == {3: {0, 1}, 4: {0}, 5: {0}, 7: {0, 1}}
    assert positive(words, "screen+interval") == {3: {0, 1}, 4: {0}, 5: {0}, 7: {0, 1}}
    unknown = pl.lit(None, pl.String)
    assert positive(unknown, "screen+interval") == {3: {0, 1}, 4: {0}, 5: {0, 1}, 7: {0}}


def test_the_side_of_the_biopsy_decides_for_findings_on_both_sides(tmp_path: Path) -> None:
    exams, metadata, clinical = few()
    group = (pl.col("empi_anon") - 10_000_000) // 100
    biopsy = pl.when(group.is_in([0, 1])).then(pl.lit("R")).when(group == 2).then(pl.lit("B"))
    paths = write_embed(tmp_path, exams, metadata, clinical.with_columns(bside=biopsy))
    table = build(paths, severity5="negative").manifest.table
    assert by_group(table, 0, 0) == {("L", 1), ("R", 0)}  # a finding of one side keeps it
    assert by_group(table, 1, 0) == {("L", 0), ("R", 1)}
    assert by_group(table, 2, 0) == {("L", 1), ("R", 1)}


def test_a_case_stays_positive_where_no_image_of_its_cancer_is_kept(tmp_path: Path) -> None:
    """The cancers of group 0 are on the left: with C-views alone of that side, the right one is negative."""
    exams, metadata, clinical = few()
    first = {4_349_090_390_214_000 + 10 * patient for patient in range(5)}
    lost = pl.col("acc_anon").is_in(sorted(first)) & (pl.col("ImageLateralityFinal") == "L")
    changed = metadata.with_columns(
        FinalImageType=pl.when(lost).then(pl.lit("cview")).otherwise("FinalImageType")
    )
    whole = build(write_embed(tmp_path, exams, metadata, clinical), severity5="negative")
    assert CASE_LABEL not in whole.manifest.table.columns
    built = build(write_embed(tmp_path, exams, changed, clinical), severity5="negative")
    assert built.counts.positive_cases == whole.counts.positive_cases
    assert built.counts.positive_images == whole.counts.positive_images - 2 * len(first)
    (found,) = (found for found in built.findings if found.check == "positives-shown")
    assert {int(item.case_id or 0) for item in found.items} == first
    both = [find_cases(read_manifest(made.manifest.path).table) for made in (whole, built)]
    assert both[0].labels.tolist() == both[1].labels.tolist()
