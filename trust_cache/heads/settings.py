"""The settings of heads and of their training, checked when they are made, and configurations from TOML."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from trust_cache.base.documents import parse_toml
from trust_cache.base.errors import InputError

CLOSED_LOOP: Literal["closed-loop"] = "closed-loop"
DRAWS = 256  # values of the 8-bit draws that a dropout mask is made from

_AT_LEAST_ZERO = ("lambda_brier", "lambda_focal", "gamma", "lambda_dismiss", "lr", "weight_decay")
_SHARES = ("level", "delta")


@dataclass(frozen=True)
class HeadSettings:
    """One configuration: CE + lambda_brier Brier + lambda_focal focal + lambda_dismiss dismiss, and AdamW.

    `tau` is a fixed threshold, "closed-loop" (recomputed at the start of every epoch so that the dismissed
    calibration images have a Clopper-Pearson bound at confidence 1 - delta of at most `level`), or None.
    """

    lambda_brier: float = 0.0
    lambda_focal: float = 0.0
    gamma: float = 2.0
    lambda_dismiss: float = 0.0
    margin: float = 0.10
    tau: float | Literal["closed-loop"] | None = None
    level: float = 0.01
    delta: float = 0.05
    lr: float = 3e-5
    weight_decay: float = 1e-4
    clip: float = 5.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "tau":
                object.__setattr__(self, field.name, _number(field.name, getattr(self, field.name)))
        for name in _AT_LEAST_ZERO:
            if getattr(self, name) < 0:
                raise InputError(f"{name}: expected 0 or more, found {getattr(self, name)}")
        for name in _SHARES:
            if not 0 < getattr(self, name) < 1:
                raise InputError(
                    f"{name}: expected a number strictly between 0 and 1, found {getattr(self, name)}"
                )
        if self.clip <= 0:
            raise InputError(f"clip: expected a number above 0, found {self.clip}")
        self._check_tau()

    def _check_tau(self) -> None:
        if isinstance(self.tau, str):
            if self.tau != CLOSED_LOOP:
                raise InputError(f'tau: expected a number or "{CLOSED_LOOP}", found {self.tau!r}')
        elif self.tau is not None:
            object.__setattr__(self, "tau", _number("tau", self.tau))
        elif self.lambda_dismiss > 0:
            raise InputError(
                f"lambda_dismiss = {self.lambda_dismiss} needs a tau: a number or"
                f' "{CLOSED_LOOP}", found none; set tau, or lambda_dismiss = 0'
            )

    @property
    def closed_loop(self) -> bool:
        """Whether tau is recomputed at the start of every epoch."""
        return self.tau == CLOSED_LOOP


@dataclass(frozen=True)
class TrainingSettings:
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

    @property
    def batch(self) -> int:
        """The rows of a batch."""
        return self.batch_positives + self.batch_negatives


@cache
def presets() -> Mapping[str, HeadSettings]:
    """Return the paper's five configurations, in its order."""
    return MappingProxyType(read_configurations(Path(__file__).with_name("presets.toml")))


def read_configurations(path: Path) -> dict[str, HeadSettings]:
    """Read configurations from a TOML file of the form of presets.toml: a table for each."""
    try:
        content = parse_toml(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(
            f"{path}: no such file; expected a TOML file with a table for each configuration"
        ) from error
    except ValueError as error:
        raise InputError(f"{path}: not a TOML file: {error}") from error
    for name in content:
        if not name or name != name.strip():
            raise InputError(
                f"{path}: expected a configuration's name without spaces around it, found {name!r}"
            )
    if not content:
        raise InputError(f"{path}: expected a table for each configuration, found none")
    return {name: _configuration(f"{path}: [{name}]", table) for name, table in content.items()}


def head_settings(values: Mapping[str, Any], base: HeadSettings | None = None) -> HeadSettings:
    """Return `base` (else the defaults) with these values; an unknown name is an error naming the nearest."""
    known = {field.name: getattr(base, field.name) for field in fields(HeadSettings)} if base else {}
    names = [field.name for field in fields(HeadSettings)]
    for name in values:
        if name not in names:
            nearest = get_close_matches(name, names, n=1, cutoff=0.4)
            hint = f", did you mean {nearest[0]!r}?" if nearest else ""
            raise InputError(f"unknown setting {name!r}{hint}; known: {', '.join(names)}")
    return HeadSettings(**{**known, **values})


def _configuration(where: str, table: object) -> HeadSettings:
    if not isinstance(table, dict):
        raise InputError(f"{where}: expected a table of settings, found {table!r}")
    try:
        return head_settings(table)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _number(name: str, value: object) -> float:
    try:
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        good = False
    if not good:
        raise InputError(f"{name}: expected a finite number, found {value!r}")
    return float(value)  # type: ignore[arg-type]


def choose_configurations(words: Sequence[str]) -> dict[str, HeadSettings]:
    """Return the configurations that a user named: presets by name, and all of each TOML file."""
    chosen: dict[str, HeadSettings] = {}
    for word in (part.strip() for item in words for part in item.split(",")):
        found = read_configurations(Path(word)) if word.endswith(".toml") else _preset(word)
        for name, settings in found.items():
            if name in chosen:
                raise InputError(f"configurations: {name} is named twice")
            chosen[name] = settings
    return chosen


def _preset(name: str) -> dict[str, HeadSettings]:
    if name not in presets():
        nearest = get_close_matches(name, list(presets()), n=1, cutoff=0.4)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise InputError(
            f"configurations: expected {', '.join(presets())} or a .toml file, found {name!r}{hint}"
        )
    return {name: presets()[name]}
