"""manifest rsna, nlbs and csv on the command line: what they print, what they write, how they end."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.clinic.dicom_files import write_case
from tests.manifest import material


@pytest.fixture
def train(tmp_path: Path) -> Path:
    return material.write_rsna(tmp_path / "train.csv", material.few_rsna())


def test_done_with_warnings_is_0(run: Run, train: Path, tmp_path: Path) -> None:
    done = run("manifest", "rsna", train, "--images", "s3://bucket/x", "--out", tmp_path / "m.csv")
    assert done.code == 0
    assert "8 images of 2 cases; positive are 2 images of 1 case." in done.out
    assert "warning: counts-expected" in done.err
    assert "54,706 images expected, 8 found" in done.err


def test_missing_files_are_1_and_listed(run: Run, train: Path, tmp_path: Path) -> None:
    material.touch_files(tmp_path / "dcm", ["10/0.dcm"])
    words = ("rsna", train, "--images", tmp_path / "dcm", "--out", tmp_path / "m.csv")
    done = run("manifest", *words)
    assert done.code == 1
    assert "files-present: 7 images without a usable file" in done.err
    assert "7 of 8 images failed: 2 of 2 cases are incomplete, 1 of them positive" in done.err
    assert f"List: {tmp_path / 'm.missing.csv'}" in done.err
    assert (tmp_path / "m.missing.csv").exists()
    document = json.loads(run("manifest", *words, "--json").out)
    assert document["counts"]["images"] == 8
    assert document["missing"] == str(tmp_path / "m.missing.csv")
    assert {found["check"]: len(found["items"]) for found in document["findings"]} == {
        "counts-expected": 0,
        "files-present": 7,
    }
    assert run("manifest", *words, "--no-files").code == 0
    assert not (tmp_path / "m.missing.csv").exists()


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"a,b\n1,2\n", b"\xff\xfe\x00", b'a,"b\n', b"\0\0\0"])
@pytest.mark.parametrize("kind", ["rsna", "nlbs", "csv"])
def test_bad_input_is_2_without_a_traceback(run: Run, tmp_path: Path, kind: str, content: bytes) -> None:
    metadata = tmp_path / "meta.csv"
    metadata.write_bytes(content)
    done = run("manifest", kind, metadata, "--images", "/x", "--out", tmp_path / "m.csv", "--no-files")
    assert done.code == 2
    assert "error: " in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "m.csv").exists()


def test_the_wrong_set_names_the_right_command(run: Run, train: Path, tmp_path: Path) -> None:
    done = run("manifest", "nlbs", train, "--images", "/x", "--out", tmp_path / "m.csv", "--no-files")
    assert (done.code, "trust-cache manifest rsna" in done.err) == (2, True)


def test_another_manifest_is_refused(run: Run, train: Path, tmp_path: Path) -> None:
    words = ("rsna", train, "--out", tmp_path / "m.csv", "--no-files", "--images")
    assert run("manifest", *words, "/x").code == 0
    assert run("manifest", *words, "/x").code == 0
    assert run("manifest", *words, "/y").code == 2
    assert run("manifest", *words, "/y", "--overwrite").code == 0


def test_warnings_of_nlbs_are_listed_beside(run: Run, tmp_path: Path) -> None:
    rows = material.few_nlbs()
    rows[0]["Age"] = "30"
    metadata = material.write_nlbs(tmp_path / "meta.csv", rows)
    done = run("manifest", "nlbs", metadata, "--images", "/x", "--out", tmp_path / "m.csv", "--no-files")
    assert "ages-agree: 1 case whose images have different ages: p_0000 (ages 30, 61)" in done.err
    assert "m.warnings.csv" in done.err
    assert (tmp_path / "m.warnings.csv").read_text() == (
        'check,case_id,image_id,found\nages-agree,p_0000,,"ages 30, 61"\n'
    )


def test_csv_needs_no_images(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.dcm").write_bytes(b"DICM")
    metadata = tmp_path / "images.csv"
    metadata.write_text("image_id,case_id,label,laterality,projection,path\na,1,0,L,CC,a.dcm\n")
    done = run("manifest", "csv", metadata, "--out", tmp_path / "m.csv")
    assert (done.code, "standard-images-given" in done.err) == (0, True)
    assert run("manifest", "rsna", metadata, "--out", tmp_path / "m.csv").code == 2


@pytest.mark.parametrize("kind", ["rsna", "nlbs", "csv"])
def test_every_command_has_an_example(run: Run, kind: str) -> None:
    shown = run("manifest", kind, "--help")
    assert (shown.code, f"trust-cache manifest {kind}" in shown.out) == (0, True)


def test_no_files_needs_no_images(run: Run, train: Path, tmp_path: Path) -> None:
    refused = run("manifest", "rsna", train, "--out", tmp_path / "m.csv")
    assert (refused.code, "--no-files makes the manifest without them" in refused.err) == (2, True)
    assert run("manifest", "rsna", train, "--out", tmp_path / "m.csv", "--no-files").code == 0
    assert (tmp_path / "m.csv").is_file()


def test_a_folder_without_labels_says_so(run: Run, tmp_path: Path) -> None:
    write_case(tmp_path / "dicoms", 1)
    done = run("manifest", "dicom", tmp_path / "dicoms", "--out", tmp_path / "m.csv")
    assert done.code == 0, done.err
    assert "4 images of 1 case; without labels: for triage, not for training." in done.out
