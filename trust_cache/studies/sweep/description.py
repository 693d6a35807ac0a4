"""What a user asks a sweep for, put together from the command line and a TOML file."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from trust_cache.base.documents import parse_toml
from trust_cache.base.errors import InputError
from trust_cache.studies.sweep.axes import Axis, make_axis, parse_axis
from trust_cache.studies.sweep.space import Space, choose_base

DEFAULT_BASE = "closed-loop"
_KEYS = ("base", "random", "grid")


def describe_space(
    grid: Sequence[str] = (), file: Path | None = None, base: str | None = None, random: int | None = None
) -> Space | None:
    """Return the space, or None where nothing was asked for; the command line's base and draws win."""
    content = {} if file is None else _read(file)
    if not grid and file is None:
        if random is not None:
            raise InputError("random: expected axes to draw from, for example --grid lr=1e-5..1e-3:log")
        if base is not None:
            raise InputError("base: expected axes that change it, for example --grid margin=0.05,0.1")
        return None
    start = choose_base(base or content.get("base", DEFAULT_BASE))
    axes: list[Axis] = []
    for name, values in content.get("grid", {}).items():
        try:
            axes.append(make_axis(name, values, start))
        except InputError as error:
            raise InputError(f"{file}: [grid] {error}") from error
    axes += [parse_axis(text, start) for text in grid]
    return Space(start, tuple(axes), content.get("random") if random is None else random)


def _read(file: Path) -> dict[str, Any]:
    try:
        content = parse_toml(file.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"{file}: no such file; expected a TOML file with a table [grid]") from error
    except ValueError as error:
        raise InputError(f"{file}: not a TOML file: {error}") from error
    for key in content:
        if key not in _KEYS:
            nearest = get_close_matches(key, _KEYS, n=1)
            hint = f", did you mean {nearest[0]!r}?" if nearest else ""
            raise InputError(f"{file}: unknown key {key!r}{hint}; known: {', '.join(_KEYS)}")
    kinds = {"base": str, "random": int, "grid": dict}
    for key, kind in kinds.items():
        if key in content and type(content[key]) is not kind:
            words = {str: "a name", int: "a number of draws", dict: "a table of axes"}
            raise InputError(f"{file}: {key}: expected {words[kind]}, found {content[key]!r}")
    return content
