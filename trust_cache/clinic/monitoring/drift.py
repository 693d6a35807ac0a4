"""Follow the scores of a model over all its triage runs, and say when they differ from the evaluation's."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from blake3 import blake3

from trust_cache.clinic.model_folder import StoredModel
from trust_cache.statistics.score_drift import ALARM, ShiftSize, log_wealth_path, shift_size, smoothed_ranks

RECENT = 1_000  # cases
_LARGEST_LOG = 700.0


@dataclass(frozen=True)
class Drift:
    """The evidence against "new scores are like the evaluation scores", over all triage runs of a model."""

    cases: int  # complete cases of all runs
    reference: int  # evaluation cases
    wealth: float  # 1 at the start; large: evidence for drift
    highest_wealth: float
    alarm_after: int | None  # the number of cases at which it first reached 100
    shift: ShiftSize | None  # of all cases
    recent_shift: ShiftSize | None  # of the last 1,000

    @property
    def differs(self) -> bool:
        """Whether the wealth has reached 100, which it does by chance in at most 1 % of streams."""
        return self.alarm_after is not None

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning if the scores differ."""
        if self.alarm_after is None:
            return ()
        return (
            f"the scores have drifted: those of the {self.cases:,} cases triaged so far are distributed"
            f" differently from those of the {self.reference:,} evaluation cases (evidence"
            f" {self.highest_wealth:,.0f} to 1, first above {ALARM:.0f} after {self.alarm_after:,} cases;"
            f" {shift_in_words(self.shift)}, {shift_in_words(self.recent_shift)} in the last"
            f" {min(RECENT, self.cases):,}). The machines, the population or the export of images may"
            " differ; so may only the share of cancers, if the evaluation cases were enriched. The bound"
            " applies only to cases like the evaluation cases",
        )


def shift_in_words(found: ShiftSize | None) -> str:
    """Say how far scores moved."""
    if found is None:
        return "no shift to measure"
    if found.standard_deviations is None:
        return "every score outside the range of the evaluation scores"
    word = "up" if found.standard_deviations > 0 else "down"
    return f"shifted {word} by {abs(found.standard_deviations):.2f} standard deviations"


def measure_drift(stored: StoredModel, scores: Mapping[str, float]) -> Drift:
    """Rank the scores of all triaged cases, in their order, and follow the evidence for drift.

    Equal scores are placed by a hash of the case, keyed with the model's digest: the same every time.
    """
    reference = stored.model.reference
    key = bytes.fromhex(stored.sha256)
    numbers = [int.from_bytes(blake3(name.encode(), key=key).digest(length=8), "big") for name in scores]
    ties = (np.array(numbers, dtype=np.uint64) >> np.uint64(11)).astype(np.float64) / 2**53
    found = np.array(list(scores.values()), dtype=np.float64)
    path = log_wealth_path(smoothed_ranks(reference, found, ties))
    reached = np.flatnonzero(path >= np.log(ALARM))
    return Drift(
        cases=found.size,
        reference=reference.size,
        wealth=_wealth(path[-1]) if found.size else 1.0,
        highest_wealth=_wealth(max(0.0, float(path.max()))) if found.size else 1.0,
        alarm_after=int(reached[0]) + 1 if reached.size else None,
        shift=shift_size(reference, found),
        recent_shift=shift_size(reference, found[-RECENT:]),
    )


def _wealth(logarithm: float) -> float:
    return float(np.exp(min(logarithm, _LARGEST_LOG)))
