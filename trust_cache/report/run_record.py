"""What a run folder says of its making: its record and its thresholds by epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from trust_cache.base.documents import parse_json
from trust_cache.base.errors import InputError
from trust_cache.base.tables import read_text_table

THRESHOLD_COLUMNS = ("configuration", "fold", "epoch", "tau")


@dataclass(frozen=True)
class RunRecord:
    """The record of a run; empty where the scores are from elsewhere."""

    document: Mapping[str, Any] = field(default_factory=dict)
    thresholds: pl.DataFrame | None = None  # configuration, fold, epoch, tau


def read_record(path: Path) -> RunRecord:
    """Read what there is in a run folder."""
    if not path.is_dir():
        return RunRecord()
    return RunRecord(_document(path / "run.json"), _thresholds(path / "thresholds.csv"))


def _document(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        document = parse_json(file.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: not a readable JSON file ({error})") from error
    if not isinstance(document, dict):
        raise InputError(f"{file}: expected the record of a run, found {type(document).__name__}")
    return document


def _thresholds(file: Path) -> pl.DataFrame | None:
    # A run without a configuration that has a tau writes the header alone.
    if not file.is_file() or file.read_bytes().count(b"\n") <= 1:
        return None
    table = read_text_table(file, THRESHOLD_COLUMNS).select(THRESHOLD_COLUMNS)
    try:
        return table.with_columns(pl.col("epoch").cast(pl.Int64), pl.col("tau").cast(pl.Float64))
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{file}: expected numbers as epoch and tau ({error})") from error
