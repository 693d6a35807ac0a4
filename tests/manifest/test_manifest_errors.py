"""Errors of a manifest: every check on a good table and on a bad one."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from trust_cache.base.errors import InputError
from trust_cache.manifest import manifest_checks
from trust_cache.manifest.datasets.nlbs import paths_known
from trust_cache.manifest.manifest_checks import Check, Findings, Severity
from trust_cache.manifest.manifest_file import read_manifest
from trust_cache.manifest.metadata_file import Metadata, require_columns


def images(**columns: list[Any]) -> pl.DataFrame:
    """Two good images of two cases, with some columns changed."""
    good: dict[str, list[Any]] = {
        "line": [2, 3],
        "image_id": ["a", "b"],
        "case_id": ["1", "2"],
        "label_text": ["0", "1"],
        "label": [0, 1],
        "laterality_text": ["L", "R"],
        "laterality": ["L", "R"],
        "path": ["a.dcm", "b.dcm"],
    }
    return pl.DataFrame(good | columns)


CHECKS: list[tuple[Check, dict[str, list[Any]], str]] = [
    (manifest_checks.ids_given, {"image_id": [None, "b"]}, "no image_id on 1 row"),
    (manifest_checks.ids_given, {"case_id": ["NaN", "b"]}, "no case_id on 1 row"),
    (manifest_checks.images_distinct, {"image_id": ["a", "a"]}, "a (lines 2, 3)"),
    (manifest_checks.labels_binary, {"label_text": ["2", "1"], "label": [None, 1]}, "a (line 2: 2)"),
    (manifest_checks.labels_binary, {"label_text": [None, "1"], "label": [None, 1]}, "line 2: nothing"),
    (
        manifest_checks.lateralities_known,
        {"laterality_text": ["B", "R"], "laterality": [None, "R"]},
        "line 2: B",
    ),
    (
        manifest_checks.lateralities_given,
        {"laterality_text": [None, "R"], "laterality": [None, "R"]},
        "a (line 2)",
    ),
    (paths_known, {"case_id": [None, "p_1"], "path": ["odd.dcm", "b"]}, "odd.dcm (line 2)"),
]


@pytest.mark.parametrize(("check", "change", "said"), CHECKS)
def test_each_check_finds_its_own_fault_and_no_other(
    check: Check, change: dict[str, list[Any]], said: str
) -> None:
    assert check(images()) == ()
    (found,) = check(images(**change))
    assert found.severity is Severity.ERROR
    assert said in found.sentence
    assert len(found.items) == 1


def test_an_unknown_laterality_is_not_an_absent_one() -> None:
    unknown = images(laterality_text=["B", "R"], laterality=[None, "R"])
    absent = images(laterality_text=[None, "R"], laterality=[None, "R"])
    assert manifest_checks.lateralities_given(unknown) == ()
    assert manifest_checks.lateralities_known(absent) == ()


def test_columns() -> None:
    def sentence(found: Findings) -> str:
        (one,) = found
        return one.sentence

    metadata = Metadata(pl.DataFrame({"b": ["x"]}), pl.Series("line", [2]), "file.csv")
    require_columns(metadata, ["b"])
    with pytest.raises(InputError, match=r"^file.csv: missing column a, c; found b, try csv$"):
        require_columns(metadata, ["a", "b", "c"], ", try csv")
    assert manifest_checks.columns_free(["age"], ["label"]) == ()
    assert "label" in sentence(manifest_checks.columns_free(["age", "label"], ["label"]))


def test_many_faults_are_counted_and_the_first_named() -> None:
    table = pl.DataFrame(
        {
            "line": range(2, 102),
            "image_id": [str(number) for number in range(100)],
            "case_id": "1",
            "label_text": "x",
            "label": pl.Series([None] * 100, dtype=pl.Int8),
        }
    )
    (found,) = manifest_checks.labels_binary(table)
    assert "on 100 rows: 0 (line 2: x)" in found.sentence
    assert found.sentence.endswith("4 (line 6: x) and 95 more")
    assert len(found.items) == 100


def test_a_case_of_two_patients_or_with_a_label_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "manifest.csv"
    header = "image_id,case_id,label,laterality,projection,path"
    path.write_text(f"{header},patient_id\na,1,0,L,CC,a.dcm,P1\nb,1,0,L,MLO,b.dcm,P2\n")
    with pytest.raises(InputError, match=r"manifest\.csv: case 1: expected one patient_id, found P1 and P2"):
        read_manifest(path)
    path.write_text(f"{header},case_label\na,1,0,L,CC,a.dcm,yes\n")
    with pytest.raises(InputError, match="case 1: expected a case_label of 0, 1 or nothing, found 'yes'"):
        read_manifest(path)
