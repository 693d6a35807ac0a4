"""A data set: its description (data_manifests/*.toml), and how its metadata become the rows of a manifest."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
import polars as pl

from trust_cache.base.documents import Document, parse_toml, typed
from trust_cache.base.errors import InputError
from trust_cache.manifest.manifest_checks import ERRORS, WARNINGS, Check, DatasetCounts, ExpectedCounts

SCHEMA = 1


@dataclass(frozen=True)
class MetadataTable:
    """A further table of a data set, beside the one that lists its images."""

    name: str  # of the file as published
    required: tuple[str, ...]
    excel: bool = False  # published as an Excel workbook too
    known: tuple[str, ...] = ()  # further columns that are used where the table has them


@dataclass(frozen=True)
class Dataset:
    """One kind of metadata.

    `read` takes the table that lists the images, then the tables `beside` it. It returns one row per image
    with the manifest's columns and `line`, `label_text` and `laterality_text` as they were found (see
    `read_images`), `age` if there is one, the `added` columns, and any column that the data set's own checks
    need. A row with a reason in `left_out` is counted and not written. `case_positive`, if there is one,
    tells whether the case is positive, also where no image of the positive breast is left. Paths are relative
    to the folder of the images. The columns `required` and `optional` become the manifest's columns; all
    others (or those in `further`), and those in `kept`, stay verbatim behind them.
    """

    required: tuple[str, ...]
    read: Callable[..., pl.DataFrame]
    optional: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # of the required columns
    errors: tuple[Check, ...] = ERRORS
    warnings: tuple[Check, ...] = WARNINGS
    expected: tuple[ExpectedCounts, ...] = ()  # of a complete copy, by release
    hints: Mapping[str, str] = field(default_factory=dict)  # what to do when only this column is missing
    table: str = "a CSV file"  # the table that lists the images, for messages
    known: tuple[str, ...] = ()  # further columns of it that are used where it has them
    beside: tuple[MetadataTable, ...] = ()
    reads_headers: bool = False  # `read` takes `headers`: paths as in the metadata -> headers or None
    added: tuple[str, ...] = ()  # further columns that `read` makes
    # The further columns of the first table that the manifest gets; None for all. The others are not read.
    further: tuple[str, ...] | None = None
    label_definition: str | None = None  # a name of the description's `labels`, then "; setting"

    @property
    def used(self) -> tuple[str, ...]:
        """The columns that only the manifest's own columns have."""
        return tuple(name for name in self.required + self.optional if name not in self.kept)


class LabelDefinition(Document, frozen=True):
    """What a label of 1 means, and what to know before believing a result with it."""

    meaning: str
    warning: str = ""


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
    expected: ExpectedCounts
    other_releases: tuple[ExpectedCounts, ...] = ()
    warnings: tuple[str, ...] = ()  # that belong beside every result on these data
    # By the name that the column `label_definition` of a manifest has.
    labels: dict[str, LabelDefinition] = msgspec.field(default_factory=dict)

    @property
    def releases(self) -> tuple[ExpectedCounts, ...]:
        """The counts of every release."""
        return (self.expected, *self.other_releases)

    @property
    def counts(self) -> DatasetCounts:
        """The counts of images and cases, where all four are published."""
        known = {name: getattr(self.expected, name) for name in DatasetCounts.__dataclass_fields__}
        if None in known.values():
            absent = ", ".join(name for name, number in known.items() if number is None)
            raise InputError(f"{self.name}: expected a data set with published counts, found no {absent}")
        return DatasetCounts(**known)


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
