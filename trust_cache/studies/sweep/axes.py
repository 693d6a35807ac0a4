"""Axes: the values that a setting of a head takes in a sweep, as users write them."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trust_cache.base.errors import InputError
from trust_cache.heads.settings import CLOSED_LOOP, HeadSettings, head_settings

MOST_VALUES = 10_000  # of one axis
_DIGITS = 12  # significant: enough to tell values apart, few enough to write 0.3 for 0.1 + 0.2
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
        raise InputError(f"{name}: the value {value} stands twice on this axis")
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
    """Return a value as the head's settings take it; they name the setting where they refuse."""
    # The dismissal loss needs a tau, which may be another axis: that is judged with whole settings.
    probe = replace(base, tau=CLOSED_LOOP) if base.tau is None else base
    taken = getattr(head_settings({name: value}, probe), name)
    return taken if isinstance(taken, str) else float(taken) + 0.0  # -0.0 is 0.0


def _cell(text: str) -> Value:
    try:
        return float(text)
    except ValueError:
        return text
