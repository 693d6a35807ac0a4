"""Every entry of a folder is an image, known to be harmless, or a reason; no header is taken on trust."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace
from pydicom import dcmread
from pydicom.uid import SecondaryCaptureImageStorage

from tests.clinic.dicom_files import PROJECTIONS, write_case
from tests.clinic.study_folders import DISMISSED, REVIEWED, UNREADABLE, put, write_studies
from tests.clinic.triage_material import place_model, scores_by_extract, tiny_head, tiny_model
from trust_cache.cache.extract.view_features import torch_threads
from trust_cache.clinic.triage import Triage, TriageSettings, triage
from trust_cache.clinic.worklist import WorklistRow
from trust_cache.images.folders.folder_manifest import build_folder_manifest
from trust_cache.manifest.picture_checks import CHECKS
from trust_cache.manifest.protocol import SCREENING

ABOVE_ALL = 0.999  # a threshold above every score: whatever is complete is dismissed


@dataclass(frozen=True)
class Folder:
    place: Path
    model: Path
    done: Triage
    names: dict[str, str]

    def rows(self, name: str) -> list[WorklistRow]:
        """The rows of a study: its case, and entries that stand for themselves."""
        (folder,) = [folder for folder, given in self.names.items() if given == name]
        return [
            row
            for row in self.done.rows
            if f"{folder}/" in str(row.image_id)
            or row.case_id.startswith(f"{folder}/")
            or f"{folder}/" in str(row.reason)
        ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    place = tmp_path_factory.mktemp("folders")
    (place / "some").mkdir()
    write_case(place / "some", 9001)
    scores_by_extract(place / "some", [9001], tiny_head(), place)
    model = place_model(place / "model", tiny_model(place / "cache.zarr", ABOVE_ALL))
    names = write_studies(place / "dicoms")
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if isinstance(path, Path) and path.name == UNREADABLE:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    with pytest.MonkeyPatch.context() as patch, torch_threads(1):
        patch.setattr(os, "scandir", refusing)
        done = triage(place / "dicoms", model, place / "worklist.csv", TriageSettings(workers=1))
    return Folder(place, model, done, names)


def test_there_are_enough_studies() -> None:
    assert len(DISMISSED) + len(REVIEWED) >= 60


@pytest.mark.parametrize("name", DISMISSED)
def test_whole_studies_are_dismissed(folder: Folder, name: str) -> None:
    (row,) = folder.rows(f"d {name}")
    assert (row.decision, row.reason) == ("dismiss", None)


@pytest.mark.parametrize("name", REVIEWED)
def test_what_is_not_explained_is_reviewed(folder: Folder, name: str) -> None:
    rows = folder.rows(f"r {name}")
    assert rows
    assert {row.decision for row in rows} == {"review"}
    assert REVIEWED[name][1] in "; ".join(str(row.reason) for row in rows)


def test_a_study_whose_score_is_high_is_reviewed_without_a_reason(folder: Folder, tmp_path: Path) -> None:
    """The study with reports and raw copies is decided by its score, as the plain one is."""
    model = place_model(tmp_path / "model", tiny_model(folder.place / "cache.zarr", 1e-9))
    (name,) = [place for place, given in folder.names.items() if given == "d reports, states and raw copies"]
    done = triage(folder.place / "dicoms" / name, model, tmp_path / "w.csv", TriageSettings(workers=1))
    (row,) = done.rows
    assert (row.decision, row.complete, row.reason) == ("review", True, None)
    assert done.counts is not None
    assert (done.counts.images, done.counts.raw_copies) == (4, 4)
    assert sum(done.counts.harmless.values()) == len(done.counts.harmless)


def test_the_entries_add_up(folder: Folder) -> None:
    """Counted by the system itself: links are not followed into folders."""
    counts = folder.done.counts
    assert counts is not None
    entries = sum(
        len(inside) + len(files) for _, inside, files in os.walk(folder.place / "dicoms", followlinks=False)
    )
    hidden = sum(len(list(place.iterdir())) for place in (folder.place / "dicoms").rglob(UNREADABLE))
    assert counts.entries == entries - hidden
    assert f"{counts.entries:,} entries: " in counts.sentence
    assert counts.unexplained > 0


def test_the_worklist_may_be_in_the_folder(folder: Folder, tmp_path: Path) -> None:
    """Its journal and lock are no reason, whenever they were left behind."""
    write_case(tmp_path, 1)
    for _ in range(2):
        done = triage(tmp_path, folder.model, tmp_path / "0001" / "w.csv", TriageSettings(workers=1))
        assert [row.decision for row in done.rows] == ["dismiss"]
        (tmp_path / "0001" / ".w.csv.work").mkdir(exist_ok=True)


def test_an_entry_with_the_name_of_another_has_its_own_row(folder: Folder, tmp_path: Path) -> None:
    """A link that is named as the study, two broken files of one name, a broken twin of an image."""
    place = write_case(tmp_path / "in", 1)
    study = str(dcmread(place / "R-CC.dcm").StudyInstanceUID)
    (tmp_path / "in" / study).symlink_to(tmp_path / "gone")
    for name in ("broken", "broken.dcm", "L-CC"):
        (place / name).write_bytes(b"\0" * 200)
    done = triage(tmp_path / "in", folder.model, tmp_path / "w.csv", TriageSettings(workers=1))
    rows = [(row.case_id, row.image_id) for row in done.rows]
    assert len(set(rows)) == len(rows) == 5
    assert {case for case, _ in rows} == {
        study, f"./{study}", "0001/L-CC", "0001/broken", "0001/broken.dcm"
    }  # fmt: skip
    built = build_folder_manifest(tmp_path / "in", tmp_path / "manifest.csv").manifest.table
    assert built["image_id"].n_unique() == built.height == 8


def test_a_name_that_is_not_utf8_is_written_escaped(tmp_path: Path) -> None:
    place = write_case(tmp_path / "in", 1)
    (place / "R-CC.dcm").rename(os.fsdecode(os.fsencode(place) + b"/\xff.dcm"))
    table = build_folder_manifest(tmp_path / "in", tmp_path / "manifest.csv").manifest.table
    (row,) = table.filter(pl.col("image_id") == "0001/\\udcff").rows(named=True)
    assert (row["laterality"], row["projection"], row["path"]) == ("R", "CC", None)


MIXED = {
    "a view that links to another": "same-image",
    "two women": "patient: the images of the case name different patients",
    "two studies": "study: the images of the case are of different studies",
    "identical files": "same-image",
    "another view in the header": "projection: the header's projection is MLO, the manifest's CC",
    "magnification": "view-modifier",
    "raw": "presentation-intent",
    "plain": "",
}


@pytest.mark.parametrize("kind", MIXED)
def test_a_manifest_is_not_taken_on_trust(folder: Folder, tmp_path: Path, kind: str) -> None:
    place = write_case(tmp_path, 1)
    if kind == "a view that links to another":
        (place / "L-MLO.dcm").unlink()
        (place / "L-MLO.dcm").symlink_to(place / "L-CC.dcm")
    elif kind == "identical files":
        (place / "L-MLO.dcm").write_bytes((place / "L-CC.dcm").read_bytes())
    elif kind == "two women":
        put(place, 1, "R-CC", PatientName="Other^Woman")
    elif kind == "two studies":
        put(place, 1, "R-CC", StudyInstanceUID="1.2.3")
    elif kind == "another view in the header":
        put(place, 1, "R-CC", ViewPosition="MLO")
    elif kind == "magnification":
        put(place, 1, "R-CC", EstimatedRadiographicMagnificationFactor="2")
    elif kind == "raw":
        put(place, 1, "R-CC", PresentationIntentType="FOR PROCESSING")
    rows = [f"7,{name[0]},{name[2:]},0001/{name}.dcm" for name in PROJECTIONS]
    (tmp_path / "new.csv").write_text("\n".join(["case_id,laterality,projection,path", *rows]))
    done = triage(tmp_path / "new.csv", folder.model, tmp_path / "w.csv", TriageSettings(workers=1))
    (row,) = done.rows
    assert row.decision == ("review" if MIXED[kind] else "dismiss")
    assert MIXED[kind] in str(row.reason)
    assert done.counts is None


def folder_manifest(folder: Folder, out: Path) -> pl.DataFrame:
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if isinstance(path, Path) and path.name == UNREADABLE:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", refusing)
        return build_folder_manifest(folder.place / "dicoms", out).manifest.table


def test_a_manifest_of_the_folder_classifies_alike(folder: Folder, tmp_path: Path) -> None:
    """Every row of the worklist is of a case of the manifest, and the images are the same."""
    table = folder_manifest(folder, tmp_path / "manifest.csv")
    rows = {row.case_id: row for row in folder.done.rows}
    cases = set(table["case_id"])
    # An entry without a study is a case of its own in the worklist, and an image of the case beside it here.
    strays = {case_id for case_id in rows if case_id not in cases}
    assert cases <= set(rows)
    assert strays <= set(table["image_id"])
    assert folder.done.counts is not None
    assert table.height == folder.done.counts.images + folder.done.counts.unexplained
    sided = table.filter(pl.col("laterality").is_not_null() & pl.col("projection").is_not_null())
    dismissed = [case for case, row in rows.items() if row.decision == "dismiss"]
    for case in dismissed:
        mine = sided.filter(pl.col("case_id") == case)
        assert mine.height == table.filter(pl.col("case_id") == case).height
        assert set(pl.select(pl.format("{}-{}", mine["laterality"], mine["projection"])).to_series()) == set(
            PROJECTIONS
        )


@pytest.mark.slow
def test_triage_of_the_manifest_decides_as_triage_of_the_folder(folder: Folder, tmp_path: Path) -> None:
    folder_manifest(folder, tmp_path / "manifest.csv")
    with torch_threads(1):
        done = triage(tmp_path / "manifest.csv", folder.model, tmp_path / "w.csv", TriageSettings(workers=1))
    decided = {row.case_id: row.decision for row in done.rows}
    by_folder = {row.case_id: row.decision for row in folder.done.rows if row.case_id in decided}
    # Only a folder must name its patients: the rows of a manifest are somebody's decision already.
    nobody = {row.case_id for row in folder.rows("r nobody")}
    assert {case: what for case, what in decided.items() if by_folder[case] != what} == dict.fromkeys(
        nobody, "dismiss"
    )


# What the files of a public, de-identified data set lack.
LACKING = (
    "SOPClassUID", "Modality", "ViewPosition", "ViewCodeSequence", "ImageType", "ImageLaterality",
    "Laterality", "PatientName", "PatientBirthDate", "PresentationIntentType", "BodyPartExamined",
)  # fmt: skip


def test_files_of_a_public_data_set_have_a_way_through(folder: Folder, tmp_path: Path) -> None:
    """They need a manifest and a protocol that accepts what their headers lack; each reason says so."""
    place = write_case(tmp_path, 1)
    for name in PROJECTIONS:
        dataset = dcmread(place / f"{name}.dcm")
        for keyword in LACKING:
            if keyword in dataset:
                delattr(dataset, keyword)
        dataset.PatientID = "of another folder"
        dataset.file_meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
        dataset.save_as(place / f"{name}.dcm")
    settings = TriageSettings(workers=1)
    scanned = triage(tmp_path, folder.model, tmp_path / "scan.csv", settings)
    assert {row.decision for row in scanned.rows} == {"review"}
    assert "(--manifest)" in "; ".join(str(row.reason) for row in scanned.rows)
    rows = [f"7,{name[0]},{name[2:]},0001/{name}.dcm" for name in PROJECTIONS]
    (tmp_path / "new.csv").write_text("\n".join(["case_id,laterality,projection,path", *rows]))
    (row,) = triage(tmp_path / "new.csv", folder.model, tmp_path / "listed.csv", settings).rows
    assert row.decision == "review"
    assert "accept the check in a protocol of your own" in str(row.reason)
    assert {part.split(": ")[1] for part in str(row.reason).split("; ")} == {"sop-class"}
    mine = replace(SCREENING, name="public", accepted_checks=("sop-class",))
    made = tiny_model(folder.place / "cache.zarr", ABOVE_ALL, protocol=mine)
    model = place_model(tmp_path / "model", made)
    (row,) = triage(tmp_path / "new.csv", model, tmp_path / "accepted.csv", settings).rows
    assert (row.decision, row.reason) == ("dismiss", None)


def test_every_reason_says_what_to_do(folder: Folder) -> None:
    """A reason ends with an instruction; a finding with that of its check, after the value and the limit."""
    for row in folder.done.rows:
        for part in str(row.reason).split("; ") if row.reason else ():
            check = next((name for name in CHECKS if f": {name}: " in part), None)
            if check is not None:
                assert part.endswith(f". {CHECKS[check]}"), part
        assert row.reason is None or re.search(r"\. [A-Z][a-z]+ [^.]+$", row.reason), row.reason
