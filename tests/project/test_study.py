"""A cell of the study of the closed loop gives its rows again, and its machinery finds planted effects."""

import importlib
import re
from collections.abc import Callable
from fractions import Fraction
from math import comb
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest

from trust_cache.statistics.thresholds import allowed_misses
from trust_cache.studies.reproduction.published import NLBS, RSNA, published

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROWS, FIGURES = DOCS / "study_rows", DOCS / "study_figures"
PAGE = (DOCS / "study.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())  # phrases may break over lines

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module


def mean_gains(one: str, other: str) -> dict[tuple[str, str], float]:
    """Return the mean difference in points by size and preset, the largest in size of both recalls."""
    found: dict[tuple[str, str], float] = {}
    for size in ("nlbs", "rsna"):
        rows = pl.read_csv(ROWS / f"configurations_{size}.csv")
        for measure in ("dismissal_98", "dismissal_95"):
            wide = rows.pivot("configuration", index=["setting", "cohort"], values=measure)
            means = wide.group_by("setting").agg(gain=100 * (pl.col(one) - pl.col(other)).mean())
            for preset, gain in means.iter_rows():
                found[size, preset] = max(gain, found.get((size, preset), gain), key=abs)
    return found


def test_the_penalty_changes_as_little_as_the_page_says() -> None:
    assert "changes true dismissal by -0.02 to +0.04 points" in WORDS
    for other in ("ce-focal", "fixed-tau"):
        gains = mean_gains("closed-loop", other)
        assert round(min(gains.values()), 2) == -0.02
        assert round(max(gains.values()), 2) == 0.04
        assert {preset for preset in gains if gains[preset] > 0.005} <= {
            ("nlbs", "benign"), ("rsna", "benign"), ("rsna", "mixed")
        }  # fmt: skip
    converged = mean_gains("closed-loop-lr-0.001", "ce-focal-lr-0.001")
    assert max(map(abs, converged.values())) < max(map(abs, mean_gains("closed-loop", "ce-focal").values()))


def test_the_papers_differences_are_those_of_its_tables() -> None:
    """In its two in-domain settings, at both targets."""
    found = []
    for key in (NLBS, RSNA):
        heads = published().settings[key].heads
        for name in ("ce-focal", "fixed-tau"):
            pairs = zip(heads["closed-loop"].points, heads[name].points, strict=True)
            found += [one.dismissal - other.dismissal for one, other in pairs]  # type: ignore[operator]
    assert len(found) == 8
    assert f"beside the {min(found):.0f} to {max(found):.0f} points that the paper's tables have" in WORDS


def test_training_changes_as_much_as_the_page_says() -> None:
    focal, rate = mean_gains("ce-focal", "ce"), mean_gains("ce-lr-0.001", "ce")
    assert round(min(focal.values()), 1) == -1.0
    rows = pl.read_csv(ROWS / "configurations_rsna.csv").filter(setting="hard-positives")
    means = dict(rows.group_by("configuration").agg(pl.col("dismissal_98").mean()).iter_rows())
    assert round(100 * (means["ce-focal"] - means["ce"]), 1) == 0.2
    assert round(min(gain for (size, _), gain in rate.items() if size == "nlbs")) == -5
    of_rsna = {preset: gain for (size, preset), gain in rate.items() if size == "rsna"}
    assert round(of_rsna.pop("hard-positives")) == 2
    assert round(of_rsna.pop("benign")) == 1
    assert round(min(of_rsna.values())) == -3
    assert max(of_rsna.values()) < 0


def test_the_settings_change_as_much_as_the_page_says() -> None:
    rows = pl.read_csv(ROWS / "sensitivity.csv")
    keys = ["setting", "cohort", "lr", "epochs"]
    measures = ["dismissal_98", "dismissal_95"]
    base = rows.filter(lambda_dismiss=0.0).select(
        *keys, *(pl.col(name).alias(f"{name}_base") for name in measures)
    )
    gains = (
        rows.filter(pl.col("lambda_dismiss") > 0)
        .join(base, on=keys)
        .group_by("setting", "lambda_dismiss", "margin", "lr", "epochs")
        .agg(*((pl.col(name) - pl.col(f"{name}_base")).mean() * 100 for name in measures))
    )
    default = gains.filter(lambda_dismiss=0.05, margin=0.1).select(pl.max_horizontal(pl.col(measures).abs()))
    assert round(float(default.to_series().max()), 2) == 0.03  # type: ignore[arg-type]
    assert "changes at most 0.03 points" in WORDS
    assert round(float(gains["dismissal_95"].max()), 1) == 0.5  # type: ignore[arg-type]
    assert round(float(gains["dismissal_98"].min()), 1) == -0.3  # type: ignore[arg-type]
    heavy = gains.filter(pl.col("lambda_dismiss") == 1.0)
    assert round(float(heavy["dismissal_98"].max()), 1) == 0.2  # type: ignore[arg-type]
    narrow = heavy.filter(pl.col("margin") < 0.3)
    assert round(float(narrow["dismissal_95"].min()), 1) == -0.3  # type: ignore[arg-type]
    assert "changes it by -0.3 to +0.5 points" in WORDS


def test_another_draw_of_new_cases_moves_small_differences_as_the_page_says(load: Load) -> None:
    tables, study = load("study_tables"), load("study_simulation")
    rows = load("make_study").read_part("draws", ROWS)
    for preset in study.MECHANISM_PRESETS:
        for recall in study.RECALLS:
            means = 100 * tables.draw_means(rows.filter(setting=preset), tables.measure_of(recall))
            spread = f"{means.std(ddof=1):.3f}"
            assert "0.002" <= spread <= "0.009", (preset, recall)
            assert means.size == study.DRAWS
            one_sign = (means > 0).all() if preset == "benign" else (means < 0).all()
            assert one_sign == ((preset, recall) != ("hard-positives", 0.95)), (preset, recall)
    assert "a standard deviation of 0.002 to 0.009 points" in WORDS


def test_an_oracle_never_does_worse_than_the_papers_settings(load: Load) -> None:
    """It may choose them. Two settings that are equal, each better in half of the cohorts, gain nothing."""
    tables, study = load("study_tables"), load("study_simulation")
    rows = load("make_study").read_part("sensitivity", ROWS)
    for preset in study.SENSITIVITY_PRESETS:
        for recall in study.RECALLS:
            found = tables.choices(rows.filter(setting=preset), recall)
            gain = found["best in hindsight"].mean() - found["the paper's settings"].mean()
            assert 0 <= gain < (0.001 if recall == 0.98 else 0.004), (preset, recall)
            assert found["best in hindsight"].mean() >= found["best in hindsight, without the penalty"].mean()
    equal = rows.filter(pl.col("setting") == "mixed", pl.col("epochs") == 20, pl.col("lr") < 4e-5).filter(
        ((pl.col("lambda_dismiss") == 0.05) & (pl.col("margin") == 0.1)) | (pl.col("lambda_dismiss") == 0)
    )
    odd = pl.col("cohort") % 2 == 1
    better = pl.when(odd == (pl.col("lambda_dismiss") == 0)).then(0.11).otherwise(0.1)
    found = tables.choices(equal.with_columns(dismissal_98=better), 0.98)
    assert found["best in hindsight"].mean() == pytest.approx(found["the paper's settings"].mean())


def joint_chance(search: int, evaluation: int, targets: tuple[float, float]) -> Fraction:
    """Return the exact chance that thresholds of both targets keep them; all orders of positives are alike.

    The evaluation positives below the first threshold, and between the two, are counted as paths.
    """
    (first, most), (second, more) = (
        (allowed_misses(search, target), allowed_misses(evaluation, target)) for target in targets
    )
    orders = sum(
        comb(low + first, low)
        * comb(high - low + second - first - 1, high - low)
        * comb(evaluation - high + search - second - 1, evaluation - high)
        for low in range(most + 1)
        for high in range(low, more + 1)
    )
    return Fraction(orders, comb(search + evaluation, search))


def test_the_chance_to_meet_all_four_targets_is_that_of_the_page(load: Load) -> None:
    """Both targets of a data set are judged on one split: their chances must not be multiplied."""
    chance = Fraction(1)
    for (_, search), (_, evaluation) in load("study_simulation").PAPER_SPLITS.values():
        chance *= joint_chance(search, evaluation, (0.98, 0.95))
    generator = np.random.default_rng(0)
    ranks = np.array([generator.permutation(149) for _ in range(20_000)])
    search, evaluation = np.sort(ranks[:, :30], axis=1), ranks[:, 30:]
    kept = ((evaluation < search[:, [0]]).sum(axis=1) <= 2) & ((evaluation < search[:, [1]]).sum(axis=1) <= 5)
    assert kept.mean() == pytest.approx(float(joint_chance(30, 119, (0.98, 0.95))), abs=0.015)
    assert f"so one head meets all four in {100 * float(chance):.0f} % of splits" in WORDS


def test_every_figure_of_the_page_exists_and_every_figure_is_in_the_page() -> None:
    shown = set(re.findall(r"!\[[^\]]+\]\(study_figures/([^)]+)\)", PAGE))
    assert shown == {path.name for path in FIGURES.glob("*.svg")}


def test_every_table_of_the_page_is_what_the_rows_say(load: Load) -> None:
    assert load("statistics_tables").tables_in(PAGE) == load("study_tables").render_tables(ROWS)


def test_every_cell_of_the_study_is_there(load: Load) -> None:
    driver = load("make_study")
    for part in driver.STUDY:
        rows = driver.read_part(part.name, ROWS).select(pl.col("setting").cast(pl.String), "cohort")
        assert set(rows.iter_rows()) == {(cell.setting, cell.cohort) for cell in part.cells()}, part.name


@pytest.mark.slow
@pytest.mark.parametrize(("part", "setting", "cohort"), [("configurations_nlbs", "mixed", 7)])
def test_a_cell_gives_its_committed_rows_again(load: Load, part: str, setting: str, cohort: int) -> None:
    """Other processors round differently: two hundredths of a point of dismissal are allowed."""
    driver = load("make_study")
    again = pl.read_csv(
        b",".join(name.encode() for name in (*driver.KEYS, *driver.find_part(part).columns))
        + b"\n"
        + driver.run_cell(part, setting, cohort)
    )
    committed = pl.read_csv(ROWS / f"{part}.csv").filter(setting=setting, cohort=cohort)
    assert again.height == committed.height > 0
    for name in again.columns:
        if again[name].dtype == pl.Float64:
            assert again[name].to_numpy() == pytest.approx(committed[name].to_numpy(), abs=2e-4), name
        else:
            assert again[name].to_list() == committed[name].to_list()


def test_effects_are_called_at_their_level(load: Load) -> None:
    """Signs of the committed differences at random: 5 % of the intervals leave zero out, within 3 errors."""
    tables = load("study_tables")
    rows = pl.read_csv(ROWS / "configurations_nlbs.csv").filter(setting="mixed")
    wide = rows.pivot("configuration", index="cohort", values="dismissal_98")
    differences = (wide["ce"] - wide["ce-lr-0.001"]).to_numpy()
    differences = differences - differences.mean()
    generator, trials = np.random.default_rng(0), 2_000
    called = sum(
        tables.paired(differences * generator.choice([-1.0, 1.0], differences.size), 0 * differences).resolved
        for _ in range(trials)
    )
    assert called / trials <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / trials)


@pytest.mark.slow
def test_a_planted_benefit_of_three_points_is_found_and_two_trainings_are_alike(load: Load) -> None:
    """A head is moved towards the best one until it dismisses three points more, on other new cases."""
    study, tables = load("study_simulation"), load("study_tables")
    coverage = load("coverage_simulation")
    from trust_cache.synthetic.best_heads import best_head  # noqa: PLC0415
    from trust_cache.synthetic.population import Population  # noqa: PLC0415
    from trust_cache.synthetic.truth import LinearHeads  # noqa: PLC0415

    truth = study.truth_of("nlbs", "mixed", dim=64)
    measured, other = (Population(truth, 60_000, 40_000, seed=seed) for seed in (0, 1))
    best = best_head(other, 0.98)

    def dismissal(population: Population, head: LinearHeads) -> float:
        return population.points(head, 0.98)[0].dismissal

    def moved(head: LinearHeads) -> LinearHeads:
        """Return the mixture with the best head that gains three points on the other cases."""
        own, goal = (item.directions / np.linalg.norm(item.directions) for item in (head, best))
        low, high = 0.0, 1.0
        for _ in range(12):
            share = (low + high) / 2
            mixed = LinearHeads((1 - share) * own + share * goal, head.offsets)
            gain = dismissal(other, mixed) - dismissal(other, head)
            low, high = (share, high) if gain < 0.03 else (low, share)
        return mixed

    plain, planted, again = [], [], []
    for cohort in range(8):
        features = coverage.draw_cohort(cohort, truth, 1)
        heads = [
            study.linear(study.train(study.make_task(features, [study.CONFIGURATIONS["ce"]], seed)))
            for seed in (cohort, 1_000 + cohort)
        ]
        plain.append(dismissal(measured, heads[0]))
        again.append(dismissal(measured, heads[1]))
        planted.append(dismissal(measured, moved(heads[0])))
    found = tables.paired(planted, plain)
    assert found.low > 0.02
    assert found.mean == pytest.approx(0.03, abs=0.006)  # two populations of 100,000 cases differ by this
    same = tables.paired(again, plain)
    assert abs(same.mean) < 0.01
