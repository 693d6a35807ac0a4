"""Failed images: the run is that of a cache without them, except that no row, case or label is lost."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.heads.cohorts import a_cohort, lose_images, without_images, write_cohort
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import open_cache
from trust_cache.heads.fit import Run, fit_heads
from trust_cache.heads.folds import TEST
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings, presets
from trust_cache.heads.run_folder import FoldScores, RunFolder, summarise_run
from trust_cache.heads.training_data import FitSettings, prepare, prepare_final
from trust_cache.manifest.cases import FEATURE_TAIL, find_cases
from trust_cache.statistics.auroc import auroc

MANIFEST, FEATURES = a_cohort()
PRESENT = lose_images(MANIFEST)
LEFT = without_images(MANIFEST, PRESENT)
CASES = find_cases(MANIFEST)
SETTINGS = FitSettings({"closed-loop": presets()["closed-loop"]}, TrainingSettings(epochs=2))
SAME = ("heads.safetensors", "thresholds.csv", "trajectories.csv")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cohort(tmp_path_factory.mktemp("lost") / "lost.zarr", MANIFEST, FEATURES, present=PRESENT)


@pytest.fixture(scope="module")
def run(cache: Path) -> Run:
    return fit_heads(cache, cache.parent / "run", epochs=2, threads=1)


def read(folder: Path, name: str) -> pl.DataFrame:
    return pl.read_csv(folder / name, infer_schema=False)


def incomplete_cases(present: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.unique(CASES.of_image[~present])


def test_the_heads_are_those_of_a_cache_without_the_failed_images(run: Run, tmp_path: Path) -> None:
    kept = write_cohort(tmp_path / "left.zarr", LEFT, FEATURES[PRESENT])
    oracle = fit_heads(kept, tmp_path / "run", epochs=2, folds=run.folder / "folds.csv", threads=1)
    for name in SAME:
        assert (oracle.folder / name).read_bytes() == (run.folder / name).read_bytes()
    keys = ["configuration", "image_id"]
    scored = read(run.folder, "scores.csv").filter(pl.col("score").is_not_null()).sort(keys)
    columns = ["configuration", "fold", "case_id", "image_id", "label", "score"]
    assert read(oracle.folder, "scores.csv").columns == [*columns, "case_label"]
    assert read(oracle.folder, "scores.csv").sort(keys).select(columns).equals(scored)


def test_no_row_no_case_and_no_label_is_lost(run: Run, tmp_path: Path) -> None:
    whole = fit_heads(
        write_cohort(tmp_path / "whole.zarr", MANIFEST, FEATURES), tmp_path / "run", epochs=1, threads=1
    )
    assert (run.folder / "folds.csv").read_bytes() == (whole.folder / "folds.csv").read_bytes()
    # The feature gate is fitted on the images that are there.
    tables = [read(item.folder, "manifest.csv").drop(FEATURE_TAIL) for item in (run, whole)]
    assert tables[0].equals(tables[1])
    there, here = (read(item.folder, "scores.csv") for item in (whole, run))
    assert here.drop("score").equals(there.drop("score"))
    empty = here.filter(pl.col("score").is_null())
    lost = set(MANIFEST.filter(pl.Series(~PRESENT))["image_id"])
    for _, part in empty.group_by("configuration"):
        assert sorted(part["image_id"]) == sorted(lost)
    assert empty["configuration"].n_unique() == len(presets())


def test_the_run_says_what_is_missing(run: Run) -> None:
    record = json.loads((run.folder / "run.json").read_text())
    incomplete = incomplete_cases(PRESENT)
    assert record["images_without_features"] == np.count_nonzero(~PRESENT)
    counts = (
        f"{np.count_nonzero(~PRESENT)} of 600 images failed: {incomplete.size} of 200 cases are incomplete,"
        f" {CASES.labels[incomplete].sum()} of them positive"
    )
    assert [text for text in run.warnings if counts in text and "lost.zarr --json" in text]
    assert set(run.warnings) == set(record["warnings"])
    table = summarise_run(run.folder)
    assert f"{PRESENT.sum()} images, 200 cases, {incomplete.size} of them incomplete" in table.title
    scores = read(run.folder, "scores.csv").filter(pl.col("configuration") == "ce")
    by_image = MANIFEST.select("image_id").join(scores, on="image_id", how="left", maintain_order="left")
    images = by_image["score"].cast(float).fill_null(np.nan).to_numpy()
    complete = np.setdiff1d(np.arange(200), incomplete)
    labels = MANIFEST["label"].to_numpy()
    expected = (
        auroc(CASES.score(images)[complete], CASES.labels[complete]),
        auroc(images[PRESENT], labels[PRESENT]),
    )
    assert table.rows[0][1:3] == tuple(f"{value:.4f}" for value in expected)


def test_mapped_features_and_a_resumed_run_give_the_same_bytes(run: Run, cache: Path, tmp_path: Path) -> None:
    mapped = fit_heads(cache, tmp_path / "mapped", epochs=2, low_memory=True, threads=1)
    for name in (*SAME, "scores.csv"):
        assert (mapped.folder / name).read_bytes() == (run.folder / name).read_bytes()
    other = write_cohort(tmp_path / "whole.zarr", MANIFEST, FEATURES)
    opened = RunFolder(run.folder).open_train_cache(str(cache))
    assert not opened.done.all()
    with pytest.raises(InputError, match=r"expected \d+ images without features, as the run had, found 0"):
        RunFolder(run.folder).open_train_cache(str(other))


def test_divergence_is_judged_by_images_with_features(cache: Path, tmp_path: Path) -> None:
    scores = np.array([[0.5, np.nan, 0.5], [0.5, np.nan, np.nan], [np.inf, np.nan, 0.5]])
    result = FoldScores(np.array([4, 1, 3]), scores)
    present = np.array([False, False, False, True, True])
    assert result.diverged(present).tolist() == [False, True, True]
    with pytest.raises(InputError, match="wild: training diverged in fold"):
        fit_heads(cache, tmp_path / "run", epochs=1, configurations={"wild": HeadSettings(lr=1e30)})


def test_only_test_images_may_lack_features(cache: Path) -> None:
    opened = open_cache(cache)
    work = prepare(opened, SETTINGS, None)
    tested = np.concatenate([work.images(0, fold, TEST) for fold in range(5)])
    assert np.array_equal(np.sort(tested), np.arange(opened.images))
    final = prepare_final(opened, SETTINGS, None)
    for item in (work, final):
        for fold in range(len(item.fold_names)):
            for part in range(TEST):
                images = item.images(0, fold, part)
                inside = item.folds[0].parts[fold][item.cases.of_image] == part
                assert np.array_equal(images, np.flatnonzero(inside & PRESENT))
        assert np.array_equal(np.flatnonzero(~item.complete), incomplete_cases(PRESENT))
        assert np.array_equal(item.cases.labels, CASES.labels)
        assert any(
            re.search(r"images failed: \d+ of 200 cases are incomplete", said) for said in item.warnings
        )
