"""The promises by simulation: seeded, with the Monte Carlo margin stated, over all points, met or not."""

import numpy as np
import pytest
from scipy.stats import binom

from tests.binormal import Binormal
from trust_cache import clopper_pearson_upper
from trust_cache.statistics.bounds import smallest_samples
from trust_cache.statistics.rules import allowance, chance_target_met
from trust_cache.statistics.stratified_draws import draw_search, search_sizes
from trust_cache.statistics.thresholds import allowed_misses, select_threshold, threshold_allowing

pytestmark = pytest.mark.slow

COHORTS = 20_000
DELTA = 0.01
TARGET = 0.95


def exact_failure(cases: int, positives: int, miss: float, spared: float, rate: float) -> float:
    """The chance that U(k, k + m) < rate, where k ~ Bin(positives, miss) and m ~ Bin(negatives, spared).

    For given k the bound is below the rate exactly where k + m reaches n_min(k) at that level.
    """
    k = np.arange(positives + 1)
    needed = smallest_samples(positives, rate, DELTA)
    weights = binom.pmf(k, positives, miss)
    return float(np.sum(weights * binom.sf(needed - k - 1, cases - positives, spared)))


def test_bounds_fail_at_most_at_their_rate_and_at_the_exact_one() -> None:
    """NLBS-sized cohorts with binomial positives; the truth at the selected threshold in closed form."""
    model = Binormal(prevalence=149 / 5_997, auroc=0.72)
    generator = np.random.default_rng(20_260_101)
    failures, exact = 0, 0.0
    for cohort in range(COHORTS):
        scores, labels = model.draw(5_997, generator)
        search = draw_search(labels, seed=cohort)
        tau = select_threshold(scores[search], labels[search], TARGET)
        below = scores[~search] < tau
        dismissed, missed = int(below.sum()), int(labels[~search][below].sum())
        truth = float(model.omission_rate(tau))
        failures += clopper_pearson_upper(missed, dismissed, DELTA) < truth
        if cohort % 10 == 0:  # every tenth is enough for the mean of the exact rate
            exact += exact_failure(
                int((~search).sum()), int(labels[~search].sum()), float(model.miss_rate(tau)),
                float(model.spared_rate(tau)), truth,
            )  # fmt: skip
    observed, expected = failures / COHORTS, exact / (COHORTS / 10)
    error = np.sqrt(DELTA * (1 - DELTA) / COHORTS)
    assert observed <= DELTA + 3 * error
    assert observed == pytest.approx(expected, abs=4 * error)
    assert expected > DELTA / 10  # the bound is not idle


@pytest.mark.parametrize(
    ("rule", "positives", "target"),
    [
        ("recall", 30, 0.98), ("recall", 30, 0.95), ("recall", 97, 0.98), ("recall", 97, 0.95),
        ("crc", 49, 0.98), ("crc", 97, 0.98), ("crc", 97, 0.95), ("ltt", 97, 0.95), ("ltt", 240, 0.98),
        ("ltt", 240, 0.95),
    ],
)  # fmt: skip
def test_rules_keep_their_promises(rule: str, positives: int, target: float) -> None:
    allowed = allowance(rule, positives, target, DELTA).misses
    assert allowed is not None
    model = Binormal(prevalence=0.04, auroc=0.72)
    generator = np.random.default_rng(7)
    evaluation = 4 * positives
    misses, met = np.empty(COHORTS), 0
    for cohort in range(COHORTS):
        search, _ = model.draw(positives, generator, positives)
        later, _ = model.draw(evaluation, generator, evaluation)
        tau = threshold_allowing(search, allowed)
        misses[cohort] = model.miss_rate(tau)
        met += int(np.count_nonzero(later < tau)) <= allowed_misses(evaluation, target)
    alpha = 1 - target
    if rule == "ltt":
        assert np.mean(misses > alpha) <= DELTA + 3 * np.sqrt(DELTA / COHORTS)
    if rule == "crc":
        assert misses.mean() <= alpha + 3 * misses.std() / np.sqrt(COHORTS)
    # The miss rate is Beta(a + 1, C - a) whatever the rule; its mean and the chance of meeting follow.
    mean = (allowed + 1) / (positives + 1)
    assert misses.mean() == pytest.approx(mean, abs=4 * misses.std() / np.sqrt(COHORTS))
    expected = chance_target_met(rule, positives, evaluation, target, DELTA)
    assert expected is not None
    assert met / COHORTS == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / COHORTS))


def test_the_recall_rule_alone_promises_nothing() -> None:
    """Why the other rules exist: the paper's rule misses its target about half the time."""
    search, positives = search_sizes(5_997, 149)
    assert search == 1_200
    for target in (0.98, 0.95):
        chance = chance_target_met("recall", positives, 119, target, DELTA)
        assert chance is not None
        assert chance < 0.5
