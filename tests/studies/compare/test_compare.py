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
from tests.heads.records import a_record, seal
from trust_cache.base.documents import json_bytes, unseal
from trust_cache.base.errors import InputError
from trust_cache.certificate.certify import certify
from trust_cache.certificate.score_table import ScoreColumns, build_cohort, read_scores
from trust_cache.certificate.split import draw_split
from trust_cache.statistics.auroc import auroc, compare_aurocs
from trust_cache.statistics.thresholds import select_threshold
from trust_cache.studies.compare.compare import choose_reference, compare
from trust_cache.studies.compare.compare_folder import (
    AUROC_COLUMNS,
    COMPARE,
    CSV_COLUMNS,
    INCOMPLETE,
    OWN,
    read_comparison,
    render,
    write_comparison,
)
from trust_cache.studies.compare.comparison_results import Comparison, IncompleteCase, Standing
from trust_cache.studies.compare.contrasts import training_noise
from trust_cache.studies.compare.paired_tests import DifferenceInterval, adjust
from trust_cache.studies.compare.verdicts import auroc_sentence, judge, judge_auroc

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
    return seal(folder)


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
        configuration=name, target=0.95, tau=0.5, cases=1_000, positives=positives, incomplete=0,
        incomplete_positives=0,
        dismissed=dismissed_cases, positives_dismissed=below, dismissal=dismissed_cases / 1_000,
        recall=1 - below / positives, repeats=(0.3,), resplits=0, resplits_missed=0,
        resplits_missed_share=None, resplits_missed_expected=None,
    )  # fmt: skip


def test_different_needs_the_test_and_the_interval() -> None:
    two = standing(5), standing(5, 200, "b")
    without_zero, with_zero = DifferenceInterval(0.01, 0.2), DifferenceInterval(-0.01, 0.2)
    verdict, reason = judge(*two, without_zero, 0.05, None)
    assert verdict == "different"
    assert "training noise was not looked at" in reason
    assert judge(*two, DifferenceInterval(-0.2, -0.01), 0.01, None)[0] == "different"
    for interval, p, words in (
        (with_zero, 0.01, "curves that cross"),
        (without_zero, 0.051, "does not reject once adjusted"),
        (with_zero, 0.5, "includes zero"),
    ):
        verdict, reason = judge(*two, interval, p, training_noise([0.1, 0.1]))
        assert verdict == "cannot tell"
        assert words in reason
    verdict, reason = judge(standing(2), standing(5), None, 0.001, None)
    assert verdict == "not resolvable"
    assert "2 of 100 positives are below the threshold of a, and an interval needs 3; 60" in reason
    _, reason = judge(standing(5), standing(5), None, 0.001, None)
    assert "belong to fewer than 3 patients" in reason


@pytest.mark.parametrize(
    ("differences", "held"),
    [([0.1, 0.02, 0.3], 3), ([-0.1, -0.02], 2), ([0.1, -0.001, 0.3], 2), ([0.1, 0.0], 1)],
)
def test_different_needs_the_sign_in_every_training(differences: list[float], held: int) -> None:
    noise = training_noise(differences)
    assert noise is not None
    assert noise.same_sign == held
    assert noise.chance == 2.0 ** (1 - len(differences))
    found = compare_aurocs(np.arange(40.0), -np.arange(40.0), np.arange(40) // 20)
    interval = DifferenceInterval(0.01, 0.2)
    trainings = len(differences)
    verdicts = [judge(standing(5), standing(5, 200, "b"), interval, 0.01, noise)]
    if trainings >= 3:
        verdicts.append(judge_auroc(found, 0.01, noise))
    else:  # two trainings are too few for a verdict on AUROCs
        words = auroc_sentence(
            ("a", "b"), found, 0.01, 1, "cannot tell", noise if held == trainings else None
        )
        assert "these trained models differ" in words
        assert "only 3 trainings or more can show that it is no training noise" in words
        assert judge_auroc(found, 0.01, noise)[0] == judge_auroc(found, 0.01, None)[0] == "cannot tell"
    for verdict, reason in verdicts:
        assert verdict == ("different" if held == trainings else "cannot tell")
        assert f"the sign holds in {held} of {trainings} trainings" in reason
    assert judge_auroc(found, 0.06, noise)[0] == "cannot tell"
    assert judge_auroc(None, None, None)[0] == "not resolvable"


def write_different(folder: Path, flipped: bool) -> Path:
    """Three trainings in which ce scores at random; with `flipped`, closed-loop does in the last one."""
    table = make_scores(cases=3_000, positives=300, configurations=NAMES)
    for repeat in range(3):
        home = folder / "repeats" / str(repeat) if repeat else folder
        home.mkdir(parents=True)
        chance = pl.Series(np.random.default_rng(repeat).uniform(size=table.height))
        poor = "closed-loop" if flipped and repeat == 2 else "ce"
        worse = pl.when(pl.col("configuration") == poor).then(chance).otherwise(pl.col("score"))
        table.with_columns(worse.alias("score")).write_csv(home / "scores.csv")
    return folder


@pytest.mark.parametrize("flipped", [False, True])
def test_a_difference_that_training_turns_is_not_called_real(flipped: bool, tmp_path: Path) -> None:
    found = compare(write_different(tmp_path / "run", flipped), targets=[0.95], **QUICK)  # type: ignore[arg-type]
    for item in (found.contrasts[0], found.auroc_contrasts[0]):
        assert item.other == "ce"
        assert item.p_adjusted is not None
        assert item.p_adjusted <= 0.05
        assert item.verdict == ("cannot tell" if flipped else "different")
        assert ("the difference is real on cases like these" in item.sentence) != flipped
        assert ("training again changes the sign" in item.sentence) == flipped
        assert f"the sign held in {2 if flipped else 3} of 3" in item.sentence
        assert "chance of 25.0%" in item.sentence
    words = (
        "only 2 of 3 trainings are above that margin" if flipped else "It is not inferior at a margin of 1"
    )
    assert words in found.contrasts[0].sentence
    assert found.contrasts[0].not_inferior
    assert f"| yes ({2 if flipped else 3} of 3) |" in render(found)["table.md"].decode()


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
    assert "Training noise was not looked at: there is one training (`fit-heads" in by_other["ce"].sentence
    assert by_other["fixed-tau"].verdict == "cannot tell"
    assert "the data cannot tell" in by_other["fixed-tau"].sentence


def test_aurocs_are_those_of_delong_over_all_trainings(run: Path, comparison: Comparison) -> None:
    cohorts = [
        build_cohort(read_scores(folder)) for folder in (run, run / "repeats" / "1", run / "repeats" / "2")
    ]
    labels, found = cohorts[0].labels, []
    for item, index in zip(comparison.auroc_contrasts, (0, 2), strict=True):
        expected = compare_aurocs(cohorts[0].scores[1], cohorts[0].scores[index], labels)
        assert expected is not None
        assert (item.reference, item.other, item.cases, item.positives) == (
            "closed-loop", NAMES[index], 1_500, 150,
        )  # fmt: skip
        assert (item.auroc_reference, item.auroc_other) == (expected.first, expected.second)
        assert (item.difference, item.low, item.high, item.p) == (
            expected.difference.value, expected.difference.lower, expected.difference.upper, expected.p,
        )  # fmt: skip
        assert item.training_noise is not None
        values = [[auroc(cohort.scores[place], labels) for place in (1, index)] for cohort in cohorts]
        assert item.training_noise.differences == pytest.approx([one - other for one, other in values])  # type: ignore[operator]
        found.append(expected.p)
    assert [item.p_adjusted for item in comparison.auroc_contrasts] == adjust(found)


def test_not_inferior_is_the_lower_end_above_the_margin(run: Path, comparison: Comparison) -> None:
    wide = compare(run, margin_points=30, **QUICK)  # type: ignore[arg-type]
    for item, other in zip(comparison.contrasts, wide.contrasts, strict=True):
        assert item.low is not None
        assert (item.margin, item.not_inferior) == (0.01, item.low > -0.01)
        assert ("not inferior at a margin of 1 point." in item.sentence) == item.not_inferior
        assert other.not_inferior
        assert "It is not inferior at a margin of 30 points." in other.sentence
        assert (item.low, item.p, item.verdict) == (other.low, other.p, other.verdict)
    assert not all(item.not_inferior for item in comparison.contrasts)
    for wrong in (0.0, -1.0, 100.0, float("nan")):
        with pytest.raises(InputError, match="margin_points: expected percentage points above 0"):
            compare(run, margin_points=wrong, **QUICK)  # type: ignore[arg-type]


def test_a_case_incomplete_in_either_is_reviewed_in_both(tmp_path: Path) -> None:
    """ce and fixed-tau each lack other cases: a pair leaves out its own, in numerators alone."""
    table = make_scores(cases=1_500, positives=150, configurations=NAMES)
    lacking = {"ce": ["00001", "00002", "00300"], "fixed-tau": ["00002", "01400"]}
    lost = pl.lit(value=False)
    for name, cases in lacking.items():
        lost = lost | ((pl.col("configuration") == name) & pl.col("case_id").is_in(cases))
    file = tmp_path / "scores.csv"
    table.with_columns(score=pl.when(~lost).then("score")).write_csv(file)
    found = compare(file, **QUICK)  # type: ignore[arg-type]
    labels = dict(table.select("case_id", "label").iter_rows())
    for item in found.contrasts:
        gone = lacking[item.other]
        assert (item.incomplete, item.incomplete_positives) == (len(gone), sum(map(labels.get, gone)))  # type: ignore[arg-type]
        complete = table.filter(~pl.col("case_id").is_in(gone))
        complete.write_csv(tmp_path / "complete.csv")
        counts = [
            dismissed(tmp_path / "complete.csv", name, item.target) for name in (item.reference, item.other)
        ]
        assert (item.dismissal_reference, item.dismissal_other) == tuple(count / 1_500 for count in counts)
        alone = compare(tmp_path / "complete.csv", targets=(0.98, 0.95), **QUICK)  # type: ignore[arg-type]
        (same,) = (one for one in alone.contrasts if (one.other, one.target) == (item.other, item.target))
        assert item.p == same.p
        assert item.low is not None
        assert item.low * 1_500 == pytest.approx(same.low * (1_500 - len(gone)))  # type: ignore[operator]
        assert item.split_noise is not None
    assert [item.cases for item in found.auroc_contrasts] == [1_497, 1_498]
    by_name = {item.configuration: item for item in found.standings}
    assert [by_name[name].incomplete for name in NAMES] == [3, 0, 2]
    assert any("ce: 3 of 1,500 cases are incomplete" in text for text in found.warnings)
    files = render(found)
    assert [line.split(",")[:2] for line in files[INCOMPLETE].decode().splitlines()[1:]] == [
        [name, case] for name in ("ce", "fixed-tau") for case in lacking[name]
    ]
    nothing = table.with_columns(
        score=pl.when((pl.col("configuration") != "ce") | (pl.col("label") == 0)).then("score")
    )
    nothing.write_csv(file)
    with pytest.raises(InputError, match="ce: expected complete positive cases, found none"):
        compare(file, **QUICK)  # type: ignore[arg-type]


def test_patients_with_several_cases_stay_together(tmp_path: Path) -> None:
    table = make_scores(cases=1_500, positives=150, configurations=NAMES)
    file = tmp_path / "scores.csv"
    table.write_csv(file)
    plain = compare(file, **QUICK)  # type: ignore[arg-type]
    table.with_columns(patient_id="case_id").write_csv(file)
    own = compare(file, **QUICK)  # type: ignore[arg-type]
    assert (
        replace(own, scores_sha256=plain.scores_sha256, runs=plain.runs) == plain
    )  # one case each: nothing changes
    number = pl.col("case_id").cast(pl.Int64)
    table.with_columns(who=pl.format("p{}", number // 3)).write_csv(file)
    found = compare(file, patient="who", **QUICK)  # type: ignore[arg-type]
    assert (found.patients, found.cases) == (500, 1_500)
    assert "Some patients have several cases" in found.limits[0]
    for before, after in zip(plain.contrasts, found.contrasts, strict=True):
        assert before.difference == after.difference
        assert (before.low, before.p) != (after.low, after.p)
    cohort = build_cohort(read_scores(file, ScoreColumns(patient="who")))
    drawn = draw_split(cohort, 0).drawn
    expected = compare_aurocs(cohort.scores[1][drawn], cohort.scores[0][drawn], cohort.labels[drawn])
    assert expected is not None
    item = found.auroc_contrasts[0]
    assert (item.cases, item.p) == (500, expected.p)


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
    write_comparison(comparison, out)
    assert {path.name for path in out.iterdir()} == OWN - {INCOMPLETE}
    with pytest.raises(InputError, match="exists already"):
        write_comparison(comparison, out)
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    write_comparison(compare(run, **QUICK), out, overwrite=True)  # type: ignore[arg-type]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == first
    document, unchanged = unseal(json.loads((out / "compare.json").read_text()))
    assert unchanged
    assert set(document.pop("files")) == OWN - {INCOMPLETE, COMPARE}
    assert document == json.loads(json.dumps(comparison.as_document()))
    assert read_comparison(out) == comparison
    assert document["schema"] == 1
    assert document["settings"]["seed"] == 0
    assert document["scores_sha256"] == certify(run).scores.sha256
    assert len(set(document["repeats_sha256"])) == document["repeats"] - 1 == 2
    with (out / "compare.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == CSV_COLUMNS
    for row, item in zip(rows, document["comparisons"], strict=True):
        assert float(row["difference"]) == item["difference"]
        assert row["low"] == ("" if item["low"] is None else repr(item["low"]))
        assert float(row["training_lowest"]) == item["training_noise"]["lowest"]
    with (out / "aurocs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == AUROC_COLUMNS
    assert [float(row["difference"]) for row in rows] == [
        item["difference"] for item in document["auroc_comparisons"]
    ]
    text = (out / "table.md").read_text()
    assert "closed-loop minus each other configuration" in text
    assert (out / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "compare.svg").read_text().startswith("<svg")


def test_the_documentation_names_every_key(comparison: Comparison) -> None:
    page = (Path(__file__).parents[3] / "docs" / "comparison.md").read_text(encoding="utf-8")
    document = comparison.as_document()
    keys = {*document, *document["settings"], *document["comparisons"][0], *document["configurations"][0]}
    keys |= {*document["comparisons"][0]["training_noise"], *document["comparisons"][0]["split_noise"]}
    keys |= {*document["auroc_comparisons"][0], *IncompleteCase.__struct_fields__}
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
