"""The space of a sweep: axes as users write them, the settings they span, and banks of settings."""

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from trust_cache.base.errors import InputError
from trust_cache.heads.head_settings import SETTING_NAMES, HeadSettings, choose_configurations, head_settings
from trust_cache.manifest.cases import MAXIMUM
from trust_cache.statistics.stratified_draws import random_keys

MOST_VALUES = 10_000  # of one axis
_DIGITS = 12  # significant: enough to tell values apart, few enough to write 0.3 for 0.1 + 0.2
MOST_DRAWS = 1_000_000
_DRAWS = 2  # the stream of random keys that settings are drawn by; the number of the axis follows
_KEYS = 2.0**64
_NAME_DIGITS = 12
_TABLE_KEYS = {"low", "high", "scale", "count"}

Value = float | str


@dataclass(frozen=True)
class Range:
    """An interval to draw from, evenly in the values or in their logarithms."""

    low: float
    high: float
    log: bool = False

    def at(self, share: float) -> float:
        """Return the value at this share of the way from low to high, to 12 digits."""
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        return min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Axis:
    """A setting and its values; with a range instead, values can only be drawn."""

    name: str
    values: tuple[Value, ...] = ()
    range: Range | None = None

    def draw(self, key: int) -> Value:
        """Return the value that a random key of 64 bits chooses."""
        if self.range is not None:
            return self.range.at(key / _KEYS)
        return self.values[key * len(self.values) >> 64]


def parse_axis(text: str, base: HeadSettings) -> Axis:
    """Read `name=1,2,3`, `name=low..high` (with `:log`), or `name=low..high:count` (with `:log`)."""
    name, equals, cells = (part.strip() for part in text.partition("="))
    if not equals or not name or not cells:
        raise InputError(
            f"grid: expected name=value,value,... or name=low..high, found {text!r};"
            " for example lambda_dismiss=0,0.05"
        )
    if ".." not in cells:
        return make_axis(name, [_cell(cell.strip()) for cell in cells.split(",")], base)
    interval, *words = cells.split(":")
    low, _, high = interval.partition("..")
    table: dict[str, object] = {"low": _cell(low.strip()), "high": _cell(high.strip())}
    for word in words:
        if word.strip() == "log":
            table["scale"] = "log"
        elif word.strip().isdecimal():
            table["count"] = int(word)
        else:
            raise InputError(
                f"grid: {name}: after low..high expected :log or a number of values, found {word!r}"
            )
    return make_axis(name, table, base)


def make_axis(name: str, content: object, base: HeadSettings) -> Axis:
    """Return an axis from a list of values, or from a table with low, high, scale and count."""
    if isinstance(content, Mapping):
        return _range_axis(name, content, base)
    if not isinstance(content, Sequence) or isinstance(content, str) or not content:
        raise InputError(f"{name}: expected a list of values, found {content!r}")
    if len(content) > MOST_VALUES:
        raise InputError(f"{name}: expected at most {MOST_VALUES:,} values, found {len(content):,}")
    values = tuple(_checked(name, value, base) for value in content)
    value, times = Counter(values).most_common(1)[0]
    if times > 1:
        raise InputError(f"{name}: the value {value} occurs twice on this axis")
    return Axis(name, values)


def _range_axis(name: str, table: Mapping[str, Any], base: HeadSettings) -> Axis:
    unknown = sorted(set(table) - _TABLE_KEYS)
    if unknown or not {"low", "high"} <= set(table):
        raise InputError(
            f"{name}: expected a table with low and high (and scale, count), found {', '.join(table)}"
        )
    low, high = (_checked(name, table[key], base) for key in ("low", "high"))
    scale, count = table.get("scale", "linear"), table.get("count")
    if scale not in ("linear", "log"):
        raise InputError(f'{name}: expected the scale "linear" or "log", found {scale!r}')
    if isinstance(low, str) or isinstance(high, str) or not low < high:
        raise InputError(f"{name}: expected a range from a lower to a higher number, found {low} to {high}")
    if scale == "log" and low <= 0:
        raise InputError(f"{name}: a logarithmic range begins above 0, found {low}")
    interval = Range(low, high, scale == "log")
    if count is None:
        return Axis(name, range=interval)
    if type(count) is not int or not 2 <= count <= MOST_VALUES:  # noqa: PLR2004
        raise InputError(f"{name}: expected 2 to {MOST_VALUES:,} values in a range, found {count}")
    return make_axis(name, [interval.at(step / (count - 1)) for step in range(count)], base)


def _checked(name: str, value: object, base: HeadSettings) -> Value:
    """Return a value as `HeadSettings` takes it, or raise its error, which names the setting."""
    # The dismissal loss needs a tau, which may be another axis: that is checked with all values together.
    probe = head_settings({"tau": "closed-loop"}, base) if base.tau is None else base
    taken = getattr(head_settings({name: value}, probe), name)
    return taken if isinstance(taken, str) else float(taken) + 0.0  # -0.0 is 0.0


def _cell(text: str) -> Value:
    try:
        return float(text)
    except ValueError:
        return text


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
        for position, axis in enumerate(self.axes):
            if axis.name in names[:position]:
                raise InputError(f"grid: the axis {axis.name} is given twice; write all its values once")
        ranges = [axis.name for axis in self.axes if axis.range is not None]
        if self.draws is None and ranges:
            raise InputError(
                f"{ranges[0]}: a range without a number of values is for --random N;"
                f" write {ranges[0]}=low..high:count for a grid"
            )
        if self.draws is not None and not 1 <= self.draws <= MOST_DRAWS:
            raise InputError(f"random: expected 1 to {MOST_DRAWS:,} draws, found {self.draws}")

    @property
    def count(self) -> int:
        """The number of settings, without making them."""
        return math.prod(len(axis.values) for axis in self.axes) if self.draws is None else self.draws

    def settings(self, seed: int) -> Iterator[HeadSettings]:
        """Yield the settings one by one; draws may repeat where an axis has few values."""
        names = [axis.name for axis in self.axes]
        grid = itertools.product(*(axis.values for axis in self.axes))
        for values in grid if self.draws is None else self._drawn(self.draws, seed):
            yield head_settings(dict(zip(names, values, strict=True)), self.base)

    def _drawn(self, draws: int, seed: int) -> Iterator[tuple[Value, ...]]:
        """Return draws that depend on seed, number and axis alone: more draws begin with the same ones."""
        streams = [random_keys(draws, seed, _DRAWS, SETTING_NAMES.index(axis.name)) for axis in self.axes]
        columns = [map(axis.draw, keys.tolist()) for axis, keys in zip(self.axes, streams, strict=True)]
        return zip(*columns, strict=True)


def choose_base(words: str) -> HeadSettings:
    """Return the configuration that a user named: a preset, or a TOML file with one configuration."""
    found = choose_configurations([words])
    if len(found) != 1:
        raise InputError(f"base: expected one configuration, found {', '.join(found)}")
    (base,) = found.values()
    if base.tuned or base.aggregation != MAXIMUM:
        raise InputError(
            f"base: expected a configuration of losses with the maximum over images, found {words}"
        )
    return base


# Heads trained side by side. A constant, as scores are kept by bank: if it depended on memory or threads,
# a resumed sweep would be another one. A bank of 100 at 2,048 features takes 9 MB of weights and moments, and
# with an RSNA-sized fold 13 MB of scores; in larger banks a head is not cheaper.
BANK = 100


@dataclass(frozen=True)
class Bank:
    """Settings that are trained together, named by their values."""

    settings: tuple[HeadSettings, ...]

    @cached_property
    def name(self) -> str:
        """A name that no other settings have."""
        return "b" + _digest([name_setting(item) for item in self.settings])


@cache
def name_setting(settings: HeadSettings) -> str:
    """Return a name that depends on the values alone; it begins with a letter, so it is never a number."""
    values = settings.as_document()
    return "s" + _digest([(name, values[name]) for name in SETTING_NAMES])


def in_order(settings: Iterable[HeadSettings]) -> tuple[HeadSettings, ...]:
    """Return the distinct settings sorted by their values."""
    return tuple(
        sorted(set(settings), key=lambda item: [_rank(getattr(item, name)) for name in SETTING_NAMES])
    )


def find_axes(settings: Sequence[HeadSettings]) -> dict[str, list[Value | None]]:
    """Return the axes: settings that take several values, with these values in order."""
    values = {name: {getattr(item, name) for item in settings} for name in SETTING_NAMES}
    return {name: sorted(found, key=_rank) for name, found in values.items() if len(found) > 1}


def cut_banks(settings: Sequence[HeadSettings]) -> tuple[Bank, ...]:
    """Cut settings into banks: a function of the list alone."""
    return tuple(Bank(tuple(settings[i : i + BANK])) for i in range(0, len(settings), BANK))


def _rank(value: Value | None) -> tuple[int, float]:
    """Order: None first, then numbers, then the closed loop."""
    if value is None:
        return 0, 0.0
    return (2, 0.0) if isinstance(value, str) else (1, value)


def _digest(content: object) -> str:
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_NAME_DIGITS]
