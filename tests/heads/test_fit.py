"""Runs: the same bytes whatever the threads, no leak between parts, interrupted and resumed."""

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors import safe_open

from tests.heads.cohorts import a_cohort, write_cohort
from trust_cache import certify
from trust_cache.base.errors import InputError
from trust_cache.heads.fit import EpochReport, fit_heads
from trust_cache.heads.head_settings import HeadSettings, presets
from trust_cache.heads.run_folder import summarise_run
from trust_cache.statistics.bounds import smallest_samples

FILES = {
    "run.json",
    "manifest.csv",
    "folds.csv",
    "scores.csv",
    "thresholds.csv",
    "trajectories.csv",
    "heads.safetensors",
}
BYTES = FILES - {"run.json"}  # run.json carries times


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cohort(tmp_path_factory.mktemp("cohort") / "cache.zarr", *a_cohort())


@pytest.fixture(scope="module")
def run(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit_heads(cache, tmp_path_factory.mktemp("run") / "run", epochs=3, threads=1).folder


def read(folder: Path, name: str) -> pl.DataFrame:
    texts = {"case_id": pl.String, "image_id": pl.String, "fold": pl.String}
    return pl.read_csv(folder / name, schema_overrides=texts)


def same_bytes(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in BYTES)


def test_the_folder_holds_what_design_names(run: Path) -> None:
    assert {path.name for path in run.iterdir()} == FILES
    assert read(run, "scores.csv").columns == [
        "configuration",
        "fold",
        "case_id",
        "image_id",
        "label",
        "score",
    ]
    assert read(run, "folds.csv").columns == ["case_id", "label", *(f"fold_{f}" for f in range(5))]
    assert read(run, "thresholds.csv").columns == [
        "configuration", "fold", "epoch", "tau", "dismissed", "positives_dismissed",
    ]  # fmt: skip
    assert read(run, "trajectories.csv").columns == [
        "configuration", "fold", "epoch", "label", "q05", "q25", "q50", "q75", "q95",
    ]  # fmt: skip
    record = json.loads((run / "run.json").read_text())
    assert record["schema"] == 1
    assert record["training"]["dropout"] == 77 / 256
    assert record["configurations"]["closed-loop"]["tau"] == "closed-loop"
    assert record["fingerprint"]["encoder"] == "efficientnet-b5"
    with safe_open(run / "heads.safetensors", "numpy") as heads:
        names = json.loads(heads.metadata()["names"])
        assert names == {"schema": 1, "configurations": list(presets()), "folds": list("01234")}
        assert heads.get_tensor("gamma").shape == heads.get_tensor("weight").shape == (5, 5, 48)
        assert heads.get_tensor("bias").shape == (5, 5)


def test_every_image_is_scored_once_by_a_model_that_never_saw_its_case(run: Path) -> None:
    scores, folds = read(run, "scores.csv"), read(run, "folds.csv")
    for (name,), part in scores.group_by("configuration"):
        assert part["image_id"].sort().to_list() == [f"{n:05d}" for n in range(600)], name
        for fold in range(5):
            tested = set(folds.filter(pl.col(f"fold_{fold}") == "test")["case_id"])
            assert set(part.filter(pl.col("fold") == str(fold))["case_id"]) == tested


def test_threads_and_a_second_start_change_no_byte(run: Path, cache: Path, tmp_path: Path) -> None:
    for threads in (1, 2, 3):
        again = fit_heads(cache, tmp_path / str(threads), epochs=3, threads=threads)
        assert same_bytes(run, again.folder)
    mapped = fit_heads(cache, tmp_path / "mapped", epochs=3, low_memory=True)
    assert same_bytes(run, mapped.folder)
    other = fit_heads(cache, tmp_path / "other", epochs=3, seed=1)
    assert (other.folder / "scores.csv").read_bytes() != (run / "scores.csv").read_bytes()


def test_bank_mates_matter_less_than_1e_4(run: Path, cache: Path, tmp_path: Path) -> None:
    alone = fit_heads(cache, tmp_path / "alone", epochs=3, configurations={"ce": presets()["ce"]})
    together = read(run, "scores.csv").filter(pl.col("configuration") == "ce")["score"].to_numpy()
    assert np.abs(read(alone.folder, "scores.csv")["score"].to_numpy() - together).max() < 1e-4


def test_a_folds_test_labels_reach_neither_its_heads_nor_its_scores(run: Path, tmp_path: Path) -> None:
    """With the folds given, permuting fold f's test labels leaves fold f byte-identical."""
    manifest, features = a_cohort()
    tested = read(run, "folds.csv").filter(pl.col("fold_2") == "test")["case_id"]
    inside = manifest["case_id"].is_in(tested).to_numpy()
    labels = manifest["label"].to_numpy().copy()
    labels[inside] = np.random.default_rng(0).permutation(labels[inside])
    assert not np.array_equal(labels, manifest["label"].to_numpy())
    changed = write_cohort(
        tmp_path / "changed.zarr", manifest.with_columns(label=pl.Series(labels)), features
    )
    again = fit_heads(changed, tmp_path / "run", epochs=3, folds=run / "folds.csv")
    for name in ("thresholds.csv", "trajectories.csv"):
        fold = pl.col("fold") == "2"
        assert read(again.folder, name).filter(fold).equals(read(run, name).filter(fold))
    before, after = (
        read(folder, "scores.csv").filter(pl.col("fold") == "2") for folder in (run, again.folder)
    )
    assert before.drop("label").equals(after.drop("label"))
    assert not before["label"].equals(after["label"])
    others = pl.col("fold") == "1"  # which fitted on those cases
    assert (
        not read(again.folder, "scores.csv")
        .filter(others)["score"]
        .equals(read(run, "scores.csv").filter(others)["score"])
    )
    with (
        safe_open(run / "heads.safetensors", "numpy") as one,
        safe_open(again.folder / "heads.safetensors", "numpy") as two,
    ):
        for part in ("gamma", "beta", "weight", "bias"):
            assert one.get_tensor(part)[:, 2].tobytes() == two.get_tensor(part)[:, 2].tobytes()


def test_every_threshold_satisfies_its_rule_and_a_separable_cohort_moves_it(tmp_path: Path) -> None:
    cache = write_cohort(tmp_path / "cache.h5", *a_cohort(cases=1_500, positives=150, distance=1.5, dim=32))
    quick = HeadSettings(lambda_focal=1.0, lambda_dismiss=0.05, tau="closed-loop", lr=3e-3)
    run = fit_heads(cache, tmp_path / "run", configurations={"quick": quick, **presets()}, epochs=6).folder
    table = read(run, "thresholds.csv")
    assert set(table["configuration"]) == {"quick", "fixed-tau", "closed-loop"}
    assert table.filter(pl.col("configuration") == "fixed-tau")["tau"].unique().to_list() == [0.05]
    needed = smallest_samples(200, 0.01, 0.05)
    loop = table.filter(pl.col("configuration") != "fixed-tau")
    for tau, dismissed, missed in loop.select("tau", "dismissed", "positives_dismissed").iter_rows():
        assert (tau == 0.0 and dismissed == 0) or dismissed >= needed[missed]
    moved = loop.filter(pl.col("configuration") == "quick")
    assert (moved["tau"] > 0).any()
    for _, fold in moved.group_by("fold"):
        assert fold["tau"].n_unique() > 2


def test_certify_takes_the_run(run: Path) -> None:
    result = certify(run)
    assert [point.configuration for point in result.points[::2]] == sorted(presets())
    assert all(point.image_dismissal is not None for point in result.points)


def test_subgroups_by_any_column_of_the_manifest(run: Path, cache: Path, tmp_path: Path) -> None:
    groups = {item.group: item.point.cases for item in certify(run, by="site").subgroups}
    assert list(groups) == ["site 0", "site 1"]
    assert sum(groups.values()) == 160
    moved = shutil.copytree(run, tmp_path / "moved")
    assert certify(moved, by="site").subgroups == certify(run, by="site").subgroups
    assert cache.exists()
    with pytest.raises(InputError, match=r"no column 'nothing'.*site"):
        certify(run, by="nothing")


def test_repeats_have_folders_of_their_own(run: Path, cache: Path, tmp_path: Path) -> None:
    again = fit_heads(cache, tmp_path / "run", epochs=3, repeats=3).folder
    assert same_bytes(run, again)
    assert {path.name for path in (again / "repeats").iterdir()} == {"1", "2"}
    for repeat in (1, 2):
        folder = again / "repeats" / str(repeat)
        assert {path.name for path in folder.iterdir()} == FILES
        assert (folder / "folds.csv").read_bytes() != (run / "folds.csv").read_bytes()


class InterruptedForTestError(Exception):
    """Any error that ends a run in the middle."""


def stop_after(epochs: int) -> object:
    def stop(report: EpochReport) -> None:
        if report.done == epochs:
            raise InterruptedForTestError

    return stop


@pytest.mark.parametrize("stop", [1, 7, 14])
def test_an_interrupted_run_leaves_no_folder_and_resumes_by_fold(
    run: Path, cache: Path, tmp_path: Path, stop: int
) -> None:
    out = tmp_path / "run"
    with pytest.raises(InterruptedForTestError):
        fit_heads(cache, out, epochs=3, threads=1, on_epoch=stop_after(stop))  # type: ignore[arg-type]
    assert not out.exists()
    with pytest.raises(InputError, match="interrupted run is kept"):
        fit_heads(cache, out, epochs=3)
    with pytest.raises(InputError, match="differs in training"):
        fit_heads(cache, out, epochs=4, resume=True)
    with pytest.raises(InputError, match="differs in seed"):
        fit_heads(cache, out, epochs=3, seed=9, resume=True)
    resumed = fit_heads(cache, out, epochs=3, resume=True)
    assert resumed.resumed_folds == stop // 3
    assert same_bytes(run, out)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_damaged_or_moved_fold_is_trained_again(run: Path, tmp_path: Path, cache: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(InterruptedForTestError):
        fit_heads(cache, out, epochs=3, threads=1, on_epoch=stop_after(13))  # type: ignore[arg-type]
    partial = tmp_path / ".run.partial"
    first, second, third, *_ = sorted(partial.glob("repeat-0-fold-*.safetensors"))
    first.write_bytes(first.read_bytes()[:-1])
    shutil.copyfile(third, second)
    resumed = fit_heads(cache, out, epochs=3, resume=True)
    assert resumed.resumed_folds == 2
    assert same_bytes(run, out)


def test_a_partial_run_without_an_identity_is_refused(tmp_path: Path, cache: Path) -> None:
    out, partial = tmp_path / "run", tmp_path / ".run.partial"
    with pytest.raises(InterruptedForTestError):
        fit_heads(cache, out, epochs=3, threads=1, on_epoch=stop_after(2))  # type: ignore[arg-type]
    (partial / "identity.json").write_text("{")
    with pytest.raises(InputError, match=r"identity\.json: damaged; start over with --overwrite"):
        fit_heads(cache, out, epochs=3, resume=True)


def test_an_interrupted_overwriting_is_resumed_and_the_earlier_run_kept(
    run: Path, cache: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(run, tmp_path / "run"))
    with pytest.raises(InterruptedForTestError):
        fit_heads(cache, out, epochs=1, threads=1, overwrite=True, on_epoch=stop_after(2))  # type: ignore[arg-type]
    assert same_bytes(run, out)
    resumed = fit_heads(cache, out, epochs=1, resume=True)
    assert resumed.kept == tmp_path / "run.1"
    assert same_bytes(run, tmp_path / "run.1")
    assert read(out, "thresholds.csv")["epoch"].max() == 0


def test_diverged_training_is_an_error_that_names_the_configuration(cache: Path, tmp_path: Path) -> None:
    wild = HeadSettings(lr=1e30)
    with pytest.raises(InputError, match="wild: training diverged in fold"):
        fit_heads(cache, tmp_path / "run", epochs=1, configurations={"ce": presets()["ce"], "wild": wild})
    assert not (tmp_path / "run").exists()


def test_places_where_no_run_can_be(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    for out, said in (
        (".", "folder you are in"),
        ("file/x", "cannot write there"),
        ("file", "exists already"),
    ):
        with pytest.raises(InputError, match=said):
            fit_heads(cache, out, epochs=1)
    brackets = fit_heads(cache, "run[1]", epochs=1).folder
    assert summarise_run(brackets).rows
    assert certify(brackets, by="site").points


def test_two_runs_in_one_place(cache: Path, tmp_path: Path) -> None:
    def second(_: EpochReport) -> None:
        fit_heads(cache, tmp_path / "run", epochs=1, resume=True)

    with pytest.raises(InputError, match="is being written by process"):
        fit_heads(cache, tmp_path / "run", epochs=1, on_epoch=second)
    assert fit_heads(cache, tmp_path / "run", epochs=1, resume=True).folder.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_existing_runs_are_safe(run: Path, cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(run, out)
    with pytest.raises(InputError, match="exists already"):
        fit_heads(cache, out, epochs=1)
    with pytest.raises(InputError, match="nothing to resume"):
        fit_heads(cache, out, epochs=1, resume=True)
    with pytest.raises(InputError, match="found both"):
        fit_heads(cache, out, resume=True, overwrite=True)
    assert same_bytes(run, out)
    fit_heads(cache, out, epochs=1, overwrite=True)
    assert read(out, "thresholds.csv")["epoch"].max() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        fit_heads(cache, tmp_path / "mine", epochs=1, overwrite=True)


def test_warnings_of_few_positives_and_small_calibration_parts(tmp_path: Path) -> None:
    cache = write_cohort(tmp_path / "cache.zarr", *a_cohort(cases=100, positives=15))
    run = fit_heads(cache, tmp_path / "run", epochs=1)
    assert any(
        "10 positive images to fit on" in text or "drawn with repetition" in text for text in run.warnings
    )
    assert any("tau stays 0" in text and "299" in text for text in run.warnings)
    assert (
        read(run.folder, "thresholds.csv").filter(pl.col("configuration") == "closed-loop")["tau"].max() == 0
    )


def test_bad_caches_and_options(cache: Path, tmp_path: Path) -> None:
    manifest, features = a_cohort()
    unfinished = write_cohort(tmp_path / "unfinished.zarr", manifest, features, shards=3)
    with pytest.raises(InputError, match=r"504.*trust-cache extract"):
        fit_heads(unfinished, tmp_path / "run")
    features[17, 1, 3] = np.nan
    broken = write_cohort(tmp_path / "broken.zarr", manifest, features)
    for low_memory in (False, True):
        with pytest.raises(InputError, match="00017"):
            fit_heads(broken, tmp_path / "run", low_memory=low_memory)
    with pytest.raises(InputError, match="expected at least 5 augmented views, found 2"):
        fit_heads(cache, tmp_path / "run", views=5)
    for wrong in ({"epochs": 0}, {"seed": -1}, {"repeats": 0}, {"views": -1}, {"threads": -1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            fit_heads(cache, tmp_path / "run", **wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_fewer_views_are_other_draws(cache: Path, tmp_path: Path) -> None:
    one = fit_heads(cache, tmp_path / "one", epochs=1, views=1).folder
    none = fit_heads(cache, tmp_path / "none", epochs=1, views=0).folder
    assert (one / "scores.csv").read_bytes() != (none / "scores.csv").read_bytes()
    assert json.loads((one / "run.json").read_text())["views"] == 1


def test_a_patients_cases_are_tested_together_and_named_in_the_scores(run: Path, tmp_path: Path) -> None:
    manifest, features = a_cohort()
    named = manifest.with_columns(patient_id=pl.format("p{}", pl.col("case_id").cast(int) // 2))
    cache = write_cohort(tmp_path / "cache.zarr", named, features)
    mine = fit_heads(cache, tmp_path / "run", epochs=1).folder
    scores = read(mine, "scores.csv")
    assert scores.columns == [*read(run, "scores.csv").columns, "patient_id"]
    assert scores.group_by("patient_id").agg(pl.col("fold").n_unique())["fold"].unique().to_list() == [1]
    assert scores["patient_id"].n_unique() == 100
    alone = named.with_columns(patient_id=pl.col("case_id"))
    own = fit_heads(write_cohort(tmp_path / "own.zarr", alone, features), tmp_path / "own", epochs=3).folder
    for name in ("folds.csv", "thresholds.csv", "trajectories.csv", "heads.safetensors"):
        assert (own / name).read_bytes() == (run / name).read_bytes()
    assert read(own, "scores.csv").drop("patient_id").equals(read(run, "scores.csv"))
    with pytest.raises(InputError, match=r"expected all cases of a patient in one part"):
        fit_heads(cache, tmp_path / "other", epochs=1, folds=run / "folds.csv")
