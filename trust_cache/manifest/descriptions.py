"""The descriptions of public data sets: found in the wheel or at the top of a source tree."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trust_cache.base.errors import InputError

SCHEMA = 1


@dataclass(frozen=True)
class ExpectedCounts:
    """What a complete copy of the data set holds."""

    images: int
    cases: int
    positive_cases: int
    positive_images: int


@dataclass(frozen=True)
class Description:
    """One data set: where it comes from, how it is laid out, how much of it there is."""

    name: str
    title: str
    source: str
    doi: str
    licence: str
    layout: dict[str, str]
    expected: ExpectedCounts


def descriptions_folder() -> Path:
    """Return the folder of the TOML files: inside the installed package, else the source tree's."""
    here = Path(__file__).resolve().parent
    for folder in (here / "data_manifests", here.parents[1] / "data_manifests"):
        if folder.is_dir():
            return folder
    raise InputError(f"no data_manifests folder beside {here}; the installation is incomplete")


def known_data_sets() -> list[str]:
    """Return the names of all described data sets."""
    return sorted(path.stem for path in descriptions_folder().glob("*.toml"))


@cache
def describe_data_set(name: str) -> Description:
    """Read the description of a data set."""
    if name not in known_data_sets():
        raise InputError(f"data set: expected one of {', '.join(known_data_sets())}, found {name!r}")
    content = _read(descriptions_folder() / f"{name}.toml")
    content["expected"] = ExpectedCounts(**content["expected"])
    return Description(**content)


def _read(path: Path) -> dict[str, Any]:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    schema = content.pop("schema", None)
    if schema != SCHEMA:
        raise InputError(f"{path}: expected schema {SCHEMA}, found {schema}")
    return content
