"""A data set: its description (data_manifests/*.toml), and how its metadata become the rows of a manifest."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import polars as pl

from trust_cache.base.documents import Document, parse_toml, typed
from trust_cache.base.errors import InputError
from trust_cache.manifest.manifest_checks import ERRORS, WARNINGS, Check, DatasetCounts
from trust_cache.manifest.metadata_file import Metadata

SCHEMA = 1


@dataclass(frozen=True)
class Dataset:
    """One kind of metadata file.

    `read` returns one row per image with the manifest's columns and `line`, `label_text` and
    `laterality_text` as they were found (see `read_images`), `age` if there is one, and any column that the
    data set's own checks need. Paths are relative to the folder of the images. The columns `required` and
    `optional` become the manifest's columns; all others are kept verbatim behind them.
    """

    required: tuple[str, ...]
    read: Callable[[Metadata], pl.DataFrame]
    optional: tuple[str, ...] = ()
    errors: tuple[Check, ...] = ERRORS
    warnings: tuple[Check, ...] = WARNINGS
    expected: DatasetCounts | None = None  # of a complete copy
    hints: Mapping[str, str] = field(default_factory=dict)  # what to do when only this column is missing


class DatasetDescription(Document, frozen=True):
    """One data set: its source, the columns of its metadata, and the counts of a complete copy."""

    schema: int
    name: str
    title: str
    source: str
    doi: str
    licence: str
    terms: dict[Literal["features", "weights"], Literal["allowed", "forbidden", "unknown"]]
    layout: dict[str, str]
    expected: DatasetCounts


def descriptions_folder() -> Path:
    """Return the folder of the TOML files: inside the installed package, else the source tree's."""
    here = Path(__file__).resolve().parents[1]
    for folder in (here / "data_manifests", here.parents[1] / "data_manifests"):
        if folder.is_dir():
            return folder
    raise InputError(f"no data_manifests folder beside {here}; the installation is incomplete")


def described_datasets() -> list[str]:
    """Return the names of all described data sets."""
    return sorted(path.stem for path in descriptions_folder().glob("*.toml"))


@cache
def describe_dataset(name: str) -> DatasetDescription:
    """Read the description of a data set."""
    if name not in described_datasets():
        raise InputError(f"data set: expected one of {', '.join(described_datasets())}, found {name!r}")
    path = descriptions_folder() / f"{name}.toml"
    content = parse_toml(path.read_bytes())
    return typed(content, DatasetDescription, where=path, what="the description of a data set", schema=SCHEMA)
