"""VinDr-Mammo: BI-RADS 4 or 5 stands in for cancer only if the user says so, and every result says it."""

from pathlib import Path

import polars as pl
import pytest

from trust_cache.base.errors import InputError
from trust_cache.manifest.build_manifest import BuiltManifest, build_manifest
from trust_cache.manifest.data_terms import label_warnings, terms_of

STUDIES, SUSPICIOUS, SEVERAL_SERIES, UNLIKE_DENSITIES = 5_000, 481, 28, 32


def vindr_table(studies: int = STUDIES) -> pl.DataFrame:
    """The published counts: 385 suspicious examinations for training and 96 for test, and the three traps."""
    four = pl.DataFrame({"laterality": ["L", "L", "R", "R"], "view_position": ["CC", "MLO", "CC", "MLO"]})
    table = pl.DataFrame({"study": range(studies)}).join(four, how="cross").with_row_index("row")
    study, right = pl.col("study"), pl.col("laterality") == "R"
    suspicious = (study < SUSPICIOUS) & ~right
    category = pl.when(suspicious).then(4 + study % 2).otherwise(1 + study % 3)
    split = pl.when((study < 385) | (study >= SUSPICIOUS + 900)).then(pl.lit("training"))
    unlike = (study >= 1_000) & (study < 1_000 + UNLIKE_DENSITIES) & right
    series = pl.when((study < SEVERAL_SERIES) & right).then(1).otherwise(0)
    once = (study == 77) & ~right  # L CC twice and no L MLO
    return table.select(
        study_id=pl.format("study{}", study),
        series_id=pl.format("series{}-{}", study, series),
        image_id=pl.format("image{}", "row"),
        laterality="laterality",
        view_position=pl.when(once).then(pl.lit("CC")).otherwise("view_position"),
        height=pl.lit("3518"),
        width=pl.lit("2800"),
        breast_birads=pl.format("BI-RADS {}", category),
        breast_density=pl.when(unlike).then(pl.lit("DENSITY D")).otherwise(pl.lit("DENSITY C")),
        split=split.otherwise(pl.lit("test")),
    )


def build(path: Path, table: pl.DataFrame, **options: str) -> BuiltManifest:
    table.write_csv(path / "breast-level_annotations.csv")
    out = path / "manifest.csv"
    metadata = path / "breast-level_annotations.csv"
    return build_manifest("vindr", metadata, out, images="/x", look=False, overwrite=True, options=options)


def test_full_size_with_all_traps(tmp_path: Path) -> None:
    built = build(tmp_path, vindr_table(), birads="4")
    assert {found.check: len(found.items) for found in built.findings} == {
        "standard-images-given": 1,
        "projections-distinct": 1,
        "series-agree": SEVERAL_SERIES,
        "densities-agree": UNLIKE_DENSITIES,
    }
    assert (built.counts.images, built.counts.cases) == (20_000, 5_000)
    assert (built.counts.positive_cases, built.counts.positive_images) == (SUSPICIOUS, 2 * SUSPICIOUS)
    table = built.manifest.table
    assert "patient_id" not in table.columns
    assert table.row(0, named=True) == {
        "image_id": "image0", "case_id": "study0", "label": 1, "laterality": "L", "projection": "CC",
        "path": "/x/images/study0/image0.dicom", "series_id": "series0-0", "height": "3518", "width": "2800",
        "breast_birads": "BI-RADS 4", "breast_density": "DENSITY C", "split": "training", "dataset": "vindr",
        "label_definition": "birads-4",
    }  # fmt: skip
    (terms,) = terms_of(table)
    assert terms.labels == ("BI-RADS 4 or 5 of that breast, by a reader",)
    assert "not pathology" in label_warnings((terms,))[0]


def test_the_category_must_be_named(tmp_path: Path) -> None:
    few = vindr_table(3)
    with pytest.raises(InputError, match="--birads: expected 4, found nothing; there is no pathology"):
        build(tmp_path, few)
    with pytest.raises(InputError, match="--birads: expected 4, found '3'"):
        build(tmp_path, few, birads="3")
    for words in ("4.0", "BIRADS 4", "bi-rads-4", "BI-RADS: 4 "):
        odd = few.with_columns(breast_birads=pl.lit(words)).rename(str.title)
        assert build(tmp_path, odd, birads="4").counts.positive_images == 12
    with pytest.raises(InputError, match="expected BI-RADS 1 to BI-RADS 5, found others on 12 rows"):
        build(tmp_path, few.with_columns(breast_birads=pl.lit("BI-RADS 0")), birads="4")
    with pytest.raises(InputError, match=r"expected a projection of DICOM's .* on 12 rows.*line 2: OBL"):
        build(tmp_path, few.with_columns(view_position=pl.lit("OBL")), birads="4")
    with pytest.raises(InputError, match=r"expected a laterality of L or R, .*line 2: C"):
        build(tmp_path, few.with_columns(laterality=pl.lit("C")), birads="4")
    with pytest.raises(InputError, match=r"line 2: expected a breast_density of DENSITY A to .*, found '7'"):
        build(tmp_path, few.with_columns(breast_density=pl.lit("7")), birads="4")
    findings = few.with_columns(finding_categories=pl.lit("['Mass']"))
    with pytest.raises(InputError, match=r"expected breast-level_annotations.csv .* the table of findings"):
        build(tmp_path, findings, birads="4")
    again = build(tmp_path, pl.concat([few, few.head(2)]), birads="4")
    assert (again.counts.images, again.left_out) == (12, {"the same image again": 2})
    with pytest.raises(InputError, match="missing column breast_birads"):
        build(tmp_path, few.drop("breast_birads"), birads="4")
