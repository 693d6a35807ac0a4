"""The space of a sweep: a grid or random draws over axes, counted without being made."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

from trust_cache.base.errors import InputError
from trust_cache.heads.settings import HeadSettings, choose_configurations, head_settings
from trust_cache.statistics.splits import random_keys
from trust_cache.studies.sweep.axes import Axis, Value

SETTING_NAMES = tuple(field.name for field in fields(HeadSettings))
MOST_DRAWS = 1_000_000
_DRAWS = 2  # the stream of random keys that settings are drawn by; a number for each axis follows
_KEYS = 2.0**64


@dataclass(frozen=True)
class Space:
    """A base and the axes that change it; `draws` None is the whole grid."""

    base: HeadSettings
    axes: tuple[Axis, ...]
    draws: int | None = None

    def __post_init__(self) -> None:
        if not self.axes:
            raise InputError(
                "grid: expected at least one axis such as --grid lambda_dismiss=0,0.05, found none"
            )
        names = [axis.name for axis in self.axes]
        for position, name in enumerate(names):
            if name in names[:position]:
                raise InputError(f"grid: the axis {name} is given twice; write all its values once")
        if self.draws is None:
            for axis in self.axes:
                if axis.range is not None:
                    raise InputError(
                        f"{axis.name}: a range without a number of values is for --random N;"
                        f" write {axis.name}=low..high:count for a grid"
                    )
        elif not 1 <= self.draws <= MOST_DRAWS:
            raise InputError(f"random: expected 1 to {MOST_DRAWS:,} draws, found {self.draws}")

    @property
    def count(self) -> int:
        """How many settings the space names, whatever the number: none of them is made for it."""
        return math.prod(len(axis.values) for axis in self.axes) if self.draws is None else self.draws

    def settings(self, seed: int) -> Iterator[HeadSettings]:
        """Yield the settings one by one; draws may repeat where an axis has few values."""
        names = [axis.name for axis in self.axes]
        for values in self._grid() if self.draws is None else self._drawn(self.draws, seed):
            yield head_settings(dict(zip(names, values, strict=True)), self.base)

    def _grid(self) -> Iterator[tuple[Value, ...]]:
        return itertools.product(*(axis.values for axis in self.axes))

    def _drawn(self, draws: int, seed: int) -> Iterator[tuple[Value, ...]]:
        """Yield draws that depend on the seed, their number and the axis alone: more draws begin alike."""
        columns = [
            random_keys(draws, seed, _DRAWS, SETTING_NAMES.index(axis.name)).tolist() for axis in self.axes
        ]
        for keys in zip(*columns, strict=True):
            yield tuple(_draw(axis, key) for axis, key in zip(self.axes, keys, strict=True))


def _draw(axis: Axis, key: int) -> Value:
    if axis.range is not None:
        return axis.range.at(key / _KEYS)
    return axis.values[key * len(axis.values) >> 64]


def choose_base(words: str) -> HeadSettings:
    """Return the one configuration that a user named: a preset, or a TOML file with a single one."""
    found = choose_configurations([words])
    if len(found) != 1:
        raise InputError(f"base: expected one configuration, found {', '.join(found)}")
    return next(iter(found.values()))
