"""What a study of rivals is asked to do, checked when it is made."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from trust_cache.base.errors import InputError
from trust_cache.certificate.settings import check_delta, check_targets
from trust_cache.heads.folds import FOLDS
from trust_cache.studies.rivals.rules import MISS, RULES

PAPER_HEADS = ("ce", "closed-loop")
LOGISTIC, SELECTIVE, CONFORMAL = "logistic-regression", "selectivenet", "conformal-risk-training"
MODELS = (*PAPER_HEADS, LOGISTIC, SELECTIVE, CONFORMAL)


@dataclass(frozen=True)
class RivalSettings:
    """Targets are recalls, level a cancer rate among the dismissed, delta one minus the confidence."""

    targets: tuple[float, ...] = (0.98, 0.95)
    level: float = 0.01
    delta: float = 0.01
    seed: int = 0
    models: tuple[str, ...] = MODELS
    rules: tuple[str, ...] = tuple(RULES)
    epochs: int = 20  # of the paper's heads

    def __post_init__(self) -> None:
        check_targets(self.targets)
        check_delta(self.delta)
        if not 0.0 < self.level < 1.0:
            raise InputError(f"level: expected a fraction strictly between 0 and 1, found {self.level}")
        if self.seed < 0:
            raise InputError(f"seed: expected 0 or more, found {self.seed}")
        check_names("models", self.models, MODELS)
        check_names("rules", self.rules, tuple(RULES))

    @property
    def bars(self) -> list[tuple[str, float]]:
        """Every rule with each bar it is held to: the targets, or the level."""
        return [
            (rule, bar)
            for rule in self.rules
            for bar in (self.targets if RULES[rule].risk == MISS else (self.level,))
        ]

    @property
    def linear_fits(self) -> int:
        """How many linear models are fitted, for a progress bar."""
        each = {LOGISTIC: 1, SELECTIVE: 1, CONFORMAL: len(self.targets)}
        return FOLDS * sum(each.get(name, 0) for name in self.models)

    @property
    def steps(self) -> int:
        """The steps of a progress bar: epochs of the paper's heads by fold, and linear fits."""
        heads = FOLDS * self.epochs if set(self.models) & set(PAPER_HEADS) else 0
        return heads + self.linear_fits


def check_names(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Refuse unknown names with the nearest known one, none at all, and the same one twice."""
    if not names:
        raise InputError(f"{what}: expected at least one of {', '.join(known)}, found none")
    for name in names:
        if name not in known:
            nearest = get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise InputError(f"{what}: expected {', '.join(known)}, found {name!r}{hint}")
    if len(set(names)) < len(names):
        raise InputError(f"{what}: expected different names, found {', '.join(names)}")
