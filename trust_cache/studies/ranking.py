"""Test whether a model ranks the cases of another cache better than chance.

A head starts from random weights, whose scores separate the classes of a given cache a little by accident. So
an AUROC away from 0.5 does not yet show what training taught: the trained head is compared with 0.5 and with
itself before training, on the same cases.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.text_tables import Table, whole_percent
from trust_cache.certificate.point_tables import name_of
from trust_cache.certificate.score_table import Cohort
from trust_cache.statistics.auroc import AurocInterval, auroc_difference, auroc_interval
from trust_cache.statistics.stratified_draws import draw_one_per_patient, random_keys

CHANCE = 0.5
BETTER, AT, WORSE = "better than chance", "at chance", "worse than chance"
_CONFIDENCE = 0.99
_GAIN_CONFIDENCE = 0.95
_RANKED = 5  # the stream of random keys that one case of each patient is drawn by


@dataclass(frozen=True)
class Ranking:
    """The case AUROC of a configuration over the cases of a cache, and its gain by training.

    Over complete cases; where patients have several, over one case of each, since DeLong's intervals are for
    independent cases.
    """

    configuration: str | None
    cases: int
    positives: int
    auroc: AurocInterval
    untrained: AurocInterval  # of the head before training
    gain: AurocInterval  # of the trained over the untrained head
    set_aside: int = 0  # complete cases that are left out: further cases of a patient
    incomplete: int = 0

    @property
    def verdict(self) -> str:
        """Better (worse) than chance: above (below) both 0.5 and the head before training, beyond error."""
        if self.auroc.lower > CHANCE and self.gain.lower > 0.0:
            return BETTER
        return WORSE if self.auroc.upper < CHANCE and self.gain.upper < 0.0 else AT

    def as_document(self) -> dict[str, Any]:
        """Return it as plain values, ready for JSON."""
        return asdict(self) | {"verdict": self.verdict}


def rank_cases(
    cohort: Cohort, untrained: Sequence[NDArray[np.float64]], patients: NDArray[np.int64], seed: int = 0
) -> tuple[Ranking, ...]:
    """Rank the cases by each configuration.

    `untrained` are the case scores of the head before training, aggregated as each configuration's are.

    The scores of incomplete cases are NaN. Of each patient one complete case is drawn. Empty where a class
    has fewer than two such cases.
    """
    found = []
    keys = random_keys(cohort.cases, seed, _RANKED)
    for name, every_score, start in zip(cohort.configurations, cohort.scores, untrained, strict=True):
        complete = np.isfinite(every_score) & np.isfinite(start)
        drawn = draw_one_per_patient(patients, complete, keys)
        scores, first, labels = every_score[drawn], start[drawn], cohort.labels[drawn]
        before, after = (auroc_interval(item, labels, _CONFIDENCE) for item in (first, scores))
        gain = auroc_difference(scores, first, labels, _GAIN_CONFIDENCE)
        if before is not None and after is not None and gain is not None:
            aside, incomplete = np.count_nonzero(complete & ~drawn), np.count_nonzero(~complete)
            counts = int(labels.size), int(np.count_nonzero(labels))
            found.append(Ranking(name, *counts, after, before, gain, int(aside), int(incomplete)))
    return tuple(found)


def ranking_warnings(rankings: Sequence[Ranking]) -> list[str]:
    """Warn of scores that do not separate the classes here, or rank them the wrong way round."""
    return [
        f"{name_of(item.configuration)}: the scores are {item.verdict} on the test cache: case AUROC"
        f" {item.auroc.value:.3f}, {whole_percent(item.auroc.confidence)} interval {item.auroc.lower:.3f} to"
        f" {item.auroc.upper:.3f}, before any training {item.untrained.value:.3f}; what the heads learned"
        + (" does not find cancers here" if item.verdict == AT else " ranks the cases in reverse here")
        for item in rankings
        if item.verdict != BETTER
    ]


def ranking_table(rankings: Sequence[Ranking]) -> Table:
    """Return the AUROCs as a table."""
    rows = tuple(
        (
            name_of(item.configuration),
            f"{item.auroc.value:.4f}",
            _range(item.auroc),
            f"{item.untrained.value:.4f}",
            f"{item.gain.value:+.4f} ({_range(item.gain)})",
            item.verdict,
        )
        for item in rankings
    )
    first = rankings[0]
    header = (
        "Configuration", "Case AUROC", f"{whole_percent(_CONFIDENCE)} interval", "Before training",
        f"Gain ({whole_percent(_GAIN_CONFIDENCE)} interval)", "Verdict",
    )  # fmt: skip
    legend = (
        "Intervals: DeLong's. Better than chance: the AUROC is above 0.5 and above that of the same head"
        " before training, both beyond error."
    )
    which = "the" if first.incomplete or first.set_aside else "all"
    kind = "complete test cases" if first.incomplete else "test cases"
    title = f"Ranking of {which} {first.cases:,} {kind}, {first.positives:,} positive"
    if first.set_aside:
        title += ", one of each patient"
    return Table(title, header, rows, legend)


def _range(interval: AurocInterval) -> str:
    return f"{interval.lower:.4f} - {interval.upper:.4f}"
