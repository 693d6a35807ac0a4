"""A certification: its settings, checked when they are made, and what it found."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trust_cache.base.documents import Document
from trust_cache.base.errors import InputError, check_fraction, check_least
from trust_cache.certificate.points import Point, Status, SubgroupPoint
from trust_cache.certificate.resplits import Resplit, Spread
from trust_cache.certificate.score_table import COLUMNS, Cohort, ScoreColumns, Scores
from trust_cache.certificate.split import Split
from trust_cache.manifest.protocol import PAPER, Protocol
from trust_cache.statistics.bands import Band
from trust_cache.statistics.rules import find_rule
from trust_cache.statistics.thresholds import exact_share

DELTAS = (1e-12, 0.5)


@dataclass(frozen=True)
class CertifySettings:
    """How to certify: `targets` are recalls, `delta` is one minus the confidence.

    `limit` is the largest acceptable bound; None is the prevalence of the evaluation cases.
    """

    targets: tuple[float, ...] = (0.98, 0.95)
    delta: float = 0.01
    seed: int = 0
    rule: str = "recall"
    by: tuple[str, ...] = ()  # columns to group by: site, or age=50,60 for bands
    prevalence: float | None = None
    resplits: int = 0
    limit: float | None = None
    protocol: Protocol = PAPER
    case: str = COLUMNS.case  # the names of the scores' columns
    label: str = COLUMNS.label
    score: str = COLUMNS.score
    patient: str = COLUMNS.patient
    positive: str | None = None  # the label of cancer; None: labels are 0 and 1
    band: bool = False

    def __post_init__(self) -> None:
        check_targets(self.targets)
        check_delta(self.delta)
        check_least("seed", self.seed)
        find_rule(self.rule)
        if self.prevalence is not None:
            check_fraction("prevalence", self.prevalence)
        check_least("resplits", self.resplits)
        if self.limit is not None:
            check_fraction("limit", self.limit)
        if len(set(self.by)) < len(self.by):
            raise InputError(f"by: expected different columns, found {', '.join(self.by)}")

    @property
    def columns(self) -> ScoreColumns:
        """The names of the scores' columns."""
        return ScoreColumns(self.case, self.label, self.score, self.patient, self.positive)


def check_targets(targets: Sequence[float]) -> None:
    """Check that there are targets, that each is a recall, and that no two are equal."""
    if not targets:
        raise InputError("target: expected at least one, found none")
    for target in targets:
        exact_share(target)
    if len(set(targets)) < len(targets):
        raise InputError(f"target: expected different values, found {', '.join(map(str, targets))}")


def check_delta(delta: float) -> None:
    """Check that delta is an error rate; above a half, a "bound" could be below the observed rate."""
    smallest, largest = DELTAS
    if not smallest <= delta <= largest:
        raise InputError(f"delta: expected {smallest:g} to {largest:g}, found {delta}")


SplitOrigin = Literal["drawn", "given"]  # from the seed, or from a file


class Composition(Document, frozen=True, kw_only=True):
    """What a certificate was compared with, by name: `compared` is counted from it."""

    configurations: tuple[str | None, ...]  # for the winner of a sweep: the settings that were tried
    targets: tuple[float, ...]
    groups: dict[str, tuple[str, ...]]  # by column; they share the delta of the subgroups alone
    looks: int = 1  # at the evaluation cases; a sweep that was extended has several

    @property
    def points(self) -> int:
        """How many overall points share delta."""
        return math.prod((len(self.configurations), len(self.targets), self.looks))

    @property
    def points_with_groups(self) -> int:
        """How many points share delta where the groups are compared too, all cases being one more group."""
        return self.points * (1 + sum(map(len, self.groups.values())))


class Attempt(Document, frozen=True, kw_only=True):
    """One certification: what the status of its points depends on, and each status by the point's name."""

    scores_sha256: str
    split_sha256: str
    split_origin: SplitOrigin
    seed: int
    rule: str
    targets: tuple[float, ...]
    delta: float
    limit: float | None  # as it was asked for; None: the prevalence
    protocol: Protocol
    statuses: dict[str, Status]


@dataclass(frozen=True)
class Certification:
    """Everything that a certification found, before it is written."""

    settings: CertifySettings
    scores: Scores
    cohort: Cohort
    split: Split
    composition: Composition
    points: tuple[Point, ...]
    subgroups: tuple[SubgroupPoint, ...]
    resplits: tuple[Resplit, ...]
    spreads: tuple[Spread, ...]
    bands: tuple[Band, ...]  # one per configuration, if asked for
    warnings: tuple[str, ...]
    limits: tuple[str, ...]
    versions: dict[str, str]
    attempts: tuple[Attempt, ...] = ()  # in the log, this one included; none: there is no log
