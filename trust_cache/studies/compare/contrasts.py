"""Every configuration against the reference: test, interval, verdict and the noise beside them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from trust_cache.certificate.cohort import Cohort
from trust_cache.certificate.resplits import Resplit
from trust_cache.statistics.thresholds import allowed_misses
from trust_cache.studies.compare.interval import Interval, difference_intervals
from trust_cache.studies.compare.noise import split_noise, training_noise
from trust_cache.studies.compare.pairs import make_pair
from trust_cache.studies.compare.results import Contrast, Standing
from trust_cache.studies.compare.settings import CompareSettings
from trust_cache.studies.compare.swap_test import adjust, swap_test
from trust_cache.studies.compare.words import judge, sentence

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Finding:
    """One pair at one target, before the p-values of all are adjusted for their number."""

    reference: Standing
    other: Standing
    p: float
    interval: Interval | None


def find_contrasts(
    cohort: Cohort,
    names: Sequence[str],
    reference: str,
    standings: Sequence[Standing],
    splits: Sequence[Resplit],
    settings: CompareSettings,
) -> tuple[Contrast, ...]:
    """Return the contrasts, a row a configuration and target, in their order."""
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
            findings.append(_Finding(by_key[reference, target], by_key[other, target], p, interval))
    adjusted = adjust([finding.p for finding in findings])
    return tuple(
        _contrast(finding, p_adjusted, len(findings), splits)
        for finding, p_adjusted in zip(findings, adjusted, strict=True)
    )


def _contrast(finding: _Finding, p_adjusted: float, compared: int, splits: Sequence[Resplit]) -> Contrast:
    reference, other, interval = finding.reference, finding.other, finding.interval
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
        p=finding.p,
        p_adjusted=p_adjusted,
        verdict=verdict,
        reason=reason,
        training_noise=noise,
        split_noise=split_noise(
            splits, reference.configuration, other.configuration, reference.target, difference
        ),
        sentence=sentence(reference, other, interval, p_adjusted, compared, verdict, noise),
    )
