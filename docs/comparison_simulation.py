"""The simulation behind the comparison page: pairs of score columns whose true difference is known.

Negatives score N(0, 1) in both columns, positives N(shift, spread); within a class the columns are
correlated. Dismissal at a population recall is then known in closed form, so an interval is right or
wrong and a verdict is correct or a false alarm.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from selection_simulation import Size

from tests.binormal import Binormal
from trust_cache.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper
from trust_cache.statistics.thresholds import allowed_misses
from trust_cache.studies.compare.paired_tests import (
    DifferenceInterval,
    Floats,
    Pair,
    adjust,
    cells,
    difference_intervals,
    swap_test,
    weighted_thresholds,
)

TARGETS = (0.98, 0.95)
ALPHA = 0.05
AUROC = 0.85
CORRELATION = 0.9
CORRELATIONS = (0.0, 0.5, 0.9, 0.97)
GAIN = 0.10  # the real difference, a share of all cases
SPREAD = 1.5  # of the positives of a column whose curve crosses the other's
PROCEDURES = ("obvious", "interval", "swap", "verdict")
COLUMNS = (
    "data_set", "cases", "positives", "target", "scenario", "correlation", "truth", "procedure", "cohorts",
    "intervals", "covered", "coverage", "coverage_low", "coverage_high",
    "called", "called_share", "called_low", "called_high",
)  # fmt: skip


@dataclass(frozen=True)
class Column:
    """The law of one column: where its positives are, and how far apart."""

    shift: float
    spread: float = 1.0

    def spared(self, recall: float) -> float:
        """Return P(score < tau | no cancer) at the threshold with this population recall."""
        return float(ndtr(self.shift + self.spread * ndtri(1.0 - recall)))

    def moved_to(self, spared: float, recall: float) -> "Column":
        """Return a column of the same spread that spares this share at this recall."""
        return Column(float(ndtri(spared)) - self.spread * float(ndtri(1.0 - recall)), self.spread)


@dataclass(frozen=True)
class Scenario:
    """Two columns of a cohort of this size."""

    name: str
    size: Size
    first: Column
    second: Column
    targets: tuple[float, ...]  # at which the name is true
    correlation: float = CORRELATION

    def truth(self, recall: float) -> float:
        """Return the difference in population dismissal; of positives both dismiss the same share."""
        return (1.0 - self.size.prevalence) * (self.first.spared(recall) - self.second.spared(recall))

    def draw(self, generator: np.random.Generator) -> Pair:
        """Draw a cohort."""
        positives, negatives = (
            _correlated(cases, self.correlation, generator)
            for cases in (self.size.positives, self.size.cases - self.size.positives)
        )
        columns = (self.first, self.second)
        spread, shift = ([getattr(column, name) for column in columns] for name in ("spread", "shift"))
        return Pair(positives * spread + shift, negatives)


@dataclass
class _Tally:
    """The results of one procedure over the cohorts."""

    intervals: int = 0
    covered: int = 0
    called: int = 0

    def add(self, interval: DifferenceInterval | None, truth: float, *, called: bool) -> None:
        self.called += called
        if interval is not None:
            self.intervals += 1
            self.covered += interval.low <= truth <= interval.high


def equal_columns(size: Size, correlation: float = CORRELATION) -> Scenario:
    """Return two columns with one law, exchangeable within each case."""
    base = Column(Binormal(size.prevalence, AUROC).shift)
    return Scenario("equal", size, base, base, TARGETS, correlation)


def scenarios(size: Size) -> Iterator[Scenario]:
    """Yield two equal columns, a real gain, and curves that cross where their dismissal is equal."""
    yield equal_columns(size)
    base = equal_columns(size).first
    for target in TARGETS:
        less = base.spared(target) - GAIN / (1.0 - size.prevalence)
        yield Scenario("10 points", size, base, base.moved_to(less, target), (target,))
        crossing = Column(base.shift, SPREAD).moved_to(base.spared(target), target)
        yield Scenario("crossing", size, base, crossing, (target,))


def simulate(scenario: Scenario, cohorts: int, resamples: int, seed: int) -> list[dict[str, object]]:
    """Return one row for each target and procedure."""
    generator = np.random.default_rng([seed, scenario.size.cases])
    misses = [allowed_misses(scenario.size.positives, target) for target in TARGETS]
    tallies = {(target, name): _Tally() for target in scenario.targets for name in PROCEDURES}
    for cohort in range(cohorts):
        pair = scenario.draw(generator)
        p_values = swap_test(pair, misses, resamples, seed=cohort)
        adjusted = adjust(p_values)
        intervals = difference_intervals(pair, misses, resamples, seed=cohort)
        for place, target in enumerate(TARGETS):
            if target not in scenario.targets:
                continue
            truth = scenario.truth(target)
            ours, obvious = (
                intervals[place],
                obvious_interval(pair, scenario.size, target, resamples, generator),
            )
            excluded = ours is not None and ours.excludes_zero
            tallies[target, "obvious"].add(obvious, truth, called=obvious.excludes_zero)
            tallies[target, "interval"].add(ours, truth, called=excluded)
            tallies[target, "swap"].add(None, truth, called=p_values[place] <= ALPHA)
            tallies[target, "verdict"].add(None, truth, called=excluded and adjusted[place] <= ALPHA)
    return [_row(scenario, target, name, tally, cohorts) for (target, name), tally in tallies.items()]


def simulate_intervals(
    scenario: Scenario, cohorts: int, resamples: int, seed: int
) -> list[dict[str, object]]:
    """Return one row for each target and interval; without the test, which costs most."""
    generator = np.random.default_rng([seed, scenario.size.cases])
    misses = [allowed_misses(scenario.size.positives, target) for target in TARGETS]
    tallies = {(target, name): _Tally() for target in TARGETS for name in PROCEDURES[:2]}
    for cohort in range(cohorts):
        pair = scenario.draw(generator)
        ours = difference_intervals(pair, misses, resamples, seed=cohort)
        for target, interval in zip(TARGETS, ours, strict=True):
            obvious = obvious_interval(pair, scenario.size, target, resamples, generator)
            for name, found in zip(PROCEDURES, (obvious, interval), strict=False):
                called = found is not None and found.excludes_zero
                tallies[target, name].add(found, scenario.truth(target), called=called)
    return [_row(scenario, target, name, tally, cohorts) for (target, name), tally in tallies.items()]


def obvious_interval(
    pair: Pair, size: Size, target: float, resamples: int, generator: np.random.Generator
) -> DifferenceInterval:
    """Resample one search/evaluation split: the threshold chosen again on search, dismissal on evaluation.

    Cases of a class are exchangeable, so the first ones are a valid stratified draw.
    """
    positives, negatives = size.search
    weights = generator.multinomial(positives, np.full(positives, 1.0 / positives), size=resamples)
    misses = allowed_misses(positives, target)
    first, second = (
        weighted_thresholds(pair.positives[:positives, column], weights, misses)[0] for column in (0, 1)
    )
    evaluation = np.concatenate([pair.positives[positives:], pair.negatives[negatives:]])
    alone, other_alone = cells(evaluation, first, second)
    total = len(evaluation)
    shares = np.stack([alone, other_alone, total - alone - other_alone], axis=1) / total
    drawn = generator.multinomial(total, shares)
    differences = (drawn[:, 0] - drawn[:, 1]) / total
    return DifferenceInterval(*(float(end) for end in np.quantile(differences, (0.025, 0.975))))


def _correlated(cases: int, correlation: float, generator: np.random.Generator) -> Floats:
    common = np.sqrt(correlation) * generator.standard_normal((cases, 1))
    own = np.sqrt(1.0 - correlation) * generator.standard_normal((cases, 2))
    return np.asarray(common + own)


def _row(scenario: Scenario, target: float, name: str, tally: _Tally, cohorts: int) -> dict[str, object]:
    """Describe both proportions with their 95 % Clopper-Pearson intervals: the Monte Carlo error."""
    return {
        "data_set": scenario.size.name,
        "cases": scenario.size.cases,
        "positives": scenario.size.positives,
        "target": target,
        "scenario": scenario.name,
        "correlation": scenario.correlation,
        "truth": scenario.truth(target),
        "procedure": name,
        "cohorts": cohorts,
        "intervals": tally.intervals,
        "covered": tally.covered,
        **_share("coverage", tally.covered, tally.intervals),
        "called": tally.called,
        **_share("called", tally.called, cohorts, suffix="_share"),
    }


def _share(name: str, count: int, of: int, suffix: str = "") -> dict[str, float | None]:
    if not of:
        return {f"{name}{suffix}": None, f"{name}_low": None, f"{name}_high": None}
    return {
        f"{name}{suffix}": count / of,
        f"{name}_low": float(clopper_pearson_lower(count, of, 0.025)),
        f"{name}_high": float(clopper_pearson_upper(count, of, 0.025)),
    }
