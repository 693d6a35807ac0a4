"""Patients with several cases: one part of the split, one case behind the bound."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import MakeScores, make_scores
from trust_cache import certify, clopper_pearson_upper
from trust_cache.base.errors import InputError
from trust_cache.certificate.certified_folder import render
from trust_cache.certificate.verify import verify


def with_patients(table: pl.DataFrame, seed: int = 0, patients: int = 900) -> pl.DataFrame:
    """Give each case a patient at random."""
    cases = table["case_id"].unique().sort()
    owner = np.random.default_rng(seed).integers(0, patients, cases.len())
    names = pl.DataFrame({"case_id": cases, "patient_id": [f"P{number:04d}" for number in owner]})
    return table.join(names, on="case_id", how="left", maintain_order="left")


@given(st.integers(0, 1_000), st.integers(20, 120))
def test_no_patient_is_in_two_parts_and_one_case_is_drawn(seed: int, patients: int) -> None:
    table = with_patients(make_scores(150, 60), seed, patients)
    result = certify(table, seed=seed, targets=[0.8])
    rows = result.split.table.join(table.select("case_id", "patient_id").unique(), on="case_id")
    of_patient = rows.group_by("patient_id").agg(
        searched=(pl.col("part") == "search").sum(),
        drawn=(pl.col("part") == "evaluation").sum(),
        cases=pl.len(),
    )
    assert of_patient.filter((pl.col("searched") > 0) & (pl.col("searched") < pl.col("cases"))).is_empty()
    assert of_patient.filter((pl.col("searched") == 0) & (pl.col("drawn") != 1)).is_empty()
    searched = of_patient.filter(pl.col("searched") > 0).height
    assert searched == -(-of_patient.height // 5)  # ceil(20 %) of the patients


def test_bounds_count_one_case_per_patient_and_the_rest_count_all(scores: MakeScores) -> None:
    table = with_patients(scores(images=2))
    result = certify(table, prevalence=0.01)
    by_case = (
        table.group_by("case_id").agg(pl.col("score", "label").max()).join(result.split.table, on="case_id")
    )
    evaluation = by_case.filter(pl.col("part") != "search")
    drawn = by_case.filter(pl.col("part") == "evaluation")
    for point in result.points:
        below, drawn_below = (part.filter(pl.col("score") < point.tau) for part in (evaluation, drawn))
        assert (point.cases, point.dismissed) == (evaluation.height, below.height)
        assert point.positives_dismissed == below["label"].sum()
        assert point.set_aside == evaluation.height - drawn.height > 0
        assert (point.patients, point.bound_cases) == (drawn.height, drawn.height)
        assert (point.bound_dismissed, point.bound_positives_dismissed) == (
            drawn_below.height, drawn_below["label"].sum(),
        )  # fmt: skip
        assert point.bound == clopper_pearson_upper(drawn_below["label"].sum(), drawn_below.height, 0.01)
        assert point.bound_positives == drawn["label"].sum()
        assert point.recall == 1 - point.positives_dismissed / point.positives
    assert any("random case of a random patient" in text for text in result.limits)


def test_single_case_patients_change_nothing_but_the_digest(scores: MakeScores) -> None:
    table = scores(images=2)
    own = table.with_columns(patient_id=pl.format("P{}", pl.col("case_id")))
    assert certify(own).points == certify(table).points
    assert certify(own).split.sha256 == certify(table).split.sha256
    assert certify(own).scores.sha256 != certify(table).scores.sha256


def test_subgroups_and_resplits_follow_the_patients(scores: MakeScores) -> None:
    table = with_patients(scores())
    result = certify(table, by="site", resplits=3)
    for point in result.points:
        groups = [item.point for item in result.subgroups if item.point.target == point.target]
        for key in ("cases", "bound_cases", "bound_dismissed", "bound_positives_dismissed", "set_aside"):
            assert sum(getattr(group, key) for group in groups) == getattr(point, key)
    assert len({item.point.set_aside for item in result.resplits}) > 1  # drawn anew
    assert all(item.point.set_aside > 0 for item in result.resplits)


def test_rules_with_a_promise_search_one_case_per_patient(scores: MakeScores) -> None:
    table = with_patients(scores(cases=4_000, positives=1_200), patients=2_000)
    free, promised = (certify(table, rule=rule, targets=[0.9]) for rule in ("recall", "crc"))
    assert free.points[0].search_positives == promised.points[0].search_positives
    labels = free.cohort.labels
    drawn = free.split.search & free.split.drawn
    assert np.count_nonzero(labels[drawn]) < free.points[0].search_positives
    scores_drawn = np.sort(promised.cohort.scores[0][drawn & (labels == 1)])
    misses = int(0.1 * (scores_drawn.size + 1)) - 1
    assert promised.points[0].tau == scores_drawn[misses]


def test_the_split_file_keeps_the_draw(scores: MakeScores, tmp_path: Path) -> None:
    table = with_patients(scores())
    path, split = tmp_path / "scores.csv", tmp_path / "split.csv"
    table.write_csv(path)
    first = certify(path, seed=4)
    for name, content in render(first).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    again = certify(path, split=split, seed=9)
    assert again.points == first.points
    certificate = tmp_path / "certificates" / "scores@0.98.json"
    assert verify(certificate, path).holds
    renamed = tmp_path / "renamed.csv"
    table.rename({"patient_id": "woman"}).write_csv(renamed)
    assert verify(certificate, renamed, split, columns={"patient": "woman"}).holds
    assert certify(renamed, patient="woman", seed=4).points == first.points
    outcome = verify(certificate, renamed, split)  # without its patients
    assert "scores_sha256" in {item.field for item in outcome.disagreements}
    with pytest.raises(InputError, match="--patient: expected a column 'who'"):
        certify(renamed, patient="who")
    rows = pl.read_csv(split, infer_schema=False)
    flipped = rows.with_columns(part=pl.col("part").replace({"set_aside": "evaluation"}))
    moved = flipped.with_columns(
        part=pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit("search")).otherwise(pl.lit("evaluation"))
    )
    moved.write_csv(split)
    with pytest.raises(InputError, match="all cases of a patient in one part"):
        certify(path, split=split)


def test_two_patients_of_one_case(scores: MakeScores) -> None:
    table = scores(images=2).with_columns(patient_id=pl.col("image_id"))
    with pytest.raises(InputError, match="case 00000: expected one patient_id, found 00000_0 and 00000_1"):
        certify(table)


@pytest.mark.parametrize("blank", ["", "  ", None, float("nan")])
def test_a_blank_patient_is_no_patient(scores: MakeScores, blank: object) -> None:
    """Cases without a patient are their own patients; they do not become one."""
    kind = pl.Float64 if isinstance(blank, float) else pl.String
    table = scores().with_columns(patient_id=pl.lit(blank, kind))
    result = certify(table)
    assert result.points == certify(scores()).points
    assert not result.cohort.repeated_patients


def test_the_default_limit_is_that_of_the_drawn_cases() -> None:
    """Positive patients with more cases raise the prevalence of cases, not that of one case per patient."""
    generator = np.random.default_rng(5)
    rows = []
    for patient in range(1_500):
        positive = patient % 10 == 0
        rows += [
            {"case_id": f"{patient:04d}-{case}", "patient_id": f"{patient}", "label": int(positive)}
            for case in range(5 if positive else 1)
        ]
    table = pl.DataFrame(rows)
    certified = 0
    for _ in range(40):  # scores that say nothing
        point = certify(
            table.with_columns(score=pl.Series(generator.random(table.height))), targets=[0.95]
        ).points[0]
        assert point.limit == pytest.approx(0.1, abs=0.01)
        assert point.prevalence == pytest.approx(0.357, abs=0.01)
        certified += point.certified
    assert certified <= 3  # 41 % were, with the prevalence of all cases as the limit


def test_a_draw_without_positives_is_no_reason_to_try_another_seed() -> None:
    """Each patient has one positive case among many; the draw may take none of them."""
    rows = [
        {"case_id": f"{patient:02d}-{case:02d}", "patient_id": f"{patient}", "label": int(case == 0)}
        for patient in range(30)
        for case in range(20)
    ]
    table = pl.DataFrame(rows).with_columns(score=pl.col("label").cast(pl.Float64))
    found = [certify(table, seed=seed).points[0] for seed in range(12)]
    assert any(point.bound_positives == 0 for point in found)
    for point in found:
        assert point.positives == 24
        assert (point.recall_lower is None) == (point.bound_positives == 0)


def test_the_seed_of_a_drawn_split_is_checked(scores: MakeScores, tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    with_patients(scores()).write_csv(path)
    for name, content in render(certify(path, seed=3)).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    certificate = tmp_path / "certificates" / "scores@0.98.json"
    assert verify(certificate, path).holds
    text = certificate.read_text()
    certificate.write_text(text.replace('"seed": 3', '"seed": 0'))
    assert {item.field for item in verify(certificate, path).disagreements} == {"seed"}
    given = certify(path, seed=0, split=tmp_path / "split.csv")
    assert b'"split_origin": "given"' in render(given)["certificates/scores@0.98.json"]
