"""Warnings of a data set: every check on a plain table and on an unusual one."""

from typing import Any

import polars as pl
import pytest

from trust_cache.manifest import manifest_checks as checks
from trust_cache.manifest.datasets import nlbs
from trust_cache.manifest.manifest_checks import Check, ExpectedCounts, Severity


def images(**columns: list[Any]) -> pl.DataFrame:
    """Two whole cases, the second with cancer on the left, with some columns changed."""
    plain: dict[str, list[Any]] = {
        "image_id": [f"i{number}" for number in range(8)],
        "case_id": ["c0"] * 4 + ["c1"] * 4,
        "label": [0, 0, 0, 0, 1, 1, 0, 0],
        "laterality": ["L", "L", "R", "R"] * 2,
        "laterality_text": ["L", "L", "R", "R"] * 2,
        "projection": ["CC", "MLO"] * 4,
        "path": [f"{number}.dcm" for number in range(8)],
        "age": ["61"] * 4 + ["45"] * 4,
        "folder_laterality": ["L", "L", "R", "R"] * 2,
        "folder_projection": ["CC", "MLO"] * 4,
        "folder_label": [0, 0, 0, 0, 1, 1, 0, 0],
        "category": ["normal"] * 4 + ["abnormal"] * 4,
    }
    return pl.DataFrame(plain | columns)


def changed(column: str, place: int, cell: Any) -> pl.DataFrame:
    cells = images()[column].to_list()
    cells[place] = cell
    return images(**{column: cells})


EXPECTED = ExpectedCounts(images=8, cases=2, positive_cases=1, positive_images=2)


@pytest.mark.parametrize(
    ("check", "table", "said"),
    [
        (checks.ages_agree, changed("age", 1, "7"), "images have different ages: c0 (ages 7, 61)"),
        (checks.ages_given, changed("age", 1, None), "no age of 1 image: i1"),
        (checks.standard_images_given, changed("projection", 1, "ML"), "c0 (no L MLO)"),
        (checks.standard_images_given, changed("laterality", 4, None), "c1 (no L CC)"),
        (nlbs.lateralities_agree, changed("laterality", 0, "R"), "i0 (laterality R, folder L)"),
        (nlbs.projections_agree, changed("projection", 0, "MLO"), "i0 (projection MLO, folder CC)"),
        (nlbs.labels_agree, changed("label", 0, 1), "i0 (label 1, side folder 0)"),
        (nlbs.labels_agree, changed("folder_label", 4, 0), "i4 (label 1, side folder 0)"),
        (nlbs.categories_known, changed("category", 0, "false-positive"), "i0 (false-positive)"),
        (nlbs.categories_agree, changed("category", 0, "abnormal"), "c0 (in abnormal and normal)"),
        (nlbs.categories_agree, changed("label", 0, 1), "c0 (in normal, a positive image)"),
        (nlbs.categories_agree, images(label=[0] * 8), "c1 (in abnormal, no positive image)"),
        (checks.breasts_agree, changed("label", 4, 0), "both positive and negative images: c1 (L)"),
        (nlbs.lateralities_read, changed("laterality_text", 0, None), "taken from the side folder: i0"),
        (
            checks.lateralities_present,
            changed("laterality_text", 0, None).with_columns(
                pl.col("laterality_text").alias("laterality")
            ),
            "which `preprocess` needs: i0",
        ),
        (checks.paths_present, changed("path", 0, None), "no path of 1 image"),
        (checks.files_distinct, changed("path", 0, "1.dcm"), "2 images with the file of another image"),
    ],
)  # fmt: skip
def test_each_check_finds_its_own_fault_and_nothing_on_a_plain_table(
    check: Check, table: pl.DataFrame, said: str
) -> None:
    assert check(images()) == ()
    (found,) = check(table)
    assert said in found.sentence
    assert found.severity is Severity.WARNING
    assert found.items


def test_expected_counts_show_both() -> None:
    assert checks.counts_expected(images(), [EXPECTED]) == ()
    (found,) = checks.counts_expected(changed("label", 0, 1), [EXPECTED])
    assert "1 positive cases expected, 2 found; 2 positive images expected, 3 found" in found.sentence
    assert " 8 images" not in found.sentence


def test_a_case_of_too_many_images_is_named_with_its_ages() -> None:
    number = checks.MOST_IMAGES
    table = pl.DataFrame(
        {"case_id": ["p_1"] * number, "age": [str(age) for age in range(number - 1)] + [None]}
    )
    assert checks.images_plausible(table) == ()
    (found,) = checks.images_plausible(pl.concat([table, table.tail(1)]))
    assert str(found.items[0]) == f"p_1 ({number + 1} images with {number - 1} ages)"
    (found,) = checks.images_plausible(pl.concat([table, table]).drop("age"))
    assert str(found.items[0]) == f"p_1 ({2 * number} images)"


def test_tables_without_ages_sides_or_projections_have_nothing_to_disagree() -> None:
    bare = images(laterality=[None] * 8, projection=[None] * 8).drop("age")
    assert checks.ages_agree(bare) == checks.ages_given(bare) == checks.standard_images_given(bare) == ()
