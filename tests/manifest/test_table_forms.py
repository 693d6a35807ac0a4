"""One table in the forms that programs write: every data set reads the same images from each."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.manifest.csaw_table import csaw_exams, csaw_images
from tests.manifest.embed_tables import embed_clinical, embed_exams, embed_metadata
from tests.manifest.material import FOUR, NLBS_HEADER, RSNA_HEADER, nlbs_row, rsna_row
from tests.manifest.test_vindr import vindr_table
from tests.workbooks import write_workbook
from trust_cache.base.errors import InputError
from trust_cache.manifest.build_manifest import build_manifest

READ = ("image_id", "case_id", "label", "laterality", "projection", "path")
OPTIONS = {"vindr": {"birads": "4"}, "embed": {"severity5": "negative"}}


def tables_of(name: str) -> list[pl.DataFrame]:
    """The tables of a data set as text, with a few examinations."""
    if name == "embed":
        exams = embed_exams(1_000, 3_300).filter(pl.col("patient") % 100 < 3)
        tables = [embed_metadata(exams, 8, 3), embed_clinical(exams)]
    elif name == "csaw-cc":
        tables = [csaw_images(csaw_exams(6, 14, 3), 0)]
    elif name == "vindr":
        tables = [vindr_table(3)]
    elif name == "rsna":
        rows = [rsna_row(10 + case, 4 * case + at, *kind) for case in (1, 2) for at, kind in enumerate(FOUR)]
        tables = [pl.DataFrame(rows, schema=dict.fromkeys(RSNA_HEADER), strict=False)]
    else:
        rows = [nlbs_row("normal", f"p_{case}", *kind, at) for case in "12" for at, kind in enumerate(FOUR)]
        tables = [pl.DataFrame(rows, schema=dict.fromkeys(NLBS_HEADER), strict=False)]
    return [table.cast(pl.String) for table in tables]


def lines_end(end: str) -> Callable[[pl.DataFrame], bytes]:
    return lambda table: table.write_csv(line_terminator=end).encode()


def with_breaks(table: pl.DataFrame) -> bytes:
    """Quoted cells with line breaks, in a column that nobody knows before all others, reversed."""
    cells = pl.lit('two\r\nlines, a "quote" and\na third').alias("notes")
    return table.select(cells, *reversed(table.columns)).write_csv(quote_style="always").encode()


def as_fractions(table: pl.DataFrame) -> bytes:
    """Integers as programs write a column with gaps, and their words for nothing."""
    whole = pl.col(pl.String)
    words = pl.when(whole.str.contains(r"^[1-9]\d{0,5}$|^0$")).then(whole + ".0").otherwise(whole)
    return table.with_columns(words.fill_null(" NaN ")).write_csv().encode()


FORMS: dict[str, Callable[[pl.DataFrame], bytes]] = {
    "CR": lines_end("\r"),
    "CRLF with a mark": lambda table: b"\xef\xbb\xbf" + lines_end("\r\n")(table),
    "semicolons": lambda table: table.write_csv(separator=";").encode(),
    "line breaks in cells": with_breaks,
    "fractions": as_fractions,
}


def build(name: str, folder: Path, contents: list[bytes]) -> pl.DataFrame:
    paths = [folder / f"table{number}.csv" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    options = OPTIONS.get(name)
    out = folder / "manifest.csv"
    built = build_manifest(name, paths, out, images="/x", look=False, overwrite=True, options=options)
    return built.manifest.table.select(READ)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["rsna", "nlbs", "embed", "csaw-cc", "vindr"])
def test_every_form_of_a_table_means_the_same(tmp_path: Path, name: str, form: str) -> None:
    tables = tables_of(name)
    plain = build(name, tmp_path, [lines_end("\n")(table) for table in tables])
    assert build(name, tmp_path, [FORMS[form](table) for table in tables]).equals(plain)


@pytest.mark.parametrize("name", ["rsna", "nlbs", "embed", "csaw-cc", "vindr"])
def test_a_workbook_in_place_of_a_csv_file_is_named(tmp_path: Path, name: str) -> None:
    book = write_workbook(tmp_path / "table.csv", Sheet1=pl.DataFrame({"a": ["1"]})).read_bytes()
    for content in (book, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)):
        with pytest.raises(InputError, match=r"expected a CSV file, found an Excel workbook"):
            build(name, tmp_path, [content] * len(tables_of(name)))


@pytest.mark.parametrize(
    ("name", "renames", "said"),
    [
        ("rsna", {"laterality": "side", "view": "v"}, r"3 of the 5 columns of train.csv .rsna."),
        ("csaw-cc", {"exam_year": "year"}, r"7 of the 8 columns of CSAW-CC_breast_\w+.csv .csaw-cc."),
        ("embed", {"spot_mag": "spot", "ViewPosition": "view"}, r"5 of the 7 .* EMBED_OpenData_metadata.csv"),
    ],
)
def test_a_release_with_renamed_columns_is_refused_beside_the_nearest_known_one(
    tmp_path: Path, name: str, renames: dict[str, str], said: str
) -> None:
    tables = tables_of(name)
    contents = [table.rename(renames, strict=False).write_csv().encode() for table in tables]
    with pytest.raises(InputError, match=rf"missing column .*; the nearest known table: {said}"):
        build(name, tmp_path, contents)
    if name != "embed":  # which has two tables
        with pytest.raises(InputError, match=said):  # given to the adapter of another data set
            build("nlbs", tmp_path, contents)


def test_unknown_codes_of_the_other_data_sets_are_refused(tmp_path: Path) -> None:
    for name, column in (("rsna", "view"), ("nlbs", "View Position")):
        (table,) = tables_of(name)
        wrong = table.with_columns(pl.lit("OBLIQUE").alias(column)).write_csv().encode()
        with pytest.raises(InputError, match=r"expected a projection of DICOM's .* on 8 rows"):
            build(name, tmp_path, [wrong])
