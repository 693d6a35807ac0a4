"""Where each configuration stands: on all cases, over the repeats, and over single splits."""

from collections.abc import Sequence

from trust_cache.certificate.cohort import Cohort
from trust_cache.certificate.points import Terms
from trust_cache.certificate.resplits import Resplit, Spread, summarise
from trust_cache.statistics.thresholds import allowed_misses
from trust_cache.studies.compare.pairs import Pooled, dismiss
from trust_cache.studies.compare.results import Standing
from trust_cache.studies.compare.settings import CompareSettings

TERMS = Terms(rule="recall", delta=0.01, compared=1)  # of the resplits, whose bounds are not used here


def find_standings(
    cohort: Cohort,
    names: Sequence[str],
    repeats: Sequence[Cohort],
    splits: Sequence[Resplit],
    settings: CompareSettings,
) -> tuple[Standing, ...]:
    """Return a standing for each configuration and target, in their order."""
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
    positive = cohort.labels == 1
    scores = cohort.scores[index]
    return dismiss(scores[positive], scores[~positive], allowed_misses(cohort.positives, target))
