"""CSAW-CC: labels by the time to the diagnosis on the cancer's side; whole patients in folds and splits."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.manifest.csaw_table import (
    EXAMS,
    PATIENTS,
    REPEATED,
    WITH_CANCER,
    csaw_exams,
    csaw_images,
    write_csaw,
)
from trust_cache.base.errors import InputError
from trust_cache.certificate.score_table import Cohort
from trust_cache.certificate.split import draw_split
from trust_cache.heads.folds import draw_folds
from trust_cache.manifest.build_manifest import BuiltManifest, build_manifest
from trust_cache.manifest.cases import find_cases
from trust_cache.manifest.manifest_file import read_manifest


def build(metadata: Path, **options: str) -> BuiltManifest:
    out = metadata.with_name("manifest.csv")
    given = options or None
    return build_manifest("csaw-cc", metadata, out, images="/x", look=False, overwrite=True, options=given)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csaw(tmp_path_factory.mktemp("csaw") / "CSAW-CC.csv")


@pytest.mark.slow
@pytest.mark.parametrize(("horizon", "timings"), [("screen", {"1"}), ("screen+interval", {"1", "2"})])
def test_full_size_with_all_traps(full: Path, horizon: str, timings: set[str]) -> None:
    """The counts of the description hold; repeated views and other sides of the recall are counted."""
    built = build(full, label_horizon=horizon)
    positives = [number for number in range(WITH_CANCER) if "2" in timings or number % 3 != 0]
    assert {found.check: len(found.items) for found in built.findings} == {
        "projections-distinct": REPEATED,
        "recall-sides-agree": sum(number % 10 == 0 for number in positives),
    }
    assert built.counts.images == 4 * EXAMS + REPEATED
    assert (built.counts.cases, built.left_out) == (EXAMS, {})
    table = built.manifest.table
    assert table["patient_id"].n_unique() == PATIENTS
    assert set(table["label_definition"]) == {horizon}
    # By hand, from the rows of the table that was written: the side and the time of that examination.
    rows = pl.read_csv(full, infer_schema=False)
    expected = [
        int(timing in timings and side == cancer_side)
        for timing, side, cancer_side in rows.select(
            "rad_timing", "imagelaterality", "x_cancer_laterality"
        ).iter_rows()
    ]
    assert table["label"].to_list() == expected
    positive = table.filter(pl.col("label") == 1)
    assert positive["case_id"].n_unique() == len(positives)
    # A label by patient would count every earlier year and the healthy breast.
    assert positive.height < (rows["x_case"] == "1").sum() / 4
    assert read_manifest(built.manifest.path).table.equals(table)


def test_columns_and_ids(tmp_path: Path) -> None:
    row = build(write_csaw(tmp_path / "x.csv", few())).manifest.table.row(0, named=True)
    assert row == {
        "image_id": "00000_20990909_L_CC_1", "case_id": "00000_2008", "label": 0, "laterality": "L",
        "projection": "CC", "path": "/x/00000_20990909_L_CC_1.dcm", "patient_id": "00000",
        "exam_year": "2008", "x_age": "1", "x_case": "1", "x_cancer_laterality": "Left", "rad_timing": "3",
        "rad_recall": "0", "rad_recall_type_left": "NA", "rad_recall_type_right": "1",
        "libra_percentdensity": "0.0", "dataset": "csaw-cc", "label_definition": "screen",
    }  # fmt: skip


def few(**changes: pl.Expr) -> pl.DataFrame:
    return csaw_images(csaw_exams(6, 14, 3), 0).cast(pl.String).with_columns(**changes)


def test_numbers_with_fractions_and_other_words_mean_the_same(tmp_path: Path) -> None:
    plain = build(write_csaw(tmp_path / "plain.csv", few())).manifest.table
    number = pl.col("rad_timing").cast(pl.Float64, strict=False).cast(pl.String)
    odd = few(
        anon_patientid=pl.col("anon_patientid").str.strip_chars_start("0").str.pad_start(1, "0") + ".0",
        exam_year=pl.col("exam_year") + ".0",
        rad_timing=pl.coalesce(number, pl.lit(" nan ")),
        imagelaterality=pl.col("imagelaterality").str.to_uppercase() + " ",
        further=pl.lit("NA"),
    )
    text = "\ufeff" + odd.write_csv()
    (tmp_path / "odd.csv").write_text(text, encoding="utf-8")
    found = build(tmp_path / "odd.csv").manifest.table
    assert found["label"].to_list() == plain["label"].to_list()
    assert found["case_id"].to_list() == [
        f"{int(case.split('_')[0])}_{case.split('_')[1]}" for case in plain["case_id"]
    ]
    assert set(found["further"]) == {"NA"}


def test_a_row_twice_and_a_cancer_at_an_unknown_time_are_left_out(tmp_path: Path) -> None:
    table = few(rad_timing=pl.when(pl.col("exam_year") == "2010").then(pl.lit("NA")).otherwise("rad_timing"))
    twice = pl.concat([table, table.head(2)])
    built = build(write_csaw(tmp_path / "x.csv", twice))
    unknown = table.filter((pl.col("x_case") == "1") & (pl.col("exam_year") == "2010"))
    assert built.left_out == {
        "the same image again": 2,
        "of a patient with cancer at an unknown time (no rad_timing)": unknown.height,
    }
    assert not set(built.manifest.table["image_id"]) & set(unknown["anon_filename"].str.strip_suffix(".dcm"))


def test_a_file_on_two_rows_is_one_image_or_refused(tmp_path: Path) -> None:
    """Rows that differ in a further column alone are one image; those that differ in meaning are not."""
    table = few()
    twice = pl.concat([table, table.head(3)]).with_row_index("Unnamed: 0").rename({"x_case": "X_Case"})
    built = build(write_csaw(tmp_path / "x.csv", twice))
    assert built.left_out == {"the same image again": 3}
    assert built.counts.images == table.height
    other = pl.concat([table, table.head(1).with_columns(exam_year=pl.lit("2012"))])
    with pytest.raises(InputError, match=r"1 image_id on more than one row.*\(lines 2, 58\)"):
        build(write_csaw(tmp_path / "x.csv", other))


def test_a_time_of_a_patient_without_cancer_is_counted(tmp_path: Path) -> None:
    timed = few()
    built = build(write_csaw(tmp_path / "x.csv", timed.with_columns(x_case=pl.lit("0.0"))))
    (found,) = (found for found in built.findings if found.check == "patients-agree")
    assert (
        len(found.items)
        == timed.filter(pl.col("rad_timing") != "NA").select("anon_patientid", "exam_year").n_unique()
    )
    assert built.counts.positive_cases > 0


def test_a_cancer_without_a_side_makes_both_breasts_positive(tmp_path: Path) -> None:
    built = build(write_csaw(tmp_path / "x.csv", few(x_cancer_laterality=pl.lit("NA"))))
    sides = built.manifest.table.filter(pl.col("label") == 1).group_by("case_id").agg("laterality")
    assert all(sorted(found) == ["L", "L", "R", "R"] for found in sides["laterality"])
    assert [found.check for found in built.findings if "no side of the cancer" in found.sentence]


def test_unknown_times_and_options_are_refused(tmp_path: Path) -> None:
    wrong = write_csaw(tmp_path / "x.csv", few(rad_timing=pl.lit("7")))
    with pytest.raises(InputError, match=r"rad_timing of 1, 2, 3 or nothing.*line 2: 7"):
        build(wrong)
    for column, code, words in (
        ("x_cancer_laterality", "Centre", "Left, Right, both or nothing, found 'Centre' .56 rows in all."),
        ("x_case", "2", "0, 1 or nothing, found '2'"),
        ("viewposition", "XYZ", "expected a projection of DICOM's .* on 56 rows: .*line 2: XYZ"),
        ("imagelaterality", "B", "expected a laterality of L or R, found others on 56 rows"),
    ):
        with pytest.raises(InputError, match=words):
            build(write_csaw(tmp_path / "z.csv", few(**{column: pl.lit(code)})))
    with pytest.raises(InputError, match=r"--label-horizon: expected screen or .*, found 'ever'"):
        build(wrong, label_horizon="ever")
    with pytest.raises(
        InputError, match=r"csaw-cc: expected an option of this data set .it has label_horizon."
    ):
        build(wrong, birads="4")
    with pytest.raises(InputError, match=r"missing column viewposition; .*did you mean dicom_viewposition"):
        build(write_csaw(tmp_path / "y.csv", few().rename({"viewposition": "dicom_viewposition"})))


@settings(max_examples=25, deadline=None)
@given(st.integers(40, 90), st.integers(0, 80), st.integers(15, 35), st.integers(0, 1_000))
def test_no_patient_is_in_two_folds_or_two_parts(
    tmp_path_factory: pytest.TempPathFactory, patients: int, more: int, with_cancer: int, seed: int
) -> None:
    """The column decides: without it, a case is its own patient, and patients are spread."""
    exams = csaw_exams(patients, 2 * patients + more, with_cancer)
    path = write_csaw(tmp_path_factory.mktemp("csaw") / "x.csv", csaw_images(exams, 0))
    table = build(path, label_horizon="screen+interval").manifest.table
    spread = []
    for unit in (table, table.drop("patient_id")):
        cases = find_cases(unit)
        owner = table.select("case_id", "patient_id").unique().sort("case_id")["patient_id"].to_numpy()
        folds = draw_folds(cases, seed)
        labels, nothing = cases.labels, np.zeros(cases.labels.size)
        split = draw_split(Cohort(cases.case_ids, labels, cases.patients, (None,), (nothing,), (None,)), seed)
        parts = [*folds.parts, split.search.astype(np.int8)]
        spread.append(max(len(set(part[owner == name])) for part in parts for name in set(owner)))
    assert spread[0] == 1
    assert spread[1] > 1


@pytest.mark.parametrize("name", ["dataset", "label_definition", "case_label", "label"])
def test_a_further_column_replaces_no_terms_and_no_labels(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"column {name} has the name of one that the manifest makes"):
        build(write_csaw(tmp_path / "x.csv", few().with_columns(pl.lit("1").alias(name))))


def test_a_case_stays_positive_where_the_side_of_its_cancer_has_no_image(tmp_path: Path) -> None:
    timed = few()
    side = pl.col("imagelaterality") == pl.col("x_cancer_laterality")
    lost = timed.filter(~((pl.col("rad_timing") == "1") & side))
    whole, built = (build(write_csaw(tmp_path / "x.csv", table)) for table in (timed, lost))
    assert built.counts.positive_images == 0
    assert built.counts.positive_cases == whole.counts.positive_cases > 0
    (found,) = (found for found in built.findings if found.check == "positives-shown")
    positive = built.manifest.table.filter(pl.col("case_label") == 1)
    assert {item.case_id for item in found.items} == set(positive["case_id"])
