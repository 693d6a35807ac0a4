"""Folders of DICOM files: examinations by their headers, and no broken file that goes unnoticed."""

from pathlib import Path

import pytest

from tests.service.triage.files import VIEWS, content, tags_of, write_examination
from trust_cache.base.errors import InputError
from trust_cache.images.synthetic_dicom import BROKEN_KINDS
from trust_cache.service.triage.examinations import (
    STANDARD,
    Examination,
    parse_required,
    with_problems,
)
from trust_cache.service.triage.listing import list_examinations
from trust_cache.service.triage.scanning import scan_folder


def problems(folder: Path) -> dict[str, tuple[str, ...]]:
    """What is wrong with the examination of each folder, by the folders of its pictures."""
    found = {}
    for item in scan_folder(folder).examinations:
        for picture in item.pictures:
            key = str(Path(picture.location).parent.relative_to(folder))
            found[key] = (*found.get(key, ()), *with_problems(item, STANDARD).problems)
    return found


def test_whole_examinations(tmp_path: Path) -> None:
    for case in range(3):
        write_examination(tmp_path, case)
    scan = scan_folder(tmp_path)
    assert scan.passed_over == 0
    assert len(scan.examinations) == 3
    for item in scan.examinations:
        assert sorted(picture.view for picture in item.pictures) == sorted(VIEWS)
        assert with_problems(item, STANDARD).problems == ()
        assert item.case_id.startswith("1.2.826")
        assert "patient" not in str(item)


def test_several_pictures_of_a_view_are_in_order(tmp_path: Path) -> None:
    place = write_examination(tmp_path, 1)
    again = content(1, "L-CC", tags=tags_of("1", "L-CC", "2"))
    (place / "again.dcm").write_bytes(again or b"")
    (item,) = scan_folder(tmp_path).examinations
    assert len(item.pictures) == 5
    assert with_problems(item, STANDARD).problems == ()


@pytest.mark.parametrize("view", VIEWS)
def test_a_missing_view(tmp_path: Path, view: str) -> None:
    (write_examination(tmp_path, 1) / f"{view}.dcm").unlink()
    assert problems(tmp_path)["0001"] == (f"missing view {view}",) * 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"laterality": None}, "unknown view ?-MLO"),
        ({"laterality": "B"}, "unknown view ?-MLO"),
        ({"view_position": None}, "unknown view R-?"),
        ({"view_position": "ML"}, "unexpected view R-ML"),
        ({"patient_id": "another"}, "different patients"),
    ],
)
def test_headers_that_say_something_else(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    place = write_examination(tmp_path, 1)
    (place / "R-MLO.dcm").write_bytes(content(1, "R-MLO", tags=tags_of("1", "R-MLO", **changes)) or b"")
    assert words in "; ".join(problems(tmp_path)["0001"])


def test_a_further_unexpected_view(tmp_path: Path) -> None:
    place = write_examination(tmp_path, 1)
    (place / "more.dcm").write_bytes(content(1, "L-XCCL") or b"")
    assert "unexpected view L-XCCL: image 0001/more" in problems(tmp_path)["0001"]


def test_a_copy_of_a_file(tmp_path: Path) -> None:
    place = write_examination(tmp_path, 1)
    (place / "copy.dcm").write_bytes((place / "L-CC.dcm").read_bytes())
    assert "files that claim to be the same image: 0001/L-CC, 0001/copy" in problems(tmp_path)["0001"]


def test_one_image_in_two_examinations(tmp_path: Path) -> None:
    write_examination(tmp_path, 1)
    other = write_examination(tmp_path, 2)
    tags = tags_of("2", "L-CC", further=(("SOPInstanceUID", _instance(tmp_path / "0001" / "L-CC.dcm")),))
    (other / "L-CC.dcm").write_bytes(content(2, "L-CC", tags=tags) or b"")
    for found in problems(tmp_path).values():
        assert any("claim to be the same image" in text for text in found)


def _instance(path: Path) -> str:
    from pydicom import dcmread  # noqa: PLC0415 - an oracle for one test

    return str(dcmread(path, stop_before_pixels=True).SOPInstanceUID)


@pytest.mark.parametrize("kind", ["not a DICOM", "zero bytes", "no study"])
def test_a_further_file_that_tells_nothing_counts_against_the_folder(tmp_path: Path, kind: str) -> None:
    place = write_examination(tmp_path, 1)
    write_examination(tmp_path, 2)
    if kind == "no study":
        tags = tags_of("1", "L-CC", further=(("StudyInstanceUID", ""),))
        (place / "more.dcm").write_bytes(content(1, "L-CC", tags=tags) or b"")
    else:
        (place / "more.dcm").write_bytes(content(1, "L-CC", broken=kind) or b"")
    by_case = {item.case_id: item for item in scan_folder(tmp_path).examinations}
    assert len(by_case) == 3
    assert by_case["0001/more"].pictures[0].problem is not None
    found = problems(tmp_path)
    assert any("lies with it: 0001/more" in text for text in found["0001"])
    assert found["0002"] == ()


def test_in_one_flat_folder_it_counts_against_all(tmp_path: Path) -> None:
    for case in (1, 2):
        place = write_examination(tmp_path, case)
        for path in place.iterdir():
            path.rename(tmp_path / f"{case}-{path.name}")
    (tmp_path / "torn.dcm").write_bytes(b"\0" * 99)
    for item in scan_folder(tmp_path).examinations:
        if item.case_id != "torn":
            assert any("torn" in text for text in item.problems)


def test_deeper_folders(tmp_path: Path) -> None:
    """Only the one examination of the nearest folder with any; never all of a category."""
    for case in (1, 2):
        place = write_examination(tmp_path / "normal", case)
        for path in list(place.iterdir()):
            (place / path.stem).mkdir()
            path.rename(place / path.stem / "IM.dcm")
    (tmp_path / "normal" / "0001" / "X").mkdir()
    (tmp_path / "normal" / "0001" / "X" / "IM.dcm").write_bytes(b"nothing")
    (tmp_path / "normal" / "0003").mkdir()
    (tmp_path / "normal" / "0003" / "IM.dcm").write_bytes(b"nothing either")
    tainted = [item for item in scan_folder(tmp_path).examinations if item.problems]
    assert len(tainted) == 1
    assert "0001" in tainted[0].pictures[0].location


@pytest.mark.parametrize("kind", [kind for kind in BROKEN_KINDS if kind != "missing"])
def test_a_broken_file_of_each_kind_stays_with_its_examination_or_is_noticed(
    tmp_path: Path, kind: str
) -> None:
    place = write_examination(tmp_path, 1)
    (place / "L-CC.dcm").write_bytes(content(1, "L-CC", broken=kind) or b"")
    items = [with_problems(item, STANDARD) for item in scan_folder(tmp_path).examinations]
    (whole,) = [item for item in items if len(item.pictures) > 1]
    listed = any(picture.image_id == "0001/L-CC" for picture in whole.pictures)
    assert listed or any("missing view L-CC" in text for text in whole.problems)


def test_what_is_no_image_is_passed_over(tmp_path: Path) -> None:
    place = write_examination(tmp_path, 1)
    (tmp_path / "train.csv").write_text("a,b\n")
    (tmp_path / "README").write_text("These are files.\n")
    (place / ".DS_Store").write_bytes(b"\0\1")
    scan = scan_folder(tmp_path)
    assert scan.passed_over == 2
    assert with_problems(scan.examinations[0], STANDARD).problems == ()


def test_names_that_differ_only_in_their_ending(tmp_path: Path) -> None:
    place = write_examination(tmp_path, 1)
    again = content(1, "L-CC", tags=tags_of("1", "L-CC", "2"))
    (place / "L-CC").write_bytes(again or b"")
    (item,) = scan_folder(tmp_path).examinations
    names = [picture.image_id for picture in item.pictures]
    assert len(set(names)) == 5
    assert {"0001/L-CC", "0001/L-CC.dcm"} <= set(names)


def test_folders_without_any(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected DICOM files, found none"):
        scan_folder(tmp_path)
    with pytest.raises(InputError, match="found neither"):
        scan_folder(tmp_path / "none")


def test_required_views() -> None:
    assert parse_required("L-CC, r-mlo") == ("L-CC", "R-MLO")
    for text in ("", "CC", "L-", "X-CC", "L-CC,L-CC", "L-CC,,R-CC", "L-C C"):
        with pytest.raises(InputError, match="require"):
            parse_required(text)


def test_a_manifest_of_new_examinations(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    rows = [f"007,{view[0].lower()},{view[2:]},a/{view}.dcm" for view in VIEWS]
    path.write_text(
        "\n".join(["case_id,laterality,projection,path", *rows, "8,,CC,b.dcm", "8,R,,", "9,B,CC,c"])
    )
    items = [with_problems(item, STANDARD) for item in list_examinations(path)]
    assert [item.case_id for item in items] == ["007", "8", "9"]
    assert items[0].problems == ()
    assert {picture.location for picture in items[0].pictures} == {
        str(tmp_path / f"a/{view}.dcm") for view in VIEWS
    }
    for words in ("unknown view ?-CC", "the manifest names no file", "missing view L-MLO"):
        assert words in "; ".join(items[1].problems)
    assert "unknown view ?-CC" in "; ".join(items[2].problems)
    elsewhere = list_examinations(path, tmp_path / "other")
    assert elsewhere[0].pictures[0].location.startswith(str(tmp_path / "other"))


def test_the_same_file_twice_in_a_manifest(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    rows = [f"7,{view[0]},{view[2:]},{view}.dcm,{view}" for view in VIEWS]
    path.write_text("\n".join(["case_id,laterality,projection,path,image_id", *rows, "7,L,CC,L-CC.dcm,more"]))
    (item,) = list_examinations(path)
    assert any("the same file twice" in text for text in with_problems(item, STANDARD).problems)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("case_id,laterality,projection\n1,L,CC\n", "missing column path"),
        ("case_id,laterality,projection,path\n,L,CC,a\n", "line 2: expected a case_id"),
        ("case_id,laterality,projection,path\n1,L,CC,a\n2,L,CC,a\n", "image_id a stands more than once"),
    ],
)
def test_manifests_that_are_none(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "new.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        list_examinations(path)


def test_the_pictures_of_an_examination_that_has_none() -> None:
    empty = with_problems(Examination("1", ()), STANDARD)
    assert empty.problems == tuple(f"missing view {view}" for view in STANDARD)
