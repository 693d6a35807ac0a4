"""Certificates whose truth is known: the committed rows, a seeded part of them again, the page's words."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy.stats import beta, ks_2samp

from trust_cache.certificate.split import draw_split
from trust_cache.heads.folds import CALIBRATE, FIT, TEST, draw_final, draw_folds
from trust_cache.manifest.cases import Cases
from trust_cache.synthetic.feature_cohort import SimulatedCohort

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROWS = DOCS / "coverage_rows"
WORDS = " ".join((DOCS / "coverage.md").read_text(encoding="utf-8").split())
DELTA = 0.01

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module


def margin(share: float, cohorts: int) -> float:
    """Three standard errors of a share."""
    return 3 * float(np.sqrt(share * (1 - share) / cohorts))


def percent(share: float, digits: int = 2) -> str:
    return f"{100 * share:.{digits}f} %"


def some_cases(cases: int, positives: int) -> Cases:
    labels = np.random.default_rng(3).permutation(np.arange(cases) < positives).astype(np.int64)
    return Cases(
        pl.Series([f"{case:04d}" for case in range(cases)]), labels, np.arange(cases), np.arange(cases)
    )


@pytest.mark.slow
def test_a_killed_run_resumes_and_finds_the_committed_rows_again(load: Load, tmp_path: Path) -> None:
    """Cohort 0 stays as it is (here with a changed tau), 2 was cut off in a row, 1 is missing."""
    script = load("make_coverage_tables")
    stored = (ROWS / script.OUT_OF_FOLD).read_text(encoding="utf-8").splitlines(keepends=True)
    by_cohort = {number: [line for line in stored if line.startswith(f"{number},")] for number in range(3)}
    changed = [line.replace(",0.98,0.", ",0.98,0.5") for line in by_cohort[0]]
    assert changed != by_cohort[0]
    cut_off = [*by_cohort[2][:3], by_cohort[2][3][:-9]]
    path = tmp_path / "rows.csv"
    path.write_text("".join([stored[0], *changed, *cut_off]), encoding="utf-8")
    script.simulate_missing(path, 3)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert lines[: len(changed) + 1] == [stored[0], *changed]
    found = pl.read_csv(path).filter(pl.col("cohort") > 0)
    expected = pl.read_csv(ROWS / script.OUT_OF_FOLD).filter(pl.col("cohort").is_in([1, 2]))
    assert found.columns == expected.columns
    for name in expected.columns:
        again, before = found[name], expected[name]
        if name in {"dismissed", "positives_dismissed"} or not before.dtype.is_float():
            assert again.to_list() == before.to_list(), name
        else:  # the last digits of float32 sums depend on the processor
            assert again.to_list() == pytest.approx(before.to_list(), rel=1e-4, abs=1e-5), name


def test_the_committed_rows_are_whole(load: Load) -> None:
    simulation = load("coverage_simulation")
    rows = pl.read_csv(ROWS / "out_of_fold.csv")
    cohorts = rows["cohort"].n_unique()
    assert cohorts >= 1_000
    assert sorted(rows["cohort"].unique()) == list(range(cohorts))
    assert rows.height == cohorts * len(simulation.CONFIGURATIONS) * len(simulation.TARGETS)
    k, n = rows["positives_dismissed"].to_numpy(), rows["dismissed"].to_numpy()
    bounds = beta.ppf(1 - DELTA, k + 1, n - k)
    assert rows["bound"].to_numpy() == pytest.approx(np.where(n == 0, 1.0, bounds), rel=1e-5)


def test_every_table_of_the_page_is_what_the_rows_say(load: Load) -> None:
    page = (DOCS / "coverage.md").read_text(encoding="utf-8")
    assert load("statistics_tables").tables_in(page) == load("coverage_tables").render_tables(ROWS)


def test_the_shares_of_failures_by_another_way(load: Load) -> None:
    """Independent of the code that writes tables: scipy's quantile and the counts against the page."""
    tables = load("statistics_tables").tables_in((DOCS / "coverage.md").read_text(encoding="utf-8"))
    lines = tables["out_of_fold"].splitlines()[2:]
    rows = pl.read_csv(ROWS / "out_of_fold.csv")
    assert len(lines) == rows.select("configuration", "target").n_unique()
    prevalence = 149 / 5_997
    for line in lines:
        name, target, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        chosen = rows.filter(
            (pl.col("configuration") == name) & (pl.col("target") == float(target.split()[0]) / 100)
        )
        column = {key: chosen[key].to_numpy() for key in chosen.columns}
        k, n = column["positives_dismissed"], column["dismissed"]
        for place, delta in enumerate((0.01, 0.05)):
            bound = np.where(n == 0, 1.0, beta.ppf(1 - delta, k + 1, n - k))
            folds, independent, refit = cells[3 * place : 3 * place + 3]
            for cell, before in ((folds, ""), (refit, "refit_")):
                missed = prevalence * column[f"{before}miss"]
                rate = missed / (missed + (1 - prevalence) * column[f"{before}spared"])
                share = float(np.mean(rate > bound))
                error = 100 * np.sqrt(share * (1 - share) / n.size)
                assert cell == f"{percent(share)} ± {error:.2f}"
            assert independent == percent(float(np.mean(column[f"chance_0{round(100 * delta)}"])))


def test_the_status_of_the_rows_is_what_the_tables_count(load: Load) -> None:
    for item in load("coverage_tables").read_coverage(ROWS):
        stated = item.rows["status"].to_numpy()
        assert np.array_equal(item.certified(DELTA), stated == "certified")
        assert np.array_equal(item.met(), stated != "target missed")


def test_features_of_many_images_have_the_law_of_single_ones(load: Load) -> None:
    simulation = load("coverage_simulation")
    cohort = SimulatedCohort("nlbs", seed=2, dim=simulation.DIM, cases=400)
    images = cohort.manifest.height
    views = simulation.VIEWS + 1
    single = cohort.features(0, images, views)
    generator = np.random.default_rng(1)
    many = simulation.draw_features(cohort.model, cohort.coordinates, simulation.VIEWS, generator)
    assert many.shape == single.shape
    inside = cohort.coordinates @ cohort.model.basis.T + cohort.model.mean
    along = cohort.model.basis[:, 0]

    def parts(features: NDArray[np.float16]) -> list[NDArray[np.float64]]:
        noise = features[:, 0].astype(np.float64) - inside
        moved = features[:, 1:].astype(np.float64) - features[:, :1]
        between = moved[:, 0] - moved[:, -1]
        return [noise[:, :8], noise @ along, moved[:, :, :8], moved @ along, between @ along]

    for one, other in zip(parts(single), parts(many), strict=True):
        assert ks_2samp(one.reshape(-1), other.reshape(-1)).pvalue > 1e-3


def test_dealt_folds_have_the_sizes_of_drawn_ones(load: Load) -> None:
    simulation = load("coverage_simulation")
    cases = some_cases(600, 32)
    assert np.all(np.count_nonzero(simulation.deal_folds(cases).parts == TEST, axis=0) == 1)
    for dealt, drawn in (
        (simulation.deal_folds(cases), draw_folds(cases, 0)),
        (simulation.final_fold(cases), draw_final(cases, 0)),
    ):
        assert dealt.parts.shape == drawn.parts.shape
        for label in (0, 1):
            for part in (FIT, CALIBRATE, TEST):
                ours, theirs = (
                    np.sort(np.count_nonzero((folds.parts == part) & (cases.labels == label), axis=1))
                    for folds in (dealt, drawn)
                )
                assert np.abs(ours - theirs).max() <= 1


def test_the_chance_of_a_failure_by_simulation(load: Load) -> None:
    """Counts drawn as independent cases have them, and scipy's bound: within 4 standard errors."""
    simulation = load("coverage_simulation")
    cases, positives, miss, spared, draws = 4_797, 119, 0.06, 0.21, 200_000
    generator = np.random.default_rng(4)
    k = generator.binomial(positives, miss, draws)
    n = k + generator.binomial(cases - positives, spared, draws)
    rate = float(simulation.omission_rate(np.array(miss), np.array(spared)))
    for delta in (0.01, 0.05):
        share = float(np.mean(beta.ppf(1 - delta, k + 1, n - k) < rate))
        chance = simulation.chance_of_failure(cases, positives, miss, spared, delta)
        assert chance > 0.0005
        assert share == pytest.approx(chance, abs=4 * np.sqrt(chance * (1 - chance) / draws))


def test_the_truth_about_patients_in_closed_form(load: Load) -> None:
    """A random case of a random patient: each patient's mean over many patients, within 4 standard errors."""
    simulation = load("score_simulation")
    for law in simulation.PATIENT_LAWS:
        drawn = [law.draw(np.random.default_rng([seed, 8])) for seed in range(40)]
        tau = 0.45
        missed, dismissed = [], []
        for cohort in drawn:
            sizes = np.bincount(cohort.patients)
            below = cohort.scores[0] < tau
            dismissed.append(np.bincount(cohort.patients, weights=below) / sizes)
            missed.append(np.bincount(cohort.patients, weights=below & (cohort.labels == 1)) / sizes)
        of_patients, among = np.concatenate(missed), np.concatenate(dismissed)
        rate = of_patients.sum() / among.sum()
        error = np.sqrt(np.sum((of_patients - rate * among) ** 2)) / among.sum()
        assert rate == pytest.approx(float(law.scores.omission_rate(tau)), abs=4 * error)


def test_the_bound_with_patients_counts_one_case_of_each(load: Load) -> None:
    simulation = load("score_simulation")
    cohort = simulation.PATIENT_LAWS[0].draw(np.random.default_rng(0))
    for seed in range(3):
        split = draw_split(cohort, seed)
        point = simulation.certify(cohort, split, 0.95)
        below = cohort.scores[0] < point.tau
        searched = set(cohort.patients[split.search].tolist())
        counted: dict[int, tuple[bool, bool]] = {}
        for case in np.flatnonzero(split.drawn):
            patient = int(cohort.patients[case])
            if patient not in searched:
                assert patient not in counted
                counted[patient] = (bool(below[case]), bool(cohort.labels[case] == 1))
        assert point.bound_cases == point.patients == len(counted)
        assert point.bound_dismissed == sum(dismissed for dismissed, _ in counted.values())
        assert point.bound_positives_dismissed == sum(a and b for a, b in counted.values())
        evaluated = ~np.isin(cohort.patients, list(searched))
        assert point.dismissed == np.count_nonzero(below & evaluated)


@pytest.mark.slow
def test_one_case_per_patient_keeps_the_level_and_all_cases_do_not(load: Load) -> None:
    """Another seed than the committed rows'; three standard errors beside delta."""
    simulation = load("score_simulation")
    cohorts = 3_000
    several, fewer, single = (
        simulation.simulate_patients(law, cohorts, seed=1) for law in simulation.PATIENT_LAWS
    )
    limit = DELTA + margin(DELTA, cohorts)
    for row in (*several, *fewer, *single):
        assert row["failures"] / cohorts <= limit, row
    for row in (*several, *fewer):
        assert row["naive_failures"] / cohorts > limit, row
    for row in single:  # without repeated patients both are one bound
        assert row["naive_failures"] == row["failures"]


def test_the_committed_rows_about_patients_and_uninformative_scores() -> None:
    for row in pl.read_csv(ROWS / "patients.csv").to_dicts():
        limit = DELTA + margin(DELTA, row["cohorts"])
        assert row["failures"] / row["cohorts"] <= limit
        assert (row["naive_failures"] / row["cohorts"] > limit) == (row["scenario"] != "one case each")
    for row in pl.read_csv(ROWS / "uninformative.csv").to_dicts():
        share, chance = row["certified"] / row["cohorts"], row["chance"]
        assert share == pytest.approx(chance, abs=margin(chance, row["cohorts"]))


@pytest.mark.slow
def test_scores_without_information_are_rarely_certified(load: Load) -> None:
    """By the library's status, another seed than the committed rows'; three standard errors."""
    simulation, cohorts = load("score_simulation"), 10_000
    (size,) = (size for size in load("selection_simulation").paper_sizes() if size.name == "NLBS")
    for row in simulation.simulate_uninformative(size, cohorts, seed=1):
        share, chance = row["certified"] / cohorts, row["chance"]
        assert share == pytest.approx(chance, abs=margin(chance, cohorts)), row
        assert share <= 0.004 + margin(0.004, cohorts)


def spread(shares: list[float], digits: int = 2) -> str:
    return f"{100 * min(shares):.{digits}f} to {percent(max(shares), digits)}"


def missing(*phrases: str) -> list[str]:
    return [phrase for phrase in phrases if phrase not in WORDS]


def test_the_sentences_about_out_of_fold_certificates_quote_the_rows(load: Load) -> None:
    tables = load("coverage_tables")
    coverage = tables.read_coverage(ROWS)
    cohorts = coverage[0].rows.height

    def shares(model: str, delta: float) -> list[float]:
        return [item.failures(model, delta).value for item in coverage]

    def certified(delta: float) -> float:
        return max(
            item.failures(model, delta, item.certified(delta)).value
            for item in coverage
            for model in tables.MODELS
        )

    apart = [
        abs(item.failures("folds", delta).value - item.independent(delta))
        / margin(item.independent(delta), cohorts)
        for item in coverage
        for delta in (0.01, 0.05)
    ]
    counted = [item.observed_to_expected()[0] for item in coverage]
    recalls = [
        abs(item.recall("refit") - item.recall("folds"))
        for item in coverage
        if item.configuration == "ce-lr-0.001"
    ]
    assert not missing(
        f"{cohorts:,} cohorts with the counts of NLBS",
        f"fold models in {spread(shares('folds', 0.01))} of the cohorts and for the refit in"
        f" {spread(shares('refit', 0.01))}; at delta = 5 % in {spread(shares('folds', 0.05))} and"
        f" {spread(shares('refit', 0.05))}.",
        f"The fold models are within {3 * max(apart):.1f} standard errors",
        f"are {min(counted):.3f} to {max(counted):.3f} times the number expected",
        f"Up to {percent(certified(0.01))} of the certified points are wrong at delta = 1 %, and up to"
        f" {percent(certified(0.05))} at delta = 5 %",
        f"differs from theirs by {100 * min(recalls):.1f} to {100 * max(recalls):.1f} points",
    )
    for delta in (0.01, 0.05):  # "keeps its level"
        assert max(shares("folds", delta) + shares("refit", delta)) <= delta + margin(delta, cohorts)
    below = [item.recall("folds") < item.target for item in coverage]
    assert all(below)  # "below its target on average"


def test_the_sentences_about_scores_quote_the_rows(load: Load) -> None:
    simulation = load("score_simulation")
    patients = pl.read_csv(ROWS / "patients.csv")
    naive = {
        str(name): spread((group["naive_failures"] / group["cohorts"]).to_list(), 1)
        for (name,), group in patients.group_by("scenario")
    }
    several, fewer, single = simulation.PATIENT_LAWS
    highest = max((patients["failures"] / patients["cohorts"]).to_list())
    scores = {
        (row["data_set"], row["compared"], row["target"]): row["certified"] / row["cohorts"]
        for row in pl.read_csv(ROWS / "uninformative.csv").to_dicts()
    }
    nlbs, rsna = (
        f"{percent(scores[name, 1, 0.98])} and {percent(scores[name, 1, 0.95])}" for name in ("NLBS", "RSNA")
    )
    ten = max(share for (_, compared, _), share in scores.items() if compared == 10)
    assert not missing(
        f"{patients['cohorts'][0]:,} cohorts of each kind, with binormal case scores"
        f" (AUROC {several.auroc:g})",
        f"{several.patients:,} patients with 1 to {several.most} cases each;"
        f" {percent(several.with_cancer, 1)}",
        f"{percent(several.repeated, 0)} of their cases are positive; {percent(several.shared, 0)} of the"
        " variance",
        f"({percent(fewer.with_cancer, 1)}) have 1 or {fewer.most_with_cancer} cases",
        f'"One case each": {single.patients:,} patients',
        f"breaks the 1 % level: {naive[several.name]} of the bounds are wrong",
        f"random patient), and {naive[fewer.name]} are wrong",
        f"One case per patient is wrong in at most {percent(highest)}",
        f"{pl.read_csv(ROWS / 'uninformative.csv')['cohorts'][0]:,} cohorts of each size",
        f"is certified in {nlbs} at NLBS size and in {rsna} at RSNA size",
        f"Among ten compared points it is at most {percent(ten)}",
    )
