"""Build manifests of the public data sets, of plain tables and of a toy data set; check the files written."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.manifest import material
from trust_cache.base.errors import InputError
from trust_cache.manifest.build_manifest import BuiltManifest, build_manifest
from trust_cache.manifest.datasets import nlbs
from trust_cache.manifest.datasets.dataset import Dataset, described_datasets
from trust_cache.manifest.datasets.known_datasets import KNOWN_DATASETS, fitting_datasets
from trust_cache.manifest.manifest_file import read_manifest
from trust_cache.manifest.metadata_file import Metadata, read_images


def items(built: BuiltManifest) -> dict[str, int]:
    return {found.check: len(found.items) for found in built.findings}


def table_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "images.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_rsna_at_full_size(tmp_path: Path) -> None:
    metadata = material.write_rsna(tmp_path / "train.csv", material.rsna_rows())
    built = build_manifest("rsna", metadata, tmp_path / "manifest.csv", images="s3://bucket/rsna")
    assert items(built) == {"ages-given": 37}
    counts = built.counts
    assert (counts.images, counts.cases, counts.positive_cases, counts.positive_images) == (
        54_706,
        11_913,
        486,
        1_158,
    )


def test_nlbs_at_full_size_with_all_traps(tmp_path: Path) -> None:
    metadata = material.write_nlbs(tmp_path / "NLBSD_Metadata.csv", material.nlbs_rows())
    built = build_manifest("nlbs", metadata, tmp_path / "manifest.csv", images="/data/nlbs", look=False)
    assert items(built) == {
        "images-plausible": 1,
        "ages-agree": 320,
        "ages-given": 1_073,
        "standard-images-given": 88,
    }
    assert "p_3280 (180 images with 15 ages)" in built.findings[0].sentence
    assert built.manifest.table.filter(pl.col("case_id") == "p_3280").height == 180
    listed = pl.read_csv(tmp_path / "manifest.warnings.csv", infer_schema=False)
    assert listed.height == 1 + 320 + 1_073 + 88
    assert read_manifest(tmp_path / "manifest.csv").table.equals(built.manifest.table)


def test_all_files_of_a_large_set_are_looked_for(tmp_path: Path) -> None:
    rows = material.rsna_rows()[:5_000]
    material.touch_files(tmp_path / "dcm", (f"{row['patient_id']}/{row['image_id']}.dcm" for row in rows))
    metadata = material.write_rsna(tmp_path / "train.csv", rows)
    built = build_manifest("rsna", metadata, tmp_path / "m.csv", images=str(tmp_path / "dcm"))
    assert (built.missing, "counts-expected" in items(built)) == ((), True)


def test_rsna_keeps_ids_order_and_further_columns(tmp_path: Path) -> None:
    rows = material.few_rsna()[::-1]
    rows[0] |= {"image_id": "0007", "BIRADS": ' 1,"é"\n', "machine_id": "049", "laterality": "left"}
    metadata = material.write_rsna(tmp_path / "train.csv", rows)
    build_manifest("rsna", metadata, tmp_path / "manifest.csv", images="/data", look=False)
    table = read_manifest(tmp_path / "manifest.csv").table
    assert table["image_id"].to_list() == [str(row["image_id"]) for row in rows]
    assert table.row(0, named=True) == {
        "image_id": "0007", "case_id": "11", "label": 0, "laterality": "L", "projection": "MLO",
        "path": "/data/11/0007.dcm", "site_id": "1", "age": "61.0", "biopsy": "0", "invasive": "0",
        "BIRADS": ' 1,"é"\n', "implant": "0", "density": "B", "machine_id": "049",
        "difficult_negative_case": "False", "dataset": "rsna",
    }  # fmt: skip


def test_nlbs_paths_ids_and_windows(tmp_path: Path) -> None:
    metadata = material.write_nlbs(tmp_path / "meta.csv", material.few_nlbs())
    built = build_manifest("nlbs", metadata, tmp_path / "manifest.csv", images=str(tmp_path), look=False)
    assert items(built) == {"counts-expected": 0}
    row = built.manifest.table.row(7, named=True)
    assert row["image_id"] == "False Positive/p_0001/right/MLO/IM-0100-0003-0001"
    assert row["path"] == f"{tmp_path.as_posix()}/{row['image_id']}.dcm"
    assert (row["case_id"], row["label"], row["laterality"], row["projection"]) == ("p_0001", 0, "R", "MLO")
    assert (row["Window Center"], row["Exam Date"]) == ("[[2797, 2851, 2683]]", "nan")
    assert built.manifest.table["label"].sum() == 2


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"Image Laterality": "L"}, "lateralities-agree"),
        ({"View Position": "CC"}, "projections-agree"),
        ({"Cancer": 0}, "labels-agree"),
        ({"Age": "62"}, "ages-agree"),
        ({"Age": "nan"}, "ages-given"),
        ({"Image Laterality": "nan"}, "lateralities-read"),
        ({"File Path": "normal\\p_0002\\right-c\\MLO\\x.dcm"}, "categories-agree"),
        ({"File Path": "other\\p_0009\\right-c\\MLO\\x.dcm"}, "categories-known"),
    ],
)
def test_nlbs_disagreements_are_named(tmp_path: Path, change: dict[str, object], check: str) -> None:
    rows = material.few_nlbs()
    rows[-1] |= change
    metadata = material.write_nlbs(tmp_path / "meta.csv", rows)
    built = build_manifest("nlbs", metadata, tmp_path / "manifest.csv", images="/x", look=False)
    assert items(built)[check] >= 1
    assert built.manifest.table["laterality"].to_list()[-1] == (
        "L" if change == {"Image Laterality": "L"} else "R"
    )


NAME = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=6)


@given(
    st.sampled_from(["normal", "False Positive", "abnormal"]),
    NAME,
    st.sampled_from(["left", "right-c", "Left", "RIGHT-C"]),
    st.sampled_from(["CC", "MLO"]),
    NAME,
    st.sampled_from(["\\", "/"]),
    st.sampled_from(["", ".", "x"]),
    st.sampled_from([".dcm", ".DCM"]),
)
def test_parts_of_nlbs_paths(
    category: str, case: str, side: str, view: str, name: str, separator: str, start: str, suffix: str
) -> None:
    parts = [category, f"p_{case}", side, view, name]
    path = separator.join([start, *parts]) + suffix
    row = {"File Path": path, "Image Laterality": None, "View Position": "nan", "Cancer": "0", "Age": "1"}
    metadata = Metadata(
        pl.DataFrame([row], schema=dict.fromkeys(row, pl.String)), pl.Series("line", [2]), "x"
    )
    images = nlbs.dataset().read(metadata)
    errors = [error.check for check in nlbs.dataset().errors for error in check(images)]
    if start == "x":
        assert errors == ["paths-known"]
        return
    assert errors == []
    image = images.row(0, named=True)
    assert (image["image_id"], image["path"]) == ("/".join(parts), "/".join(parts) + suffix)
    assert (image["case_id"], image["category"], image["projection"]) == (f"p_{case}", category, view)
    assert image["laterality"] == side[0].upper()
    assert image["folder_label"] == int("-" in side)


@pytest.mark.parametrize("same", ["61.0", "061Y", " 61 "])
def test_one_age_in_several_writings(tmp_path: Path, same: str) -> None:
    rows = material.few_nlbs()
    rows[0]["Age"] = same
    metadata = material.write_nlbs(tmp_path / "meta.csv", rows)
    built = build_manifest("nlbs", metadata, tmp_path / "manifest.csv", images="/x", look=False)
    assert "ages-agree" not in items(built)
    assert built.manifest.table["Age"][0] == same


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"File Path": "normal\\p_0001\\x.dcm"}, "expected paths"),
        ({"File Path": ""}, "expected paths"),
        ({"Cancer": "2"}, "label of 0 or 1"),
        ({"Image Laterality": "B"}, "laterality of L or R"),
        ({"File Path": "normal\\p_0000\\left\\CC\\IM-0100-0000-0001.dcm"}, "more than one row"),
    ],
)
def test_nlbs_errors_write_nothing(tmp_path: Path, change: dict[str, object], said: str) -> None:
    rows = material.few_nlbs()
    rows[-1] |= change
    metadata = material.write_nlbs(tmp_path / "meta.csv", rows)
    with pytest.raises(InputError, match=said):
        build_manifest("nlbs", metadata, tmp_path / "out" / "manifest.csv", images="/x", look=False)
    assert not (tmp_path / "out").exists()


def test_a_further_column_may_not_take_a_standard_name(tmp_path: Path) -> None:
    rows = [row | {"label": "x"} for row in material.few_rsna()]
    metadata = material.write_table(tmp_path / "train.csv", (*material.RSNA_HEADER, "label"), rows)
    with pytest.raises(InputError, match="column label has the name"):
        build_manifest("rsna", metadata, tmp_path / "manifest.csv", images="/x", look=False)


def test_the_right_dataset_is_named(tmp_path: Path) -> None:
    rsna = material.write_rsna(tmp_path / "train.csv", material.few_rsna())
    nlbs = material.write_nlbs(tmp_path / "meta.csv", material.few_nlbs())
    out = tmp_path / "manifest.csv"
    for kind, metadata, right in (("nlbs", rsna, "rsna"), ("rsna", nlbs, "nlbs"), ("csv", rsna, "rsna")):
        with pytest.raises(InputError, match=f"trust-cache manifest {right}"):
            build_manifest(kind, metadata, out, images="/x", look=False)
    build_manifest("rsna", rsna, out, images="/x", look=False)
    with pytest.raises(InputError, match="trust-cache manifest csv"):
        build_manifest("rsna", out, tmp_path / "other.csv", images="/x", look=False)
    with pytest.raises(InputError, match=r"expected one of rsna, nlbs, .*csv"):
        build_manifest("inbreast", rsna, out, images="/x", look=False)
    header = [name for name in material.RSNA_HEADER if name != "cancer"]
    rows = [{name: row[name] for name in header} for row in material.few_rsna()]
    with pytest.raises(InputError, match=r"use train\.csv"):
        build_manifest(
            "rsna", material.write_table(tmp_path / "test.csv", header, rows), out, images="/x", look=False
        )
    assert fitting_datasets(["a"]) == []


def test_a_table_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    metadata = table_file(
        tmp_path / "data",
        "path,laterality,label,case_id,image_id,Projection,Age\n"
        "x\\a.dcm,Left,True,01,007,CC,5\n/abs/b.dcm,r,0.0,01,008,CC,6\ns3://b/c.dcm,R,1,02,009,CC,\n",
    )
    built = build_manifest("csv", metadata.relative_to(tmp_path), Path("manifest.csv"), look=False)
    assert built.manifest.table.rows() == [
        ("007", "01", 1, "L", None, "data/x/a.dcm", "CC", "5"),
        ("008", "01", 0, "R", None, "/abs/b.dcm", "CC", "6"),
        ("009", "02", 1, "R", None, "s3://b/c.dcm", "CC", None),
    ]
    assert items(built) == {"ages-agree": 1, "ages-given": 1}
    again = build_manifest("csv", Path("manifest.csv"), Path("out/again.csv"), look=False)
    assert again.manifest.table["path"][0] == "../data/x/a.dcm"


def read_toy(metadata: Metadata) -> pl.DataFrame:
    """One side and one picture name per row; the case is in front of the dash."""
    images = read_images(
        metadata, image_id="picture", label_text="malignant", laterality_text="breast", projection="kind"
    )
    return images.with_columns(
        case_id=pl.col("image_id").str.split("-").list.first(), path=pl.format("{}.dcm", "image_id")
    )


def test_a_case_label_of_ones_own_table_counts(tmp_path: Path) -> None:
    text = "image_id,case_id,label,case_label\na,1,0,1\nb,1,0,\nc,2,1,\nd,3,0,0\n"
    built = build_manifest("csv", table_file(tmp_path, text), tmp_path / "m.csv", look=False)
    assert (built.counts.positive_cases, built.counts.positive_images) == (2, 1)


def test_a_toy_dataset_through_the_seam_alone(tmp_path: Path) -> None:
    toy = Dataset(required=("picture", "malignant", "breast", "kind"), read=read_toy)
    text = "picture,malignant,breast,kind,site\n1-a,yes,left,CC,x\n1-b,False,R,MLO,y\n"
    with pytest.raises(InputError, match=r"label of 0 or 1.*1-a \(line 2: yes\)"):
        build_manifest(toy, table_file(tmp_path, text), tmp_path / "m.csv", images="/x", look=False)
    metadata = table_file(tmp_path, text.replace("yes", "True"))
    built = build_manifest(toy, metadata, tmp_path / "m.csv", images="/x", look=False)
    assert read_manifest(tmp_path / "m.csv").table.rows() == [
        ("1-a", "1", 1, "L", "CC", "/x/1-a.dcm", "x"),
        ("1-b", "1", 0, "R", "MLO", "/x/1-b.dcm", "y"),
    ]
    assert items(built) == {"standard-images-given": 1}
    with pytest.raises(InputError, match=r"missing column picture.*trust-cache manifest csv"):
        build_manifest(toy, tmp_path / "m.csv", tmp_path / "other.csv", images="/x", look=False)


def test_the_registry_loads_every_dataset() -> None:
    names = [known.name for known in KNOWN_DATASETS]
    assert set(described_datasets()) == set(names) - {"csv"}
    for known in KNOWN_DATASETS:
        assert known.load().required
        assert known.help.endswith(".")
        assert known.metadata_help.endswith(".")


def test_imported_features_need_neither_side_nor_path(tmp_path: Path) -> None:
    built = build_manifest("csv", table_file(tmp_path, "image_id,case_id,label\na,1,0\n"), tmp_path / "m.csv")
    assert items(built) == {"lateralities-present": 1, "paths-present": 1}


def test_missing_and_empty_files_are_listed(tmp_path: Path) -> None:
    rows = material.few_rsna()
    paths = [f"{row['patient_id']}/{row['image_id']}.dcm" for row in rows]
    images, out = tmp_path / "dcm", tmp_path / "manifest.csv"
    material.touch_files(images, paths)
    (images / paths[0]).unlink()
    (images / paths[1]).write_bytes(b"")
    (images / paths[2]).rename(images / "11" / "2.dcm")
    (images / paths[3]).unlink()
    (images / paths[3]).mkdir()
    metadata = material.write_rsna(tmp_path / "train.csv", rows)
    built = build_manifest("rsna", metadata, out, images=str(images))
    assert [file.reason for file in built.missing] == [
        "missing",
        "zero bytes",
        "missing; a file of that name is at 11/2.dcm",
        "not a file",
    ]
    assert built.missing_file == tmp_path / "manifest.missing.csv"
    assert pl.read_csv(built.missing_file).columns == ["image_id", "case_id", "path", "reason"]
    assert items(built)["files-present"] == 4
    assert read_manifest(out).table.height == 8
    (images / paths[3]).rmdir()
    material.touch_files(images, paths)
    assert build_manifest("rsna", metadata, out, images=str(images)).missing == ()
    assert not built.missing_file.exists()


def test_a_wrong_folder_is_an_error_that_names_the_right_one(tmp_path: Path) -> None:
    material.touch_files(tmp_path / "top" / "train_images", ["10/0.dcm"])
    metadata = material.write_rsna(tmp_path / "train.csv", material.few_rsna())
    out = tmp_path / "manifest.csv"
    with pytest.raises(InputError, match=r"found none of 8 files .*train_images/10/0\.dcm"):
        build_manifest("rsna", metadata, out, images=str(tmp_path / "top"))
    with pytest.raises(InputError, match="no such folder"):
        build_manifest("rsna", metadata, out, images=str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="empty text"):
        build_manifest("rsna", metadata, out, images="")
    assert not out.exists()


def test_another_file_is_not_replaced_silently(tmp_path: Path) -> None:
    metadata = material.write_rsna(tmp_path / "train.csv", material.few_rsna())
    out = tmp_path / "manifest.csv"
    build_manifest("rsna", metadata, out, images="/x", look=False)
    before = out.read_bytes()
    build_manifest("rsna", metadata, out, images="/x", look=False)
    with pytest.raises(InputError, match="--overwrite"):
        build_manifest("rsna", metadata, out, images="/y", look=False)
    assert out.read_bytes() == before
    build_manifest("rsna", metadata, out, images="/y", look=False, overwrite=True)
    assert out.read_bytes() != before
    with pytest.raises(InputError, match="metadata file itself"):
        build_manifest("rsna", metadata, metadata, images="/x", look=False, overwrite=True)
    with pytest.raises(InputError, match="found a folder"):
        build_manifest("rsna", metadata, tmp_path, images="/x", look=False)
    beside = tmp_path / "manifest.missing.csv"
    beside.write_text("my own notes")
    with pytest.raises(InputError, match="earlier manifest"):
        build_manifest("rsna", metadata, out, images="/y", look=False)
    assert beside.read_text() == "my own notes"
    beside.unlink()
    beside.mkdir()
    with pytest.raises(InputError, match="cannot write there"):
        build_manifest("rsna", metadata, out, images="/y", look=False)
