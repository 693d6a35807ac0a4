"""Each way to lose an image, from DICOM to certificate: its row, label and case stay; the loss is counted.

Every case has two images, of which the first alone is positive. In all cases but the last the first is lost.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.cli.conftest import Outcome, Run
from tests.images.made import as_bytes, dataset, mammogram
from trust_cache.cache.cache_reader import Cache, open_cache, read_failures
from trust_cache.cache.extract import extract as extraction
from trust_cache.cache.feature_rows import load_rows
from trust_cache.images.image_failures import parse_failures
from trust_cache.images.png_files import encode_png
from trust_cache.manifest.cases import CASE_LABEL, WARNING, find_cases

# What is done to the file of the lost image before preprocessing.
FILES: Mapping[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "constant": lambda _: as_bytes(dataset(np.full((420, 330), 700, dtype=np.uint16))),
    "mask refused": lambda _: as_bytes(dataset(mammogram(air=0.4))),
}
CELLS = {
    "no path": {"path": None},
    "no laterality": {"laterality": None},
    "URL": {"path": "nosuch://a/b.dcm"},
}
# What is done to its picture after preprocessing.
PICTURES: Mapping[str, Callable[[Path], object]] = {
    "picture removed": lambda path: path.unlink(),
    "picture truncated": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "picture constant": lambda path: path.write_bytes(encode_png(np.full((40, 30), 9, dtype=np.uint16))),
}
BEFORE = ("missing", *FILES, *CELLS)
# Whole cases, so that heads can be trained.
SICK, HEALTHY = (tuple(f"{kind} {number}" for number in range(10)) for kind in ("sick", "healthy"))
REASONS = {
    "missing": "no such file", "truncated": "truncated", "constant": "constant", "mask refused": "tissue",
    "no path": "the manifest has no path for it", "no laterality": "the manifest has no laterality for it",
    "URL": "the path is a URL", "picture removed": "no such file",
    "picture truncated": "changed since", "picture constant": "changed since", "encoder NaN": "NaN",
}  # fmt: skip
CASES = ("encoder NaN", *BEFORE, *PICTURES, "whole")  # the encoder's first image is spoiled
WORDS = (
    "--weights", "random", "--encoder", "test_resnet", "--image-size", "32x24", "--views", 1,
    "--device", "cpu", "--shard-images", 1, "--workers", 1,
)  # fmt: skip


def labels_of(case: str) -> tuple[int, int]:
    """Return the labels of a case's two images."""
    return (1, 0) if case in CASES else (1, 1) if case in SICK else (0, 0)


def write_dicoms(folder: Path, further: Sequence[str] = ()) -> Path:
    """Write the DICOMs of all cases, some of them lost, and of further whole ones; return their manifest."""
    rows = []
    for number, case in enumerate([*CASES, *further]):
        for label, projection in zip(labels_of(case), ("MLO", "CC"), strict=True):
            name = f"{number}-{projection}.dcm"
            row = {
                "image_id": f"0{number}{projection}", "case_id": case, "label": label, "laterality": "L",
                "projection": projection, "path": name, "patient_id": f"p{number // 2}",
            }  # fmt: skip
            # The header of the last case names the other side: a warning about a good picture.
            side = {"ImageLaterality": "R"} if case == "whole" and label else {}
            content = as_bytes(dataset(mammogram(seed=2 * number + label), **side))
            if label:
                content = FILES.get(case, bytes)(content)
                row |= CELLS.get(case, {})
            if not (label and case == "missing"):
                (folder / name).write_bytes(content)
            rows.append(row)
    pl.DataFrame(rows).write_csv(folder / "manifest.csv")
    return folder / "manifest.csv"


def spoil_first_image(monkeypatch: pytest.MonkeyPatch) -> None:
    load = extraction.load_runner

    def load_spoiled(*words: Any, **options: Any) -> Any:
        runner, calls = load(*words, **options), []
        encode = runner.encode

        def spoiled(views: Any) -> Any:
            calls.append(views)
            return encode(views) * (float("nan") if len(calls) == 1 else 1.0)

        monkeypatch.setattr(runner, "encode_once", encode)  # the probe is whole
        monkeypatch.setattr(runner, "encode", spoiled)
        return runner

    monkeypatch.setattr(extraction, "load_runner", load_spoiled)


def damage_pictures(png: Path) -> None:
    rows = read(png / "manifest.csv").filter(label="1")
    for case, act in PICTURES.items():
        act(png / rows.filter(case_id=case)["path"].item())


def read(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, infer_schema=False)


def same_rows(first: pl.DataFrame, found: pl.DataFrame) -> None:
    names = [name for name in first.columns if name != "path"]
    assert_frame_equal(found.select(names).cast(pl.String), first.select(names).cast(pl.String))
    before, after = find_cases(first), find_cases(found)
    assert after.case_ids.to_list() == before.case_ids.to_list()
    np.testing.assert_array_equal(after.labels, before.labels)
    np.testing.assert_array_equal(after.patients, before.patients)


def counted(done: Outcome, failed: int, images: int, cases: int, place: str) -> None:
    sentence = (
        f"{failed} of {images} images failed: {failed} of {cases} cases are incomplete, {failed} of them"
        " positive; an incomplete case keeps its label and is always reviewed."
    )
    assert sentence in done.err
    assert place in done.err.split(sentence)[1]


@pytest.fixture
def first(tmp_path: Path) -> Path:
    (tmp_path / "dicom").mkdir()
    return write_dicoms(tmp_path / "dicom")


def test_no_way_to_lose_an_image_changes_a_row_or_a_label(
    run: Run, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    png, out = tmp_path / "png", tmp_path / "cache.zarr"
    made = run("preprocess", first, "--out", png, "--workers", 1)
    assert made.code == 1
    counted(made, len(BEFORE), 2 * len(CASES), len(CASES), str(png / "failures.csv"))
    pictures = read(png / "manifest.csv")
    same_rows(read(first), pictures)
    empty = pictures.filter(pl.col("path").is_null())
    assert empty["case_id"].to_list() == list(BEFORE)
    assert empty["label"].to_list() == ["1"] * len(BEFORE)
    reasons = {row.image_id: row.reason for row in parse_failures((png / "failures.csv").read_bytes())}
    for case, image in empty.select("case_id", "image_id").iter_rows():
        assert REASONS[case] in reasons[image], case

    damage_pictures(png)
    spoil_first_image(monkeypatch)
    done = run("extract", png / "manifest.csv", "--out", out, *WORDS)
    assert (done.code, "fit-heads" in done.out) == (1, True)
    lost = len(CASES) - 1
    counted(done, lost, 2 * len(CASES), len(CASES), str(out / "failures.csv"))
    check_cache(open_cache(out), pictures)
    for command, code in (("info", 0), ("verify", 0)):
        shown = run("cache", command, out)
        assert shown.code == code
        counted(shown, lost, 2 * len(CASES), len(CASES), str(out / "failures.csv"))
    check_copies(run, out, pictures)


def check_cache(cache: Cache, pictures: pl.DataFrame) -> None:
    same_rows(pictures, cache.manifest)
    # The cases are made from the same few pictures, which is a warning too.
    sided = cache.manifest.filter(pl.col(WARNING).str.contains("laterality: "))
    texts = sided.select("case_id", "label", WARNING).rows()
    assert [row[:2] for row in texts] == [("whole", 1)]
    assert "the header's laterality is R" in texts[0][2]
    assert not cache.pending.any()
    gone = (pl.col("label") == 1) & (pl.col("case_id") != "whole")
    np.testing.assert_array_equal(
        load_rows(cache).present, ~cache.manifest.select(gone).to_series().to_numpy()
    )
    cases = dict(cache.manifest.select("image_id", "case_id").iter_rows())
    reasons = {cases[row.image_id]: row.reason for row in read_failures(cache.source)}
    assert set(reasons) == set(REASONS)
    for case, reason in reasons.items():
        assert REASONS[case] in reason  # what preprocess said, for an image that it lost


def check_copies(run: Run, out: Path, pictures: pl.DataFrame) -> None:
    """Leaving out the positive images, or the others, changes no label."""
    copy = out.with_name("copy.h5")
    done = run("cache", "convert", out, "--out", copy)
    counted(done, len(CASES) - 1, 2 * len(CASES), len(CASES), f"{copy}.failures.csv")
    check_cache(open_cache(copy), pictures)
    for kept, failed in (("CC", 0), ("MLO", len(CASES) - 1)):
        some = out.with_name(f"{kept}.zarr")
        done = run("cache", "subset", copy, "--out", some, "--where", f"projection={kept}")
        assert (done.code, "incomplete" in done.err) == (0, failed > 0)
        if failed:
            counted(done, failed, len(CASES), len(CASES), str(some / "failures.csv"))
        found = open_cache(some).manifest
        assert found[CASE_LABEL].to_list() == ["1"] * len(CASES)
        assert found["label"].to_list() == [int(kept == "MLO")] * len(CASES)
        same_rows(
            pictures.filter(pl.col("projection") == kept).with_columns(pl.lit("1").alias(CASE_LABEL)), found
        )


FIT = ("--configurations", "ce", "--epochs", 2)


def test_lost_images_leave_the_certificate_its_labels_cases_and_denominators(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every case with a lost image is counted and reviewed, whatever its other image scores."""
    (tmp_path / "dicom").mkdir()
    manifest = write_dicoms(tmp_path / "dicom", [*SICK, *HEALTHY])
    png, out = tmp_path / "png", tmp_path / "c.h5"
    assert run("preprocess", manifest, "--out", png, "--workers", 1).code == 1
    damage_pictures(png)
    spoil_first_image(monkeypatch)
    assert run("extract", png / "manifest.csv", "--out", out, *WORDS).code == 1
    lost = [case for case in CASES if case != "whole"]
    for name, kept in (("c.h5", ("CC", "MLO")), ("MLO.zarr", ("MLO",)), ("CC.zarr", ("CC",))):
        if len(kept) == 1:
            words = ("--out", tmp_path / name, "--where", f"projection={kept[0]}")
            assert run("cache", "subset", out, *words).code == 0
        folder = tmp_path / f"run of {name}"
        assert run("fit-heads", tmp_path / name, "--out", folder, *FIT).code == 0
        certified = tmp_path / f"certified {name}"
        done = run("certify", folder, "--out", certified, "--target", 0.5)
        assert done.code == 0, done.err
        labels = read(folder / "folds.csv").filter(label="1")["case_id"]
        assert sorted(labels) == sorted([*CASES, *SICK])
        # A deliberate subset defines another protocol: the images left out are not lost.
        check_point(certified, read(folder / "scores.csv"), lost if "MLO" in kept else [])
        assert ("incomplete" in done.err) is ("MLO" in kept)
        assert (certified / "incomplete.csv").is_file() is ("MLO" in kept)


def check_point(certified: Path, scores: pl.DataFrame, lost: list[str]) -> None:
    (point,) = json.loads((certified / "points.json").read_text())["points"]
    parts = read(certified / "split.csv")
    assert point["search_cases"] + point["cases"] == parts.height == len(CASES) + len(SICK) + len(HEALTHY)
    assert point["search_positives"] + point["positives"] == len(CASES) + len(SICK)
    evaluation = set(parts.filter(pl.col("part") != "search")["case_id"])  # the bound uses one per patient
    assert point["incomplete"] == point["incomplete_positives"] == len(evaluation & set(lost))
    assert point["search_incomplete_positives"] == len(set(lost) - evaluation)
    worst = scores.with_columns(pl.col("score").cast(pl.Float64)).group_by("case_id").agg(pl.max("score"))
    below = set(worst.filter(pl.col("score") < point["tau"])["case_id"]) & evaluation
    assert point["dismissed"] == len(below - set(lost))
    assert point["dismissal"] == point["dismissed"] / len(evaluation)
    if lost:
        listed = read(certified / "incomplete.csv")
        assert sorted(listed["case_id"]) == sorted(lost)
        assert set(listed["label"]) == {"1"}
