"""Runs on caches of the same cases: which pairs are compared, what is found, what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace
from scipy.stats import binom

import trust_cache as tc
from tests.cache.material import FINGERPRINT
from tests.conftest import make_scores
from tests.heads.cohorts import a_cohort
from tests.heads.records import a_record, edit_record, seal
from tests.studies.compare.test_compare import dismissed
from trust_cache.base.documents import json_bytes
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_writer import create_cache
from trust_cache.heads.head_settings import HeadSettings
from trust_cache.studies.compare.compare import compare
from trust_cache.studies.compare.compare_folder import contrast_rows, draw_comparison, render
from trust_cache.studies.compare.compare_tables import all_tables
from trust_cache.studies.compare.compared_runs import join_runs, read_run
from trust_cache.studies.compare.comparison_results import CompareSettings, Comparison
from trust_cache.studies.compare.paired_tests import adjust

NAMES = ("ce", "closed-loop")
QUICK = {"resamples": 200, "swaps": 200, "resplits": 5}


def write_run(folder: Path, encoder: str, noise: float, repeats: int = 1, **shape: object) -> Path:
    """A run folder with the scores of one cohort seen through an encoder that adds so much noise."""
    for repeat in range(repeats):
        home = folder / "repeats" / str(repeat) if repeat else folder
        home.mkdir(parents=True)
        table = make_scores(configurations=NAMES, images=2, auroc=0.95, **shape)  # type: ignore[arg-type]
        generator = np.random.default_rng([repeat, *encoder.encode()])
        scores = table["score"].to_numpy() + noise * generator.standard_normal(table.height)
        fold = (pl.col("case_id").cast(pl.Int64) % 5).cast(pl.String)
        table.with_columns(score=scores, fold=fold).write_csv(home / "scores.csv")
    settings = {name: HeadSettings() for name in NAMES}
    made = replace(FINGERPRINT, encoder=encoder)
    record = a_record(repeats=repeats, configurations=settings, fingerprint=made)
    (folder / "run.json").write_bytes(json_bytes(record.as_document()))
    cases = table.select("case_id").unique().sort("case_id")
    number = pl.col("case_id").cast(pl.Int64)
    columns = [
        pl.when(number % 5 == fold).then(pl.lit("test")).otherwise(pl.lit("fit")).alias(f"fold_{fold}")
        for fold in range(5)
    ]
    cases.with_columns(pl.lit(0).alias("label"), *columns).write_csv(folder / "folds.csv")
    return seal(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two encoders, the first truly better, three trainings each."""
    folder = tmp_path_factory.mktemp("runs")
    shape = {"repeats": 3, "cases": 2_000, "positives": 300}
    return [
        write_run(folder / "run_b5", "b5", 0.02, **shape),  # type: ignore[arg-type]
        write_run(folder / "run_b2", "imported b2", 0.3, **shape),  # type: ignore[arg-type]
    ]


@pytest.fixture(scope="module")
def comparison(runs: list[Path]) -> Comparison:
    return compare(list(runs), **QUICK)  # type: ignore[arg-type]


def test_the_better_encoder_is_found_and_named(runs: list[Path], comparison: Comparison) -> None:
    """Every pair and no other; the numbers are those of the definition; Holm's method is over all of them."""
    assert [run.name for run in comparison.runs] == [run.encoder for run in comparison.runs] == ["b5", "b2"]
    sides = [
        (item.reference, item.reference_run, item.other, item.other_run) for item in comparison.contrasts
    ]
    assert sides[::2] == [
        ("ce", "b5", "ce", "b2"),
        ("closed-loop", "b5", "closed-loop", "b2"),
        ("closed-loop", "b5", "ce", "b5"),
        ("closed-loop", "b2", "ce", "b2"),
    ]
    places = dict(zip(("b5", "b2"), runs, strict=True))
    for item in comparison.contrasts:
        counts = [
            dismissed(places[str(run)] / "scores.csv", name, item.target)
            for name, run in ((item.reference, item.reference_run), (item.other, item.other_run))
        ]
        assert (item.dismissal_reference, item.dismissal_other) == tuple(count / 2_000 for count in counts)
        if item.between_runs:
            assert (item.verdict, item.difference > 0) == ("different", True)
            assert f"{item.reference} (b5) dismisses" in item.sentence
    p_values = [item.p for item in comparison.contrasts]
    assert [item.p_adjusted for item in comparison.contrasts] == pytest.approx(adjust(p_values))
    assert {item.verdict for item in comparison.auroc_contrasts if item.between_runs} == {"different"}
    assert len(comparison.auroc_contrasts) == 4
    assert any("adjusted for all of these comparisons together" in text for text in comparison.limits)


def test_one_run_among_several_is_what_it_is_alone(runs: list[Path], comparison: Comparison) -> None:
    alone = compare(runs[0], **QUICK)  # type: ignore[arg-type]
    (within,) = (item for item in comparison.contrasts[4:] if item.other_run == "b5" and item.target == 0.95)
    same = alone.contrasts[1]
    for name in ("difference", "low", "high", "p", "training_noise", "split_noise", "dismissal_other"):
        assert getattr(within, name) == getattr(same, name)
    ours = [replace(item, run=None) for item in comparison.standings if item.run == "b5"]
    assert ours == list(alone.standings)
    assert alone.contrasts[0].reference_run is None


def test_the_folder_of_several_runs_names_them_everywhere(comparison: Comparison) -> None:
    files = render(comparison)
    text = files["table.md"].decode()
    for words in ("b5 \u2212 b2", "closed-loop \u2212 ce", "Encoder", "closed-loop (b2)"):
        assert words in text
    (_, _, standings) = all_tables(comparison)
    assert {row[:2] for row in standings.rows} == {("b5", "b5"), ("b2", "b2")}
    row = contrast_rows(comparison)[0]
    assert (row["reference_run"], row["other_run"], row["missed_share_other"]) != (None, None, None)
    figure = draw_comparison(comparison)
    assert figure.data["label"].to_list()[::2] == [
        "b5 \u2212 b2: ce",
        "b5 \u2212 b2: closed-loop",
        "b5: closed-loop \u2212 ce",
        "b2: closed-loop \u2212 ce",
    ]
    document = json.loads(json.dumps(comparison.as_document()))
    assert [run["encoder"] for run in document["runs"]] == ["b5", "b2"]


def test_a_case_incomplete_in_one_cache_is_reviewed_in_both(runs: list[Path], tmp_path: Path) -> None:
    lost = ["00001", "00400", "01999"]  # the first is positive
    other = shutil.copytree(runs[1], tmp_path / "run_b2")
    for file in (other / "scores.csv", *(other / "repeats").glob("*/scores.csv")):
        table = pl.read_csv(file, infer_schema=False)
        gone = pl.col("case_id").is_in(lost) & pl.col("image_id").str.ends_with("_1")
        table.with_columns(score=pl.when(~gone).then("score")).write_csv(file)
    seal(other)
    found = compare([runs[0], other], targets=[0.95], **QUICK)  # type: ignore[arg-type]
    assert {item.incomplete for item in (*found.standings, *found.contrasts)} == {3}
    for path, run in ((runs[0], "b5"), (other, "b2")):
        kept = pl.read_csv(path / "scores.csv", infer_schema=False).filter(~pl.col("case_id").is_in(lost))
        kept.write_csv(tmp_path / "kept.csv")
        for item in found.standings:
            if item.run == run:
                assert item.dismissed == dismissed(tmp_path / "kept.csv", item.configuration, 0.95)
    reasons = {(item.run, item.case_id): item.reason for item in found.incomplete_cases}
    assert set(reasons) == {(run, case) for run in ("b5", "b2") for case in lost}
    assert reasons["b5", "00001"] == "incomplete in b2"
    assert "00001_1" in reasons["b2", "00001"]


def change_scores(run: Path, **columns: pl.Expr) -> None:
    for file in (run / "scores.csv", *(run / "repeats").glob("*/scores.csv")):
        pl.read_csv(file, infer_schema=False).with_columns(**columns).write_csv(file)


def other_folds(run: Path) -> None:
    file = run / "folds.csv"
    table = pl.read_csv(file, infer_schema=False)
    moved = pl.col("fold_3").replace({"fit": "calibrate"})
    table.with_columns(fold_3=pl.when(case_id="00002").then(moved).otherwise("fold_3")).write_csv(file)


def other_test_folds(run: Path) -> None:
    (run / "folds.csv").unlink()
    change_scores(run, fold=pl.when(case_id="00002").then(pl.lit("0")).otherwise("fold"))


def fewer_cases(run: Path) -> None:
    for file in (run / "scores.csv", *(run / "repeats").glob("*/scores.csv")):
        pl.read_csv(file, infer_schema=False).filter(pl.col("case_id") != "00007").write_csv(file)


def other_labels(run: Path) -> None:
    change_scores(run, label=pl.when(pl.col("case_id") >= "01998").then(pl.lit("1")).otherwise("label"))


def other_patients(run: Path) -> None:
    change_scores(run, patient_id=pl.col("case_id").str.head(4))


def other_images(run: Path) -> None:
    change_scores(run, image_id=pl.when(case_id="00009").then(pl.col("image_id") + "b").otherwise("image_id"))


def external_scores(run: Path) -> None:
    change_scores(run, fold=pl.lit("external"))


def one_training(run: Path) -> None:
    shutil.rmtree(run / "repeats")
    edit_record(run, repeats=1)


def other_configurations(run: Path) -> None:
    change_scores(run, configuration=pl.col("configuration") + "-2")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            other_folds,
            r"expected the folds of .*run_b5, found others for case 00002; .*--folds .*run_b5/folds.csv",
        ),
        (other_test_folds, r"expected the folds of .* case 00002"),
        (fewer_cases, r"expected the cases of .*run_b5 \(2,000\), found others: .*run_b2 lacks case 00007"),
        (other_labels, r"expected the labels of .* 2 cases \(01998, 01999\)"),
        (other_patients, "expected the patients of"),
        (other_images, r"expected the images of .* case 00009: the protocols differ"),
        (external_scores, r"expected scores of the kind of .* \(out-of-fold\), found external"),
        (one_training, r"expected 3 trainings, as .* found 1; .*--repeats 3"),
        (
            other_configurations,
            "expected a configuration that all runs have, found b5: ce, closed-loop; b2: ce-2",
        ),
    ],
)
def test_runs_that_are_not_of_the_same_cases_are_refused(
    runs: list[Path], tmp_path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    other = shutil.copytree(runs[1], tmp_path / "run_b2")
    spoil(other)
    seal(other)
    with pytest.raises(InputError, match=words):
        compare([runs[0], other], **QUICK)  # type: ignore[arg-type]


def test_names_are_unique_and_settings_that_differ_are_said(runs: list[Path], tmp_path: Path) -> None:
    same = shutil.copytree(runs[1], tmp_path / "run_b2x")
    edit_record(same, fingerprint=json.loads((runs[0] / "run.json").read_text())["fingerprint"], views=4)
    found = compare([runs[0], same], targets=[0.95], **QUICK)  # type: ignore[arg-type]
    assert [run.name for run in found.runs] == ["run_b5", "run_b2x"]  # one encoder: by folder
    assert any("run_b2x was not trained as run_b5 was (views)" in text for text in found.warnings)
    moved = same.rename(tmp_path / "run_b5")
    with pytest.raises(InputError, match="name them with --names"):
        compare([runs[0], moved], **QUICK)  # type: ignore[arg-type]
    named = compare([runs[0], moved], names=("one", "two"), targets=[0.95], **QUICK)  # type: ignore[arg-type]
    assert [run.name for run in named.runs] == ["one", "two"]
    for wrong in (("one",), ("one", "one"), ("one", "")):
        with pytest.raises(InputError, match="expected 2 different names"):
            compare([runs[0], moved], names=wrong, **QUICK)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"expected other scores than those of .* found the same"):
        compare([runs[0], runs[0]], **QUICK)  # type: ignore[arg-type]


def test_three_tables_without_configurations_are_compared_in_pairs() -> None:
    """Scores of one model each, as other programs write them: every pair of files, nothing within one."""
    tables = [make_scores(positives=150, auroc=0.9, seed=seed).drop("image_id") for seed in range(3)]
    labels = tables[0].select("case_id", "label")
    tables = [labels.join(table.select("case_id", "score"), on="case_id") for table in tables]
    found = tc.compare(tables, names=["a", "b", "c"], targets=[0.95], **QUICK)  # type: ignore[arg-type]
    assert [(item.reference_run, item.other_run) for item in found.contrasts] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]
    assert "a \u2212 b: scores at 95% recall" in repr(found)


def through_encoder(
    clean: np.ndarray, labels: np.ndarray, generator: np.random.Generator, noise: float
) -> pl.DataFrame:
    """The scores of two correlated configurations of one encoder."""
    seen = clean + noise * generator.standard_normal(clean.size)
    return pl.concat(
        pl.DataFrame(
            {
                "configuration": name,
                "case_id": [f"{number:04d}" for number in range(clean.size)],
                "label": labels,
                "score": seen + 0.3 * generator.standard_normal(clean.size),
            }
        )
        for name in NAMES
    )


@pytest.mark.slow
def test_equal_encoders_are_rarely_called_different() -> None:
    """In 300 cohorts of two encoders of one law, any verdict or rejection among all pairs is a false one."""
    cohorts, alarms, rejected, unadjusted = 300, 0, 0, 0
    for seed in range(cohorts):
        generator = np.random.default_rng(seed)
        labels = (np.arange(800) < 100).astype(np.int64)
        clean = generator.standard_normal(800) + 1.3 * labels
        tables: list[pl.DataFrame | Path | str] = [
            through_encoder(clean, labels, generator, 0.7) for _ in range(2)
        ]
        found = compare(
            tables, names=("a", "b"), seed=seed, targets=(0.95, 0.9), resamples=200, swaps=400, resplits=0
        )
        alarms += any(item.verdict == "different" for item in found.contrasts)
        rejected += any(item.p_adjusted <= 0.05 for item in found.contrasts)
        unadjusted += any(item.p <= 0.05 for item in found.contrasts)
    most = binom.isf(1e-3, cohorts, 0.05)
    assert alarms <= most
    assert rejected <= most
    assert unadjusted > most  # without Holm's method the level would not hold


def write_encoder(
    folder: Path, name: str, manifest: pl.DataFrame, clean: np.ndarray, noise: float, seed: int
) -> Path:
    """A cache of what an encoder makes of images: their features with noise of its own."""
    generator = np.random.default_rng(seed)
    features = (clean + noise * generator.standard_normal(clean.shape)).astype(np.float16)
    made = replace(FINGERPRINT, encoder=name)
    with create_cache(folder / f"{name}.zarr", manifest, clean.shape[1], clean.shape[2], made) as writer:
        for shard in range(writer.layout.shards):
            writer.write_shard(shard, features[slice(*writer.layout.bounds(shard))])
    return folder / f"{name}.zarr"


def test_trained_on_two_caches_the_better_encoder_is_found(tmp_path: Path) -> None:
    """From caches to verdicts, by the functions that people call; folds agree by the seed or by the file."""
    manifest, features = a_cohort(cases=600, positives=150, dim=16, views=2, distance=1.2)
    clean = features.astype(np.float64)
    for name, noise in (("sharp", 0.1), ("blurred", 3.0)):
        cache = write_encoder(tmp_path, name, manifest, clean, noise, seed=1)
        folds = tmp_path / "run_sharp" / "folds.csv" if name == "blurred" else None
        options = {"configurations": list(NAMES), "epochs": 6, "lr": 1e-2, "folds": folds}
        tc.fit_heads(cache, tmp_path / f"run_{name}", **options)  # type: ignore[arg-type]
    places = [tmp_path / "run_sharp", tmp_path / "run_blurred"]
    found = tc.compare(places, tmp_path / "compare", targets=[0.95], **QUICK)  # type: ignore[arg-type]
    verdicts = [(item.verdict, item.difference > 0) for item in found.contrasts if item.between_runs]
    assert verdicts == [("different", True)] * 2
    cache = tmp_path / "blurred.zarr"
    tc.fit_heads(cache, tmp_path / "other", configurations=list(NAMES), epochs=2, seed=5)
    with pytest.raises(InputError, match="expected the folds of"):
        tc.compare([places[0], tmp_path / "other"], **QUICK)  # type: ignore[arg-type]


@pytest.mark.slow
def test_trained_on_two_caches_of_one_truth_encoders_are_rarely_called_different(tmp_path: Path) -> None:
    """40 cohorts, two encoders with noise of one law, heads trained on each."""
    cohorts, alarms = 40, 0
    for seed in range(cohorts):
        home = tmp_path / str(seed)
        home.mkdir()
        manifest, features = a_cohort(cases=400, positives=100, dim=16, views=2, distance=1.0, seed=seed)
        clean = features.astype(np.float64)
        places: list[pl.DataFrame | Path | str] = []
        for number, name in enumerate(("one", "two")):
            cache = write_encoder(home, name, manifest, clean, 1.0, seed=2 * seed + number)
            options = {"configurations": ["ce"], "epochs": 6, "lr": 1e-2, "seed": seed}
            tc.fit_heads(cache, home / name, **options)  # type: ignore[arg-type]
            places.append(home / name)
        found = compare(places, seed=seed, targets=(0.95, 0.9), resamples=200, swaps=400, resplits=0)
        alarms += any(item.verdict == "different" for item in found.contrasts)
    assert alarms <= binom.isf(1e-3, cohorts, 0.05)


def test_each_column_keeps_its_runs_aggregation(tmp_path: Path) -> None:
    """Also where the runs have different numbers of configurations, and in a pair of columns."""
    shape = {"cases": 200, "positives": 40}
    one, other = (write_run(tmp_path / name, name, 0.1, **shape) for name in ("b5", "b2"))  # type: ignore[arg-type]
    kinds = {
        "ce": HeadSettings(aggregation="breast-mean"),
        "closed-loop": HeadSettings(aggregation="top-two"),
    }
    edit_record(other, configurations={name: head.as_document() for name, head in kinds.items()})
    scores = [
        pl.read_csv(run / "scores.csv", schema_overrides={"case_id": pl.String}) for run in (one, other)
    ]
    scores[0].filter(pl.col("configuration") == "ce").write_csv(one / "scores.csv")
    scores[1].with_columns(laterality=pl.lit("L")).write_csv(other / "scores.csv")
    runs = [read_run(run, CompareSettings()) for run in (seal(one), seal(other))]
    joined = join_runs(runs, ["b5", "b2"])
    assert [column.configuration for column in joined.columns] == ["ce", "ce", "closed-loop"]
    assert joined.cohort.aggregations == ("maximum", "breast-mean", "top-two")
    assert joined.pair_up(2, 0).cohort.aggregations == ("top-two", "maximum")
