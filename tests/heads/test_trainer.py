"""Another trainer takes the compiled one's place through the seam alone."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.heads.cohorts import a_cohort, write_cohort
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.feature_rows import load_rows
from trust_cache.clinic.export_model import refit
from trust_cache.heads.bank import HeadParameters, score_rows
from trust_cache.heads.estimator import TrustHeadClassifier
from trust_cache.heads.fit import EpochReport, fit_heads
from trust_cache.heads.head_settings import TrainingSettings, presets
from trust_cache.heads.run_folder import RunFolder
from trust_cache.heads.trainer import COMPILED, QUANTILES, FoldJob, OnEpoch, TrainedFold, TrainedFolds
from trust_cache.heads.training_data import FitSettings, prepare
from trust_cache.statistics.auroc import auroc
from trust_cache.studies.external import evaluate_externally
from trust_cache.studies.rivals.rival_models import LinearSettings
from trust_cache.studies.rivals.rival_rules import RivalSettings
from trust_cache.studies.rivals.rival_training import train_models
from trust_cache.studies.sweep.sweep import sweep
from trust_cache.studies.sweep.sweep_request import describe_space

CHOSEN = {name: presets()[name] for name in ("ce", "closed-loop")}


@dataclass(frozen=True)
class PlainTrainer:
    """Full-batch logistic steps in numpy: the same for every head of a bank, and tau fixed at 0.25."""

    folds: list[tuple[int, int]] = field(default_factory=list)  # (repeat, fold) of every job it got

    def train(self, jobs: Sequence[FoldJob], *, threads: int, on_epoch: OnEpoch) -> TrainedFolds:
        assert threads >= 1
        for number, job in enumerate(jobs):
            self.folds.append((job.draws.repeat, job.draws.fold))
            fit, labels = job.images.fit, job.images.labels[job.images.fit]
            x = np.stack([job.rows.clean(image) for image in fit]).astype(np.float64)
            x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
            shape = (job.training.epochs, len(job.heads))
            taus = np.full(shape, 0.25)
            weight, bias = np.zeros(x.shape[1]), 0.0
            for epoch in range(1, job.training.epochs + 1):
                error = 1 / (1 + np.exp(-(x @ weight + bias))) - labels
                weight, bias = weight - 0.5 * x.T @ error / labels.size, bias - 0.5 * error.mean()
                if epoch < job.training.epochs:
                    on_epoch(number, epoch, taus[epoch - 1])
            heads, dim = len(job.heads), x.shape[1]
            parameters = HeadParameters(
                np.ones((heads, dim), dtype=np.float32),
                np.zeros((heads, dim), dtype=np.float32),
                np.tile(weight.astype(np.float32), (heads, 1)),
                np.full(heads, bias, dtype=np.float32),
            )
            counts = np.zeros(shape, dtype=np.int64)
            trajectories = np.full((shape[0] + 1, shape[1], 2, len(QUANTILES)), np.nan)
            yield number, TrainedFold(parameters, taus, counts, counts, trajectories)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cohort(tmp_path_factory.mktemp("cohort") / "cache.zarr", *a_cohort(cases=100, positives=30))


def case_auroc(scores: Path, configuration: str) -> float:
    table = pl.read_csv(scores).filter(pl.col("configuration") == configuration)
    cases = table.group_by("case_id").agg(pl.col("score", "label").max())
    value = auroc(cases["score"].to_numpy(), cases["label"].to_numpy())
    assert value is not None
    return value


def test_a_run_by_another_trainer(cache: Path, tmp_path: Path) -> None:
    trainer, reports = PlainTrainer(), list[EpochReport]()
    run = fit_heads(
        cache, tmp_path / "run", configurations=CHOSEN, epochs=8, repeats=2, trainer=trainer,
        on_epoch=reports.append,
    )  # fmt: skip
    assert trainer.folds == [(repeat, fold) for repeat in range(2) for fold in range(5)]
    assert [item.done for item in reports] == list(range(1, 2 * 5 * 8 + 1))
    assert all(item.taus == {"closed-loop": 0.25} for item in reports)
    assert case_auroc(run.folder / "scores.csv", "ce") > 0.8
    folder = RunFolder(run.folder)
    assert set(folder.thresholds()["tau"]) == {0.25}
    opened = open_cache(cache)
    rows = load_rows(opened)
    tested = pl.read_csv(run.folder / "scores.csv", schema_overrides={"image_id": pl.String}).filter(
        (pl.col("fold") == 3) & (pl.col("configuration") == "ce")
    )
    images = [opened.manifest["image_id"].to_list().index(name) for name in tested["image_id"]]
    again = score_rows(rows, np.array(images), folder.head("ce", "3"))[0]
    np.testing.assert_array_equal(tested["score"].to_numpy(), again)


def test_an_interrupted_run_is_resumed_by_fold(cache: Path, tmp_path: Path) -> None:
    def stop(report: EpochReport) -> None:
        if report.done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_heads(cache, tmp_path / "run", epochs=3, trainer=PlainTrainer(), on_epoch=stop)
    rest = PlainTrainer()
    assert fit_heads(cache, tmp_path / "run", epochs=3, trainer=rest, resume=True).resumed_folds == 2
    assert rest.folds == [(0, 2), (0, 3), (0, 4)]


def test_a_sweep_by_another_trainer(cache: Path, tmp_path: Path) -> None:
    trainer = PlainTrainer()
    space = describe_space(["lambda_dismiss=0,0.05", "margin=0.1,0.2"])
    done = sweep(cache, tmp_path / "sweep", space, epochs=4, trainer=trainer)
    assert trainer.folds == [(0, fold) for fold in range(5)]
    results = pl.read_parquet(done.folder / "results.parquet")
    assert results["search_auroc_case"].n_unique() == 1  # all settings are one head
    again = sweep(cache, done.folder, space, epochs=4, trainer=trainer, resume=True)
    assert (again.trained, len(trainer.folds)) == (0, 5)


def test_external_refit_rivals_and_the_estimator(cache: Path, tmp_path: Path) -> None:
    manifest, features = a_cohort(cases=100, positives=30)
    renamed = (pl.format("b{}", name).alias(name) for name in ("image_id", "case_id"))
    other = write_cohort(tmp_path / "other.zarr", manifest.with_columns(*renamed), features + np.float16(1))
    trainer = PlainTrainer()
    external = evaluate_externally(cache, other, tmp_path / "external", epochs=4, trainer=trainer)
    assert trainer.folds == [(0, 0)]
    assert json.loads((external.folder / "run.json").read_text())["test_cache"] == str(other)
    opened = open_cache(cache)
    rows = load_rows(opened)
    head = refit(RunFolder(external.folder), "ce", opened, rows, 0.9, trainer=trainer).head
    np.testing.assert_array_equal(head.weight, RunFolder(external.folder).head("ce").weight)
    work = prepare(opened, FitSettings(CHOSEN, TrainingSettings(epochs=2)), None)
    settings = RivalSettings(targets=(0.9,), models=("ce", "closed-loop"), epochs=2)
    models = train_models(work, rows, settings, LinearSettings(), 1, lambda: None, trainer)
    np.testing.assert_array_equal(models.scores["ce"], models.scores["closed-loop"])
    x = np.stack([rows.clean(image) for image in range(rows.images)]).astype(np.float64)
    plain = TrustHeadClassifier("ce", epochs=4, trainer=trainer).fit(x, work.labels)
    compiled = TrustHeadClassifier("ce", epochs=4).fit(x, work.labels)
    assert (plain.parameters_.gamma == 1).all()
    assert not (compiled.parameters_.gamma == 1).all()
    assert TrustHeadClassifier(trainer=COMPILED).get_params()["trainer"] is COMPILED
