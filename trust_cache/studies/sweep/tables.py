"""The tables of a sweep: results.csv and its parquet, folds.csv, failures.csv."""

import io
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import polars as pl

from trust_cache.base.tables import write_rows
from trust_cache.certificate.points import POINT_KEYS, Point
from trust_cache.heads.settings import HeadSettings
from trust_cache.studies.sweep.assessment import Assessment, Key
from trust_cache.studies.sweep.catalogue import name_setting
from trust_cache.studies.sweep.record import Record
from trust_cache.studies.sweep.selection import SearchOutcome
from trust_cache.studies.sweep.space import SETTING_NAMES
from trust_cache.studies.sweep.winners import REPEAT, Winner

# A point has keys that a setting has too: the setting keeps the name, the point's gets a prefix.
_RENAMED = {key: f"point_{key}" if key in SETTING_NAMES else key for key in POINT_KEYS}
_POINT_COLUMNS = {key: column for key, column in _RENAMED.items() if key != "target"}
_SEARCH_COLUMNS = ("search_dismissed", "search_positives_dismissed", "search_dismissal", "search_auroc_case")
COLUMNS = (
    "setting", *SETTING_NAMES, "repeat", "target", *_POINT_COLUMNS.values(), *_SEARCH_COLUMNS, "winner",
    "evaluation_shown",
)  # fmt: skip
FOLD_COLUMNS = (
    "setting", "repeat", "target", "fold", "search_cases", "search_positives", "search_dismissed",
    "search_positives_dismissed",
)  # fmt: skip
FOLD_TYPES = {
    name: pl.String if name == "setting" else pl.Float64 if name == "target" else pl.Int64
    for name in FOLD_COLUMNS
}
_TEXTS = {"setting", "tau", "configuration", "reason"}
_FLAGS = {"met", "winner", "evaluation_shown"}
_COUNTS = {
    "repeat", "search_cases", "search_positives", "cases", "positives", "dismissed", "positives_dismissed",
    "compared", "search_dismissed", "search_positives_dismissed",
}  # fmt: skip


def result_rows(record: Record, found: Assessment, winners: Mapping[float, Winner]) -> list[dict[str, Any]]:
    """Return a row for each setting, repeat and target; evaluation only where it may be seen."""
    settings = {name_setting(item): item for item in record.settings}
    rows = (_row(record, found, winners, settings[key[0]], key) for key in _keys(record))
    return [{column: row.get(column) for column in COLUMNS} for row in rows]


def _keys(record: Record) -> Iterator[Key]:
    names = (name_setting(item) for item in record.settings)
    return itertools.product(names, range(record.identity["repeats"]), record.identity["targets"])


def _row(
    record: Record, found: Assessment, winners: Mapping[float, Winner], settings: HeadSettings, key: Key
) -> dict[str, Any]:
    name, repeat, target = key
    row: dict[str, Any] = {"setting": name, **asdict(settings), "repeat": repeat, "target": target}
    row |= {"configuration": name, "compared": record.compared, "point_delta": record.identity["delta"]}
    won = target in winners and winners[target].setting == name
    row |= {"winner": won, "evaluation_shown": name in record.shown}
    if (name, repeat) in found.diverged:
        fold = found.diverged[name, repeat]
        return row | {"reason": f"training diverged in fold {fold}: its scores are not finite"}
    row |= _search_cells(found.outcomes[key])
    point = winners[target].point if won and repeat == REPEAT else found.shown.get(key)
    return row if point is None else row | _point_cells(point)


def _search_cells(outcome: SearchOutcome) -> dict[str, Any]:
    threshold, counts = outcome.threshold, outcome.counts
    return {
        "point_tau": threshold.tau,
        "search_cases": threshold.search_cases,
        "search_positives": threshold.search_positives,
        "search_dismissed": counts.dismissed,
        "search_positives_dismissed": counts.positives_dismissed,
        "search_dismissal": counts.dismissed / counts.cases,
        "search_auroc_case": outcome.auroc_case,
    }


def _point_cells(point: Point) -> dict[str, Any]:
    return {column: getattr(point, key) for key, column in _POINT_COLUMNS.items()}


def results_csv(rows: list[dict[str, Any]]) -> bytes:
    """Return results.csv."""
    return write_rows(COLUMNS, rows)


def results_frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Return the same table with types; tau is text, because it may be `closed-loop`."""
    return pl.DataFrame(
        {
            name: pl.Series(name, [_typed(name, row[name]) for row in rows], dtype=_type(name))
            for name in COLUMNS
        }
    )


def results_parquet(table: pl.DataFrame) -> bytes:
    """Return results.parquet."""
    file = io.BytesIO()
    table.write_parquet(file)
    return file.getvalue()


def fold_rows(record: Record, found: Assessment) -> Iterator[dict[str, Any]]:
    """Yield the rows of folds.csv: what each threshold does on the search cases of each fold."""
    for key in _keys(record):
        for fold, counts in enumerate(found.outcomes[key].by_fold if key in found.outcomes else ()):
            yield {
                **dict(zip(("setting", "repeat", "target"), key, strict=True)),
                "fold": fold,
                "search_cases": counts.cases,
                "search_positives": counts.positives,
                "search_dismissed": counts.dismissed,
                "search_positives_dismissed": counts.positives_dismissed,
            }


def folds_csv(record: Record, found: Assessment) -> bytes:
    """Return folds.csv."""
    return write_rows(FOLD_COLUMNS, fold_rows(record, found))


def failures_csv(found: Assessment) -> bytes:
    """Return failures.csv: the settings whose training diverged."""
    rows = (
        {
            "setting": name,
            "repeat": repeat,
            "fold": fold,
            "reason": "training diverged: lower lr or the losses",
        }
        for (name, repeat), fold in sorted(found.diverged.items())
    )
    return write_rows(("setting", "repeat", "fold", "reason"), rows)


def _type(name: str) -> type[pl.DataType]:
    if name in _TEXTS:
        return pl.String
    if name in _FLAGS:
        return pl.Boolean
    return pl.Int64 if name in _COUNTS else pl.Float64


def _typed(name: str, value: object) -> object:
    return str(value) if name == "tau" and value is not None else value
