"""The configuration tuned: no leak, the same bytes on any number of threads, and what it chose on record."""

import json
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import trust_cache as tc
from tests.heads.cohorts import a_cohort, write_cohort
from tests.project.pages import blocks, run_python, section
from trust_cache.base.errors import InputError
from trust_cache.cache.feature_rows import rows_of_array
from trust_cache.certificate.certify import certify
from trust_cache.certificate.verify import verify
from trust_cache.heads.bank import normalised_features, score_rows
from trust_cache.heads.estimator import TrustHeadClassifier
from trust_cache.heads.fit import EpochReport, fit_heads
from trust_cache.heads.head_settings import HeadSettings, choose_configurations, known_configurations
from trust_cache.heads.run_folder import RunFolder
from trust_cache.heads.tuned.tuned_head import PENALTIES, FittingImages, fit_tuned
from trust_cache.report.page_tables import choice_tables
from trust_cache.statistics.auroc import auroc
from trust_cache.statistics.thresholds import select_threshold

PAGE = Path(__file__).parents[3] / "docs" / "statistics.md"
CHOSEN = choose_configurations(["ce,tuned"])
FILES = ("scores.csv", "heads.safetensors", "folds.csv", "trajectories.csv", "thresholds.csv")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cohort(
        tmp_path_factory.mktemp("tuned") / "cache.zarr", *a_cohort(cases=150, positives=30, distance=0.4)
    )


@pytest.fixture(scope="module")
def run(cache: Path) -> Path:
    return fit_heads(cache, cache.parent / "run", configurations=CHOSEN, epochs=2, threads=2).folder


def rows_of(run: Path, configuration: str, fold: str) -> pl.DataFrame:
    table = pl.read_csv(run / "scores.csv", schema_overrides={"fold": pl.String, "score": pl.String})
    here = (pl.col("configuration") == configuration) & (pl.col("fold") == fold)
    return table.filter(here).drop("label")


def test_the_default_stays_the_papers_five(run: Path) -> None:
    names = ["ce", "ce-brier", "ce-focal", "fixed-tau", "closed-loop"]
    assert list(choose_configurations(["paper"])) == names
    assert list(choose_configurations(["paper,tuned"])) == [*names, "tuned"]
    assert known_configurations()["tuned"].aggregation == "breast-mean"
    assert not any(
        head.tuned or head.aggregation != "maximum" for head in choose_configurations(names).values()
    )
    assert set(pl.read_csv(run / "trajectories.csv")["configuration"]) == {"ce"}


def test_the_same_bytes_on_one_thread_alone_and_after_an_interruption(
    cache: Path, run: Path, tmp_path: Path
) -> None:
    one = fit_heads(cache, tmp_path / "one", configurations=CHOSEN, epochs=2, threads=1).folder
    assert all((one / name).read_bytes() == (run / name).read_bytes() for name in FILES)
    assert RunFolder(one).record.choices == RunFolder(run).record.choices

    def stop(report: EpochReport) -> None:
        if report.epoch == 2 and report.done >= 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_heads(cache, tmp_path / "cut", configurations=CHOSEN, epochs=2, threads=1, on_epoch=stop)
    cut = fit_heads(cache, tmp_path / "cut", configurations=CHOSEN, epochs=2, threads=1, resume=True)
    assert cut.resumed_folds >= 1
    assert all((cut.folder / name).read_bytes() == (run / name).read_bytes() for name in FILES)
    assert RunFolder(cut.folder).record.choices == RunFolder(run).record.choices
    alone = fit_heads(cache, tmp_path / "alone", configurations=choose_configurations(["tuned"]), epochs=2)
    for fold in "01234":
        assert rows_of(alone.folder, "tuned", fold).equals(rows_of(run, "tuned", fold))
        one_head, other = (RunFolder(folder).head("tuned", fold) for folder in (alone.folder, run))
        assert all(np.array_equal(getattr(one_head, name), getattr(other, name)) for name in vars(other))


def test_labels_of_test_cases_do_not_reach_their_fold(run: Path, tmp_path: Path) -> None:
    """With the folds given, permuting a fold's test labels leaves its choice, head and scores as they are."""
    manifest, features = a_cohort(cases=150, positives=30, distance=0.4)
    folds = pl.read_csv(run / "folds.csv", schema_overrides={"case_id": pl.String})
    tested = set(folds.filter(pl.col("fold_2") == "test")["case_id"])
    inside = manifest["case_id"].is_in(list(tested)).to_numpy()
    labels = manifest["label"].to_numpy().copy()
    labels[inside] = np.random.default_rng(0).permutation(labels[inside])
    changed = write_cohort(tmp_path / "cache.zarr", manifest.with_columns(label=labels), features)
    other = fit_heads(
        changed, tmp_path / "run", configurations=CHOSEN, epochs=2, folds=run / "folds.csv"
    ).folder
    assert rows_of(other, "tuned", "2").equals(rows_of(run, "tuned", "2"))
    assert not rows_of(other, "tuned", "3").equals(rows_of(run, "tuned", "3"))
    one, two = (RunFolder(folder).record.choices["tuned"]["2"] for folder in (run, other))
    assert one == two
    heads = [RunFolder(folder).head("tuned", "2") for folder in (run, other)]
    assert all(np.array_equal(getattr(heads[0], name), getattr(heads[1], name)) for name in vars(heads[0]))


def test_what_each_fold_chose_is_on_record(run: Path) -> None:
    chosen = RunFolder(run).record.choices
    assert list(chosen) == ["tuned"]
    assert list(chosen["tuned"]) == list("01234")
    for choice in chosen["tuned"].values():
        assert choice.penalties == PENALTIES[-len(choice.penalties) :]
        assert len(choice.penalties) >= 7
        losses, weights = (
            np.array([part[name] for name in ("standardised", "natural")])
            for part in (choice.cross_entropy, choice.weights)
        )
        assert losses.shape == weights.shape == (2, len(choice.penalties))
        assert choice.least_cross_entropy == losses.min()
        assert choice.cross_entropy[choice.scaling][choice.penalties.index(choice.best)] == losses.min()
        assert weights.sum() == pytest.approx(1)
        assert np.all(np.diff(weights.ravel()[np.argsort(losses.ravel())]) <= 0)  # a better one weighs more
        assert 0.5 < choice.auroc < 1
        assert 0 < choice.positive_images < choice.images


def test_the_report_says_what_each_fold_chose_and_how_stable_that_is(run: Path) -> None:
    (table,) = choice_tables(RunFolder(run).record)
    assert table.title == "What tuned chose in each fold"
    assert [row[0] for row in table.rows] == list("01234")
    chosen = RunFolder(run).record.choices["tuned"]
    for row, choice in zip(table.rows, chosen.values(), strict=True):
        cells = dict(zip(table.header, row, strict=True))
        assert cells["Features"] == choice.scaling
        assert float(cells["Best penalty"]) == pytest.approx(choice.best, rel=1e-2)
        used = sum(weight > 0 for part in choice.weights.values() for weight in part)
        assert cells["Averaged"].startswith(f"{used}: ")
        assert float(cells["Held-out case AUROC"]) == pytest.approx(choice.auroc, abs=1e-4)
    kinds = Counter((choice.scaling, choice.best) for choice in chosen.values())
    assert f"in {max(kinds.values())} of 5 folds" in table.legend
    assert choice_tables(None) == []


def test_few_features_get_penalties_as_low_as_they_need() -> None:
    """Features alike but for a faint difference, which carries the signal: a strong penalty would hide it."""
    generator = np.random.default_rng(6)
    images, dim = 4_000, 8
    common, signal = generator.standard_normal(images), generator.standard_normal(images)
    signs = np.where(np.arange(dim) % 2, 1.0, -1.0)
    features = common[:, None] * np.repeat([1.0, -1.0], dim // 2) + 0.1 * signal[:, None] * signs
    features += 0.05 * generator.standard_normal((images, dim))
    labels = (generator.random(images) < 1 / (1 + np.exp(4 - 3 * signal))).astype(np.int64)
    fitted, every = np.arange(2_000), np.arange(images)
    rows = rows_of_array(np.ascontiguousarray(features.astype(np.float16)[:, None]))
    head = fit_tuned(
        FittingImages(normalised_features(rows, fitted, centred=False), labels[fitted], fitted, fitted),
        ["maximum"],
        0,
    )[0]
    assert head.choice.best < 1
    assert min(head.choice.penalties) < head.choice.best
    scores = score_rows(rows, every[2_000:], head.parameters)[0]
    normal = normalised_features(rows, every)
    free = LogisticRegression(C=1e4, max_iter=5_000).fit(normal[:2_000], labels[:2_000])
    found, possible = (
        auroc(values, labels[2_000:]) for values in (scores, free.decision_function(normal[2_000:]))
    )
    assert found is not None
    assert possible is not None
    assert found > possible - 0.005


@pytest.mark.parametrize("faint_is_noise", [True, False])
def test_the_scaling_follows_the_held_out_likelihood(faint_is_noise: bool) -> None:
    """Faint features that are noise give the natural scaling the weight; faint signals give it the other."""
    generator = np.random.default_rng(4)
    images, dim = 1500, 60
    sizes = np.repeat([1.0, 0.05], [6, dim - 6])
    signal = np.arange(dim) < 6 if faint_is_noise else np.arange(dim) >= 6
    plain = generator.standard_normal((images, dim))
    signs = np.where(np.arange(dim) % 2, 1.0, -1.0)  # LayerNorm takes out what all features have in common
    strength = plain[:, signal] @ signs[signal] / np.sqrt(signal.sum())
    labels = (generator.random(images) < 1 / (1 + np.exp(3 - 2 * strength))).astype(np.int64)
    every = np.arange(images)
    features = (plain * sizes).astype(np.float32)
    choice = fit_tuned(FittingImages(features, labels, every, every), ["maximum"], 0)[0].choice
    natural = sum(choice.weights["natural"])
    assert natural > 0.9 if faint_is_noise else natural < 0.1


def test_one_fit_serves_every_aggregation() -> None:
    generator = np.random.default_rng(5)
    case = np.repeat(np.arange(200), 3)
    labels = ((case % 6 == 0) & (np.arange(600) % 3 == 0)).astype(np.int64)
    features = generator.standard_normal((600, 16)).astype(np.float32) + labels[:, None] * 0.6
    images = FittingImages(features, labels, case, case)
    one, two = fit_tuned(images, ["maximum", "top-two"], 0)
    assert all(
        np.array_equal(getattr(one.parameters, name), getattr(two.parameters, name))
        for name in vars(one.parameters)
    )
    assert one.choice.auroc != two.choice.auroc
    assert msgspec.structs.replace(one.choice, auroc=0.0) == msgspec.structs.replace(two.choice, auroc=0.0)


def test_a_tuned_head_scores_as_its_regressions_and_learns(run: Path) -> None:
    table = pl.read_csv(run / "scores.csv").filter(pl.col("configuration") == "tuned")
    cases = table.group_by("case_id").agg(pl.col("score", "label").max())
    found = auroc(cases["score"].to_numpy(), cases["label"].to_numpy())
    assert found is not None
    assert found > 0.75
    assert certify(run).points[-1].configuration == "tuned"
    generator = np.random.default_rng(3)
    features = generator.standard_normal((300, 20)).astype(np.float16)
    labels = (generator.random(300) < 1 / (1 + np.exp(3 - 2 * features[:, 0].astype(float)))).astype(np.int64)
    rows, every = rows_of_array(np.ascontiguousarray(features[:, None])), np.arange(300)
    images = FittingImages(normalised_features(rows, every, centred=False), labels, every, every)
    head = fit_tuned(images, ["maximum"], 0)[0]
    parts = head.parameters
    by_hand = images.features @ parts.weight[0] + parts.bias[0]  # fit_tuned left them standardised
    scores = score_rows(rows, every, parts)[0]
    assert np.allclose(np.log(scores / (1 - scores)), by_hand, atol=1e-3)


@pytest.mark.parametrize("positives", [1, 2, 10])
def test_few_positives(positives: int) -> None:
    generator = np.random.default_rng(positives)
    labels = (np.arange(200) < positives).astype(np.int64)
    features = generator.standard_normal((200, 64)).astype(np.float32) + labels[:, None] * 0.5
    every = np.arange(200)
    head = fit_tuned(FittingImages(features, labels, every, every), ["maximum"], 0)[0]
    assert all(np.all(np.isfinite(part)) for part in vars(head.parameters).values())
    assert bool(head.choice.cross_entropy) == (positives > 1)


def a_mixture(images: int, dim: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Correlated features of one magnitude; 8 % of the images are positive."""
    generator = np.random.default_rng(8)
    mixing = generator.standard_normal((dim, dim)) / np.sqrt(dim) * np.linspace(0.3, 1.5, dim)[:, None]
    labels = (generator.random(images) < 0.08).astype(np.int64)
    features = (
        generator.standard_normal((images, dim)) @ mixing + generator.standard_normal((images, dim)) / 2
    )
    features += labels[:, None] * generator.standard_normal(dim) * 2.2 / np.sqrt(dim)
    return features + generator.standard_normal(dim), labels


def dismissal_of(features: NDArray[np.float64], labels: NDArray[np.int64], fitted: int) -> float:
    """Fit on the first images in float16, twice with the same bytes; dismiss the others at 95 % recall."""
    rows = rows_of_array(np.ascontiguousarray(features.clip(-6e4, 6e4).astype(np.float16)[:, None]))
    every, rest = np.arange(fitted), np.arange(fitted, labels.size)
    one, again = (
        fit_tuned(
            FittingImages(normalised_features(rows, every, centred=False), labels[:fitted], every, every),
            ["maximum"],
            0,
        )[0].parameters
        for _ in range(2)
    )
    for name, part in vars(one).items():
        assert np.all(np.isfinite(part))
        assert np.array_equal(part, getattr(again, name))
    scores = score_rows(rows, rest, one)[0]
    return float(np.mean(scores < select_threshold(scores, labels[rest], 0.95)))


@pytest.mark.parametrize("change", ["large", "huge", "massive", "subnormal", "constant", "duplicated", "all"])
def test_faint_features_beside_huge_ones_keep_what_they_carry(change: str) -> None:
    """The dismissal is that of the same cohort before a change of scale, within a few percent of cases."""
    features, labels = a_mixture(5_000, 48)
    before = dismissal_of(features, labels, 1_500)
    assert before > 0.75
    some = slice(3, 48, 8)
    if change in ("large", "huge"):
        features[:, some] *= {"large": 1e2, "huge": 1e4}[change]
    if change == "massive":  # two features far from 0, as in many transformers
        features[:, :2] = 1e4 * (1 + 0.1 * features[:, :2])
    if change in ("subnormal", "all"):
        features[:, ::2] *= 1e-6 if change == "subnormal" else 1e-2
    if change == "all":
        features[:, some] *= 1e3
    if change in ("constant", "all"):
        features = np.hstack([features, np.full((5_000, 3), [0.25, 5e2, 0.0])])
    if change in ("duplicated", "all"):
        features = np.hstack([features, features[:, some], features[:, :2]])
    assert dismissal_of(features, labels, 1_500) > before - 0.04


def test_more_features_than_images_of_several_scales() -> None:
    features, labels = a_mixture(2_300, 400)
    before = dismissal_of(features, labels, 300)
    features[:, ::9] *= 1e4
    assert dismissal_of(features, labels, 300) > before - 0.04


def test_constant_features_and_missing_classes() -> None:
    labels = (np.arange(100) % 10 == 0).astype(np.int64)
    features = np.random.default_rng(0).standard_normal((100, 8)).astype(np.float32)
    features[:, 3] = 0.25
    every = np.arange(100)
    parameters = fit_tuned(FittingImages(features.copy(), labels, every, every), ["maximum"], 0)[0].parameters
    assert parameters.gamma[0, 3] == 0
    for label in (0, 1):
        one = FittingImages(features.copy(), np.full(100, label), every, every)
        with pytest.raises(InputError, match="images to fit on, found none"):
            fit_tuned(one, ["maximum"], 0)[0]


def test_settings_of_losses_are_refused_and_lr_leaves_it_alone(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tuned: it chooses its own settings, found lr"):
        HeadSettings(tuned=True, lr=1e-3)
    with pytest.raises(InputError, match="aggregation: expected maximum, breast-mean, noisy-or, top-two"):
        HeadSettings(aggregation="mean")  # type: ignore[arg-type]
    run = fit_heads(cache, tmp_path / "run", configurations=CHOSEN, epochs=1, lr=1e-3).folder
    assert RunFolder(run).record.configurations["tuned"] == known_configurations()["tuned"]


def test_the_aggregation_of_a_run_reaches_its_certificates(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[two]\ntuned = true\naggregation = "top-two"\n[breast]\naggregation = "breast-mean"\n')
    run = fit_heads(
        cache, tmp_path / "run", configurations=choose_configurations([str(file), "ce"]), epochs=1
    )
    certified = certify(run.folder)
    assert certified.cohort.aggregations == ("breast-mean", "maximum", "top-two")
    for name, scores in zip(certified.cohort.configurations, certified.cohort.scores, strict=True):
        table = pl.read_csv(run.folder / "scores.csv", schema_overrides={"case_id": pl.String})
        groups = (
            table.filter(pl.col("configuration") == name)
            .group_by("case_id")
            .agg(
                maximum=pl.col("score").max(),
                breast=pl.col("score").mean(),  # all images are of the left breast
                two=pl.col("score").sort().tail(2).mean(),
            )
        )
        expected = groups.sort("case_id")[{"ce": "maximum"}.get(str(name), str(name))]
        assert np.allclose(scores, expected.to_numpy(), atol=1e-15)
    points = {point.configuration: point for point in certified.points}
    assert points["ce"].image_dismissal is not None
    assert points["two"].image_dismissal is None
    assert points["breast"].auroc_image is not None


def test_without_sides_a_case_has_the_score_of_its_highest_image(tmp_path: Path) -> None:
    manifest, features = a_cohort(cases=150, positives=50, distance=0.6)
    blank = pl.lit(None, dtype=pl.String)
    cache = write_cohort(tmp_path / "cache.zarr", manifest.with_columns(laterality=blank), features)
    run = fit_heads(cache, tmp_path / "run", configurations=choose_configurations(["tuned"]), epochs=1).folder
    table = pl.read_csv(run / "scores.csv", schema_overrides={"case_id": pl.String})
    highest = table.group_by("case_id").agg(pl.col("score").max()).sort("case_id")["score"]
    cohort = certify(run).cohort
    assert cohort.aggregations == ("breast-mean",)
    assert np.array_equal(cohort.scores[0], highest.to_numpy())


def test_each_aggregation_is_verified_and_recomputed_from_the_scores_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As who has the certified folder and scores.csv would: `verify`, and the documentation's scipy lines."""
    manifest, features = a_cohort(cases=150, positives=50, distance=0.6)
    side = pl.Series("laterality", np.where(np.arange(manifest.height) % 2, "L", "R"))
    cache = write_cohort(tmp_path / "cache.zarr", manifest.with_columns(side), features)
    kinds = ("noisy-or", "top-two", "maximum")
    file = tmp_path / "mine.toml"
    file.write_text("".join(f'["{kind}"]\ntuned = true\naggregation = "{kind}"\n' for kind in kinds))
    configurations = choose_configurations(["tuned", str(file)])
    run = fit_heads(cache, tmp_path / "run", configurations=configurations, epochs=1).folder
    certified = tmp_path / "certified"
    tc.certify(run, certified)
    shutil.copy(run / "scores.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    (lines,) = blocks("python", section("Recompute a certificate yourself", PAGE))
    taus = {}
    for configuration in configurations:
        certificate = certified / "certificates" / f"{configuration}@0.98.json"
        for scores in (run, run / "scores.csv", tmp_path / "scores.csv"):
            assert verify(certificate, scores).holds
        run_python(lines.replace("scores@0.98", f"{configuration}@0.98"))
        taus[configuration] = json.loads(certificate.read_text())["tau"]
    assert len(set(taus.values())) == len(taus)  # no two of them are the same rule here


def test_the_estimator_fits_it() -> None:
    generator = np.random.default_rng(0)
    labels = (np.arange(400) % 8 == 0).astype(np.int64)
    features = generator.standard_normal((400, 32)) + labels[:, None] * np.linspace(-1, 1, 32)
    head = TrustHeadClassifier("tuned").fit(features[:200], labels[:200])
    found = auroc(head.predict_proba(features[200:])[:, 1], labels[200:])
    assert found is not None
    assert found > 0.9
    with pytest.raises(InputError, match="has no tau"):
        head.dismiss(features)
    with pytest.raises(InputError, match="it chooses its own settings"):
        TrustHeadClassifier("tuned", lr=1e-3).fit(features, labels)
    assert msgspec.structs.asdict(known_configurations()["tuned"])["tuned"] is True
