"""A certification: its settings, checked when they are made, and what it found."""

from collections.abc import Sequence
from dataclasses import dataclass

from trust_cache.base.errors import InputError, check_fraction, check_least
from trust_cache.certificate.points import Point, SubgroupPoint
from trust_cache.certificate.resplits import Resplit, Spread
from trust_cache.certificate.score_table import Cohort, Scores
from trust_cache.certificate.split import Split
from trust_cache.manifest.cases import PATIENT
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
    by: str | None = None
    prevalence: float | None = None
    resplits: int = 0
    limit: float | None = None
    protocol: Protocol = PAPER
    patient: str = PATIENT  # the column of patients, where the scores have one
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


@dataclass(frozen=True)
class Certification:
    """Everything that a certification found, before it is written."""

    settings: CertifySettings
    scores: Scores
    cohort: Cohort
    split: Split
    points: tuple[Point, ...]
    subgroups: tuple[SubgroupPoint, ...]
    resplits: tuple[Resplit, ...]
    spreads: tuple[Spread, ...]
    bands: tuple[Band, ...]  # one per configuration, if asked for
    warnings: tuple[str, ...]
    limits: tuple[str, ...]
    versions: dict[str, str]
