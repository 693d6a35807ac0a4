"""Standings of columns of scores on all cases, and the contrasts of pairs of them."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.certificate.points import Terms
from trust_cache.certificate.resplits import Resplit, Spread, certify_resplits, summarise
from trust_cache.certificate.score_table import Cohort
from trust_cache.certificate.split import draw_independent
from trust_cache.statistics.auroc import PairedAurocs, auroc, compare_aurocs
from trust_cache.statistics.stratified_draws import search_sizes
from trust_cache.statistics.thresholds import allowed_misses
from trust_cache.studies.compare.comparison_results import (
    LEVEL,
    AurocContrast,
    CompareSettings,
    Contrast,
    SplitNoise,
    Standing,
    TrainingNoise,
    column_label,
)
from trust_cache.studies.compare.paired_tests import (
    DifferenceInterval,
    Pair,
    adjust,
    difference_intervals,
    dismiss,
    make_pair,
    patient_intervals,
    swap_test,
)
from trust_cache.studies.compare.verdicts import auroc_sentence, judge, judge_auroc, sentence

_LOG = logging.getLogger(__name__)
TERMS = Terms(rule="recall", delta=0.01, compared=1)  # of the resplits, whose bounds are not used here


class Column(NamedTuple):
    """A configuration of a run; the run is None where one run is compared."""

    run: str | None
    configuration: str


@dataclass(frozen=True)
class Trainings:
    """The same cases scored by the runs themselves and by their repeats; a cohort has all columns."""

    columns: tuple[Column, ...]
    cohort: Cohort
    repeats: tuple[Cohort, ...] = ()

    def pair_up(self, reference: int, other: int) -> "Trainings":
        """Keep two columns, the reference first; a case incomplete in either is so in both."""
        cohorts = (_pair_up(cohort, reference, other) for cohort in self.all)
        return Trainings((self.columns[reference], self.columns[other]), next(cohorts), tuple(cohorts))

    @property
    def all(self) -> tuple[Cohort, ...]:
        """The runs themselves, then their repeats."""
        return (self.cohort, *self.repeats)


def find_pairs(columns: Sequence[Column], reference: str) -> list[tuple[int, int]]:
    """Return the pairs of columns that are compared, by their numbers.

    Between every two runs each configuration that both have is compared with itself. Within each run the
    reference is compared with each other configuration. No other pair is: each would make all p-values
    larger.
    """
    runs = list(dict.fromkeys(column.run for column in columns))
    place = {(run, name): number for number, (run, name) in enumerate(columns)}
    between = [
        (place[first, name], place[second, name])
        for first, second in combinations(runs, 2)
        for run, name in columns
        if run == first and (second, name) in place
    ]
    within = [(place[run, reference], place[run, name]) for run, name in columns if name != reference]
    return between + within


def _pair_up(cohort: Cohort, reference: int, other: int) -> Cohort:
    columns = [cohort.scores[index] for index in (reference, other)]
    incomplete = np.isnan(columns).any(axis=0)
    return replace(
        cohort,
        configurations=tuple(cohort.configurations[index] for index in (reference, other)),
        scores=tuple(np.where(incomplete, np.nan, column) for column in columns),
        images=(None, None),
        problems=(),
        aggregations=(cohort.aggregation(reference), cohort.aggregation(other)),
    )


def find_standings(
    trainings: Trainings, splits: Sequence[Resplit], settings: CompareSettings
) -> tuple[Standing, ...]:
    """Return one standing per column and target, in their order."""
    spreads = {(spread.configuration, spread.target): spread for spread in summarise(splits, TERMS)}
    return tuple(
        _standing(trainings, index, target, spreads.get((name, target)))
        for index, name in enumerate(trainings.cohort.configurations)
        for target in settings.targets
    )


def _standing(trainings: Trainings, index: int, target: float, spread: Spread | None) -> Standing:
    cohort = trainings.cohort
    incomplete = ~cohort.complete(index)
    left_out = int(np.count_nonzero(cohort.labels[incomplete]))
    pooled = [_dismissed(run, index, target) for run in trainings.all]
    tau, dismissed, missed = pooled[0]
    expected = None if spread is None else spread.met_share_expected
    return Standing(
        run=trainings.columns[index].run,
        configuration=trainings.columns[index].configuration,
        target=target,
        tau=tau,
        cases=cohort.cases,
        positives=cohort.positives,
        incomplete=int(np.count_nonzero(incomplete)),
        incomplete_positives=left_out,
        dismissed=dismissed,
        positives_dismissed=missed,
        dismissal=dismissed / cohort.cases,
        recall=1.0 - missed / (cohort.positives - left_out),
        repeats=tuple(count / cohort.cases for _, count, _ in pooled),
        resplits=0 if spread is None else spread.resplits,
        resplits_missed=0 if spread is None else spread.resplits - spread.met,
        resplits_missed_share=None if spread is None else (spread.resplits - spread.met) / spread.resplits,
        resplits_missed_expected=None if expected is None else 1.0 - expected,
    )


def _dismissed(cohort: Cohort, index: int, target: float) -> tuple[float, int, int]:
    """Return the threshold, the cases below it and the positives below it, from the complete cases."""
    complete = cohort.complete(index)
    scores, positive = cohort.scores[index][complete], cohort.labels[complete] == 1
    count = int(np.count_nonzero(positive))
    if not count:
        raise InputError(
            f"{cohort.configurations[index]}: expected complete positive cases, found none: recall is not"
            " defined"
        )
    pooled = dismiss(scores[positive], scores[~positive], allowed_misses(count, target))
    return pooled.tau, pooled.dismissed, pooled.positives_dismissed


def find_splits(
    cohort: Cohort, settings: CompareSettings, advance: Callable[[], None] = lambda: None
) -> tuple[tuple[Resplit, ...], list[str]]:
    """Certify on random search/evaluation splits; also return warnings."""
    _, search_positives = search_sizes(cohort.cases, cohort.positives)
    if not 0 < search_positives < cohort.positives:
        return (), [
            f"{cohort.positives} positives are too few to split for search and evaluation: no resplits"
        ]
    splits = certify_resplits(
        cohort, settings.targets, TERMS, seed=settings.seed, resplits=settings.resplits, advance=advance
    )
    return splits, []


def find_contrasts(
    trainings: Trainings,
    pairs: Sequence[tuple[int, int]],
    splits: Sequence[Resplit],
    settings: CompareSettings,
) -> tuple[Contrast, ...]:
    """Return one contrast per pair of columns and target, in their order; Holm's method is over all."""
    findings = []
    for pair in (trainings.pair_up(*numbers) for numbers in pairs):
        _LOG.info("comparing %s with %s", *pair.cohort.configurations)
        standings = find_standings(pair, (), settings)
        by_target = zip(standings[: len(settings.targets)], standings[len(settings.targets) :], strict=True)
        own = _splits_of(pair.cohort, trainings.cohort, splits, settings)
        p_values, intervals = _test(pair.cohort, settings)
        for two, p, interval in zip(by_target, p_values, intervals, strict=True):
            findings.append((*two, interval, p, own))
    adjusted = adjust([p for *_, p, _ in findings])
    return tuple(
        _contrast(reference_standing, other, interval, (p, p_adjusted), len(findings), own, settings)
        for (reference_standing, other, interval, p, own), p_adjusted in zip(findings, adjusted, strict=True)
    )


def _splits_of(
    pair: Cohort, cohort: Cohort, splits: Sequence[Resplit], settings: CompareSettings
) -> Sequence[Resplit]:
    """Return the resplits of a pair: those of the cohort, unless the pair has further incomplete cases."""
    of = [cohort.configurations.index(name) for name in pair.configurations]
    same = all(np.array_equal(pair.complete(place), cohort.complete(index)) for place, index in enumerate(of))
    return splits if same or not splits else find_splits(pair, settings)[0]


def _test(
    cohort: Cohort, settings: CompareSettings
) -> tuple[Sequence[float], Sequence[DifferenceInterval | None]]:
    """Return the p-value and the interval at each target."""
    patients = cohort.patients if cohort.repeated_patients else None
    first, second = cohort.scores
    pair = make_pair(first, second, cohort.labels, patients)
    misses = [allowed_misses(len(pair.positives), target) for target in settings.targets]
    p_values = swap_test(pair, misses, settings.swaps, settings.seed)
    return p_values, _intervals(pair, misses, settings)


def _intervals(
    pair: Pair, misses: Sequence[int], settings: CompareSettings
) -> list[DifferenceInterval | None]:
    if pair.patients is None:
        return difference_intervals(pair, misses, settings.resamples, settings.seed)
    return patient_intervals(pair, settings.targets, settings.resamples, settings.seed)


def _contrast(
    reference: Standing,
    other: Standing,
    interval: DifferenceInterval | None,
    p_values: tuple[float, float],
    compared: int,
    splits: Sequence[Resplit],
    settings: CompareSettings,
) -> Contrast:
    difference = (reference.dismissed - other.dismissed) / reference.cases
    noise = training_noise(np.subtract(reference.repeats, other.repeats).tolist())
    margin = settings.margin_points / 100
    verdict, reason = judge(reference, other, interval, p_values[1], noise)
    return Contrast(
        reference=reference.configuration,
        other=other.configuration,
        reference_run=reference.run,
        other_run=other.run,
        target=reference.target,
        dismissal_reference=reference.dismissal,
        dismissal_other=other.dismissal,
        difference=difference,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        p=p_values[0],
        p_adjusted=p_values[1],
        verdict=verdict,
        reason=reason,
        margin=margin,
        not_inferior=None if interval is None else interval.low > -margin,
        incomplete=reference.incomplete,
        incomplete_positives=reference.incomplete_positives,
        training_noise=noise,
        split_noise=split_noise(splits, reference.label, other.label, reference.target, difference),
        sentence=sentence(reference, other, interval, p_values[1], compared, verdict, noise, margin),
    )


def training_noise(differences: Sequence[float]) -> TrainingNoise | None:
    """Return the spread of the difference over the trainings, the run itself first; None without repeats."""
    if len(differences) == 1:
        return None
    values = np.asarray(differences)
    return TrainingNoise(
        differences=tuple(values.tolist()),
        lowest=float(values.min()),
        highest=float(values.max()),
        standard_deviation=float(values.std(ddof=1)),
        same_sign=int(np.count_nonzero(np.sign(values) == np.sign(values[0]))) if values[0] else 0,
        chance=0.5 ** (values.size - 1),
    )


def split_noise(
    splits: Sequence[Resplit], reference: str, other: str, target: float, difference: float
) -> SplitNoise | None:
    """Return the spread of the difference over the resplits, both configurations on the same split."""
    dismissal: dict[str | None, list[float]] = {reference: [], other: []}
    for item in splits:
        if item.point.target == target and item.point.configuration in dismissal:
            dismissal[item.point.configuration].append(item.point.dismissed / item.point.cases)
    differences = np.subtract(dismissal[reference], dismissal[other])
    if not differences.size:
        return None
    low, middle, high = np.quantile(differences, (0.05, 0.5, 0.95)).tolist()
    opposite = np.count_nonzero(np.sign(differences) == -np.sign(difference)) if difference else 0
    return SplitNoise(q05=low, q50=middle, q95=high, opposite_share=int(opposite) / differences.size)


def find_auroc_contrasts(
    trainings: Trainings, numbers: Sequence[tuple[int, int]], settings: CompareSettings
) -> tuple[AurocContrast, ...]:
    """Return one contrast of case AUROCs per pair of columns, in their order.

    DeLong's test needs independent cases: one of each patient, the same draw as in the certificate's split.
    """
    pairs = [trainings.pair_up(*two) for two in numbers]
    drawn = draw_independent(trainings.cohort, settings.seed)
    found = []
    for pair in pairs:
        chosen = drawn & pair.cohort.complete(0)
        first, second = (scores[chosen] for scores in pair.cohort.scores)
        found.append(compare_aurocs(first, second, pair.cohort.labels[chosen], LEVEL))
    adjusted = iter(adjust([item.p for item in found if item is not None]))
    compared = sum(item is not None for item in found)
    return tuple(
        _auroc_contrast(pair, drawn, item, None if item is None else next(adjusted), compared)
        for pair, item in zip(pairs, found, strict=True)
    )


def _auroc_contrast(
    pair: Trainings,
    drawn: NDArray[np.bool_],
    found: PairedAurocs | None,
    p_adjusted: float | None,
    compared: int,
) -> AurocContrast:
    reference, other = pair.columns
    names = (column_label(*reference), column_label(*other))
    chosen = drawn & pair.cohort.complete(0)
    noise = None if found is None else training_noise([_auroc_difference(run, drawn) for run in pair.all])
    verdict, reason = judge_auroc(found, p_adjusted, noise)
    return AurocContrast(
        reference=reference.configuration,
        other=other.configuration,
        reference_run=reference.run,
        other_run=other.run,
        cases=int(np.count_nonzero(chosen)),
        positives=int(np.count_nonzero(pair.cohort.labels[chosen])),
        auroc_reference=None if found is None else found.first,
        auroc_other=None if found is None else found.second,
        difference=None if found is None else found.difference.value,
        low=None if found is None else found.difference.lower,
        high=None if found is None else found.difference.upper,
        p=None if found is None else found.p,
        p_adjusted=p_adjusted,
        verdict=verdict,
        reason=reason,
        training_noise=noise,
        sentence=auroc_sentence(names, found, p_adjusted, compared, verdict, noise),
    )


def _auroc_difference(cohort: Cohort, drawn: NDArray[np.bool_]) -> float:
    chosen = drawn & cohort.complete(0)
    first, second = (auroc(scores[chosen], cohort.labels[chosen]) for scores in cohort.scores)
    if first is None or second is None:
        raise AssertionError("a repeat has other complete cases than the run")
    return first - second
