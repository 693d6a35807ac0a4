"""Settings of heads and of their training, checked when they are made, and configurations from TOML."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from trust_cache.base.documents import Document, parse_toml
from trust_cache.base.errors import InputError, did_you_mean
from trust_cache.manifest.cases import AGGREGATIONS, MAXIMUM, NEEDS_SIDES, Aggregation

PAPER, TUNED = "paper", "tuned"  # words for configurations: the paper's five, and the one beside them
CLOSED_LOOP: Literal["closed-loop"] = "closed-loop"
# What a tuned head's penalty weighs: features of variance 1, or of the variance that LayerNorm leaves them.
STANDARDISED, NATURAL = "standardised", "natural"
DRAWS = 256  # values of the 8-bit draws that a dropout mask is made from

_AT_LEAST_ZERO = ("lambda_brier", "lambda_focal", "focal_gamma", "lambda_dismiss", "lr", "weight_decay")
_RANGES: tuple[tuple[tuple[str, ...], Callable[[float], bool], str], ...] = (
    (_AT_LEAST_ZERO, lambda value: value >= 0, "0 or more"),
    (("loop_level", "loop_delta"), lambda value: 0 < value < 1, "a number strictly between 0 and 1"),
    (("clip",), lambda value: value > 0, "a number above 0"),
)


class HeadSettings(Document, frozen=True):
    """One configuration: CE + lambda_brier Brier + lambda_focal focal + lambda_dismiss dismiss, and AdamW.

    With `tuned` it is logistic regression that chooses all by itself (heads/tuned), and no other setting but
    `aggregation` applies: how the scores of a case's images become its own.

    `tau` is a fixed threshold, "closed-loop" or None. The closed loop recomputes it at the start of every
    epoch so that the dismissed calibration images have a Clopper-Pearson bound of at most `loop_level` at
    confidence 1 - `loop_delta`.
    """

    lambda_brier: float = 0.0
    lambda_focal: float = 0.0
    focal_gamma: float = 2.0
    lambda_dismiss: float = 0.0
    margin: float = 0.10
    tau: float | Literal["closed-loop"] | None = None
    loop_level: float = 0.01
    loop_delta: float = 0.05
    lr: float = 3e-5
    weight_decay: float = 1e-4
    clip: float = 5.0
    tuned: bool = False
    aggregation: Aggregation = MAXIMUM

    def __post_init__(self) -> None:
        _check_kind(self)
        for name in SETTING_NAMES:
            if name != "tau":
                msgspec.structs.force_setattr(self, name, _number(name, getattr(self, name)))
        for names, good, expected in _RANGES:
            for name in names:
                if not good(getattr(self, name)):
                    raise InputError(f"{name}: expected {expected}, found {getattr(self, name)}")
        if isinstance(self.tau, str):
            if self.tau != CLOSED_LOOP:
                raise InputError(f'tau: expected a number or "{CLOSED_LOOP}", found {self.tau!r}')
        elif self.tau is not None:
            msgspec.structs.force_setattr(self, "tau", _number("tau", self.tau))
        elif self.lambda_dismiss > 0:
            raise InputError(
                f"lambda_dismiss = {self.lambda_dismiss} needs a tau: a number or"
                f' "{CLOSED_LOOP}", found none; set tau, or lambda_dismiss = 0'
            )

    @property
    def closed_loop(self) -> bool:
        """Whether tau is recomputed at the start of every epoch."""
        return self.tau == CLOSED_LOOP


def _check_kind(head: HeadSettings) -> None:
    """Refuse an unknown aggregation, and settings of losses for a tuned head."""
    if head.aggregation not in AGGREGATIONS:
        raise InputError(
            f"aggregation: expected {', '.join(AGGREGATIONS)}, found {head.aggregation!r}"
            f"{did_you_mean(str(head.aggregation), AGGREGATIONS)}"
        )
    if not isinstance(head.tuned, bool):
        raise InputError(f"tuned: expected true or false, found {head.tuned!r}")
    found = [name for name, usual in _USUAL.items() if head.tuned and getattr(head, name) != usual]
    if found:
        raise InputError(f"tuned: it chooses its own settings, found {', '.join(found)}; leave them out")


# The settings of losses and of AdamW, and their defaults; the others say what kind of head it is.
_USUAL = {
    name: usual
    for name, usual in zip(HeadSettings.__struct_fields__, HeadSettings.__struct_defaults__, strict=True)
    if name not in ("tuned", "aggregation")
}
SETTING_NAMES = tuple(_USUAL)


class TrainingSettings(Document, frozen=True):
    """What all heads of a run share: epochs, batches and dropout."""

    epochs: int = 20
    batch_positives: int = 20
    batch_negatives: int = 60
    dropped_of_256: int = 77  # 0.3, in the 8-bit draws that masks are made from; 0 is no dropout

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_positives", "batch_negatives"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: expected 1 or more, found {getattr(self, name)}")
        if not 0 <= self.dropped_of_256 < DRAWS:
            raise InputError(f"dropped_of_256: expected 0 to {DRAWS - 1}, found {self.dropped_of_256}")

    @classmethod
    def with_dropout(
        cls, dropout: float, *, epochs: int, batch_positives: int, batch_negatives: int
    ) -> "TrainingSettings":
        """Return settings with a dropout share, rounded to the nearest of 256 steps."""
        if not 0 <= dropout < 1:
            raise InputError(f"dropout: expected 0 or more and below 1, found {dropout}")
        dropped = min(round(DRAWS * dropout), DRAWS - 1)
        return cls(
            epochs=epochs,
            batch_positives=batch_positives,
            batch_negatives=batch_negatives,
            dropped_of_256=dropped,
        )

    @property
    def batch(self) -> int:
        """The rows of a batch."""
        return self.batch_positives + self.batch_negatives


class TunedChoice(Document, frozen=True, kw_only=True):
    """What a fold chose, and what the choice rests on."""

    scaling: str  # of the features, of the regression with the greatest weight: standardised or natural
    best: float  # its penalty, in units of the loss's curvature
    penalties: tuple[float, ...]  # all that were tried
    weights: dict[str, tuple[float, ...]]  # in the average, by scaling and penalty
    # Held-out, by scaling and penalty; empty: nothing could be held out.
    cross_entropy: dict[str, tuple[float, ...]]
    auroc: float  # of cases, held-out, of the average
    images: int
    positive_images: int
    patients: int
    iterations: int

    @property
    def least_cross_entropy(self) -> float:
        """The lowest held-out cross-entropy."""
        return min(min(part) for part in self.cross_entropy.values())


@cache
def known_configurations() -> Mapping[str, HeadSettings]:
    """Return all configurations that have a name: the paper's five and `tuned`."""
    return MappingProxyType({**presets(), TUNED: HeadSettings(tuned=True, aggregation=NEEDS_SIDES)})


@cache
def presets() -> Mapping[str, HeadSettings]:
    """Return the paper's five configurations, in its order."""
    return MappingProxyType(read_configurations(Path(__file__).with_name("presets.toml")))


def read_configurations(path: Path) -> dict[str, HeadSettings]:
    """Read configurations from a TOML file such as presets.toml: one table per configuration."""
    content = read_toml(path, "one table per configuration")
    for name in content:
        if not name or name != name.strip():
            raise InputError(
                f"{path}: expected a configuration's name without spaces around it, found {name!r}"
            )
    if not content:
        raise InputError(f"{path}: expected one table per configuration, found none")
    found = {}
    for name, table in content.items():
        if not isinstance(table, dict):
            raise InputError(f"{path}: [{name}]: expected a table of settings, found {table!r}")
        try:
            found[name] = head_settings(table)
        except InputError as error:
            raise InputError(f"{path}: [{name}]: {error}") from error
    return found


def read_toml(path: Path, expected: str) -> dict[str, Any]:
    """Read a TOML file of a user's; `expected` names its content for messages."""
    try:
        return parse_toml(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; expected a TOML file with {expected}") from error
    except ValueError as error:
        raise InputError(f"{path}: not a TOML file: {error}") from error


def head_settings(values: Mapping[str, Any], base: HeadSettings | None = None) -> HeadSettings:
    """Return `base` (else the defaults) with these values; an unknown name is an error naming the nearest."""
    known = HeadSettings.__struct_fields__
    for name in values:
        if name not in known:
            hint = did_you_mean(name, known)
            raise InputError(f"unknown setting {name!r}; known: {', '.join(known)}{hint}")
    return HeadSettings(**{**(msgspec.structs.asdict(base) if base else {}), **values})


def change_settings(
    configurations: Mapping[str, HeadSettings], **values: float | None
) -> dict[str, HeadSettings]:
    """Return the configurations, each with the values that are not None in place of its own.

    A tuned one has none of them.
    """
    given = {name: value for name, value in values.items() if value is not None}
    return {name: base if base.tuned else head_settings(given, base) for name, base in configurations.items()}


def _number(name: str, value: object) -> float:
    try:
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        good = False
    if not good:
        raise InputError(f"{name}: expected a finite number, found {value!r}")
    return float(value)  # type: ignore[arg-type]


def choose_configurations(words: Sequence[str]) -> dict[str, HeadSettings]:
    """Return the configurations that a user named: one, `paper` (its five), or all of a TOML file."""
    chosen: dict[str, HeadSettings] = {}
    named: dict[str, Mapping[str, HeadSettings]] = {PAPER: presets()}
    named |= {name: {name: settings} for name, settings in known_configurations().items()}
    for word in (part.strip() for item in words for part in item.split(",")):
        if not word.endswith(".toml") and word not in named:
            hint = did_you_mean(word, list(named))
            raise InputError(
                f"configurations: expected {', '.join(named)} or a .toml file, found {word!r}{hint}"
            )
        found = named[word] if word in named else read_configurations(Path(word))
        for name in found:
            if name in chosen:
                raise InputError(f"configurations: {name} is named twice")
        chosen |= found
    return chosen
