"""External evaluation: known truth recovered, chance named, one run folder, and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from msgspec import structs
from safetensors.numpy import load_file
from scipy.stats import binom

from tests.cache.material import FINGERPRINT
from tests.heads.cohorts import a_cohort, lose_images, write_cohort
from tests.project.pages import DOCS, blocks, run_python, section
from trust_cache import certify
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.cache_writer import create_cache
from trust_cache.cache.feature_rows import load_rows
from trust_cache.certificate.certification import CertifySettings
from trust_cache.certificate.evidence import Options, gather
from trust_cache.certificate.recertify import verify_certified
from trust_cache.certificate.score_table import build_cohort, check_scores
from trust_cache.certificate.verify import verify
from trust_cache.heads.bank import HeadParameters, initial_parameters, score_rows
from trust_cache.heads.draws import Draws
from trust_cache.heads.fit import EpochReport
from trust_cache.heads.head_settings import HeadSettings
from trust_cache.manifest.cases import find_cases
from trust_cache.manifest.protocol import Protocol
from trust_cache.statistics.auroc import auroc, auroc_difference, auroc_interval
from trust_cache.studies.external import External, evaluate_externally
from trust_cache.studies.overlap import find_overlap, refuse_overlap
from trust_cache.studies.ranking import rank_cases, ranking_table
from trust_cache.synthetic.feature_cohort import simulate_cache
from trust_cache.synthetic.truth import TrueScores, Truth

DIM = 2_048  # in few dimensions two random directions are far from orthogonal
SHARDS = {"shard_images": 2_048}  # few: each is forced to the disk
OTHER_TRUTHS = (1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow))
RUN_FILES = {
    "run.json", "manifest.csv", "folds.csv", "scores.csv", "thresholds.csv", "trajectories.csv",
    "heads.safetensors",
}  # fmt: skip
TERMS = CertifySettings((0.95, 0.9))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("external")


@pytest.fixture(scope="module")
def trained_on(folder: Path) -> Path:
    simulate_cache("rsna", folder / "train.zarr", views=1, dim=DIM, cases=1_000, **SHARDS)
    return folder / "train.zarr"


@pytest.fixture(scope="module")
def tested_on(folder: Path) -> Path:
    simulate_cache("nlbs", folder / "test.zarr", views=0, dim=DIM, cases=1_500, seed=1, **SHARDS)
    return folder / "test.zarr"


@pytest.fixture(scope="module")
def result(trained_on: Path, tested_on: Path, folder: Path) -> External:
    return evaluate_externally(trained_on, tested_on, folder / "run", terms=TERMS, threads=1)


def true_scores(run: Path, number: int, truth_seed: int) -> TrueScores:
    """Fresh cases without end, scored by a head of the run."""
    heads = load_file(run / "heads.safetensors")
    parts = [heads[name][number, 0] for name in ("gamma", "beta", "weight")]
    truth = Truth("nlbs", truth_seed, DIM)
    return truth.score(*parts, float(heads["bias"][number, 0]), cases=100_000)


def test_one_direction_recovers_the_known_truth_within_its_error(result: External) -> None:
    """Each figure against 100,000 fresh cases of the test cache's law, at a level of 0.001 per figure."""
    for number, ranking in enumerate(result.rankings):
        truth = true_scores(result.folder, number, 0)
        known = auroc(truth.scores, truth.labels)
        assert known is not None
        assert known > 0.65
        assert ranking.auroc.lower < known < ranking.auroc.upper
        assert ranking.verdict == "better than chance"
        for point in result.certification.points:
            if point.configuration != ranking.configuration:
                continue
            assert point.tau is not None
            below = truth.scores < point.tau
            missed = below & (truth.labels == 1)
            # The threshold came from search, the classes' sizes were fixed: dismissals are binomial by class.
            for found, n, share in (
                (point.positives_dismissed, point.positives, missed.sum() / truth.labels.sum()),
                (
                    point.dismissed - point.positives_dismissed,
                    point.cases - point.positives,
                    (below & ~missed).sum() / (1 - truth.labels).sum(),
                ),
            ):
                low, high = binom.ppf([0.0005, 0.9995], n, share)
                assert low <= found <= high
            assert missed.sum() / below.sum() <= point.bound
    assert not any("chance" in text for text in result.warnings)


@pytest.mark.parametrize("truth_seed", OTHER_TRUTHS)
def test_another_direction_is_at_chance_and_named(trained_on: Path, tmp_path: Path, truth_seed: int) -> None:
    other = simulate_cache(
        "nlbs", tmp_path / "other.zarr", views=0, dim=DIM, cases=1_500, seed=1 + truth_seed,
        truth_seed=truth_seed, **SHARDS,
    )  # fmt: skip
    result = evaluate_externally(trained_on, other, tmp_path / "run", terms=TERMS)
    for number, ranking in enumerate(result.rankings):
        truth = true_scores(result.folder, number, truth_seed)
        known = auroc(truth.scores, truth.labels)
        assert known is not None
        assert ranking.auroc.lower < known < ranking.auroc.upper
        assert ranking.verdict == "at chance"
        (said,) = [
            text
            for text in result.warnings
            if text.startswith(f"{ranking.configuration}: ") and "tau" not in text
        ]
        assert "at chance on the test cache" in said
        assert said in json.loads((result.certified / "points.json").read_text())["warnings"]
        assert said in (result.certified / "table.md").read_text()


def test_a_direction_turned_round_is_worse_than_chance(tmp_path: Path) -> None:
    manifest, features = a_cohort(cases=400, positives=150, distance=1.5, seed=1)
    mirrored = manifest.with_columns(pl.format("other {}", "image_id").alias("image_id"))
    mirrored = mirrored.with_columns(pl.format("other {}", "case_id").alias("case_id"))
    others = features + np.random.default_rng(2).standard_normal(features.shape)  # other images
    turned = np.where(manifest["label"].to_numpy()[:, None, None] == 1, -features, others)
    trained_on = write_cohort(tmp_path / "train.zarr", manifest, features)
    tested_on = write_cohort(tmp_path / "test.zarr", mirrored, turned.astype(np.float16))
    result = evaluate_externally(trained_on, tested_on, tmp_path / "run")
    assert {ranking.verdict for ranking in result.rankings} == {"worse than chance"}
    assert any("worse than chance" in text and "in reverse" in text for text in result.warnings)


def test_the_folder_is_a_run_with_one_fold_and_its_certificates(
    result: External, trained_on: Path, tested_on: Path
) -> None:
    run = result.folder
    assert {path.name for path in run.iterdir()} == RUN_FILES | {"certified"}
    folds = pl.read_csv(run / "folds.csv")
    assert folds.columns == ["case_id", "label", "external"]
    assert folds["case_id"].to_list() == sorted(set(open_cache(trained_on).manifest["case_id"]))
    parts = folds.group_by("external").agg(pl.len(), pl.col("label").sum().alias("positives"))
    positives = int(folds["label"].sum())
    by_part = {name: (n, k) for name, n, k in parts.iter_rows()}
    assert by_part["calibrate"] == (100, round(positives / 10))
    assert by_part["fit"] == (900, positives - round(positives / 10))
    for name in ("scores.csv", "thresholds.csv", "trajectories.csv"):
        assert pl.read_csv(run / name)["fold"].unique().to_list() == ["external"]
    scores = pl.read_csv(run / "scores.csv")
    assert scores["configuration"].unique(maintain_order=True).to_list() == ["ce", "closed-loop"]
    manifest = open_cache(tested_on).manifest
    assert scores.height == 2 * manifest.height
    assert pl.read_csv(run / "manifest.csv").height == manifest.height
    heads = load_file(run / "heads.safetensors")
    assert heads["weight"].shape == (2, 1, DIM)
    record = json.loads((run / "run.json").read_text())
    assert (record["images"], record["test"]["images"]) == (
        open_cache(trained_on).images,
        manifest.height,
    )


def test_the_scores_are_those_of_the_frozen_heads(result: External, tested_on: Path) -> None:
    heads = load_file(result.folder / "heads.safetensors")
    parameters = HeadParameters(*(heads[name][:, 0] for name in ("gamma", "beta", "weight", "bias")))
    cache = open_cache(tested_on)
    again = score_rows(load_rows(cache), np.arange(cache.images), parameters)
    scores = pl.read_csv(result.folder / "scores.csv").sort("configuration", "image_id")["score"].to_numpy()
    order = cache.manifest["image_id"].arg_sort().to_numpy()
    assert np.array_equal(again[:, order].reshape(-1), scores)


def test_certify_gives_the_same_certificates_and_verify_agrees(result: External) -> None:
    again = certify(result.folder, targets=TERMS.targets, by="site")
    assert again.points == result.certification.points
    assert again.subgroups == result.certification.subgroups
    assert [item.group for item in again.subgroups[:2]] == ["1", "2"]
    assert again.limits == result.certification.limits
    assert any(text.startswith("Exact here") for text in again.limits)
    certificates = sorted((result.certified / "certificates").iterdir())
    assert len(certificates) == 4
    for certificate in certificates:
        assert verify(certificate, result.folder).holds


def test_threads_memory_and_splits_given_change_no_byte(
    result: External, trained_on: Path, tested_on: Path, tmp_path: Path
) -> None:
    again = evaluate_externally(
        trained_on, tested_on, tmp_path / "run", terms=replace(TERMS, by=("none",)), threads=2,
        low_memory=True,
        folds=result.folder / "folds.csv", split=result.certified / "split.csv",
    )  # fmt: skip
    for name in RUN_FILES - {"run.json"}:
        assert (again.folder / name).read_bytes() == (result.folder / name).read_bytes()
    assert not again.certification.subgroups
    assert again.certification.split.sha256 == result.certification.split.sha256


def test_target_labels_do_not_reach_the_heads(
    result: External, trained_on: Path, tested_on: Path, tmp_path: Path
) -> None:
    cache = open_cache(tested_on)
    labels = cache.manifest["label"].shuffle(seed=0)
    changed = cache.manifest.with_columns(label=labels)
    with create_cache(tmp_path / "t.zarr", changed, 1, DIM, cache.fingerprint, 2_048) as writer:
        for shard in range(writer.layout.shards):
            writer.write_shard(shard, cache.features[slice(*writer.layout.bounds(shard))])
    again = evaluate_externally(trained_on, tmp_path / "t.zarr", tmp_path / "run", terms=TERMS)
    for name in ("heads.safetensors", "thresholds.csv", "trajectories.csv", "folds.csv"):
        assert (again.folder / name).read_bytes() == (result.folder / name).read_bytes()
    before, after = (pl.read_csv(run.folder / "scores.csv") for run in (result, again))
    assert before.drop("label").equals(after.drop("label"))


def test_each_configuration_is_certified_by_its_own_aggregation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thresholds, certificates, rankings and tables; verify, report and the scipy lines agree with them."""
    caches = []
    for seed, prefix in ((0, "a"), (1, "b")):
        manifest, features = a_cohort(cases=150, positives=50, distance=0.6, seed=seed)
        side = pl.Series("laterality", np.where(np.arange(manifest.height) % 2, "L", "R"))
        ids = [pl.format(f"{prefix}{{}}", name).alias(name) for name in ("image_id", "case_id")]
        caches.append(write_cohort(tmp_path / f"{prefix}.zarr", manifest.with_columns(side, *ids), features))
    kinds = {"ce": "maximum", "breast": "breast-mean", "noisy": "noisy-or", "two": "top-two"}
    heads = {
        name: HeadSettings(tuned=name != "ce", aggregation=kind)  # type: ignore[arg-type]
        for name, kind in kinds.items()
    }
    result = evaluate_externally(*caches, tmp_path / "run", configurations=heads, epochs=1, threads=1)
    cohort = result.certification.cohort
    table = pl.read_csv(result.folder / "scores.csv", schema_overrides={"label": pl.Int64})
    start = initial_parameters(Draws(0, 0), 1, 48)
    manifest = open_cache(caches[1]).manifest
    (untrained,) = score_rows(load_rows(open_cache(caches[1])), np.arange(manifest.height), start)
    for name, scores, ranking in zip(cohort.configurations, cohort.scores, result.rankings, strict=True):
        rows = table.filter(pl.col("configuration") == name)
        kind = kinds[str(name)]
        images, cases = rows["score"].to_numpy(), find_cases(rows)
        assert np.array_equal(scores, cases.score(images, kind))  # type: ignore[arg-type]
        assert np.array_equal(scores, cases.score(images)) == (name == "ce")
        first = find_cases(manifest).score(untrained, kind)  # type: ignore[arg-type]
        assert ranking.untrained.value == pytest.approx(auroc(first, cohort.labels))
        certificate = result.certified / "certificates" / f"{name}@0.98.json"
        assert json.loads(certificate.read_text())["aggregation"] == kind
        assert verify(certificate, result.folder).holds
    assert verify_certified(result.certified).problem is None
    assert certify(result.folder).points == certify(result.folder, by="site").points
    (evidence,) = gather([result.folder], Options())
    assert evidence.cohort.aggregations == tuple(kinds[str(name)] for name in cohort.configurations)
    shutil.move(result.certified, tmp_path / "certified")
    shutil.copy(result.folder / "scores.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    (lines,) = blocks("python", section("Recompute a certificate yourself", DOCS / "statistics.md"))
    for name in kinds:
        run_python(lines.replace("scores@0.98", f"{name}@0.98"))


class InterruptedForTestError(Exception):
    """Any error that ends a run in the middle."""


def small(path: Path, prefix: str = "", seed: int = 0, **shape: int) -> Path:
    manifest, features = a_cohort(cases=150, positives=40, seed=seed, **shape)
    renamed = (pl.format(f"{prefix}{{}}", name).alias(name) for name in ("image_id", "case_id"))
    return write_cohort(path, manifest.with_columns(*renamed), features)


def test_interrupted_resumed_overwritten(tmp_path: Path) -> None:
    trained_on, tested_on = small(tmp_path / "a.zarr"), small(tmp_path / "b.zarr", "b", seed=1)
    out = tmp_path / "run"

    def stop(report: EpochReport) -> None:
        if report.done == report.epochs:
            raise InterruptedForTestError

    with pytest.raises(InterruptedForTestError):
        evaluate_externally(trained_on, tested_on, out, epochs=2, on_epoch=stop)
    assert not out.exists()
    with pytest.raises(InputError, match="interrupted run is kept"):
        evaluate_externally(trained_on, tested_on, out, epochs=2)
    other = small(tmp_path / "c.zarr", "c", seed=1)
    with pytest.raises(InputError, match="differs in test"):
        evaluate_externally(trained_on, other, out, epochs=2, resume=True)
    resumed = evaluate_externally(trained_on, tested_on, out, epochs=2, resume=True)
    assert resumed.resumed
    whole = evaluate_externally(trained_on, tested_on, tmp_path / "whole", epochs=2)
    assert (out / "scores.csv").read_bytes() == (tmp_path / "whole" / "scores.csv").read_bytes()
    assert not whole.resumed
    with pytest.raises(InputError, match="exists already"):
        evaluate_externally(trained_on, tested_on, out, epochs=1)
    evaluate_externally(trained_on, tested_on, out, epochs=1, overwrite=True)
    assert (out / "scores.csv").read_bytes() != (tmp_path / "whole" / "scores.csv").read_bytes()
    left = {path.name for path in tmp_path.iterdir()}
    logs = {"run.attempts.json", "whole.attempts.json"}
    assert left == {"a.zarr", "b.zarr", "c.zarr", "run", "whole"} | logs


def test_sets_made_in_another_way_are_refused_by_the_field(tmp_path: Path) -> None:
    trained_on = small(tmp_path / "a.zarr")
    manifest, features = a_cohort(cases=150, positives=40, seed=1)
    for field, value in (("encoder", "resnet50"), ("weights_sha256", "0" * 64), ("recipe", "other")):
        other = structs.replace(FINGERPRINT, **{field: value})
        path = tmp_path / f"{field}.zarr"
        with create_cache(path, manifest, 3, 48, other) as writer:
            for shard in range(writer.layout.shards):
                writer.write_shard(shard, features[slice(*writer.layout.bounds(shard))])
        with pytest.raises(InputError, match=rf"{field}\.zarr: .*another way \({field}: expected"):
            evaluate_externally(trained_on, path, tmp_path / "run")
    after_the_bar = structs.replace(FINGERPRINT, decoder="another", seed=99, view_settings="none")
    with create_cache(tmp_path / "fine.zarr", manifest, 3, 48, after_the_bar) as writer:
        for shard in range(writer.layout.shards):
            writer.write_shard(shard, features[slice(*writer.layout.bounds(shard))])
    assert evaluate_externally(trained_on, tmp_path / "fine.zarr", tmp_path / "run", epochs=1).folder.exists()


def test_targets_that_cannot_be_certified_are_refused_before_training(tmp_path: Path) -> None:
    def never(_: EpochReport) -> None:
        raise AssertionError("it was trained")

    trained_on = small(tmp_path / "a.zarr")
    manifest, features = a_cohort(cases=150, positives=40, seed=1)
    healthy = write_cohort(tmp_path / "h.zarr", manifest.with_columns(label=pl.lit(0)), features)
    ill = write_cohort(tmp_path / "i.zarr", manifest.with_columns(label=pl.lit(1)), features)
    few = write_cohort(tmp_path / "f.zarr", *a_cohort(cases=150, positives=2, seed=1))
    unfinished = write_cohort(tmp_path / "u.zarr", manifest, features, shards=2)
    narrow = small(tmp_path / "n.zarr", dim=32)
    fine = small(tmp_path / "b.zarr", "b", seed=1)
    for tested_on, said in (
        (healthy, "expected positive cases to certify on, found none of 150"),
        (ill, "expected negative cases to certify on, found none"),
        (few, "the search part has no positives"),
        (unfinished, "unfinished"),
        (narrow, "expected 48 features"),
        (trained_on, "another cache than the one to train on"),
    ):
        with pytest.raises(InputError, match=said):
            evaluate_externally(trained_on, tested_on, tmp_path / "run", on_epoch=never)
    for wrong, said in (
        ({"terms": CertifySettings(by=("nothing",))}, "no column 'nothing'"),
        ({"split": tmp_path / "none.csv"}, "no such file"),
        ({"folds": tmp_path / "none.csv"}, "no such file"),
        ({"views": 7}, "augmented views"),
        ({"threads": 0}, "threads: expected 1 or more"),
        ({"resume": True, "overwrite": True}, "found both"),
    ):
        with pytest.raises(InputError, match=said):
            evaluate_externally(trained_on, fine, tmp_path / "run", on_epoch=never, **wrong)  # type: ignore[arg-type]
    assert not any("run" in path.name for path in tmp_path.iterdir())


def test_a_split_with_test_cases_is_no_final_split(tmp_path: Path) -> None:
    trained_on, tested_on = small(tmp_path / "a.zarr"), small(tmp_path / "b.zarr", "b", seed=1)
    run = evaluate_externally(trained_on, tested_on, tmp_path / "run", epochs=1).folder
    text = (run / "folds.csv").read_text()
    for change, said in (
        (text.replace("fit", "test", 1), "expected fit or calibrate, found test"),
        (text.replace("calibrate", "fit"), "no cases to calibrate"),
        (text.replace(",1,fit", ",1,calibrate"), "no positive cases to fit"),
    ):
        (tmp_path / "folds.csv").write_text(change)
        with pytest.raises(InputError, match=said):
            evaluate_externally(trained_on, tested_on, tmp_path / "other", folds=tmp_path / "folds.csv")


def test_shared_examinations(tmp_path: Path) -> None:
    """The same case ids are a warning; the same images, under whatever ids, are refused."""
    trained_on = small(tmp_path / "a.zarr")
    same_ids = small(tmp_path / "b.zarr", seed=1)
    warned = evaluate_externally(trained_on, same_ids, tmp_path / "run", epochs=1).warnings
    assert any("150 case ids are in both" in text and "0000" in text for text in warned)
    manifest, features = a_cohort(cases=150, positives=40, seed=0)
    others, own = a_cohort(cases=150, positives=40, seed=1)
    renamed = others.with_columns(pl.format("b{}", "image_id").alias("image_id"))
    own[17] = features[5]
    copied = write_cohort(tmp_path / "copied.zarr", renamed, own)
    with pytest.raises(InputError, match=r"features of 1 images are also in .*00005 there, b00017 here"):
        evaluate_externally(trained_on, copied, tmp_path / "other")
    jitter = features * (1 + 1e-3 * np.random.default_rng(0).standard_normal(features.shape))
    decoded = write_cohort(tmp_path / "decoded.zarr", manifest, jitter.astype(np.float16))
    with pytest.raises(InputError, match="features of 450 images are also in"):
        evaluate_externally(trained_on, decoded, tmp_path / "other")
    # Renamed, turned round, and no number as it was: one unit in the last place more.
    turned = manifest.with_columns(pl.format("c{}", name).alias(name) for name in ("image_id", "case_id"))
    moved = np.nextafter(features[::-1], np.float16(np.inf))
    renamed_set = write_cohort(tmp_path / "renamed.zarr", turned.reverse(), np.ascontiguousarray(moved))
    with pytest.raises(InputError, match=r"features of 450 images are also in .*00000 there, c00000 here"):
        evaluate_externally(trained_on, renamed_set, tmp_path / "other")
    shutil.copytree(trained_on, tmp_path / "copy.zarr")
    with pytest.raises(InputError, match="features of 450 images are also in"):
        evaluate_externally(trained_on, tmp_path / "copy.zarr", tmp_path / "other", low_memory=True)


def test_failed_images_and_patients_in_the_search_for_shared_examinations(tmp_path: Path) -> None:
    """Failed images are all NaN: that makes no two of them the same image."""
    caches = []
    for seed, prefix in ((0, "a"), (1, "b")):
        manifest, features = a_cohort(cases=150, positives=40, seed=seed)
        ids = [pl.format(f"{prefix}{{}}", name).alias(name) for name in ("image_id", "case_id")]
        named = manifest.with_columns(*ids, patient_id=pl.format("{}", pl.col("case_id").cast(int) % 100))
        out = tmp_path / f"{prefix}.zarr"
        caches.append(open_cache(write_cohort(out, named, features, present=lose_images(named))))
    train, test = caches
    found = find_overlap(train, test, load_rows(train), load_rows(test))
    assert (found.case_ids, found.images) == ((), ())
    assert found.patients == tuple(sorted(str(number) for number in range(100)))
    (said,) = refuse_overlap(found, "a", "b")
    assert said.startswith("100 patient ids are in both a and b (the first: 0)")


def test_a_ranking_is_over_one_complete_case_of_each_patient() -> None:
    generator = np.random.default_rng(0)
    labels = (np.arange(200) < 60).astype(np.int64)
    first, after = generator.random(200), generator.random(200) + 0.3 * labels
    each = pl.DataFrame({"case_id": [f"{n:04d}" for n in range(200)], "label": labels, "score": after})
    cohort = build_cohort(check_scores(each))
    everyone = np.arange(200)
    (plain,) = rank_cases(cohort, [first], everyone)
    assert plain.auroc == auroc_interval(after, labels, 0.99)
    assert plain.gain == auroc_difference(after, first, labels, 0.95)
    assert (plain.cases, plain.positives, plain.set_aside, plain.incomplete) == (200, 60, 0, 0)
    lost = np.where(everyone % 10 == 0, np.nan, after)
    (left,) = rank_cases(replace(cohort, scores=(lost,)), [first], everyone)
    assert left.auroc == auroc_interval(after[everyone % 10 != 0], labels[everyone % 10 != 0], 0.99)
    assert (left.cases, left.positives, left.incomplete) == (180, 54, 20)
    # Three copies of every case, as cases of one patient, must not make the intervals narrower.
    copies = pl.concat(
        [each.with_columns(pl.format(f"{{}}-{n}", "case_id").alias("case_id")) for n in range(3)]
    )
    tripled = build_cohort(check_scores(copies))  # sorted by case_id: the copies are neighbours
    (drawn,) = rank_cases(tripled, [np.repeat(first, 3)], np.repeat(everyone, 3))
    assert (drawn.auroc, drawn.gain) == (plain.auroc, plain.gain)
    assert (drawn.cases, drawn.set_aside) == (200, 400)
    titles = [ranking_table([item]).title for item in (plain, left, drawn)]
    assert titles == [
        "Ranking of all 200 test cases, 60 positive",
        "Ranking of the 180 complete test cases, 54 positive",
        "Ranking of the 200 test cases, 60 positive, one of each patient",
    ]


@pytest.fixture
def broken(tmp_path: Path) -> tuple[Path, Path]:
    """Two caches with failed images and patients of two cases."""
    made = []
    for seed, prefix in ((0, "a"), (1, "b")):
        manifest, features = a_cohort(cases=300, positives=90, seed=seed)
        patients = pl.format(f"{prefix}{{}}", pl.col("case_id").cast(int) // 2).alias("patient_id")
        ids = [pl.format(f"{prefix}{{}}", name).alias(name) for name in ("image_id", "case_id")]
        named = manifest.with_columns(patients, *ids)
        made.append(write_cohort(tmp_path / f"{prefix}.zarr", named, features, present=lose_images(named)))
    return made[0], made[1]


def test_failed_images_and_patients_on_both_sides(broken: tuple[Path, Path], tmp_path: Path) -> None:
    train, test = map(open_cache, broken)
    result = evaluate_externally(*broken, tmp_path / "run", epochs=1, terms=CertifySettings((0.9,)))
    for cache in (train, test):
        said = f"{cache.source}: {cache.failed.sum()} of 900 images failed"
        assert any(text.startswith(said) for text in result.warnings)
    record = json.loads((result.folder / "run.json").read_text())
    assert record["images_without_features"] == train.failed.sum()
    assert record["test"]["images_without_features"] == test.failed.sum()
    scores = pl.read_csv(result.folder / "scores.csv", infer_schema=False)
    assert scores.height == 2 * 900
    assert scores.filter(pl.col("score").is_null()).height == 2 * test.failed.sum()
    cases = find_cases(test.manifest)
    incomplete = np.unique(cases.of_image[test.failed])
    evaluated = result.certification.split.evaluation[incomplete]
    for point in result.certification.points:
        assert (point.incomplete, point.incomplete_positives) == (
            evaluated.sum(),
            cases.labels[incomplete][evaluated].sum(),
        )
        assert (point.cases, point.patients, point.set_aside) == (240, 120, 120)
    assert {ranking.incomplete for ranking in result.rankings} == {incomplete.size}
    for certificate in (result.certified / "certificates").iterdir():
        assert verify(certificate, result.folder).holds
    with pytest.raises(InputError, match="patient: expected patient_id"):
        evaluate_externally(*broken, tmp_path / "other", terms=CertifySettings(patient="site"))


def test_the_protocol_decides_what_is_complete(broken: tuple[Path, Path], tmp_path: Path) -> None:
    """All images are L-CC: a protocol of that projection is the paper's, one of another reviews all cases."""
    found = {}
    for projections in ((), ("L-CC",), ("R-CC",)):
        terms = CertifySettings((0.9,), protocol=Protocol(name="mine", projections=projections))
        out = tmp_path / "-".join(("run", *projections))
        found[projections] = evaluate_externally(*broken, out, epochs=1, terms=terms, threads=1)
    paper, same, none = (item.certification.points for item in found.values())
    assert same == paper
    assert {(point.status, point.dismissed, point.incomplete) for point in none} == {("infeasible", 0, 240)}
    assert found["R-CC",].rankings == ()
