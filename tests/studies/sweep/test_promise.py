"""The winner's bound under the null, by simulation at the level of scores: seeded, the margin stated."""

import numpy as np
import polars as pl
import pytest

from tests.binormal import Binormal
from trust_cache.certificate.points import Terms, evaluate
from trust_cache.certificate.score_table import Cohort
from trust_cache.certificate.split import Split
from trust_cache.statistics.stratified_draws import draw_search
from trust_cache.studies.sweep.sweep_choice import choose_winner, search_setting, take_search

pytestmark = pytest.mark.slow

COHORTS = 2_000
CASES = 1_500
CASE_IDS = pl.Series([f"{n:05d}" for n in range(CASES)])
SETTINGS = 20
DELTA = 0.05
TARGET = 0.9
MODEL = Binormal(prevalence=0.08, auroc=0.75)


def draw_cohort(generator: np.random.Generator, correlation: float) -> Cohort:
    """Equally good settings: normal scores of one AUROC, correlated between settings within each class."""
    labels = (generator.random(CASES) < MODEL.prevalence).astype(np.int64)
    common = generator.standard_normal(CASES)
    own = generator.standard_normal((SETTINGS, CASES))
    scores = correlation**0.5 * common + (1 - correlation) ** 0.5 * own + MODEL.shift * labels
    return Cohort(
        case_ids=CASE_IDS,
        labels=labels,
        patients=np.arange(CASES),
        configurations=tuple(f"s{n}" for n in range(SETTINGS)),
        scores=tuple(1 / (1 + np.exp(-row)) for row in scores),
        images=(None,) * SETTINGS,
    )


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_the_winners_bounds_fail_at_most_at_their_rate(correlation: float) -> None:
    """Chosen on search: at most delta + 3 SE. Chosen by evaluation, for contrast: far more often."""
    generator = np.random.default_rng(20_260_301)
    terms = Terms("recall", DELTA, SETTINGS)
    plain = corrected = by_evaluation = 0
    for number in range(COHORTS):
        cohort = draw_cohort(generator, correlation)
        chosen = draw_search(cohort.labels, number)
        split = Split(cohort.case_ids, chosen, ~chosen, "seed")
        search = take_search(cohort, split)
        folds = np.zeros(search.cases, dtype=np.int64)
        alone = np.ones(search.cases, dtype=np.bool_)
        found = [search_setting(search, alone, index, [TARGET], terms, folds)[0] for index in range(SETTINGS)]
        dismissed = {f"s{index}": [item.counts.dismissed] for index, item in enumerate(found)}
        winner = int(str(choose_winner(dismissed))[1:])
        point = evaluate(cohort, split, winner, found[winner].threshold, terms)
        assert point.tau is not None
        truth = float(MODEL.omission_rate(point.tau))
        plain += point.bound < truth
        corrected += point.bound_corrected < truth
        if number % 8 == 0:
            points = [
                evaluate(cohort, split, index, item.threshold, terms) for index, item in enumerate(found)
            ]
            best = min(points, key=lambda item: item.bound)
            by_evaluation += best.bound < float(MODEL.omission_rate(best.tau or 0.0))
    error = np.sqrt(DELTA * (1 - DELTA) / COHORTS)
    assert plain / COHORTS <= DELTA + 3 * error
    assert plain / COHORTS > DELTA / 10  # the bound is not idle
    assert corrected / COHORTS <= DELTA / SETTINGS + 3 * np.sqrt(DELTA / SETTINGS / COHORTS)
    if correlation == 0.0:
        assert by_evaluation / (COHORTS / 8) > 2 * DELTA
