"""The settings of a sweep in their one order: names made of content, axes that vary, cuts into banks."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property

from trust_cache.heads.settings import HeadSettings
from trust_cache.studies.sweep.axes import Value
from trust_cache.studies.sweep.space import SETTING_NAMES

# Heads trained side by side. A constant, because files are kept by bank: a cut that depended on memory or
# threads would make a resumed sweep another one. A bank of 100 at 2,048 features takes 9 MB of weights and
# moments, and with an RSNA-sized fold 13 MB of scores; beyond 100 a head gets no cheaper.
BANK = 100
_DIGITS = 12


@dataclass(frozen=True)
class Bank:
    """Settings that are trained together, named by what they are."""

    settings: tuple[HeadSettings, ...]

    @cached_property
    def name(self) -> str:
        """A name that other settings would not have."""
        return "b" + _digest([name_setting(item) for item in self.settings])


@cache
def name_setting(settings: HeadSettings) -> str:
    """Return a name that depends on the values alone, with a letter: no reader takes it for a number."""
    return "s" + _digest(list(asdict(settings).items()))


def in_order(settings: Iterable[HeadSettings]) -> tuple[HeadSettings, ...]:
    """Return the different settings sorted by their values, whatever the order they were asked in."""
    return tuple(sorted(set(settings), key=_place))


def find_axes(settings: Sequence[HeadSettings]) -> dict[str, list[Value | None]]:
    """Return the settings that take several values, with these values in order."""
    axes = {}
    for name in SETTING_NAMES:
        values = sorted({getattr(item, name) for item in settings}, key=_rank)
        if len(values) > 1:
            axes[name] = values
    return axes


def cut_banks(settings: Sequence[HeadSettings]) -> tuple[Bank, ...]:
    """Cut settings into banks: a function of the list alone."""
    return tuple(Bank(tuple(settings[i : i + BANK])) for i in range(0, len(settings), BANK))


def _place(settings: HeadSettings) -> tuple[tuple[int, float], ...]:
    return tuple(_rank(getattr(settings, name)) for name in SETTING_NAMES)


def _rank(value: Value | None) -> tuple[int, float]:
    """Put nothing first, then numbers, then the closed loop."""
    if value is None:
        return 0, 0.0
    return (2, 0.0) if isinstance(value, str) else (1, value)


def _digest(content: object) -> str:
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
