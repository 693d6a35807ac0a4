"""Laws of the explorer: every number is the library's, at every stop; no positive falls between two stops."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.heads.records import seal
from tests.report.material import make_run
from trust_cache.base.text_tables import percent, whole_percent
from trust_cache.certificate.certified_folder import write_certification
from trust_cache.certificate.certify import certify
from trust_cache.certificate.evidence import Evidence, Options, gather
from trust_cache.certificate.points import Threshold, count, evaluate
from trust_cache.report.explorer import explorer_document, explorer_targets, slider_stops
from trust_cache.statistics.bands import simultaneous_band
from trust_cache.statistics.thresholds import select_threshold

TARGETS = (0.98, 0.9)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    run = make_run(tmp_path_factory.mktemp("made") / "run", configurations=("ce", "closed-loop"), cases=700)
    (found,) = gather([run], Options(targets=TARGETS, prevalence=0.005))
    return found


@pytest.fixture(scope="module")
def incomplete(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Some images have no score, and every patient has two cases."""
    run = make_run(tmp_path_factory.mktemp("made") / "run", configurations=("ce", "closed-loop"), cases=700)
    file = run / "scores.csv"
    table = pl.read_csv(file, infer_schema=False)
    lost = pl.Series(np.random.default_rng(0).random(table.height) < 0.03)
    patient = (pl.col("case_id").cast(pl.Int64) // 2).cast(pl.String)
    score = pl.when(lost).then(None).otherwise(pl.col("score"))
    table.with_columns(score=score, patient_id=patient).write_csv(file)
    seal(run)
    (found,) = gather([run], Options(targets=TARGETS, prevalence=0.005))
    assert found.certification.points[0].incomplete_positives
    assert found.certification.points[0].set_aside
    return found


def test_stops_hold_every_positive_the_next_score_and_the_certified(evidence: Evidence) -> None:
    cohort = evidence.cohort
    for index in range(2):
        points = evidence.points_of(index)
        stops = slider_stops(cohort, index, [point.tau for point in points if point.tau is not None])
        assert np.all(np.diff(stops) > 0)
        scores = np.sort(cohort.scores[index])
        assert {point.tau for point in points} <= set(stops)
        for score in cohort.scores[index][cohort.labels == 1]:
            assert score in stops
            above = scores[scores > score]
            assert (above[0] if above.size else np.nextafter(scores[-1], np.inf)) in stops
        assert not np.any(scores < stops[0])
        assert np.all(scores < stops[-1])


def test_no_positive_falls_between_two_stops(evidence: Evidence) -> None:
    """From one stop to the next the misses change by the ties of one score at most."""
    for index, series in enumerate(explorer_document(evidence)["series"]):
        members = evidence.certification.split.evaluation
        positives = evidence.cohort.scores[index][members & (evidence.cohort.labels == 1)]
        _, ties = np.unique(positives, return_counts=True)
        assert np.diff(series["missed"]).max() <= ties.max()


@pytest.mark.parametrize("name", ["evidence", "incomplete"])
def test_every_number_at_every_stop_is_that_of_a_point(name: str, request: pytest.FixtureRequest) -> None:
    evidence: Evidence = request.getfixturevalue(name)
    cohort, split, terms = evidence.cohort, evidence.certification.split, evidence.terms
    document = explorer_document(evidence)
    for index, series in enumerate(document["series"]):
        for stop, tau in enumerate(series["tau"]):
            threshold = Threshold("", 0.98, tau, 0, 0, 0, None, 0)
            point = evaluate(cohort, split, index, threshold, terms)
            missed = series["missed"][stop]
            assert (series["dismissed"][stop], missed) == (point.dismissed, point.positives_dismissed)
            assert series["bound"][stop] == point.bound
            assert series["bound_text"][stop] == percent(point.bound)
            assert series["dismissal"][stop] == percent(point.dismissal)
            assert series["omission"][stop] == percent(point.false_omission_rate)
            assert series["recall"][stop] == percent(point.recall)
            assert series["recall_lower"][stop] == percent(point.recall_lower)
            assert series["assumed_omission"][stop] == percent(point.assumed_false_omission_rate_upper, 4)
            below = count(cohort, index, split.search, tau)
            assert series["search_dismissed"][stop] == below.dismissed
            assert series["search_missed"][stop] == below.positives_dismissed
            assert series["search_recall"][stop] == percent(
                1 - below.positives_dismissed / below.complete_positives
            )
            assert series["missed_per_1000"][stop] == f"{1000 * missed / point.cases:.2f}"
            assert float(series["saved"][stop]) + float(series["reviewed"][stop]) == pytest.approx(
                1000, abs=0.11
            )


def test_the_simultaneous_bound_is_that_of_a_band_at_a_share_for_each_configuration(
    evidence: Evidence,
) -> None:
    cohort, members = evidence.cohort, evidence.certification.split.evaluation
    for index, series in enumerate(explorer_document(evidence)["series"]):
        scores = cohort.scores[index][members]
        band = simultaneous_band(scores, cohort.labels[members], evidence.terms.delta / 2)
        assert {rank.threshold for rank in band.ranks} <= set(series["tau"])
        assert series["simultaneous"] == band.keep(series["tau"]).tolist()
        assert series["simultaneous_text"] == [percent(value) for value in series["simultaneous"]]
        assert all(np.array(series["simultaneous"]) >= np.array(series["bound"]))
        assert None in series["lowered"]
        for tau, lowered in zip(series["tau"], series["lowered"], strict=True):
            rank = band.lower(tau)
            if rank is None:
                assert lowered is None
            else:
                assert series["tau"][lowered] == rank.threshold
                assert series["simultaneous"][lowered] == rank.bound


def test_cases_without_a_score_are_behind_no_number_of_the_band(evidence: Evidence) -> None:
    """As if they were not among the evaluation cases; no stop is where they would have been."""
    cohort, index = evidence.cohort, 0
    scores = cohort.scores[index].copy()
    lost = np.flatnonzero(evidence.certification.split.evaluation)[::7]
    scores[lost] = np.nan
    broken = replace(evidence, cohort=replace(cohort, scores=(scores, cohort.scores[1])))
    left = evidence.certification.split.evaluation & np.isfinite(scores)
    stops = slider_stops(broken.cohort, index, [])
    assert np.all(np.isfinite(stops))
    assert set(stops[:-1]) <= set(scores[np.isfinite(scores)])
    band = simultaneous_band(scores[left], cohort.labels[left], evidence.terms.delta / 2)
    series = explorer_document(broken)["series"][index]
    assert series["simultaneous"] == band.keep(series["tau"]).tolist()
    assert max(series["dismissed"]) == np.count_nonzero(left)


def test_images_are_those_below_the_case_threshold(evidence: Evidence) -> None:
    for index, series in enumerate(explorer_document(evidence)["series"]):
        for certified, point in zip(series["certified"], evidence.points_of(index), strict=True):
            assert series["image_dismissal"][certified["stop"]] == percent(point.image_dismissal)


def test_targets_stop_where_the_rule_puts_the_threshold(evidence: Evidence) -> None:
    targets = explorer_targets(TARGETS)
    assert set(TARGETS) <= set(targets)
    assert targets == sorted(targets)
    search = evidence.certification.split.search
    document = explorer_document(evidence)
    assert document["targets"] == [whole_percent(target) for target in targets]
    for index, series in enumerate(document["series"]):
        for target, stop in zip(targets, series["targets"], strict=True):
            tau = select_threshold(
                evidence.cohort.scores[index][search], evidence.cohort.labels[search], target
            )
            assert series["tau"][stop] == tau


def test_a_rule_without_a_threshold_has_no_stop(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", configurations=("ce",), cases=400, positives=30)
    write_certification(certify(run, rule="ltt"), tmp_path / "certified")
    (found,) = gather([run], Options(), [tmp_path / "certified"])
    (series,) = explorer_document(found)["series"]
    assert series["targets"][-1] is None
    assert all(item["stop"] is None and "infeasible" in item["reason"] for item in series["certified"])
