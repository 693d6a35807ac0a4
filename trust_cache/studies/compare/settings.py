"""The settings of a comparison, checked when they are made."""

from dataclasses import dataclass

from trust_cache.base.errors import InputError
from trust_cache.certificate.settings import check_targets

ALPHA = 0.05  # the chance of a false alarm among all comparisons, after Holm's adjustment
_FEWEST = 200  # a 95 % interval needs its 2.5 % tails, a p-value its resolution
_MOST = 1_000_000


@dataclass(frozen=True)
class CompareSettings:
    """What is compared and how hard it is tried."""

    targets: tuple[float, ...] = (0.98, 0.95)
    reference: str | None = None  # None: closed-loop where there is one, else the first
    resamples: int = 2_000
    swaps: int = 2_000
    seed: int = 0
    resplits: int = 200

    def __post_init__(self) -> None:
        check_targets(self.targets)
        for name in ("resamples", "swaps"):
            number = getattr(self, name)
            if not _FEWEST <= number <= _MOST:
                raise InputError(f"{name}: expected {_FEWEST} to {_MOST:,}, found {number}")
        if self.seed < 0:
            raise InputError(f"seed: expected 0 or more, found {self.seed}")
        if self.resplits < 0:
            raise InputError(f"resplits: expected 0 or more, found {self.resplits}")
