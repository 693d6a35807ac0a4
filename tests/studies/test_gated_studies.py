"""Under one protocol every study stops the cases that `certify` stops, for the same reasons."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from tests.heads.cohorts import a_cohort, write_cohort
from trust_cache.certificate.certification import Certification, CertifySettings
from trust_cache.certificate.certify import certify
from trust_cache.certificate.point_tables import all_tables
from trust_cache.certificate.score_table import Cohort, read_scores
from trust_cache.certificate.verify import verify
from trust_cache.heads.fit import fit_heads
from trust_cache.heads.head_settings import presets
from trust_cache.manifest.protocol import SCREENING, Protocol
from trust_cache.studies.compare.compare import compare
from trust_cache.studies.external import evaluate_externally
from trust_cache.studies.rivals.rival_rules import RivalSettings
from trust_cache.studies.rivals.rivals import study_cache
from trust_cache.studies.sweep.sweep import sweep
from trust_cache.studies.sweep.sweep_request import describe_space

GATED = Protocol(name="both gates", review_warnings=True, feature_tail=SCREENING.feature_tail)
CHOSEN = {name: presets()[name] for name in ("ce", "ce-brier")}
CASES, TARGETS = 240, (0.9,)


def stopped(cohort: Cohort, index: int = 0) -> dict[str, tuple[str, ...]]:
    return {cohort.case_ids[case]: texts for case, texts in cohort.problems[index].items()}


def cohort_with_oddities(seed: int = 0) -> tuple[pl.DataFrame, np.ndarray]:
    """Six images whose features are those of nothing known, five with a warning about their picture."""
    manifest, features = a_cohort(cases=CASES, positives=72, seed=seed)
    features[:18:3] *= 9
    texts = [
        "polarity: the air is brighter" if row in range(50, 55) else None for row in range(len(features))
    ]
    return manifest.with_columns(warning=pl.Series(texts)), features


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cohort(tmp_path_factory.mktemp("cohort") / "cache.zarr", *cohort_with_oddities())


@pytest.fixture(scope="module")
def run(cache: Path) -> Path:
    out = cache.with_name("run")
    fit_heads(cache, out, configurations=CHOSEN, epochs=1, repeats=2, threads=1)
    return out


@pytest.fixture(scope="module")
def certified(run: Path) -> Certification:
    return certify(read_scores(run), protocol=GATED, targets=TARGETS)


def test_the_oddities_are_stopped(certified: Certification) -> None:
    manifest, _ = cohort_with_oddities()
    planted = set(manifest["case_id"][:18:3]) | set(manifest["case_id"][50:55])
    found = stopped(certified.cohort)
    assert planted <= set(found)
    assert len(found) <= len(planted) + 0.02 * CASES
    features = [texts for texts in found.values() if any("feature-gate" in text for text in texts)]
    assert len(features) >= 6
    assert all("limit 1 of 1,000" in text for texts in features for text in texts if "feature-gate" in text)


def test_the_table_says_what_each_check_costs(run: Path, certified: Certification) -> None:
    """By brute force: with the check accepted, and the threshold as it is, so many more are dismissed."""
    table = all_tables(certified)["checks"]
    assert table.header[-1] == "Dismissal lost at 90%"
    rows = {row[0]: row[1:] for row in table.rows}
    assert set(rows) == {"feature-gate", "polarity"}
    evaluated, tau = certified.split.evaluation, certified.points[0].tau
    before = np.count_nonzero(certified.cohort.scores[0][evaluated] < tau)
    for check, (cases, positives, _, lost) in rows.items():
        of_check = [case for case, texts in certified.cohort.problems[0].items() if check in "".join(texts)]
        assert cases == f"{len(of_check)}"
        assert positives == f"{certified.cohort.labels[of_check].sum()}"
        without = replace(GATED, name="without", accepted_checks=(check,))
        other = certify(read_scores(run), protocol=without, targets=TARGETS).cohort
        after = np.count_nonzero(other.scores[0][evaluated] < tau)
        assert lost == f"{100 * (after - before) / evaluated.sum():.2f}%"
    assert any(row[-1] != "0.00%" for row in table.rows)


def test_a_sweep_stops_them_in_every_repeat(cache: Path, certified: Certification) -> None:
    out, space = cache.with_name("sweep"), describe_space(["lr=1e-4,3e-3"])
    options = {"epochs": 1, "repeats": 2, "targets": TARGETS, "protocol": GATED, "threads": 1}
    done = sweep(cache, out, space, **options)  # type: ignore[arg-type]
    listed = pl.read_csv(out / "incomplete.csv", infer_schema=False)
    reasons = dict(listed.select("case_id", "reason").iter_rows())
    assert reasons == {case: "; ".join(texts) for case, texts in stopped(certified.cohort).items()}
    winner = done.winners[0.9]
    again = certify(out / winner.scores, protocol=GATED, targets=TARGETS, split=out / "split.csv")
    assert stopped(again.cohort) == stopped(certified.cohort)
    assert verify(out / winner.certificate, out / winner.scores, out / "split.csv").holds
    assert any("feature-gate" in text for text in done.warnings)
    split = pl.read_csv(out / "split.csv", infer_schema=False).filter(pl.col("part") == "search")
    expected = len(set(split["case_id"]) & set(reasons))
    assert set(pl.read_csv(out / "results.csv")["search_incomplete"]) == {expected}
    # A second start gives the same without training.
    assert sweep(cache, out, None, resume=True, **options).trained == 0  # type: ignore[arg-type]


def test_rivals_and_compare_stop_them(cache: Path, run: Path, certified: Certification) -> None:
    settings = RivalSettings(TARGETS, models=("ce", "logistic-regression"), epochs=1, protocol=GATED)
    study = study_cache(cache, settings, threads=1)
    for index in range(len(study.cohort.configurations)):
        assert stopped(study.cohort, index) == stopped(certified.cohort)
        assert np.isnan(study.cohort.scores[index]).sum() == len(stopped(certified.cohort))
    assert any("feature-gate" in text for text in study.warnings)
    compared = compare(run, targets=TARGETS, protocol=GATED, resamples=200, swaps=200)
    listed = {row.case_id: row.reason for row in compared.incomplete_cases if row.configuration == "ce"}
    assert listed == {case: "; ".join(texts) for case, texts in stopped(certified.cohort).items()}
    assert any("feature-gate" in text for text in compared.warnings)


def test_external_and_resplits_stop_them(cache: Path, run: Path, tmp_path: Path) -> None:
    manifest, features = cohort_with_oddities(1)
    named = manifest.with_columns(
        pl.format("x{}", "image_id").alias("image_id"), pl.format("x{}", "case_id").alias("case_id")
    )
    test = write_cohort(tmp_path / "test.zarr", named, features)
    done = evaluate_externally(
        cache, test, tmp_path / "external", configurations=CHOSEN, epochs=1, threads=1,
        terms=CertifySettings(targets=TARGETS, protocol=GATED),
    )  # fmt: skip
    planted = set(named["case_id"][:18:3]) | set(named["case_id"][50:55])
    assert planted <= set(stopped(done.certification.cohort))
    # Every resplit counts each of the stopped cases once, in search or in evaluation.
    resplit = certify(read_scores(run), resplits=5, targets=TARGETS, protocol=GATED)
    everyone = set(stopped(resplit.cohort))
    for item in resplit.resplits:
        assert 0 < item.point.incomplete < len(everyone)
