"""The settings of a certification, checked when they are made."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from trust_cache.base.errors import InputError
from trust_cache.statistics.rules import RuleName
from trust_cache.statistics.thresholds import exact_share

DELTAS = (1e-12, 0.5)


@dataclass(frozen=True)
class CertifySettings:
    """How to certify: targets are recalls, delta one minus the confidence."""

    targets: tuple[float, ...] = (0.98, 0.95)
    delta: float = 0.01
    seed: int = 0
    rule: str = "recall"
    by: str | None = None
    prevalence: float | None = None
    resplits: int = 0

    def __post_init__(self) -> None:
        check_targets(self.targets)
        check_delta(self.delta)
        if self.seed < 0:
            raise InputError(f"seed: expected 0 or more, found {self.seed}")
        if self.rule not in get_args(RuleName):
            raise InputError(f"rule: expected {', '.join(get_args(RuleName))}, found {self.rule!r}")
        if self.prevalence is not None and not 0.0 < self.prevalence < 1.0:
            raise InputError(
                f"prevalence: expected a fraction strictly between 0 and 1, found {self.prevalence}"
            )
        if self.resplits < 0:
            raise InputError(f"resplits: expected 0 or more, found {self.resplits}")


def check_targets(targets: Sequence[float]) -> None:
    """Refuse no targets, the same one twice, and what is no recall."""
    if not targets:
        raise InputError("target: expected at least one, found none")
    for target in targets:
        exact_share(target)
    if len(set(targets)) < len(targets):
        raise InputError(f"target: expected different values, found {', '.join(map(str, targets))}")


def check_delta(delta: float) -> None:
    """Refuse a delta that is no error rate: above a half a "bound" would lie below what was observed."""
    smallest, largest = DELTAS
    if not smallest <= delta <= largest:
        raise InputError(f"delta: expected {smallest:g} to {largest:g}, found {delta}")
