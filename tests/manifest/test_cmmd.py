"""CMMD: sides from headers, breasts without a label left out, equal pictures and the leak named."""

from pathlib import Path

import polars as pl
import pytest

import trust_cache as tc
from tests.manifest.cmmd_tables import (
    D2,
    MIXED,
    ONE_UNLABELLED,
    cmmd_patients,
    header_file,
    write_cmmd,
)
from tests.workbooks import write_workbook
from trust_cache.api.data_functions import ManifestResult
from trust_cache.base.errors import InputError
from trust_cache.manifest.manifest_file import read_manifest

UNLABELLED = "of a breast without a label, which is not proven normal"
FEW = ("D1-0001", "D1-0002", "D1-0202", "D1-0808", "D1-1292", "D2-0001", "D2-0284")


def build(folder: Path, *metadata: Path, **options: bool) -> ManifestResult:
    return tc.build_manifest(
        "cmmd", metadata, folder / "m.csv", images=str(folder), overwrite=True, **options
    )


def few(folder: Path) -> tuple[Path, pl.DataFrame]:
    patients = cmmd_patients()
    return write_cmmd(folder, {name: patients[name] for name in FEW})


@pytest.mark.slow
def test_full_size_with_all_traps(tmp_path: Path) -> None:
    metadata, clinical = write_cmmd(tmp_path, cmmd_patients())
    workbook = write_workbook(tmp_path / "CMMD_clinicaldata_revision.xlsx", Sheet1=clinical)
    built = build(tmp_path, workbook, metadata)
    assert [(found.check, len(found.items)) for found in built.findings] == [
        ("left-out", 2 * ONE_UNLABELLED),
        ("breasts-differ", MIXED),
        ("labels-leak", 0),
        ("pictures-differ", 2),
    ]
    assert built.left_out == {UNLABELLED: 2 * ONE_UNLABELLED}
    counts = built.counts
    assert (counts.images, counts.cases) == (5_202 - 2 * ONE_UNLABELLED, 1_775)
    assert (counts.positive_cases, counts.positive_images) == (1_310, 2 * 1_316)
    assert f"D2 {D2} of {D2}" in built.findings[2].sentence
    mixed = built.table.group_by("case_id").agg(pl.col("label").n_unique().alias("labels"))
    assert (mixed["labels"] == 2).sum() == 30
    assert built.table["patient_id"].n_unique() == 1_773


def test_sides_come_from_headers_and_equal_pictures_share_a_patient(tmp_path: Path) -> None:
    metadata, clinical = few(tmp_path)
    clinical.write_csv(tmp_path / "clinical.csv")
    built = build(tmp_path, metadata, tmp_path / "clinical.csv")
    for name, breasts in cmmd_patients().items():
        if name in FEW:
            rows = built.table.filter(pl.col("case_id") == name)
            expected = {
                (side, view, int(words == "Malignant"))
                for side, words in breasts.items()
                if words
                for view in ("CC", "MLO")
            }
            assert set(rows.select("laterality", "projection", "label").iter_rows()) == expected
    twins = (
        built.table.select("case_id", "patient_id").unique().filter(pl.col("case_id") != pl.col("patient_id"))
    )
    assert dict(twins.iter_rows()) == {"D2-0284": "D1-0202", "D1-1292": "D1-0808"}
    (same,) = [found for found in built.findings if found.check == "pictures-differ"]
    assert "D1-0808 (as D1-1292, benign and malignant)" in same.sentence
    assert read_manifest(tmp_path / "m.csv").table["path"][0].endswith("1.000000-NA-0/1-1.dcm")
    assert {"Age", "abnormality", "Series UID", "patient_id"} <= set(built.table.columns)


def test_a_lost_file_keeps_its_row_and_the_label_of_its_case(tmp_path: Path) -> None:
    metadata, clinical = few(tmp_path)
    clinical.write_csv(tmp_path / "clinical.csv")
    place = next((tmp_path / "CMMD" / "D2-0001").rglob("1-1.dcm"))
    place.unlink()
    next((tmp_path / "CMMD" / "D1-0002").rglob("1-2.dcm")).write_bytes(header_file(None, "CC"))
    built = build(tmp_path, metadata, tmp_path / "clinical.csv")
    assert [file.case_id for file in built.missing] == ["D2-0001"]
    more = pl.DataFrame({"ID1": ["D9-0001"], "LeftRight": ["L"], "classification": ["Malignant"]})
    pl.concat([clinical, more], how="diagonal").write_csv(tmp_path / "more.csv")
    found = build(tmp_path, metadata, tmp_path / "more.csv").findings
    (unused,) = (finding for finding in found if finding.check == "labels-used")
    assert ("D9-0001", "L") in {(item.case_id, item.found) for item in unused.items}
    lost = built.table.filter(pl.col("laterality").is_null())
    assert lost.select("case_id", "label").rows() == [("D1-0002", 0), ("D2-0001", 1)]


def test_other_forms_of_the_same_tables(tmp_path: Path) -> None:
    """Paths of Linux and macOS, numbers with fractions, other capitals, a series twice."""
    metadata, clinical = few(tmp_path)
    clinical.write_csv(tmp_path / "clinical.csv")
    plain = build(tmp_path, metadata, tmp_path / "clinical.csv").table
    series = pl.read_csv(metadata, infer_schema=False)
    place, number = pl.col("File Location").str.replace_all("\\", "/", literal=True), "Number of Images"
    series = series.with_columns(place, pl.col(number) + ".0").rename(str.upper).with_row_index("")
    pl.concat([series, series.head(1)]).write_csv(metadata)
    small = pl.col("classification", "LeftRight").str.to_lowercase()
    workbook = write_workbook(tmp_path / "clinical.xlsx", Sheet1=clinical.with_columns(small))
    built = build(tmp_path, workbook, metadata)
    columns = ("image_id", "case_id", "label", "laterality", "projection", "path", "patient_id")
    assert built.table.select(columns).equals(plain.select(columns))
    assert built.left_out["the same image again"] == 4
    clinical.write_csv(tmp_path / "clinical.csv", separator=";")  # as a spreadsheet may save the workbook
    again = build(tmp_path, tmp_path / "clinical.csv", metadata)
    assert again.table.select(columns).equals(plain.select(columns))


def test_labels_of_nobody_are_refused(tmp_path: Path) -> None:
    metadata, clinical = few(tmp_path)
    clinical.with_columns(ID1=pl.format("CMMD-{}", "ID1")).write_csv(tmp_path / "clinical.csv")
    with pytest.raises(InputError, match=r"expected ID1 of \S*clinical.csv, found none of them in [\d,]+ im"):
        build(tmp_path, metadata, tmp_path / "clinical.csv")


def test_what_is_refused(tmp_path: Path) -> None:
    metadata, clinical = few(tmp_path)
    clinical.write_csv(tmp_path / "clinical.csv")
    files = (metadata, tmp_path / "clinical.csv")
    with pytest.raises(InputError, match=r"--no-files: .* only in their headers"):
        build(tmp_path, *files, look=False)
    wrong = clinical.with_columns(classification=pl.lit("Normal"))
    wrong.write_csv(tmp_path / "clinical.csv")
    with pytest.raises(InputError, match=r"line 2: expected ID1, LeftRight .*found others"):
        build(tmp_path, *files)
    clinical.rename({"LeftRight": "Side"}).write_csv(tmp_path / "clinical.csv")
    with pytest.raises(InputError, match="missing column LeftRight; found ID1, Side"):
        build(tmp_path, *files)
    twice = clinical.with_columns(classification=pl.lit("Benign"))
    pl.concat([clinical, twice]).write_csv(tmp_path / "clinical.csv")
    with pytest.raises(InputError, match="expected one classification of a breast"):
        build(tmp_path, *files)
    workbook = write_workbook(tmp_path / "metadata.xlsx", Sheet1=pl.DataFrame({"a": ["1"]}))
    with pytest.raises(InputError, match=r"metadata.xlsx: expected a CSV file, found an Excel workbook"):
        tc.build_manifest("rsna", workbook, tmp_path / "m.csv", images="/x", look=False)


def test_a_case_stays_positive_where_its_malignant_breast_has_no_image(tmp_path: Path) -> None:
    metadata, clinical = few(tmp_path)
    one = clinical.filter(pl.col("ID1") == "D1-0001").row(0, named=True)
    other = {"L": "R", "R": "L"}[one["LeftRight"]]
    rows = [one | {"classification": "Benign"}, one | {"LeftRight": other, "classification": "Malignant"}]
    others = clinical.filter(pl.col("ID1") != "D1-0001")
    pl.concat([others, pl.DataFrame(rows, schema=others.schema)]).write_csv(tmp_path / "clinical.csv")
    for place in (tmp_path / "CMMD" / "D1-0001").rglob("*.dcm"):
        place.write_bytes(header_file(one["LeftRight"], "CC"))
    built = build(tmp_path, metadata, tmp_path / "clinical.csv")
    (found,) = (found for found in built.findings if found.check == "positives-shown")
    assert [item.case_id for item in found.items] == ["D1-0001"]
    mine = built.table.filter(pl.col("case_id") == "D1-0001")
    assert (set(mine["label"]), set(mine["case_label"])) == ({0}, {1})
