"""manifest dicom: rows from headers alone, labels from a table, nothing that names a person."""

from pathlib import Path

import polars as pl
import pytest

import trust_cache as tc
from tests.clinic.conftest import read_headers_here  # noqa: F401
from tests.clinic.dicom_files import PROJECTIONS, write_case
from tests.clinic.study_folders import put
from trust_cache.base.errors import InputError
from trust_cache.clinic.incoming_cases import read_case_list
from trust_cache.images.folders.folder_cases import scan_folder
from trust_cache.manifest.cases import find_cases
from trust_cache.manifest.dicom_headers import digest_identity
from trust_cache.manifest.manifest_file import read_manifest
from trust_cache.manifest.technical_tags import TAG_COLUMNS, tags_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three cases of three patients, and a text."""
    for case in (1, 2, 3):
        write_case(tmp_path / "dicoms", case)
    (tmp_path / "dicoms" / "notes.txt").write_text("a text")
    return tmp_path / "dicoms"


def build(folder: Path, labels: pl.DataFrame | None = None, **options: bool) -> pl.DataFrame:
    out = folder.parent / "manifest.csv"
    table = None
    if labels is not None:
        table = folder.parent / "labels.csv"
        labels.write_csv(table)
    return tc.build_manifest("dicom", folder, out, labels=table, overwrite=True, **options).table


def studies(folder: Path) -> list[str]:
    return sorted(set(build(folder)["case_id"]))


def test_rows_without_labels_are_for_triage_alone(folder: Path) -> None:
    result = tc.build_manifest("dicom", folder, folder / "manifest.csv")
    table = result.table
    assert result.entries == "16 entries: 3 folders, 12 images; ignored: 1 other file"
    assert table["image_id"].to_list() == sorted(
        f"000{case}/{name}" for case in (1, 2, 3) for name in PROJECTIONS
    )
    assert table["label"].null_count() == 12
    assert table.group_by("case_id").agg(pl.col("patient_id").n_unique())["patient_id"].to_list() == [1, 1, 1]
    taken = read_case_list(folder / "manifest.csv").cases
    scanned = scan_folder(folder, [folder / "manifest.csv"]).cases
    assert [(case.case_id, case.images) for case in taken] == [
        (case.case_id, case.images) for case in scanned
    ]
    for needs_labels in (lambda: tc.preprocess(folder / "manifest.csv", folder.parent / "png"),
                         lambda: read_manifest(folder / "manifest.csv")):  # fmt: skip
        with pytest.raises(InputError, match=r"expected labels, found none: `triage` takes .* --labels FILE"):
            needs_labels()
    assert tc.build_manifest("dicom", folder, folder / "manifest.csv").table.equals(table)


def test_nothing_that_names_a_person_is_written(folder: Path) -> None:
    place = folder / "0001"
    named = {"PatientName": "Doe^Jane", "PatientBirthDate": "19600101", "StationName": "STATION7"}
    machine = {"DeviceSerialNumber": "SER123", "InstitutionName": "General Hospital", "StudyDate": "20200102"}
    for name in PROJECTIONS:
        put(place, 1, name, PatientID="ID-778899", Manufacturer="HOLOGIC", **named, **machine)
    build(folder, tags=True)
    written = "".join(path.read_text() for path in folder.parent.glob("manifest*.csv"))
    digest = digest_identity(["ID-778899"])
    for word in (digest[:8], "778899", "Doe", "Jane", "1960", "STATION7", "SER123", "Hospital", "20200102"):
        assert word not in written
    assert "HOLOGIC" in written


def test_a_patient_is_named_by_the_least_of_her_cases(folder: Path) -> None:
    """Nothing of the id is in the name: any other ids give the same manifest."""
    first = build(folder)
    for case in (1, 2, 3):
        for name in PROJECTIONS:
            put(folder / f"000{case}", case, name, PatientID=str(9 - case))
    assert build(folder).equals(first)
    for case in (1, 2):
        for name in PROJECTIONS:
            put(folder / f"000{case}", case, name, PatientID="Somebody")
    table = build(folder)
    number = pl.col("image_id").str.slice(3, 1)
    cases, patients = (
        dict(table.select(number, name).unique().iter_rows()) for name in ("case_id", "patient_id")
    )
    both = min(cases["1"], cases["2"])
    assert patients == {"1": both, "2": both, "3": cases["3"]}


@pytest.mark.parametrize("names", [("A", "B"), ("B", "A")])
def test_patients_whose_images_are_in_one_case_are_one(folder: Path, names: tuple[str, str]) -> None:
    """The first case has images of both patients, the others are of one each."""
    for case, of_images in ((1, names * 2), (2, names[:1] * 4), (3, names[1:] * 4)):
        for name, patient in zip(PROJECTIONS, of_images, strict=True):
            put(folder / f"000{case}", case, name, PatientID=patient)
    table = build(folder)
    assert set(table["patient_id"]) == {table["case_id"].min()}


@pytest.mark.parametrize("by", ["path", "file", "image_id", "case_id", "patient_id"])
@pytest.mark.parametrize("sided", [False, True])
def test_labels_by_file_case_and_patient(folder: Path, by: str, sided: bool) -> None:
    names = studies(folder)
    rows = build(folder).select("image_id", "case_id", "laterality")
    case_of = {case_id: number for number, case_id in enumerate(names)}
    one = rows["case_id"].unique().sort()[0]
    keys = {
        "path": pl.format("{}.dcm", "image_id").str.replace_all("/", "\\", literal=True),
        "file": pl.format("./{}.dcm", "image_id"),
        "image_id": pl.col("image_id"),
        "case_id": pl.col("case_id"),
        "patient_id": pl.format(" PATIENT  {}", pl.col("image_id").str.slice(3, 1)),
    }
    positive = (pl.col("case_id") == one) & (pl.col("laterality") == "L" if sided else pl.lit(value=True))
    expected = rows.with_columns(label=positive.cast(pl.Int64))
    labels = expected.with_columns(key=keys[by])
    kept = ["key", "laterality", "label"] if sided else ["key", "label"]
    table = build(folder, labels.select(kept).unique().rename({"key": by}))
    assert len(case_of) == 3
    assert table.select("image_id", "label").rows() == expected.select("image_id", "label").rows()
    assert read_manifest(folder.parent / "manifest.csv").table["label"].sum() == (2 if sided else 4)


def test_a_side_without_a_label_is_left_out_and_counted(folder: Path) -> None:
    first, second, _ = studies(folder)
    (folder / "0001" / "lost.dcm").write_bytes(b"\0" * 400)
    rows = {"case_id": [first, second, "1.2.3"], "laterality": ["L", None, None], "label": [1, 0, 0]}
    pl.DataFrame(rows).write_csv(folder.parent / "labels.csv")
    built = tc.build_manifest("dicom", folder, folder.parent / "m.csv", labels=folder.parent / "labels.csv")
    ((reason, number),) = built.left_out.items()
    assert (reason.startswith("without a label in "), number) == (True, 2 + 4)
    lost = built.table.filter(pl.col("image_id") == "0001/lost")
    case = scan_folder(folder).cases
    mine = next(item for item in case if any(image.image_id == "0001/L-CC" for image in item.images))
    # It keeps its row in the case that it lies with, with the label of the case.
    assert lost.select("case_id", "laterality").row(0) == (mine.case_id, None)
    assert {found.check for found in built.findings} >= {"left-out", "labels-used", "unexplained"}


def test_labels_that_cannot_be_joined_are_refused(folder: Path) -> None:
    first = studies(folder)[0]
    nothing_fits = {
        "case_id": r"by case: the file has 1 key of the form a-9 in the column case_id, the folder 3"
        r" StudyInstanceUIDs of the form (9\.)+9$",
        "path": "by file: the file has 1 key of the form a-9 in the column path, the folder 12 files of the"
        " form 9/a-a$",
        "patient_id": "by patient: the file has 1 key of the form a-9 in the column patient_id, the folder 3"
        " PatientIDs$",
    }
    for column, words in nothing_fits.items():
        with pytest.raises(InputError, match=f"found none that fits {words}"):
            build(folder, pl.DataFrame({column: ["case-12.dcm"[: 7 + 4 * (column == "path")]], "label": [1]}))
    for case in (1, 2, 3):  # a whole case of one side, labelled on the other
        for name in ("R-CC", "R-MLO"):
            (folder / f"000{case}" / f"{name}.dcm").rename(folder.parent / f"{case}{name}.dcm")
    with pytest.raises(InputError, match="by case and laterality: the keys are there, but no image"):
        build(folder, pl.DataFrame({"case_id": [first], "laterality": ["R"], "label": [1]}))
    for case in (1, 2, 3):
        for name in ("R-CC", "R-MLO"):
            (folder.parent / f"{case}{name}.dcm").rename(folder / f"000{case}" / f"{name}.dcm")
    with pytest.raises(InputError, match=r"expected the column label and one of path, .*; found case, label"):
        build(folder, pl.DataFrame({"case": ["1.2.3"], "label": [1]}))
    with pytest.raises(InputError, match="line 2: expected a label of 0 or 1, found 'yes'"):
        build(folder, pl.DataFrame({"case_id": [first], "label": ["yes"]}))
    with pytest.raises(InputError, match="lines 2, 3: expected one label"):
        build(folder, pl.DataFrame({"case_id": [first, first], "label": [0, 1]}))
    for name in PROJECTIONS:
        put(folder / "0002", 2, name, PatientID="patient 1")
    with pytest.raises(InputError, match=r"line 2: the patient has 2 cases .* by case_id"):
        build(folder, pl.DataFrame({"patient_id": ["patient 1"], "label": [1]}))
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match="expected DICOM files, found none"):
        build(folder / "empty")
    with pytest.raises(InputError, match="labels: expected the data set dicom"):
        tc.build_manifest("rsna", folder, folder / "m.csv", labels=folder)


def test_tags_are_columns_of_cases(folder: Path) -> None:
    machine = {"Manufacturer": "GE", "ManufacturerModelName": "Senographe Essential", "KVP": "29"}
    for number, name in enumerate(PROJECTIONS):
        exposure = {"BodyPartThickness": str(40 + 10 * number), "CompressionForce": "77.125"}
        place = put(folder / "0001", 1, name, **exposure, **machine)
        place.write_bytes(place.read_bytes().replace(b"77.125", b"strong"))  # no number: absent
    table = build(folder, tags=True)
    assert set(TAG_COLUMNS) <= set(table.columns)
    mine = table.filter(pl.col("image_id").str.starts_with("0001"))
    expected = ("GE", "Senographe Essential", "29.0")
    assert set(mine.select("manufacturer", "model", "kvp").iter_rows()) == {expected}
    assert set(mine["compression_thickness_mm"]) == {"55.0"}
    assert mine["compression_force_n"].null_count() == 4
    assert set(table["manufacturer"]) == {"GE", "Synthetic"}


def test_tags_of_any_data_set_and_what_stops_them(folder: Path) -> None:
    rows = [f"{name},1,0,{name[0]},{name[2:]},0001/{name}.dcm" for name in PROJECTIONS]
    table = folder / "images.csv"
    table.write_text("\n".join(["image_id,case_id,label,laterality,projection,path", *rows]))
    out = folder.parent / "m.csv"
    assert set(tc.build_manifest("csv", table, out, tags=True).table["model"]) == {"Phantom"}
    with pytest.raises(InputError, match=r"--tags: .* leave out --no-files"):
        tc.build_manifest("csv", table, out, tags=True, look=False)
    table.write_text(table.read_text().replace("\n", ",x\n").replace("path,x", "path,model") + ",x")
    with pytest.raises(InputError, match="column model has the name of one that the manifest makes"):
        tc.build_manifest("csv", table, out, tags=True, overwrite=True)


@pytest.mark.parametrize("text", ["", "x" * 65, "Doe\x00", "=cmd()", "Jane;Doe", "é"])
def test_unusual_texts_are_no_tags(text: str) -> None:
    assert tags_of({"Manufacturer": text, "KVP": "nan", "Exposure": "-1", "BodyPartThickness": "inf"}) == {}


def test_a_case_stays_positive_where_its_positive_side_has_no_image(folder: Path) -> None:
    first, *others = studies(folder)
    of_first = build(folder).filter(pl.col("case_id") == first)
    for place in of_first.filter(pl.col("laterality") == "L")["path"]:
        (folder.parent / place).unlink()
    ids = [first, first, *others]
    labels = pl.DataFrame({"case_id": ids, "laterality": ["L", "R", None, None], "label": [1, 0, 0, 0]})
    table = build(folder, labels)
    assert table["label"].sum() == 0
    assert set(table.filter(pl.col("case_label") == 1)["case_id"]) == {first}
    assert find_cases(read_manifest(folder.parent / "manifest.csv").table).labels.sum() == 1


def test_a_finding_about_an_image_is_listed_once(folder: Path) -> None:
    """A secondary capture names no side, so it is not decoded: its findings are of its header alone."""
    changes = {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.7", "Modality": "OT", "ImageLaterality": None}
    put(folder / "0001", 1, "L-CC", "capture.dcm", "2", **changes)
    built = tc.build_manifest("dicom", folder, folder.parent / "m.csv")
    for check in ("sop-class", "image-kind"):
        (found,) = (found for found in built.findings if found.check == check)
        assert [item.image_id for item in found.items] == ["0001/capture"]
        assert found.sentence.startswith("1 image to look at")
