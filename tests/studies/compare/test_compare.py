"""Comparisons as a whole: the numbers against their definitions, verdicts, repeats, files, bad input."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from tests.conftest import make_scores
from tests.heads.records import a_record
from trust_cache.base.documents import json_bytes
from trust_cache.base.errors import InputError
from trust_cache.certificate.certify import certify
from trust_cache.statistics.thresholds import select_threshold
from trust_cache.studies.compare.compare import choose_reference, compare
from trust_cache.studies.compare.compare_folder import (
    CSV_COLUMNS,
    OWN,
    read_comparison,
    render,
    write_comparison,
)
from trust_cache.studies.compare.comparison_results import Comparison, Standing
from trust_cache.studies.compare.paired_tests import DifferenceInterval
from trust_cache.studies.compare.verdicts import judge

NAMES = ("ce", "closed-loop", "fixed-tau")
QUICK = {"resamples": 200, "swaps": 200, "resplits": 10}


def write_run(folder: Path, repeats: int = 1, **shape: object) -> Path:
    """A run folder as fit-heads lays it out, with the scores alone."""
    for repeat in range(repeats):
        home = folder / "repeats" / str(repeat) if repeat else folder
        home.mkdir(parents=True)
        table = make_scores(configurations=NAMES, seed=0, **shape)  # type: ignore[arg-type]
        noise = np.random.default_rng(repeat).uniform(0.9, 1.0, table.height)
        table.with_columns(pl.col("score") * noise, fold=pl.lit("0")).write_csv(home / "scores.csv")
    (folder / "run.json").write_bytes(json_bytes(a_record(repeats=repeats).as_document()))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run", repeats=3, images=2)


@pytest.fixture(scope="module")
def comparison(run: Path) -> Comparison:
    return compare(run, **QUICK)  # type: ignore[arg-type]


def dismissed(file: Path, name: str, target: float) -> int:
    """By the definition, from the file alone."""
    cases = (
        pl.read_csv(file, schema_overrides={"case_id": pl.String})
        .filter(pl.col("configuration") == name)
        .group_by("case_id")
        .agg(pl.col("score", "label").max())
    )
    tau = select_threshold(cases["score"].to_numpy(), cases["label"].to_numpy(), target)
    return int((cases["score"] < tau).sum())


def test_every_number_is_that_of_its_definition(run: Path, comparison: Comparison) -> None:
    files = [run / "scores.csv", *(run / "repeats" / str(number) / "scores.csv" for number in (1, 2))]
    assert [(item.configuration, item.target) for item in comparison.standings] == [
        (name, target) for name in NAMES for target in (0.98, 0.95)
    ]
    for item in comparison.standings:
        counts = [dismissed(file, item.configuration, item.target) for file in files]
        assert item.dismissed == counts[0]
        assert item.repeats == tuple(count / 1_500 for count in counts)
    for contrast in comparison.contrasts:
        own, other = (
            np.array([dismissed(file, name, contrast.target) for file in files])
            for name in ("closed-loop", contrast.other)
        )
        differences = (own - other) / 1_500
        assert contrast.difference == pytest.approx(differences[0], abs=1e-15)
        noise = contrast.training_noise
        assert noise is not None
        assert noise.differences == pytest.approx(differences, abs=1e-15)
        assert (noise.lowest, noise.highest) == (min(noise.differences), max(noise.differences))
        # The spread of single trainings, not the standard error of their mean.
        assert noise.standard_deviation == pytest.approx(np.std(differences, ddof=1))
        assert noise.same_sign == np.count_nonzero(np.sign(differences) == np.sign(differences[0]))


def test_resplits_are_those_of_certify(run: Path, comparison: Comparison) -> None:
    certification = certify(run, resplits=10)
    for item, spread in zip(comparison.standings, certification.spreads, strict=True):
        assert (item.configuration, item.target) == (spread.configuration, spread.target)
        assert item.resplits_missed == 10 - spread.met
        assert item.resplits_missed_share == pytest.approx(1 - spread.met_share)
        assert spread.met_share_expected is not None
        assert item.resplits_missed_expected == pytest.approx(1 - spread.met_share_expected)
    points = {
        (item.resplit, item.point.configuration, item.point.target): item.point.dismissal
        for item in certification.resplits
    }
    for contrast in comparison.contrasts:
        differences = [
            points[number, "closed-loop", contrast.target] - points[number, contrast.other, contrast.target]  # type: ignore[operator]
            for number in range(10)
        ]
        assert contrast.split_noise is not None
        assert contrast.split_noise.q50 == pytest.approx(np.median(differences))
        opposite = np.sign(differences) == -np.sign(contrast.difference)
        assert contrast.split_noise.opposite_share == pytest.approx(np.mean(opposite))


def test_the_reference_turns_the_signs(run: Path, comparison: Comparison) -> None:
    turned = compare(run, reference="ce", **QUICK)  # type: ignore[arg-type]
    assert [item.other for item in turned.contrasts] == [
        "closed-loop",
        "closed-loop",
        "fixed-tau",
        "fixed-tau",
    ]
    for before, after in zip(comparison.contrasts[:2], turned.contrasts[:2], strict=True):
        assert (before.other, after.other) == ("ce", "closed-loop")
        assert after.difference == -before.difference
        assert after.p == before.p


def test_one_pair_does_not_depend_on_the_others(run: Path, comparison: Comparison, tmp_path: Path) -> None:
    """Another target and another configuration beside them change only the adjustment; nor does row order."""
    table = pl.read_csv(run / "scores.csv", schema_overrides={"case_id": pl.String})
    file = tmp_path / "scores.csv"
    table.filter(pl.col("configuration") != "ce").sample(fraction=1.0, shuffle=True, seed=1).write_csv(file)
    (alone,) = compare(file, targets=[0.95], **QUICK).contrasts  # type: ignore[arg-type]
    beside = comparison.contrasts[-1]
    assert (alone.low, alone.high, alone.p) == (beside.low, beside.high, beside.p)
    assert alone.p_adjusted == alone.p
    assert "adjustment" not in alone.sentence
    assert alone.training_noise is None


def standing(below: int, dismissed_cases: int = 300, name: str = "a") -> Standing:
    positives = 100
    return Standing(
        configuration=name, target=0.95, tau=0.5, cases=1_000, positives=positives,
        dismissed=dismissed_cases, positives_dismissed=below, dismissal=dismissed_cases / 1_000,
        recall=1 - below / positives, repeats=(0.3,), resplits=0, resplits_missed=0,
        resplits_missed_share=None, resplits_missed_expected=None,
    )  # fmt: skip


def test_different_needs_the_test_and_the_interval() -> None:
    two = standing(5), standing(5, 200, "b")
    without_zero, with_zero = DifferenceInterval(0.01, 0.2), DifferenceInterval(-0.01, 0.2)
    assert judge(*two, without_zero, 0.05)[0] == "different"
    assert judge(*two, DifferenceInterval(-0.2, -0.01), 0.01)[0] == "different"
    for interval, p, words in (
        (with_zero, 0.01, "curves that cross"),
        (without_zero, 0.051, "does not reject once adjusted"),
        (with_zero, 0.5, "includes zero"),
    ):
        verdict, reason = judge(*two, interval, p)
        assert verdict == "cannot tell"
        assert words in reason
    verdict, reason = judge(standing(2), standing(5), None, 0.001)
    assert verdict == "not resolvable"
    assert "2 of 100 positives are below the threshold of a, and an interval needs 3; 60" in reason


def test_a_large_difference_is_found_and_said(tmp_path: Path) -> None:
    table = make_scores(cases=3_000, positives=300, configurations=NAMES)
    chance = pl.Series(np.random.default_rng(0).uniform(size=table.height))
    worse = pl.when(pl.col("configuration") == "ce").then(chance).otherwise(pl.col("score"))
    file = tmp_path / "scores.csv"
    table.with_columns(worse.alias("score")).write_csv(file)
    found = compare(file, targets=[0.95], **QUICK)  # type: ignore[arg-type]
    by_other = {item.other: item for item in found.contrasts}
    assert by_other["ce"].verdict == "different"
    assert "the difference is real on cases like these" in by_other["ce"].sentence
    assert by_other["fixed-tau"].verdict == "cannot tell"
    assert "the data cannot tell" in by_other["fixed-tau"].sentence


def test_few_positives_are_not_resolvable_and_say_how_many_would_do(tmp_path: Path) -> None:
    make_scores(cases=600, positives=3, configurations=NAMES).write_csv(tmp_path / "scores.csv")
    found = compare(tmp_path / "scores.csv", **QUICK)  # type: ignore[arg-type]
    for item in found.contrasts:
        assert (item.verdict, item.low, item.high) == ("not resolvable", None, None)
        assert "positives would do" in item.sentence
    make_scores(cases=600, positives=1, configurations=NAMES).write_csv(tmp_path / "scores.csv")
    found = compare(tmp_path / "scores.csv", **QUICK)  # type: ignore[arg-type]
    assert any("too few to split" in warning for warning in found.warnings)
    assert found.contrasts[0].split_noise is None
    render(found)


def test_the_folder_is_whole_equal_on_a_rerun_and_plain_json(
    run: Path, comparison: Comparison, tmp_path: Path
) -> None:
    out = tmp_path / "compare"
    assert write_comparison(comparison, out) is None
    assert {path.name for path in out.iterdir()} == OWN
    assert write_comparison(compare(run, **QUICK), out) is None  # type: ignore[arg-type]
    assert not (tmp_path / "compare.1").exists()
    kept = write_comparison(compare(run, seed=1, **QUICK), out)  # type: ignore[arg-type]
    assert kept == tmp_path / "compare.1"
    document = json.loads((kept / "compare.json").read_text())
    assert document == json.loads(json.dumps(comparison.as_document()))
    assert read_comparison(kept) == comparison
    assert document["schema"] == 1
    assert document["settings"]["seed"] == 0
    assert document["scores_sha256"] == certify(run).scores.sha256
    assert len(set(document["repeats_sha256"])) == document["repeats"] - 1 == 2
    with (kept / "compare.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == CSV_COLUMNS
    for row, item in zip(rows, document["comparisons"], strict=True):
        assert float(row["difference"]) == item["difference"]
        assert row["low"] == ("" if item["low"] is None else repr(item["low"]))
        assert float(row["training_lowest"]) == item["training_noise"]["lowest"]
    text = (kept / "table.md").read_text()
    assert "closed-loop minus each other configuration" in text
    assert (kept / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert (kept / "compare.svg").read_text().startswith("<svg")


def test_the_documentation_names_every_key(comparison: Comparison) -> None:
    page = (Path(__file__).parents[3] / "docs" / "comparison.md").read_text(encoding="utf-8")
    document = comparison.as_document()
    keys = {*document, *document["settings"], *document["comparisons"][0], *document["configurations"][0]}
    keys |= {*document["comparisons"][0]["training_noise"], *document["comparisons"][0]["split_noise"]}
    assert not [key for key in keys if f"`{key}`" not in page]


def without_third_repeat(run: Path) -> None:
    shutil.rmtree(run / "repeats" / "2")


def empty_repeat(run: Path) -> None:
    (run / "repeats" / "1" / "scores.csv").unlink()


def shortened_repeat(run: Path) -> None:
    file = run / "repeats" / "1" / "scores.csv"
    table = pl.read_csv(file, schema_overrides={"case_id": pl.String})
    table.filter(pl.col("case_id") != "00007").write_csv(file)


def other_names(run: Path) -> None:
    file = run / "repeats" / "1" / "scores.csv"
    file.write_text(file.read_text().replace("fixed-tau", "other"))


def no_repeats_at_all(run: Path) -> None:
    shutil.rmtree(run / "repeats")


def a_gap(run: Path) -> None:
    shutil.rmtree(run / "repeats" / "1")
    (run / "run.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (without_third_repeat, "repeat 2 is missing"),
        (no_repeats_at_all, "found none: repeat 1 is missing"),
        (a_gap, "repeat 1 is missing"),
        (empty_repeat, "scores.csv"),
        (shortened_repeat, "expected the cases and labels of the run itself"),
        (other_names, "expected the run's own configurations"),
    ],
)
def test_damaged_repeats_are_named(spoil: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", repeats=3, cases=60, positives=20)
    spoil(run)
    with pytest.raises(InputError, match=words):
        compare(run, **QUICK)  # type: ignore[arg-type]


def test_the_reference_is_closed_loop_else_the_first_else_suggested() -> None:
    assert choose_reference(NAMES, None, "x") == "closed-loop"
    assert choose_reference(("b", "a"), None, "x") == "b"
    assert choose_reference(NAMES, "ce", "x") == "ce"
    with pytest.raises(InputError, match="did you mean fixed-tau"):
        choose_reference(NAMES, "fixed_tau", "x")
    with pytest.raises(InputError, match=r"found 'zzz'$"):
        choose_reference(NAMES, "zzz", "x")


def test_an_external_run_is_said_to_be_one(tmp_path: Path) -> None:
    table = make_scores(cases=200, positives=80, configurations=NAMES).with_columns(fold=pl.lit("external"))
    table.write_csv(tmp_path / "scores.csv")
    found = compare(tmp_path, **QUICK)  # type: ignore[arg-type]
    assert found.kind == "external"
    assert any("never saw these cases" in item for item in found.limits)
    assert replace(found, kind="unknown").repeats == 1
