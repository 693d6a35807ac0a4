"""A whole study on a small cache: the same cases and folds for all, nothing learned from test cases."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from tests.conftest import make_scores
from tests.heads.cohorts import a_cohort, lose_images, without_images, write_cohort
from trust_cache import certify
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.feature_rows import load_rows, map_rows
from trust_cache.certificate.points import POINT_KEYS
from trust_cache.heads.bank import normalised_features
from trust_cache.heads.fit import fit_heads
from trust_cache.heads.folds import FOLDS, TEST
from trust_cache.heads.head_settings import TrainingSettings, presets
from trust_cache.heads.training_data import FitSettings, Preparation, prepare
from trust_cache.statistics.auroc import auroc
from trust_cache.studies.rivals.rival_models import (
    LinearSettings,
)
from trust_cache.studies.rivals.rival_rules import RESULT_KEYS, RivalSettings
from trust_cache.studies.rivals.rival_training import train_models
from trust_cache.studies.rivals.rivals import RivalsStudy, study_cache, study_scores
from trust_cache.studies.rivals.rivals_folder import OWN, render, rivals_table, write_study

SETTINGS = RivalSettings(targets=(0.9,), level=0.2, delta=0.05, epochs=2)
LINEAR = LinearSettings(ridges=(1e-1, 1e-2), draws=3)
LINEAR_MODELS = ("logistic-regression", "selectivenet", "conformal-risk-training")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cohort = a_cohort(cases=300, positives=90, dim=16, distance=0.5)
    return write_cohort(tmp_path_factory.mktemp("cohort") / "cache.zarr", *cohort)


@pytest.fixture(scope="module")
def study(cache: Path) -> RivalsStudy:
    return study_cache(cache, SETTINGS, linear=LINEAR, threads=1)


def prepared(cache: Path) -> Preparation:
    return prepare(open_cache(cache), FitSettings({}, TrainingSettings()), None)


def test_every_model_meets_every_rule_on_the_same_cases(study: RivalsStudy) -> None:
    models = {item.score_model for item in study.outcomes}
    assert models == {"ce", "closed-loop", "conformal-risk-training@0.9", *LINEAR_MODELS[:2]}
    assert len(study.outcomes) == len(models) * 7
    for name in ("cases", "positives", "search_cases", "search_positives", "prevalence", "compared"):
        assert len({getattr(item.point, name) for item in study.outcomes}) == 1
    assert study.outcomes[0].point.compared == len(study.outcomes)
    for item in study.outcomes:  # two epochs teach the heads little
        assert (item.point.auroc_case or 0.0) > (0.5 if item.score_model in ("ce", "closed-loop") else 0.8)


def test_the_points_of_the_paper_rule_are_those_of_certify(study: RivalsStudy) -> None:
    for rule in ("recall", "crc", "ltt"):
        points = certify(study.scores, targets=[0.9], delta=0.05, rule=rule).points
        found = {item.score_model: item.point for item in study.outcomes if item.rule == rule}
        assert len(points) == len(found)
        for point in points:
            mine = found[str(point.configuration)]
            for name in (
                "tau",
                "dismissed",
                "positives_dismissed",
                "bound",
                "recall_lower",
                "met",
                "auroc_image",
            ):
                assert getattr(mine, name) == getattr(point, name)


def test_kept_is_what_evaluation_observed(study: RivalsStudy) -> None:
    for item in study.outcomes:
        point = item.point
        if not item.feasible:
            assert item.kept is None
            assert "needs" in str(item.reason)
        elif item.level is not None:
            assert item.kept == (point.positives_dismissed * 5 <= point.dismissed)
            assert item.row()["met"] is None
        else:
            assert item.kept == (10 * point.positives_dismissed <= point.positives)
    assert any(item.feasible for item in study.outcomes if item.level is not None)


def test_the_paper_heads_are_those_of_fit_heads(cache: Path, study: RivalsStudy, tmp_path: Path) -> None:
    fit_heads(cache, tmp_path / "run", epochs=2, threads=1)
    run = pl.read_csv(tmp_path / "run" / "scores.csv", infer_schema=False)
    keys = ["configuration", "case_id", "image_id"]
    written = pl.read_csv(render(study)["scores.csv"], infer_schema=False)
    for name in ("ce", "closed-loop"):
        expected = run.filter(pl.col("configuration") == name).sort(keys)
        found = written.filter(pl.col("configuration") == name).sort(keys)
        assert found["score"].to_list() == expected["score"].to_list()
        assert found["fold"].to_list() == expected["fold"].to_list()
    assert (tmp_path / "run" / "folds.csv").read_bytes() == render(study)["folds.csv"]


def test_features_are_a_layer_norm_in_memory_and_mapped(cache: Path) -> None:
    opened = open_cache(cache)
    images = np.array([5, 0, 17])
    clean = np.asarray(opened.features[...])[images, 0].astype(np.float32)
    expected = torch.nn.functional.layer_norm(torch.tensor(clean), (clean.shape[1],)).numpy()
    for rows in (load_rows(opened), map_rows(opened)):
        np.testing.assert_allclose(normalised_features(rows, images), expected, atol=1e-6)


def test_a_regression_that_did_not_converge_is_named_in_a_sentence(cache: Path) -> None:
    settings = RivalSettings(models=("logistic-regression",), rules=("recall",))
    few = LinearSettings(ridges=(1e-3,), iterations=2)
    (warning,) = study_cache(cache, settings, linear=few, threads=1).warnings
    assert warning.startswith("logistic-regression: stopped after 2 iterations in fold 0, 1, 2, 3, 4")


def test_test_labels_teach_nothing(cache: Path) -> None:
    """With the folds given, other labels of a fold's test cases leave that fold's scores byte-identical."""
    settings = RivalSettings(targets=(0.9,), models=LINEAR_MODELS)
    work, rows = prepared(cache), load_rows(open_cache(cache))
    before = train_models(work, rows, settings, LINEAR, 1, lambda: None)
    labels = work.labels.copy()
    tested = work.images(0, 2, TEST)
    labels[tested] = np.random.default_rng(0).permutation(labels[tested])
    assert np.any(labels != work.labels)
    changed = Preparation(**{**vars(work), "labels": labels})
    after = train_models(changed, rows, settings, LINEAR, 1, lambda: None)
    others = work.images(0, 3, TEST)
    for name, column in before.scores.items():
        assert after.scores[name][tested].tobytes() == column[tested].tobytes()
        assert after.scores[name][others].tobytes() != column[others].tobytes()
    assert before.fold.min() == 0
    assert before.fold.max() == FOLDS - 1


def test_the_scores_are_those_of_a_cache_without_the_failed_images(tmp_path: Path) -> None:
    manifest, features = a_cohort(cases=300, positives=90, dim=16, distance=0.5)
    present = lose_images(manifest)
    lost = write_cohort(tmp_path / "lost.zarr", manifest, features, present=present)
    left = write_cohort(tmp_path / "left.zarr", without_images(manifest, present), features[present])
    settings = RivalSettings(targets=(0.9,), epochs=1)
    heads = FitSettings({"ce": presets()["ce"]}, TrainingSettings(epochs=1))
    work = prepare(open_cache(lost), heads, None)
    work.folds[0].table.write_csv(tmp_path / "folds.csv")
    oracle = prepare(open_cache(left), heads, tmp_path / "folds.csv")
    found, expected = (
        train_models(item, load_rows(item.cache), settings, LINEAR, 1, lambda: None)
        for item in (work, oracle)
    )
    assert set(found.scores) == {"ce", "conformal-risk-training@0.9", *LINEAR_MODELS[:2]}
    for name, column in found.scores.items():
        assert np.array_equal(np.isnan(column), ~present)
        assert column[present].tobytes() == expected.scores[name].tobytes()
    assert found.warnings == expected.warnings
    table = found.table(manifest)
    assert table.filter(pl.col("score").is_null())["image_id"].n_unique() == np.count_nonzero(~present)
    assert table.height == len(found.scores) * manifest.height


def test_rules_review_incomplete_cases_and_search_one_case_of_each_patient(tmp_path: Path) -> None:
    manifest, features = a_cohort(cases=300, positives=90, dim=16, distance=0.5)
    named = manifest.with_columns(patient_id=pl.format("p{}", pl.col("case_id").cast(int) // 2))
    cache = write_cohort(tmp_path / "lost.zarr", named, features, present=lose_images(named))
    settings = RivalSettings(targets=(0.8,), models=("logistic-regression",), rules=("recall", "crc"))
    study = study_cache(cache, settings, linear=LINEAR, threads=1)
    for outcome in study.outcomes:
        (point,) = certify(study.scores, targets=[0.8], rule=outcome.rule).points
        for name in ("tau", "cases", "incomplete", "dismissed", "bound", "patients", "set_aside"):
            assert getattr(outcome.point, name) == getattr(point, name)
        assert point.incomplete > 0
        assert point.set_aside == 120
    written = pl.read_csv(render(study)["scores.csv"], infer_schema=False)
    assert written.columns[-2:] == ["score", "patient_id"]
    assert written.filter(pl.col("score").is_null()).height == open_cache(cache).failed.sum()


def test_the_steps_of_the_progress_bar_are_counted_right(cache: Path, tmp_path: Path) -> None:
    settings = RivalSettings(targets=(0.98, 0.8), models=("ce", "conformal-risk-training"), epochs=1)
    steps = []
    study = study_cache(cache, settings, linear=LINEAR, threads=1, advance=lambda: steps.append(1))
    assert len(steps) == settings.steps
    assert study.scores.configurations == [
        "ce",
        "conformal-risk-training@0.8",
        "conformal-risk-training@0.98",
    ]
    assert not study.warnings  # 63 positive fitting cases are enough
    few = LinearSettings(ridges=(0.1,), draws=2)
    small = a_cohort(cases=300, positives=60, dim=16, distance=0.5)
    study = study_cache(write_cohort(tmp_path / "few.zarr", *small), settings, linear=few, threads=1)
    (warning,) = study.warnings
    assert "@0.98: a fold has only 42 of the 49 positive fitting cases" in warning


def test_selectivenet_ranks_and_selects(cache: Path) -> None:
    """Its scores separate the classes out of fold; most normal cases are selected as such."""
    settings = RivalSettings(models=("selectivenet",))
    work, rows = prepared(cache), load_rows(open_cache(cache))
    found = train_models(work, rows, settings, replace(LINEAR, coverage=0.7), 1, lambda: None)
    column = found.scores["selectivenet"]
    area = auroc(column, work.labels)
    assert area is not None
    assert area > 0.8
    assert np.median(column[work.labels == 0]) < 0.5
    table = found.table(work.cache.manifest)
    assert table.height == rows.images


def test_the_folder_is_whole_and_repeats(cache: Path, study: RivalsStudy, tmp_path: Path) -> None:
    write_study(study, tmp_path / "rivals")
    files = {path.name for path in (tmp_path / "rivals").iterdir()}
    assert files == OWN - {"incomplete.csv"}
    again = study_cache(cache, SETTINGS, linear=LINEAR, threads=2)
    assert render(again) == render(study)
    table = pl.read_csv(tmp_path / "rivals" / "results.csv")
    assert tuple(table.columns) == RESULT_KEYS
    assert set(POINT_KEYS) - {"configuration"} <= set(table.columns)
    document = json.loads((tmp_path / "rivals" / "rivals.json").read_text())
    assert len(document["results"]) == table.height == len(study.outcomes)
    assert document["training"]["seed"] == 0
    assert set(document["training"]["ridge"]) == {*LINEAR_MODELS[:2], "conformal-risk-training@0.9"}
    # The rules again on the scores that were written: the same results.
    rules_only = study_scores(tmp_path / "rivals", SETTINGS, split=tmp_path / "rivals" / "split.csv")
    assert [item.row() for item in rules_only.outcomes] == [item.row() for item in study.outcomes]
    assert set(render(rules_only)) == files - {"folds.csv", "scores.csv"}


def test_one_row_where_a_rule_is_infeasible_for_all() -> None:
    study = study_scores(make_scores(cases=600, positives=60, configurations=("a", "b", "c")))
    rows = rivals_table(study).rows
    assert next(row[:3] for row in rows if row[0] == "rcps") == ("rcps", "recall 98%", "all 3")
    assert next(row[-1] for row in rows if row[0] == "rcps") == "needs 228 positives, found 12"
    assert len([row for row in rows if row[:2] == ("recall", "recall 95%")]) == 3
