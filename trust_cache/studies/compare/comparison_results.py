"""The records of a comparison, which are also the keys of compare.json."""

from typing import Literal

from trust_cache.base.documents import Document
from trust_cache.base.errors import InputError, check_least
from trust_cache.certificate.certification import check_targets
from trust_cache.certificate.score_table import COLUMNS, ScoreColumns
from trust_cache.manifest.protocol import PAPER, Protocol

SCHEMA = 1
ALPHA = 0.05  # the chance of a false alarm among all comparisons, after Holm's adjustment
LEVEL = 0.95  # of the intervals
AUROC_TRAININGS = 3  # with fewer, training noise alone makes the test of AUROCs reject too often
RESOLVED_FROM = 3  # positives below a threshold; the bootstrap of fewer is that of a sample minimum
_FEWEST = 200  # a 95 % interval needs its 2.5 % tails, a p-value its resolution
_MOST = 1_000_000
_ALL_POINTS = 100


class CompareSettings(Document, frozen=True, kw_only=True):
    """What is compared, with how many resamples, swaps and splits; and the constants of the verdicts."""

    targets: tuple[float, ...] = (0.98, 0.95)
    reference: str | None = None  # None: closed-loop where there is one, else the first
    resamples: int = 2_000
    swaps: int = 2_000
    seed: int = 0
    resplits: int = 200
    margin_points: float = 1.0  # of non-inferiority, in percentage points of dismissal
    protocol: Protocol = PAPER
    case: str = COLUMNS.case  # the names of the scores' columns
    label: str = COLUMNS.label
    score: str = COLUMNS.score
    patient: str = COLUMNS.patient
    positive: str | None = None
    alpha: float = ALPHA
    level: float = LEVEL
    resolvable_from: int = RESOLVED_FROM

    def __post_init__(self) -> None:
        check_targets(self.targets)
        for name in ("resamples", "swaps"):
            number = getattr(self, name)
            if not _FEWEST <= number <= _MOST:
                raise InputError(f"{name}: expected {_FEWEST} to {_MOST:,}, found {number}")
        for name in ("seed", "resplits"):
            check_least(name, getattr(self, name))
        if not 0 < self.margin_points < _ALL_POINTS:
            raise InputError(
                f"margin_points: expected percentage points above 0 and below {_ALL_POINTS}, found"
                f" {self.margin_points:g}"
            )
        for name, constant in (("alpha", ALPHA), ("level", LEVEL), ("resolvable_from", RESOLVED_FROM)):
            if getattr(self, name) != constant:
                raise InputError(f"{name}: expected {constant}, found {getattr(self, name)}")

    @property
    def columns(self) -> ScoreColumns:
        """The names of the scores' columns."""
        return ScoreColumns(self.case, self.label, self.score, self.patient, self.positive)


Verdict = Literal["different", "cannot tell", "not resolvable"]


def column_label(run: str | None, configuration: str) -> str:
    """Name a configuration of a run in a sentence; `run` is None where one run is compared."""
    return configuration if run is None else f"{configuration} ({run})"


class ComparedRun(Document, frozen=True, kw_only=True):
    """A run of a comparison."""

    name: str
    encoder: str | None  # by the fingerprint of its cache; None: scores without a record
    source: str
    configurations: tuple[str, ...]
    scores_sha256: str


class Standing(Document, frozen=True, kw_only=True):
    """A configuration at a target: threshold and dismissal, both on all cases."""

    configuration: str
    target: float
    tau: float
    cases: int
    positives: int
    incomplete: int  # cases that do not fulfil the protocol: reviewed, and not in recall
    incomplete_positives: int
    dismissed: int
    positives_dismissed: int
    dismissal: float
    recall: float
    repeats: tuple[float, ...]  # dismissal of every repeat, the run itself first
    resplits: int
    resplits_missed: int  # search/evaluation splits whose evaluation subset misses the target
    resplits_missed_share: float | None
    resplits_missed_expected: float | None  # by the Beta-binomial law, for any scores without ties
    run: str | None = None  # None where one run is compared

    @property
    def label(self) -> str:
        """The configuration, with its run where there are several."""
        return column_label(self.run, self.configuration)


class TrainingNoise(Document, frozen=True, kw_only=True):
    """The difference over repeats of the training: other seeds of folds and batches.

    It is a spread, never divided by the root of their number: how far one training may be from another,
    not how well the mean of all is known.
    """

    differences: tuple[float, ...]  # the run itself first
    lowest: float
    highest: float
    standard_deviation: float
    same_sign: int  # repeats whose difference has the run's own sign
    chance: float  # that equal configurations have one sign in all repeats: one half for each repeat but one


class SplitNoise(Document, frozen=True, kw_only=True):
    """The difference on the evaluation subset over single search/evaluation splits of the same scores."""

    q05: float
    q50: float
    q95: float
    opposite_share: float  # splits whose difference has the other sign than the one on all cases


class IncompleteCase(Document, frozen=True, kw_only=True):
    """A case that does not fulfil the protocol in a configuration."""

    configuration: str
    case_id: str
    label: int
    reason: str
    run: str | None  # None where one run is compared


class ComparedPair(Document, frozen=True, kw_only=True):
    """The two sides of a contrast; their runs are None where one run is compared."""

    reference: str
    other: str
    reference_run: str | None
    other_run: str | None

    @property
    def between_runs(self) -> bool:
        """Whether the two are of different runs."""
        return self.reference_run != self.other_run


class Contrast(ComparedPair, frozen=True, kw_only=True):
    """The reference against another configuration at a target; differences are reference minus other."""

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
    margin: float  # of non-inferiority, a share of the cases
    not_inferior: bool | None  # whether `low` is above minus the margin; None: not resolvable
    incomplete: int  # cases incomplete in either configuration: reviewed in both
    incomplete_positives: int
    training_noise: TrainingNoise | None  # None: the run has no repeats
    split_noise: SplitNoise | None  # None: no resplits were asked for
    sentence: str


class AurocContrast(ComparedPair, frozen=True, kw_only=True):
    """The case AUROC of the reference against another configuration's, by DeLong's paired test."""

    cases: int  # complete in both configurations, one of each patient
    positives: int
    auroc_reference: float | None  # None, as all that follows: a class has fewer than two cases
    auroc_other: float | None
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    p_adjusted: float | None  # for the AUROC comparisons of the file
    verdict: Verdict
    reason: str
    training_noise: TrainingNoise | None
    sentence: str


class Comparison(
    Document,
    frozen=True,
    kw_only=True,
    rename={
        "contrasts": "comparisons",
        "standings": "configurations",
        "auroc_contrasts": "auroc_comparisons",
    },
):
    """Everything that a comparison found: compare.json, and what `compare --json` prints."""

    schema: int = SCHEMA
    reference: str  # a configuration of every run
    runs: tuple[ComparedRun, ...]
    cases: int
    positives: int
    patients: int
    repeats: int  # trainings, the run itself included
    contrasts: tuple[Contrast, ...]
    auroc_contrasts: tuple[AurocContrast, ...]
    standings: tuple[Standing, ...]
    incomplete_cases: tuple[IncompleteCase, ...]
    settings: CompareSettings
    kind: str  # external, out-of-fold or unknown
    scores_sha256: str  # of several runs: the digest of the list of theirs
    repeats_sha256: tuple[str, ...]  # of repeats 1, 2, ..., in the same way
    warnings: tuple[str, ...]
    limits: tuple[str, ...]
    versions: dict[str, str]

    @property
    def several(self) -> bool:
        """Whether several runs are compared."""
        return len(self.runs) > 1
