"""Certification: points against brute force, the split, subgroups, resplits, warnings."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from tests.conftest import MakeScores, make_scores
from trust_cache import certify, clopper_pearson_upper
from trust_cache.base.errors import InputError
from trust_cache.certificate.certified_folder import render
from trust_cache.certificate.points import Counts, Point, Terms, Threshold, describe
from trust_cache.statistics.rules import chance_target_met

POINT_KEYS = [
    "configuration", "target", "tau", "search_cases", "search_positives", "cases", "positives", "incomplete",
    "incomplete_positives", "dismissed", "positives_dismissed", "dismissal", "false_omission_rate", "recall",
    "recall_lower", "recall_lower_corrected", "bound", "bound_corrected", "compared", "delta", "limit",
    "prevalence", "met", "status", "reason", "auroc_case", "auroc_image", "image_dismissal",
]  # fmt: skip
NLBS = Threshold(
    configuration="closed-loop", target=0.98, tau=0.1, search_cases=1_200, search_positives=30,
    search_incomplete_positives=0, needed=1, found=30,
)  # fmt: skip


def point_of(counts: Counts, terms: Terms, threshold: Threshold = NLBS) -> Point:
    """A point of independent cases."""
    return describe(counts, counts, threshold, terms)


def by_hand(table: pl.DataFrame, split: pl.DataFrame, target: str) -> dict[str, object]:
    """The point of one configuration, by its definition, in plain Python."""
    part = dict(split.iter_rows())
    cases: dict[str, tuple[float, int]] = {}
    for row in table.iter_rows(named=True):
        score, label = cases.get(row["case_id"], (-np.inf, 0))
        cases[row["case_id"]] = max(score, row["score"]), max(label, row["label"])
    search = [value for case, value in cases.items() if part[case] == "search"]
    evaluation = [value for case, value in cases.items() if part[case] == "evaluation"]
    misses = len([1 for _, label in search if label]) * (1 - Fraction(target))
    tau = sorted(score for score, label in search if label)[int(misses)]
    below = [label for score, label in evaluation if score < tau]
    images = table.filter(pl.col("case_id").replace_strict(part) == "evaluation")
    k, n, positives = sum(below), len(below), sum(label for _, label in evaluation)
    return {
        "tau": tau,
        "cases": len(evaluation),
        "positives": positives,
        "dismissed": n,
        "positives_dismissed": k,
        "met": Fraction(positives - k, positives) >= Fraction(target),
        "auroc_case": pytest.approx(roc_auc_score([y for _, y in evaluation], [s for s, _ in evaluation])),
        "auroc_image": pytest.approx(roc_auc_score(images["label"], images["score"])),
        "image_dismissal": pytest.approx((images["score"] < tau).mean()),
    }


@pytest.mark.parametrize("target", ["0.98", "0.95", "0.9", "0.8"])
def test_points_equal_plain_python(scores: MakeScores, target: str) -> None:
    table = scores(configurations=("a", "b"), images=3)
    result = certify(table, targets=[float(target)])
    for point in result.points:
        expected = by_hand(
            table.filter(pl.col("configuration") == point.configuration), result.split.table, target
        )
        found = point.as_document()
        assert {key: found[key] for key in expected} == expected
        assert list(found)[: len(POINT_KEYS)] == POINT_KEYS
        assert point.bound == clopper_pearson_upper(point.positives_dismissed, point.dismissed, 0.01)
        assert point.bound_corrected == clopper_pearson_upper(
            point.positives_dismissed, point.dismissed, 0.01 / 2
        )
        assert point.dismissal == point.dismissed / point.cases
        assert point.compared == 2


def test_recall_lower_bound_as_published() -> None:
    point = point_of(Counts(4_797, 119, 0, 0, 947, 1), Terms("recall", 0.01, 10))
    assert (point.met, point.status, point.reason) == (True, "certified", None)
    assert f"{100 * point.recall:.1f}" == "99.2"  # type: ignore[operator]
    assert f"{100 * point.recall_lower:.1f}" == "94.6"  # type: ignore[operator]
    assert f"{100 * point.bound:.2f}" == "0.70"


@pytest.mark.parametrize(("missed", "met"), [(2, True), (3, False)])
def test_met_is_decided_by_integers(missed: int, met: bool) -> None:
    point = point_of(Counts(4_797, 119, 0, 0, 500, missed), Terms("recall", 0.01, 1))
    assert point.met is met
    assert (point.reason is None) is met
    assert point.bound == clopper_pearson_upper(missed, 500, 0.01)


@given(st.integers(0, 2**32), st.integers(1, 4), st.sampled_from([(), ("x", "y")]))
def test_row_and_column_order_change_nothing(seed: int, images: int, configurations: tuple[str, ...]) -> None:
    table = make_scores(60, 20, configurations, images)
    generator = np.random.default_rng(seed)
    shuffled = table[generator.permutation(table.height).tolist()]
    shuffled = shuffled.select(generator.permutation(table.columns).tolist())
    assert render(certify(table, by="site")) == render(certify(shuffled, by="site"))


@given(st.integers(0, 2**32))
def test_order_free_without_image_ids(seed: int) -> None:
    table = make_scores(60, 20, images=2).drop("image_id")
    shuffled = table[np.random.default_rng(seed).permutation(table.height).tolist()]
    assert certify(table).scores.sha256 == certify(shuffled).scores.sha256
    assert certify(table).points == certify(shuffled).points


def test_image_dismissal_is_at_least_the_image_share_of_dismissed_cases(scores: MakeScores) -> None:
    table = scores(images=4)
    for point in certify(table, targets=[0.9, 0.7, 0.5]).points:
        assert point.image_dismissal is not None
        assert point.image_dismissal >= point.dismissed / point.cases  # every case has four images


def test_one_row_per_case_has_no_image_level(scores: MakeScores) -> None:
    for point in certify(scores()).points:
        assert point.auroc_image is None
        assert point.image_dismissal is None
        assert point.configuration is None


def test_split_is_reused_by_case(scores: MakeScores, tmp_path: Path) -> None:
    table = scores()
    first = certify(table, seed=5)
    file = tmp_path / "split.csv"
    first.split.table.sample(fraction=1.0, shuffle=True, seed=1).write_csv(file)
    again = certify(table, seed=0, split=file)
    assert again.points == first.points
    assert again.split.sha256 == first.split.sha256
    some = certify(table.head(1_000), split=file)
    assert any("500 cases of the split have no scores" in text for text in some.warnings)


def test_changed_labels_of_a_reused_split_are_a_warning(scores: MakeScores, tmp_path: Path) -> None:
    table = scores()
    for name, content in render(certify(table)).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    warnings = certify(table, split=tmp_path / "split.csv").warnings
    assert not any("split" in text for text in warnings)
    changed = table.with_columns(
        label=pl.when(pl.col("case_id") < "00200").then(0).otherwise(pl.col("label"))
    )
    warnings = certify(changed, split=tmp_path / "split.csv").warnings
    assert any("labels changed since this split was made" in text for text in warnings)


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ("case_id,part\n00000,search\n", "missing from the split"),
        ("case_id,part\n00000,search\n00000,evaluation\n", "two parts"),
        ("case_id,part\n00000,train\n", "expected the part search or evaluation or set_aside, found 'train'"),
        ("case_id\n00000\n", "missing column part"),
        ("", "empty"),
    ],
)
def test_bad_splits(scores: MakeScores, tmp_path: Path, split: str, said: str) -> None:
    file = tmp_path / "split.csv"
    file.write_text(split)
    with pytest.raises(InputError, match=said):
        certify(scores(), split=file)


@pytest.mark.parametrize("part", ["search", "evaluation"])
def test_a_part_without_positives(scores: MakeScores, tmp_path: Path, part: str) -> None:
    other = {"search": "evaluation", "evaluation": "search"}[part]
    table = scores()
    file = tmp_path / "split.csv"
    table.select(
        "case_id", part=pl.when(pl.col("label") == 1).then(pl.lit(other)).otherwise(pl.lit(part))
    ).write_csv(file)
    with pytest.raises(InputError, match=f"the {part} part has no positives"):
        certify(table, split=file)


def test_subgroups_partition_the_evaluation_cases(scores: MakeScores) -> None:
    table = scores(images=2, configurations=("a", "b"))
    second = pl.col("image_id").str.ends_with("_1")
    table = table.with_columns(
        site=pl.when(pl.col("case_id") < "00030").then(None)
        .when((pl.col("case_id") < "00080") & second).then(pl.lit("other"))
        .when(pl.col("case_id").is_between(pl.lit("00080"), pl.lit("00100")) & second).then(None)
        .otherwise(pl.col("site"))
    )  # fmt: skip
    result = certify(table, by="site")
    assert len(result.subgroups) == 2 * 2 * 5
    for point in result.points:
        groups = {
            item.group: item.point
            for item in result.subgroups
            if (item.point.configuration, item.point.target) == (point.configuration, point.target)
        }
        assert list(groups) == ["site 0", "site 1", "site 2", "conflicting", "missing"]
        for key in ("cases", "positives", "dismissed", "positives_dismissed"):
            assert sum(getattr(group, key) for group in groups.values()) == getattr(point, key)
        assert all(group.tau == point.tau for group in groups.values())
        assert point.compared == 2 * 2  # asking for subgroups does not change the overall point
        assert groups["missing"].compared == 2 * 2 * (5 + 1)
        assert all(group.limit == point.limit for group in groups.values())
        evaluation = result.split.table.filter(pl.col("part") == "evaluation")["case_id"]
        assert groups["missing"].cases == (evaluation < "00030").sum()
        assert groups["conflicting"].cases == evaluation.is_between(pl.lit("00030"), pl.lit("00079")).sum()


def test_a_group_that_is_called_missing_is_not_the_missing(scores: MakeScores) -> None:
    case = pl.col("case_id")
    site = (
        pl.when(case < "00100")
        .then(pl.lit("missing"))
        .when(case < "00300")
        .then(None)
        .otherwise(pl.lit("site"))
    )
    groups = {
        item.group: item.point.cases
        for item in certify(scores().with_columns(site=site), by="site").subgroups
    }
    assert list(groups) == ['"missing"', "site", "missing"]
    assert groups["missing"] > groups['"missing"'] > 0


def test_subgroup_without_positives_has_no_recall(scores: MakeScores) -> None:
    table = scores().with_columns(group=pl.col("label").cast(pl.String))
    negatives = certify(table, by="group").subgroups[0].point
    assert negatives.positives == 0
    assert (negatives.recall, negatives.recall_lower, negatives.met) == (None, None, None)
    assert negatives.reason == "no positives here: recall is not defined"
    assert negatives.bound < 1.0


@pytest.mark.parametrize("column", ["nowhere", "score", "case_id"])
def test_unknown_subgroup_column(scores: MakeScores, column: str) -> None:
    with pytest.raises(InputError, match=rf"no column '{column}' to group by; there is site"):
        certify(scores(), by=column)


def test_prevalence_is_the_formula_of_the_counts(scores: MakeScores) -> None:
    point = certify(scores(), prevalence=0.005).points[0]
    missed = clopper_pearson_upper(point.positives_dismissed, point.positives, 0.005)
    assert point.assumed_prevalence == 0.005
    assert point.assumed_missed_per_1000_upper == pytest.approx(1_000 * 0.005 * missed)
    assert point.prevalence == point.positives / point.cases


def test_resplits_follow_the_law(scores: MakeScores) -> None:
    """Split noise only: the share of splits that meet the target is the law's mean for one cohort."""
    result = certify(scores(), resplits=400)
    assert len(result.resplits) == 800
    for spread in result.spreads:
        expected = chance_target_met("recall", 30, 120, spread.target, 0.01)
        assert spread.met_share_expected == expected
        assert spread.met_share == pytest.approx(expected, abs=4 * np.sqrt(0.25 / 400))
        assert spread.dismissal["q05"] <= spread.dismissal["q50"] <= spread.dismissal["q95"]
        taken = [item.point for item in result.resplits if item.point.target == spread.target]
        assert spread.met == sum(point.met is True for point in taken)
        assert spread.bound["q50"] == pytest.approx(np.median([point.bound for point in taken]))
    assert len({item.point.tau for item in result.resplits}) > 5


@pytest.mark.parametrize(("rule", "positives", "needs"), [("crc", 150, 49), ("ltt", 150, 228)])
def test_infeasible_rule_is_a_result(scores: MakeScores, rule: str, positives: int, needs: int) -> None:
    point = certify(scores(positives=positives), rule=rule, targets=[0.98]).points[0]
    assert point.reason == f"infeasible with 30 positives, needs {needs}"
    assert (point.tau, point.dismissed, point.bound, point.met) == (None, 0, 1.0, False)


def test_rules_with_a_guarantee_are_safer(scores: MakeScores) -> None:
    table = scores(cases=6_000, positives=2_000)
    taus = [certify(table, rule=rule, targets=[0.95]).points[0].tau for rule in ("ltt", "crc", "recall")]
    assert taus == sorted(taus)  # type: ignore[type-var]
    assert taus[0] < taus[2]  # type: ignore[operator]


def test_warnings_about_scores(scores: MakeScores) -> None:
    table = scores()
    outside = certify(table.with_columns(score=pl.col("score") * 3 - 1))
    assert any("are outside [0, 1]" in text for text in outside.warnings)
    equal = certify(table.with_columns(score=pl.lit(0.5)))
    assert any("nothing can be dismissed and the bound is 1" in text for text in equal.warnings)
    assert [(point.dismissed, point.bound, point.met) for point in equal.points] == [(0, 1.0, True)] * 2
    assert [(point.recall, point.false_omission_rate) for point in equal.points] == [(1.0, None)] * 2


def test_warns_what_few_positives_can_resolve(scores: MakeScores) -> None:
    few = certify(scores())  # 30 positives on search
    assert any("98 % and 97 % give the same threshold" in text for text in few.warnings)
    many = certify(scores(cases=3_000, positives=1_000))
    assert not any("few positives" in text for text in many.warnings)


def test_warns_when_every_point_is_not_available(scores: MakeScores, tmp_path: Path) -> None:
    """The search positives all score high, the evaluation positives low."""
    table = scores()
    split = certify(table).split.table
    file = tmp_path / "split.csv"
    split.write_csv(file)
    part = table.join(split, on="case_id", maintain_order="left")["part"]
    positive = pl.col("label") == 1
    moved = table.with_columns(
        score=pl.when(positive & (part == "search")).then(0.9).when(positive).then(0.01).otherwise(0.5)
    )
    result = certify(moved, split=file)
    assert [point.met for point in result.points] == [False, False]
    assert any("every point is N/A" in text for text in result.warnings)
    assert b"N/A" in render(result)["table.md"]
    assert b"below the target 0.98: 120 of 120 positives dismissed, 2 allowed" in render(result)["points.csv"]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"targets": []}, "at least one"),
        ({"targets": [0.9, 0.9]}, "different"),
        ({"targets": [98]}, "write 0.98"),
        ({"delta": 0}, "delta"),
        ({"delta": 1}, "delta"),
        ({"delta": 0.9}, "delta"),
        ({"delta": 5e-324}, "delta"),
        ({"seed": -1}, "seed"),
        ({"rule": "best"}, "recall, crc, rcps, ltt"),
        ({"prevalence": 0}, "prevalence"),
        ({"resplits": -1}, "resplits"),
    ],
)
def test_refuses_bad_settings(scores: MakeScores, setting: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        certify(scores(), **setting)  # type: ignore[arg-type]
