"""Compare every configuration of a run with a reference, at the same recall."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from trust_cache.base.errors import InputError, did_you_mean
from trust_cache.base.versions import versions_of
from trust_cache.certificate.cautions import score_warnings
from trust_cache.certificate.points import Terms
from trust_cache.certificate.resplits import Resplit, Spread, certify_resplits, summarise
from trust_cache.certificate.score_table import Cohort, Scores, build_cohort, read_scores
from trust_cache.heads.run_folder import RunFolder
from trust_cache.statistics.stratified_draws import search_sizes
from trust_cache.statistics.thresholds import allowed_misses
from trust_cache.studies.compare.comparison_results import (
    CompareSettings,
    Comparison,
    Contrast,
    SplitNoise,
    Standing,
    TrainingNoise,
)
from trust_cache.studies.compare.paired_tests import (
    DifferenceInterval,
    Pooled,
    adjust,
    difference_intervals,
    dismiss,
    make_pair,
    swap_test,
)
from trust_cache.studies.compare.verdicts import judge, limits, sentence

_LOG = logging.getLogger(__name__)
DEFAULT_REFERENCE = "closed-loop"
TERMS = Terms(rule="recall", delta=0.01, compared=1)  # of the resplits, whose bounds are not used here


def find_standings(
    cohort: Cohort,
    names: Sequence[str],
    repeats: Sequence[Cohort],
    splits: Sequence[Resplit],
    settings: CompareSettings,
) -> tuple[Standing, ...]:
    """Return one standing per configuration and target, in their order."""
    spreads = {(spread.configuration, spread.target): spread for spread in summarise(splits, TERMS)}
    return tuple(
        _standing(cohort, index, name, target, repeats, spreads.get((name, target)))
        for index, name in enumerate(names)
        for target in settings.targets
    )


def _standing(
    cohort: Cohort, index: int, name: str, target: float, repeats: Sequence[Cohort], spread: Spread | None
) -> Standing:
    pooled = _pool(cohort, index, target)
    expected = None if spread is None else spread.met_share_expected
    return Standing(
        configuration=name,
        target=target,
        tau=pooled.tau,
        cases=cohort.cases,
        positives=cohort.positives,
        dismissed=pooled.dismissed,
        positives_dismissed=pooled.positives_dismissed,
        dismissal=pooled.dismissed / cohort.cases,
        recall=1.0 - pooled.positives_dismissed / cohort.positives,
        repeats=tuple(_pool(run, index, target).dismissed / cohort.cases for run in (cohort, *repeats)),
        resplits=0 if spread is None else spread.resplits,
        resplits_missed=0 if spread is None else spread.resplits - spread.met,
        resplits_missed_share=None if spread is None else (spread.resplits - spread.met) / spread.resplits,
        resplits_missed_expected=None if expected is None else 1.0 - expected,
    )


def _pool(cohort: Cohort, index: int, target: float) -> Pooled:
    scores, positive = cohort.scores[index], cohort.labels == 1
    return dismiss(scores[positive], scores[~positive], allowed_misses(cohort.positives, target))


def training_noise(reference: Standing, other: Standing) -> TrainingNoise | None:
    """Return the spread of the difference over the repeats; None without repeats."""
    differences = np.subtract(reference.repeats, other.repeats)
    if differences.size == 1:
        return None
    return TrainingNoise(
        differences=tuple(differences.tolist()),
        lowest=float(differences.min()),
        highest=float(differences.max()),
        standard_deviation=float(differences.std(ddof=1)),
        same_sign=int(np.count_nonzero(np.sign(differences) == np.sign(differences[0]))),
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


def find_contrasts(
    cohort: Cohort,
    names: Sequence[str],
    reference: str,
    standings: Sequence[Standing],
    splits: Sequence[Resplit],
    settings: CompareSettings,
) -> tuple[Contrast, ...]:
    """Return one contrast per configuration and target, in their order."""
    by_key = {(item.configuration, item.target): item for item in standings}
    scores = dict(zip(names, cohort.scores, strict=True))
    misses = [allowed_misses(cohort.positives, target) for target in settings.targets]
    findings = []
    for other in names:
        if other == reference:
            continue
        _LOG.info("comparing %s with %s", reference, other)
        pair = make_pair(scores[reference], scores[other], cohort.labels)
        p_values = swap_test(pair, misses, settings.swaps, settings.seed)
        intervals = difference_intervals(pair, misses, settings.resamples, settings.seed)
        for target, p, interval in zip(settings.targets, p_values, intervals, strict=True):
            findings.append((by_key[reference, target], by_key[other, target], interval, p))
    adjusted = adjust([p for *_, p in findings])
    return tuple(
        _contrast(*finding, p_adjusted, len(findings), splits)
        for finding, p_adjusted in zip(findings, adjusted, strict=True)
    )


def _contrast(
    reference: Standing,
    other: Standing,
    interval: DifferenceInterval | None,
    p: float,
    p_adjusted: float,
    compared: int,
    splits: Sequence[Resplit],
) -> Contrast:
    difference = (reference.dismissed - other.dismissed) / reference.cases
    verdict, reason = judge(reference, other, interval, p_adjusted)
    noise = training_noise(reference, other)
    return Contrast(
        reference=reference.configuration,
        other=other.configuration,
        target=reference.target,
        dismissal_reference=reference.dismissal,
        dismissal_other=other.dismissal,
        difference=difference,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        p=p,
        p_adjusted=p_adjusted,
        verdict=verdict,
        reason=reason,
        training_noise=noise,
        split_noise=split_noise(
            splits, reference.configuration, other.configuration, reference.target, difference
        ),
        sentence=sentence(reference, other, interval, p_adjusted, compared, verdict, noise),
    )


def read_repeats(run: Path, cohort: Cohort) -> list[tuple[Scores, Cohort]]:
    """Read the scores of repeat 1, 2, ... of a run folder; none for a file of scores."""
    repeats = []
    for folder in RunFolder(run).repeats():
        scores = read_scores(folder.path)
        repeat = build_cohort(scores)
        _check_same(scores.source, cohort, repeat)
        repeats.append((scores, repeat))
    return repeats


def _check_same(source: str, cohort: Cohort, repeat: Cohort) -> None:
    if repeat.configurations != cohort.configurations:
        raise InputError(
            f"{source}: expected the run's own configurations {', '.join(map(str, cohort.configurations))},"
            f" found {', '.join(map(str, repeat.configurations))}"
        )
    if not (repeat.case_ids.equals(cohort.case_ids) and np.array_equal(repeat.labels, cohort.labels)):
        raise InputError(
            f"{source}: expected the cases and labels of the run itself ({cohort.cases:,} cases,"
            f" {cohort.positives:,} positive), found others ({repeat.cases:,}, {repeat.positives:,})"
        )


def compare(
    source: Path | str,
    *,
    targets: Sequence[float] = (0.98, 0.95),
    reference: str | None = None,
    resamples: int = 2_000,
    swaps: int = 2_000,
    seed: int = 0,
    resplits: int = 200,
    advance: Callable[[], None] = lambda: None,
) -> Comparison:
    """Compare every configuration of a run folder or a scores file with the reference.

    `advance` is called after each resplit.
    """
    settings = CompareSettings(
        targets=tuple(map(float, targets)),
        reference=reference,
        resamples=resamples,
        swaps=swaps,
        seed=seed,
        resplits=resplits,
    )
    scores = read_scores(Path(source))
    names = _names(scores)
    chosen = choose_reference(names, reference, scores.source)
    cohort = build_cohort(scores)
    if not cohort.positives:
        raise InputError(f"{scores.source}: expected positive cases, found none: recall is not defined")
    repeats = read_repeats(Path(source), cohort)
    _LOG.info(
        "%s: %d configurations, %d cases, %d of them positive, %d repeats",
        scores.source, len(names), cohort.cases, cohort.positives, 1 + len(repeats),
    )  # fmt: skip
    splits, warnings = _resplit(cohort, settings, advance)
    standings = find_standings(cohort, names, [other for _, other in repeats], splits, settings)
    return Comparison(
        settings=settings,
        kind=scores.kind(),
        scores_sha256=scores.sha256,
        repeats=1 + len(repeats),
        repeats_sha256=tuple(repeat.sha256 for repeat, _ in repeats),
        cases=cohort.cases,
        positives=cohort.positives,
        reference=chosen,
        standings=standings,
        contrasts=find_contrasts(cohort, names, chosen, standings, splits, settings),
        warnings=(*score_warnings(cohort), *warnings),
        limits=limits(scores.kind(), repeats=1 + len(repeats)),
        versions=versions_of("numpy", "scipy", "polars"),
    )


def choose_reference(names: Sequence[str], wanted: str | None, source: str) -> str:
    """Return the configuration that all others are compared with."""
    if wanted is None:
        return DEFAULT_REFERENCE if DEFAULT_REFERENCE in names else names[0]
    if wanted not in names:
        hint = did_you_mean(wanted, names)
        raise InputError(f"reference: expected one of {', '.join(names)} ({source}), found {wanted!r}{hint}")
    return wanted


def _names(scores: Scores) -> list[str]:
    found = scores.configurations
    if len(found) == 1:
        only = "no such column" if found == [None] else f"only {found[0]}"
        raise InputError(
            f"{scores.source}: expected the scores of two or more configurations in the column"
            f" configuration, found {only}; there is nothing to compare"
        )
    return list(map(str, found))


def _resplit(
    cohort: Cohort, settings: CompareSettings, advance: Callable[[], None]
) -> tuple[tuple[Resplit, ...], list[str]]:
    _, search_positives = search_sizes(cohort.cases, cohort.positives)
    if not 0 < search_positives < cohort.positives:
        return (), [
            f"{cohort.positives} positives are too few to split for search and evaluation: no resplits"
        ]
    splits = certify_resplits(
        cohort, settings.targets, TERMS, seed=settings.seed, resplits=settings.resplits, advance=advance
    )
    return splits, []
