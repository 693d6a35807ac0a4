"""Cases are found by their DICOM headers, and every broken file is noticed."""

from pathlib import Path

import pytest

from tests.clinic.dicom_files import PROJECTIONS, content, tags_of, write_case
from trust_cache.base.errors import InputError
from trust_cache.clinic.incoming_cases import read_case_list
from trust_cache.images.folders.folder_cases import IncomingCase, scan_folder
from trust_cache.manifest.cases import case_problems
from trust_cache.manifest.protocol import SCREENING
from trust_cache.synthetic.synthetic_dicom import BROKEN_KINDS


def known_problems(item: IncomingCase) -> tuple[str, ...]:
    """What is wrong with a case before it is decoded."""
    return (*item.problems, *case_problems([image.described() for image in item.images], SCREENING))


def problems(folder: Path) -> dict[str, tuple[str, ...]]:
    """The problems of the case in each folder."""
    found = {}
    for item in scan_folder(folder).cases:
        for image in item.images:
            key = str(Path(image.location).parent.relative_to(folder))
            found[key] = (*found.get(key, ()), *known_problems(item))
    return found


def test_complete_cases(tmp_path: Path) -> None:
    for case in range(3):
        write_case(tmp_path, case)
    scan = scan_folder(tmp_path)
    assert scan.counts is not None
    assert (scan.counts.entries, scan.counts.folders, scan.counts.images) == (15, 3, 12)
    assert len(scan.cases) == 3
    for item in scan.cases:
        assert sorted(image.described().sided_projection for image in item.images) == sorted(PROJECTIONS)
        assert known_problems(item) == ()
        assert item.case_id.startswith("1.2.826")
        assert "patient" not in str(item)


def test_several_images_of_a_projection_are_allowed(tmp_path: Path) -> None:
    place = write_case(tmp_path, 1)
    again = content(1, "L-CC", tags=tags_of("1", "L-CC", "2"))
    (place / "again.dcm").write_bytes(again or b"")
    (item,) = scan_folder(tmp_path).cases
    assert len(item.images) == 5
    assert known_problems(item) == ()


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_a_missing_projection(tmp_path: Path, projection: str) -> None:
    (write_case(tmp_path, 1) / f"{projection}.dcm").unlink()
    assert {text.partition(".")[0] for text in problems(tmp_path)["0001"]} == {
        f"missing projection {projection}"
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"laterality": None}, "unknown projection ?-MLO"),
        ({"laterality": "B"}, "unknown projection ?-MLO"),
        ({"view_position": None}, "unknown projection R-?"),
        ({"view_position": "ML"}, "unexpected projection R-ML"),
        ({"patient_id": "another"}, "different patients"),
    ],
)
def test_headers_that_contradict_the_case(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    place = write_case(tmp_path, 1)
    (place / "R-MLO.dcm").write_bytes(content(1, "R-MLO", tags=tags_of("1", "R-MLO", **changes)) or b"")
    assert words in "; ".join(problems(tmp_path)["0001"])


def test_a_further_unexpected_projection(tmp_path: Path) -> None:
    place = write_case(tmp_path, 1)
    (place / "more.dcm").write_bytes(content(1, "L-XCCL") or b"")
    assert "unexpected projection L-XCCL: image 0001/more" in "; ".join(problems(tmp_path)["0001"])


def test_a_copy_of_a_file(tmp_path: Path) -> None:
    place = write_case(tmp_path, 1)
    (place / "copy.dcm").write_bytes((place / "L-CC.dcm").read_bytes())
    assert "the same SOPInstanceUID as image 0001/copy" in "; ".join(problems(tmp_path)["0001"])


def test_one_image_in_two_cases(tmp_path: Path) -> None:
    write_case(tmp_path, 1)
    other = write_case(tmp_path, 2)
    tags = tags_of("2", "L-CC", further=(("SOPInstanceUID", _instance(tmp_path / "0001" / "L-CC.dcm")),))
    (other / "L-CC.dcm").write_bytes(content(2, "L-CC", tags=tags) or b"")
    for found in problems(tmp_path).values():
        assert any("the same SOPInstanceUID" in text for text in found)


def _instance(path: Path) -> str:
    from pydicom import dcmread  # noqa: PLC0415 - an oracle for one test

    return str(dcmread(path, stop_before_pixels=True).SOPInstanceUID)


@pytest.mark.parametrize("kind", ["not a DICOM", "zero bytes", "no study"])
def test_an_unassignable_file_counts_against_its_folder(tmp_path: Path, kind: str) -> None:
    place = write_case(tmp_path, 1)
    write_case(tmp_path, 2)
    if kind == "no study":
        tags = tags_of("1", "L-CC", further=(("StudyInstanceUID", ""),))
        (place / "more.dcm").write_bytes(content(1, "L-CC", tags=tags) or b"")
    else:
        (place / "more.dcm").write_bytes(content(1, "L-CC", broken=kind) or b"")
    by_case = {item.case_id: item for item in scan_folder(tmp_path).cases}
    assert len(by_case) == 3
    assert by_case["0001/more"].images[0].problem is not None
    found = problems(tmp_path)
    assert any("unassignable entry in the same folder: 0001/more" in text for text in found["0001"])
    assert found["0002"] == ()


def test_in_one_flat_folder_it_counts_against_all(tmp_path: Path) -> None:
    for case in (1, 2):
        place = write_case(tmp_path, case)
        for path in place.iterdir():
            path.rename(tmp_path / f"{case}-{path.name}")
    (tmp_path / "torn.dcm").write_bytes(b"\0" * 99)
    for item in scan_folder(tmp_path).cases:
        if item.case_id != "torn":
            assert any("torn" in text for text in item.problems)


def test_deeper_folders(tmp_path: Path) -> None:
    """A stray file counts against the only case of the nearest folder, never against several."""
    for case in (1, 2):
        place = write_case(tmp_path / "normal", case)
        for path in list(place.iterdir()):
            (place / path.stem).mkdir()
            path.rename(place / path.stem / "IM.dcm")
    (tmp_path / "normal" / "0001" / "X").mkdir()
    (tmp_path / "normal" / "0001" / "X" / "IM.dcm").write_bytes(b"nothing")
    (tmp_path / "normal" / "0003").mkdir()
    (tmp_path / "normal" / "0003" / "IM.dcm").write_bytes(b"nothing either")
    tainted = [item for item in scan_folder(tmp_path).cases if item.problems]
    assert len(tainted) == 1
    assert "0001" in tainted[0].images[0].location


@pytest.mark.parametrize("kind", [kind for kind in BROKEN_KINDS if kind != "missing"])
def test_a_broken_file_of_each_kind_stays_with_its_case_or_is_noticed(tmp_path: Path, kind: str) -> None:
    place = write_case(tmp_path, 1)
    (place / "L-CC.dcm").write_bytes(content(1, "L-CC", broken=kind) or b"")
    (whole,) = [item for item in scan_folder(tmp_path).cases if len(item.images) > 1]
    listed = any(image.image_id == "0001/L-CC" for image in whole.images)
    assert listed or any("missing projection L-CC" in text for text in known_problems(whole))


def test_files_that_are_not_images_are_skipped(tmp_path: Path) -> None:
    place = write_case(tmp_path, 1)
    (tmp_path / "train.csv").write_text("a,b\n")
    (tmp_path / "README").write_text("These are files.\n")
    (place / ".DS_Store").write_bytes(b"\0\1")
    scan = scan_folder(tmp_path)
    assert scan.counts is not None
    assert (scan.counts.other_files, scan.counts.unexplained) == (3, 0)
    assert known_problems(scan.cases[0]) == ()


def test_names_that_differ_only_in_their_ending(tmp_path: Path) -> None:
    place = write_case(tmp_path, 1)
    again = content(1, "L-CC", tags=tags_of("1", "L-CC", "2"))
    (place / "L-CC").write_bytes(again or b"")
    (item,) = scan_folder(tmp_path).cases
    names = [image.image_id for image in item.images]
    assert len(set(names)) == 5
    assert {"0001/L-CC", "0001/L-CC.dcm"} <= set(names)


def test_folders_without_dicom_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected DICOM files, found none"):
        scan_folder(tmp_path)
    with pytest.raises(InputError, match="found neither"):
        scan_folder(tmp_path / "none")
    (tmp_path / "notes.txt").write_text("a text")
    with pytest.raises(InputError, match=r"found none; the folder has 1 entry: ignored: 1 other file$"):
        scan_folder(tmp_path)
    with pytest.raises(InputError, match="found another file; give the folder that it is in"):
        scan_folder(tmp_path / "notes.txt")


def test_a_manifest_of_new_cases(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    rows = [f"007,{projection[0].lower()},{projection[2:]},a/{projection}.dcm" for projection in PROJECTIONS]
    path.write_text(
        "\n".join(["case_id,laterality,projection,path", *rows, "8,,CC,b.dcm", "8,R,,", "9,B,CC,c"])
    )
    items = read_case_list(path).cases
    assert [item.case_id for item in items] == ["007", "8", "9"]
    assert known_problems(items[0]) == ()
    assert {image.location for image in items[0].images} == {
        str(tmp_path / f"a/{projection}.dcm") for projection in PROJECTIONS
    }
    for words in ("unknown projection ?-CC", "the manifest has no path", "missing projection L-MLO"):
        assert words in "; ".join(known_problems(items[1]))
    assert "unknown projection ?-CC" in "; ".join(known_problems(items[2]))
    moved = read_case_list(path, tmp_path / "other").cases
    assert moved[0].images[0].location.startswith(str(tmp_path / "other"))


def test_the_same_file_twice_in_a_manifest(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    rows = [f"7,{projection[0]},{projection[2:]},{projection}.dcm,{projection}" for projection in PROJECTIONS]
    path.write_text("\n".join(["case_id,laterality,projection,path,image_id", *rows, "7,L,CC,L-CC.dcm,more"]))
    (item,) = read_case_list(path).cases
    assert any("the same file twice" in text for text in known_problems(item))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("case_id,laterality,projection\n1,L,CC\n", "missing column path"),
        ("case_id,laterality,projection,path\n,L,CC,a\n", "line 2: expected a case_id"),
        ("case_id,laterality,projection,path\n1,L,CC,a\n2,L,CC,a\n", "image_id a occurs more than once"),
    ],
)
def test_invalid_manifests(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "new.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_case_list(path)


def test_a_case_without_images() -> None:
    expected = [f"missing projection {projection}" for projection in SCREENING.projections]
    found = known_problems(IncomingCase("1", ()))
    assert [text.partition(".")[0] for text in found] == expected
