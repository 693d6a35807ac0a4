"""Metadata and manifests are read verbatim; what is written is read back unchanged."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from trust_cache.base.errors import InputError
from trust_cache.cache.cached_manifest import canonical_manifest
from trust_cache.manifest.manifest_file import MANIFEST_COLUMNS, manifest_bytes, read_manifest
from trust_cache.manifest.metadata_file import read_metadata

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
IDS = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=8).filter(
    lambda text: text.strip() == text and text.lower() not in {"nan", "none", "null"}
)
COLUMNS = (*MANIFEST_COLUMNS, 'note, "quoted"', "älter")
ROW = st.fixed_dictionaries(
    {
        "case_id": IDS,
        "label": st.integers(0, 1),
        "laterality": st.sampled_from(["L", "R", None]),
        "projection": st.sampled_from(["CC", "MLO", None]),
        "path": IDS | st.none(),
        COLUMNS[-2]: TEXT,
        COLUMNS[-1]: TEXT,
    }
)


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@given(st.dictionaries(IDS, ROW, min_size=1, max_size=6))
def test_a_manifest_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[str, dict[str, Any]]
) -> None:
    table = pl.DataFrame(
        [{"image_id": image_id, **row} for image_id, row in rows.items()],
        schema={name: pl.Int8 if name == "label" else pl.String for name in COLUMNS},
    )
    path = write(tmp_path_factory.mktemp("m") / "manifest.csv", manifest_bytes(table))
    texts = pl.col(pl.String)
    expected = table.with_columns(pl.when(texts != "").then(texts).name.keep())
    read = read_manifest(path).table
    assert_frame_equal(read, expected)
    assert manifest_bytes(read) == path.read_bytes()
    assert_frame_equal(canonical_manifest(read, "cache"), expected)


def test_images_are_records_with_a_location(tmp_path: Path) -> None:
    path = write(
        tmp_path / "manifest.csv",
        "image_id,case_id,label,laterality,projection,path\n007,01,1,R,CC,x\\a.dcm\n008,01,0,,,\n",
    )
    first, second = read_manifest(path).images()
    assert (first.image_id, first.case_id, first.label, first.laterality) == ("007", "01", 1, "R")
    assert first.location == str(tmp_path / "x" / "a.dcm")
    assert (second.path, second.location, second.laterality) == (None, None, None)


def test_standard_columns_come_first_and_absent_ones_are_null(tmp_path: Path) -> None:
    path = write(tmp_path / "manifest.csv", "site,label,case_id,image_id\n 9 ,1,c,a\n")
    table = read_manifest(path).table
    assert table.columns == ["image_id", "case_id", "label", "laterality", "projection", "path", "site"]
    assert table.row(0) == ("a", "c", 1, None, None, None, " 9 ")
    with pytest.raises(
        InputError, match="expected a laterality of each image, found none for any of 1 image"
    ):
        read_manifest(path, filled=("laterality",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("\n \n", "the file is empty"),
        ("image_id,case_id,label\n", "a header and no rows"),
        ("image_id,case_id,label\n,,\n\n", "a header and no rows"),
        ("image_id,label\na,1\n", "missing column case_id"),
        ("image_id;case_id;label\na;b;1\n", "separated by semicolons"),
        ("image_id,case_id,label,label\na,b,1,1\n", "'label' occurs more than once"),
        ("image_id,case_id,label\na,b\n", "line 2: expected 3 cells as in the header, found 2"),
        ('image_id,case_id,label,n\n"a\nb",c,1,\na,b,1,2,3\n', "line 4: expected 4 cells"),
        ('image_id,case_id,label\na,"b,1\n', "not a readable CSV"),
        (b"image_id,case_id,label\na,\xff,1\n", "line 2: not text in UTF-8"),
        (b"image_id,case_id,label\ra,\xef\xbf\xbd,1\ra,\xff,1\r", "line 3: not text in UTF-8"),
        ("image_id\nx".encode("utf-16"), "UTF-8"),
        ("image_id\nx".encode("utf-16-le"), "line 1: a NUL"),
        ("image_id,case_id,label\na,b,1\na,c,2\n", "for 2 reasons"),
        ("image_id,case_id,label\na,b,true\n", "label of 0 or 1"),
        ("image_id,case_id,label,laterality\na,b,1,left\n", "laterality of L or R"),
    ],
)
def test_bad_files_are_refused_in_words(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_manifest(write(tmp_path / "manifest.csv", text))


def test_a_folder_and_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found a folder"):
        read_manifest(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_manifest(tmp_path / "none.csv")


def test_marks_of_windows_are_no_text(tmp_path: Path) -> None:
    path = write(tmp_path / "m.csv", b"\xef\xbb\xbf image_id ,case_id,label\r\n007,1,0\r\n\r\n008,1,1\r\n")
    read = read_metadata(path)
    assert read.table.columns == ["image_id", "case_id", "label"]
    assert read.table["image_id"].to_list() == ["007", "008"]
    assert read.lines.to_list() == [2, 4]
