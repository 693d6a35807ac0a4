"""Incomplete cases, the limit and the status: what may be called certified."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import MakeScores, make_scores
from trust_cache import certify, clopper_pearson_upper
from trust_cache.base.errors import InputError
from trust_cache.certificate.certified_folder import INCOMPLETE, render
from trust_cache.certificate.evidence import Options, gather
from trust_cache.certificate.point_tables import paper_table
from trust_cache.certificate.points import count
from trust_cache.certificate.score_table import build_cohort, check_scores
from trust_cache.certificate.stopped_cases import lost_dismissal, stopped_cases
from trust_cache.certificate.verify import verify
from trust_cache.manifest.cases import AGGREGATIONS, Aggregation
from trust_cache.statistics.bands import simultaneous_band
from trust_cache.statistics.thresholds import allowed_misses

PROJECTIONS = pl.DataFrame(
    {
        "laterality": ["L", "L", "R", "R"],
        "projection": ["CC", "MLO", "CC", "MLO"],
        "part": ["0", "1", "2", "3"],
    }
)


def without(table: pl.DataFrame, images: list[str]) -> pl.DataFrame:
    """The scores in which these images have none."""
    lost = pl.col("image_id").is_in(images)
    return table.with_columns(score=pl.when(lost).then(None).otherwise(pl.col("score")))


@given(st.data())
def test_losing_images_changes_no_label_and_never_dismisses_more(data: st.DataObject) -> None:
    """Whatever fails: the same cases and labels, and at a fixed threshold never more dismissed."""
    table = make_scores(80, 20, images=2)
    lost = data.draw(st.sets(st.sampled_from(table["image_id"].to_list()), max_size=60))
    whole, rest = (build_cohort(check_scores(item)) for item in (table, without(table, list(lost))))
    assert rest.case_ids.equals(whole.case_ids)
    assert np.array_equal(rest.labels, whole.labels)
    incomplete = {name.split("_")[0] for name in lost}
    assert set(rest.case_ids.filter(pl.Series(~rest.complete(0)))) == incomplete
    everyone = np.ones(whole.cases, dtype=np.bool_)
    for tau in np.quantile(whole.scores[0], [0.05, 0.3, 0.7, 1.0]):
        before, after = (count(cohort, 0, everyone, float(tau)) for cohort in (whole, rest))
        assert after.dismissed <= before.dismissed
        assert after.positives_dismissed <= before.positives_dismissed
        assert (after.cases, after.positives) == (before.cases, before.positives)
        assert after.incomplete == len(incomplete)


def test_incomplete_cases_are_reviewed_and_counted(scores: MakeScores, tmp_path: Path) -> None:
    table = scores(images=2)
    certified = certify(table)
    split = tmp_path / "split.csv"
    certified.split.table.write_csv(split)
    point = certified.points[0]
    assert point.tau is not None
    by_case = table.group_by("case_id").agg(pl.col("score", "label").max())
    part = certified.split.table
    dismissed = by_case.join(part, on="case_id").filter(
        (pl.col("score") < point.tau) & (pl.col("part") == "evaluation")
    )
    positives = by_case.join(part, on="case_id").filter(
        (pl.col("label") == 1) & (pl.col("part") == "evaluation")
    )
    lost = dismissed["case_id"].sort()[:40].to_list() + positives["case_id"].sort()[:3].to_list()
    again = certify(without(table, [f"{case}_0" for case in lost]), split=split)
    found = again.points[0]
    assert (found.tau, found.cases, found.positives) == (point.tau, point.cases, point.positives)
    assert found.incomplete == len(set(lost))
    assert found.incomplete_positives == by_case.filter(pl.col("case_id").is_in(lost))["label"].sum()
    assert found.dismissed == point.dismissed - dismissed.filter(pl.col("case_id").is_in(lost)).height
    complete = found.positives - found.incomplete_positives
    assert found.recall == 1 - found.positives_dismissed / complete
    assert found.met == (found.positives_dismissed <= allowed_misses(complete, 0.98))
    assert found.recall_lower == 1 - clopper_pearson_upper(found.positives_dismissed, complete, 0.01)
    assert any(f"{len(set(lost))} of 1,500 cases are incomplete" in text for text in again.warnings)
    rows = pl.read_csv(render(again)[INCOMPLETE], infer_schema=False)
    assert set(rows["case_id"]) == set(lost)
    assert "it has no score" in rows["reason"][0]


def test_incomplete_positives_do_not_loosen_the_target(scores: MakeScores, tmp_path: Path) -> None:
    """Losing an image of the lowest search positive must not raise tau by more than that positive allows."""
    table = scores(images=2)
    certified = certify(table, targets=[0.95])
    split = tmp_path / "split.csv"
    certified.split.table.write_csv(split)
    search = table.group_by("case_id").agg(pl.col("score", "label").max())
    search = search.join(certified.split.table, on="case_id").filter(
        (pl.col("part") == "search") & (pl.col("label") == 1)
    )
    ordered = search.sort("score")
    lost = ordered["case_id"][0]
    point = certify(without(table, [f"{lost}_1"]), targets=[0.95], split=split).points[0]
    left = ordered["score"][1:].to_list()
    assert point.search_incomplete_positives == 1
    assert point.tau == left[allowed_misses(len(left), 0.95)]


def test_a_case_without_any_score_is_a_case(scores: MakeScores) -> None:
    table = scores(images=2)
    lost = ["00003_0", "00003_1"]
    result = certify(without(table, lost))
    assert result.cohort.cases == 1_500
    assert not result.cohort.complete(0)[3]


def test_all_search_positives_incomplete_is_infeasible(scores: MakeScores) -> None:
    table = scores()
    certified = certify(table)
    search = certified.split.table.filter(pl.col("part") == "search")["case_id"]
    lost = table.filter(pl.col("case_id").is_in(search) & (pl.col("label") == 1))["image_id"].to_list()
    point = certify(without(table, lost)).points[0]
    assert (point.status, point.tau, point.dismissed) == ("infeasible", None, 0)


def screening(table: pl.DataFrame) -> pl.DataFrame:
    """Four images a case, with their projections."""
    part = pl.col("image_id").str.split("_").list.last()
    return table.with_columns(part=part).join(PROJECTIONS, on="part", how="left").drop("part")


def test_screening_needs_every_projection_and_no_warning(scores: MakeScores) -> None:
    table = screening(scores(cases=300, positives=60, images=4)).with_columns(warning=pl.lit(None, pl.String))
    case = pl.col("case_id")
    table = table.filter(~((case == "00001") & (pl.col("projection") == "CC")))
    table = table.with_columns(
        projection=pl.when(case == "00002").then(pl.lit("LM")).otherwise(pl.col("projection")),
        laterality=pl.when(case == "00003").then(None).otherwise(pl.col("laterality")),
        warning=pl.when(pl.col("image_id") == "00004_2").then(pl.lit("odd edge")).otherwise(None),
    )
    result = certify(table, protocol="screening")
    problems = {
        result.cohort.case_ids[case]: "; ".join(texts) for case, texts in result.cohort.problems[0].items()
    }
    assert set(problems) == {"00001", "00002", "00003", "00004"}
    for name in ("L-CC", "R-CC"):
        assert f"missing projection {name}." in problems["00001"]
    assert "unexpected projection L-LM: image 00002_0" in problems["00002"]
    assert "unknown projection ?-CC" in problems["00003"]
    assert "image 00004_2: odd edge" in problems["00004"]
    assert not certify(table).cohort.problems[0]  # the paper's protocol asks for scores alone
    with pytest.raises(InputError, match="protocol screening: expected the columns laterality"):
        certify(table.drop("laterality"), protocol="screening")


def test_a_protocol_of_ones_own(scores: MakeScores, tmp_path: Path) -> None:
    table = screening(scores(cases=300, positives=60, images=4))
    mine = tmp_path / "cc.toml"
    mine.write_text('name = "cc only"\nprojections = ["L-CC", "R-CC"]\n')
    result = certify(table.filter(pl.col("projection") == "CC"), protocol=mine)
    assert not result.cohort.problems[0]
    assert len(certify(table, protocol=str(mine)).cohort.problems[0]) == 300
    for text, said in (
        ('name = "paper"', "a name of its own"),
        ('name = "x"\nprojections = ["CC"]', "such as L-CC"),
        ('name = "x"\nprojection = []', "unknown key projection"),
        ("name =", "unreadable"),
    ):
        mine.write_text(text)
        with pytest.raises(InputError, match=said):
            certify(table, protocol=mine)
    with pytest.raises(InputError, match=r"expected paper, screening or a \.toml file, found 'strict'"):
        certify(table, protocol="strict")


def test_the_examples_of_certified_that_were_not(scores: MakeScores) -> None:
    """Eleven dismissed with a bound of 34 % at a prevalence of 10 %, and reversed scores."""
    table = scores(cases=1_000, positives=100)
    evaluation = certify(table).split.table.filter(pl.col("part") == "evaluation")["case_id"]
    low = table.filter(pl.col("case_id").is_in(evaluation) & (pl.col("label") == 0))["case_id"][:11]
    few = table.with_columns(score=pl.when(pl.col("case_id").is_in(low)).then(0.1).otherwise(0.9))
    point = certify(few, targets=[0.98]).points[0]
    assert (point.met, point.positives_dismissed, point.dismissed) == (True, 0, 11)
    assert point.bound == pytest.approx(0.342, abs=0.001)
    assert point.limit == point.prevalence == pytest.approx(0.1, abs=0.001)
    assert point.status == "bound not below limit"
    backwards = scores().with_columns(score=1 - pl.col("score"))
    result = certify(backwards)
    assert not any(point.certified for point in result.points)
    assert any("reversed" in text for text in result.warnings)
    constant = certify(scores().with_columns(score=pl.lit(0.5)))
    assert {point.status for point in constant.points} == {"nothing dismissed"}


def test_status_follows_the_limit(scores: MakeScores) -> None:
    # The score is the label: no positive is below the threshold.
    table = scores().with_columns(score=pl.col("label").cast(pl.Float64))
    point = certify(table, targets=[0.8]).points[0]
    assert point.status == "certified"
    at_limit = certify(table, targets=[0.8], limit=point.bound_corrected).points[0]
    assert (at_limit.met, at_limit.status) == (True, "bound not below limit")
    larger = float(np.nextafter(point.bound_corrected, 1))
    assert certify(table, targets=[0.8], limit=larger).points[0].certified
    with pytest.raises(InputError, match="limit"):
        certify(table, limit=1.5)


def test_everything_with_a_confidence_has_a_corrected_twin(scores: MakeScores) -> None:
    table = scores(configurations=("a", "b", "c"))
    shared = 0.01 / 6
    for point in certify(table, prevalence=0.005).points:
        k, n, c = point.positives_dismissed, point.dismissed, point.positives
        assert point.bound_corrected == clopper_pearson_upper(k, n, shared)
        assert point.recall_lower_corrected == 1 - clopper_pearson_upper(k, c, shared)
        single = certify(
            table.filter(pl.col("configuration") == point.configuration),
            targets=[point.target], delta=shared, prevalence=0.005,
        ).points[0]  # fmt: skip
        for name in ("assumed_false_omission_rate_upper", "assumed_missed_per_1000_upper"):
            assert getattr(point, f"{name}_corrected") == getattr(single, name)
            assert getattr(point, f"{name}_corrected") > getattr(point, name)


def test_the_promise_of_a_rule_is_shared_too(scores: MakeScores) -> None:
    """With several points compared, ltt chooses its thresholds at delta / compared."""
    table = scores(cases=6_000, positives=2_000, configurations=("a", "b"))
    together = certify(table, rule="ltt", targets=[0.95, 0.9]).points
    for point in together:
        alone = certify(
            table.filter(pl.col("configuration") == point.configuration),
            rule="ltt", targets=[point.target], delta=0.01 / 4,
        ).points[0]  # fmt: skip
        assert point.tau == alone.tau


def test_verify_recomputes_protocol_limit_and_status(scores: MakeScores, tmp_path: Path) -> None:
    table = without(screening(scores(cases=600, positives=120, images=4)), ["00007_1", "00011_0"])
    path = tmp_path / "scores.csv"
    table.write_csv(path)
    result = certify(path, protocol="screening", limit=0.2)
    for name, content in render(result).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    certificate = tmp_path / "certificates" / "scores@0.98.json"
    assert verify(certificate, path).holds
    text = certificate.read_text()
    for old, new, field in (
        (
            '"incomplete": 2' if '"incomplete": 2' in text else '"incomplete": 1',
            '"incomplete": 0',
            "incomplete",
        ),
        ('"status": "', '"status": "certified", "was": "', "was"),
        ('"limit": 0.2', '"limit": 0.21', None),
        ('"name": "screening"', '"name": "paper"', None),
    ):
        certificate.write_text(text.replace(old, new, 1))
        outcome = verify(certificate, path)
        if field is not None:
            assert field in {item.field for item in outcome.disagreements}
    certificate.write_text(text.replace('"review_warnings": true', '"review_warnings": 3'))
    assert "protocol" in {item.field for item in verify(certificate, path).disagreements}


def test_the_band_of_complete_evaluation_cases(scores: MakeScores) -> None:
    table = without(
        scores(images=2, configurations=("a", "b")), [f"{case:05d}_0" for case in range(0, 400, 3)]
    )
    result = certify(table, band=True)
    rows = pl.read_csv(render(result)["band.csv"])
    assert rows["configuration"].unique().sort().to_list() == ["a", "b"]
    assert len(result.bands) == 2
    for index, band in enumerate(result.bands):
        members = result.split.evaluation & result.cohort.complete(index)
        expected = simultaneous_band(
            result.cohort.scores[index][members], result.cohort.labels[members], 0.01 / 2
        )
        assert band.ranks == expected.ranks
        written = rows.filter(pl.col("configuration") == result.cohort.configurations[index])
        assert written["bound"].to_list() == [rank.bound for rank in band.ranks]
    flat = certify(table.with_columns(score=pl.lit(0.5)), band=True)
    assert pl.read_csv(render(flat)["band.csv"]).is_empty()
    assert "band.csv" not in render(certify(table))


@pytest.mark.parametrize("value", ["2", "yes", "-1", "nan", "inf", "0.5"])
def test_a_case_label_that_is_none_is_refused(scores: MakeScores, value: str) -> None:
    """Read as something else, it could turn a positive case into a negative one."""
    table = scores(images=2).with_columns(case_label=pl.lit(None, pl.String))
    wrong = table.with_columns(case_label=pl.when(pl.col("case_id") == "00007").then(pl.lit(value)))
    with pytest.raises(
        InputError, match=f"case 00007: expected a case_label of 0, 1 or nothing, found '{value}'"
    ):
        certify(wrong)


def test_the_label_of_a_whole_case_counts(scores: MakeScores) -> None:
    table = scores(images=2)
    lost = table.filter(pl.col("label") == 0)  # as after a subset without the positive images
    labels = table.group_by("case_id").agg(case_label=pl.col("label").max().cast(pl.String))
    rest = certify(lost.join(labels, on="case_id"))
    assert rest.cohort.positives == table.group_by("case_id").agg(pl.col("label").max())["label"].sum()


def test_nothing_complete_is_a_result_and_no_page(scores: MakeScores, tmp_path: Path) -> None:
    table = scores(images=2, configurations=("a", "b"))
    positive = table.filter(pl.col("label") == 1)["case_id"].unique().to_list()
    for lost in (pl.lit(True), pl.col("case_id").is_in(positive), pl.col("configuration") == "b"):
        path = tmp_path / "scores.csv"
        table.with_columns(score=pl.when(~lost).then(pl.col("score"))).write_csv(path)
        result = certify(path, resplits=2)
        assert render(result)
        assert {point.status for point in result.points if point.configuration == "b"} == {"infeasible"}
        with pytest.raises(InputError, match="there is no curve to draw"):
            gather([path], Options())


def test_a_limit_above_the_prevalence_is_a_warning(scores: MakeScores) -> None:
    assert any(
        "the limit 0.5 is above the prevalence" in text for text in certify(scores(), limit=0.5).warnings
    )
    assert not any("is above the prevalence" in text for text in certify(scores(), limit=0.05).warnings)


def test_screening_without_a_column_of_warnings_says_so(scores: MakeScores) -> None:
    table = screening(scores(cases=300, positives=60, images=4))
    said = "there is no column `warning`"
    assert any(said in text for text in certify(table, protocol="screening").warnings)
    known = table.with_columns(warning=pl.lit(None, pl.String))
    assert not any(said in text for text in certify(known, protocol="screening").warnings)
    again = known.filter(pl.col("image_id") == "00009_1").with_columns(image_id=pl.lit("00009_4"))
    repeated = certify(pl.concat([known, again]), protocol="screening")
    assert not repeated.cohort.problems[0]
    assert any(
        "1 cases have several images of a projection (the first: 00009)" in t for t in repeated.warnings
    )


def test_incomplete_cases_of_one_configuration_are_in_the_title(scores: MakeScores) -> None:
    table = scores(images=2, configurations=("a", "b"))
    lost = (pl.col("configuration") == "b") & pl.col("case_id").is_in(["00002", "00003", "00004", "00005"])
    result = certify(table.with_columns(score=pl.when(~lost).then(pl.col("score"))))
    shown = paper_table(result)
    most = max(point.incomplete for point in result.points)
    assert most
    assert f"up to {most} incomplete and reviewed" in shown.title
    assert "over complete cases" in shown.legend


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_the_dismissal_lost_to_a_check_follows_the_aggregation(aggregation: Aggregation) -> None:
    """As the same cases without the finding would be dismissed at the same threshold."""
    table = screening(make_scores(cases=400, positives=60, images=4)).with_columns(
        warning=pl.lit(None, pl.String)
    )
    stopped = pl.col("image_id").is_in([f"{number:05d}_2" for number in range(0, 400, 3)])
    found = table.with_columns(warning=pl.when(stopped).then(pl.lit("polarity: so")))
    whole, gated = (check_scores(item).aggregated_as({None: aggregation}) for item in (table, found))
    result = certify(gated, protocol="screening", targets=[0.95, 0.8])
    (item,) = stopped_cases(result.cohort)
    scores = build_cohort(whole).scores[0][result.split.evaluation]
    kept_back = ~result.cohort.complete(0)[result.split.evaluation]
    assert lost_dismissal(result.cohort, result.split, item, result.points) == [
        pytest.approx(np.mean(kept_back & (scores < point.tau))) for point in result.points
    ]
