"""What a comparison found: configurations, pairs of them, and the verdicts, before any of it is written."""

from dataclasses import dataclass
from typing import Literal

from trust_cache.studies.compare.settings import CompareSettings

Verdict = Literal["different", "cannot tell", "not resolvable"]


@dataclass(frozen=True)
class Standing:
    """A configuration at a target: what it dismisses on all cases, its threshold from the same cases."""

    configuration: str
    target: float
    tau: float
    cases: int
    positives: int
    dismissed: int
    positives_dismissed: int
    dismissal: float
    recall: float
    repeats: tuple[float, ...]  # dismissal of every repeat, the run itself first
    resplits: int
    resplits_missed: int  # search/evaluation splits whose evaluation subset misses the target
    resplits_missed_share: float | None
    resplits_missed_expected: float | None  # by the Beta-binomial law, for any scores without ties


@dataclass(frozen=True)
class TrainingNoise:
    """The difference over repeats of the training: other seeds of folds and batches.

    A spread, never divided by the root of their number: it says how far one training may be from
    another, not how well the mean of all is known.
    """

    differences: tuple[float, ...]  # the run itself first
    lowest: float
    highest: float
    standard_deviation: float
    same_sign: int  # repeats whose difference has the run's own sign


@dataclass(frozen=True)
class SplitNoise:
    """The difference on the evaluation subset over single search/evaluation splits of the same scores."""

    q05: float
    q50: float
    q95: float
    opposite_share: float  # splits whose difference has the other sign than the one on all cases


@dataclass(frozen=True)
class Contrast:
    """The reference against another configuration at a target; differences are reference minus other."""

    reference: str
    other: str
    target: float
    dismissal_reference: float
    dismissal_other: float
    difference: float
    low: float | None  # None: not resolvable
    high: float | None
    p: float
    p_adjusted: float
    verdict: Verdict
    reason: str
    training_noise: TrainingNoise | None  # None: the run has no repeats
    split_noise: SplitNoise | None  # None: no resplits were asked for
    sentence: str


@dataclass(frozen=True)
class Comparison:
    """All that a comparison found."""

    settings: CompareSettings
    source: str
    kind: str  # external, out-of-fold or unknown
    scores_sha256: str
    repeats_sha256: tuple[str, ...]  # of repeats 1, 2, ...
    cases: int
    positives: int
    reference: str
    standings: tuple[Standing, ...]
    contrasts: tuple[Contrast, ...]
    warnings: tuple[str, ...]
    limits: tuple[str, ...]
    versions: dict[str, str]

    @property
    def repeats(self) -> int:
        """How many trainings there are, the run itself included."""
        return 1 + len(self.repeats_sha256)
