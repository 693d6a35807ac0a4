"""The tables of the comparison page, written from the CSV files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl


def render_tables(folder: Path) -> dict[str, str]:
    """Return every table of the page as markdown, from the CSV files of `folder`."""
    return {"alarms": _alarms(folder), "verdicts": _verdicts(folder)}


def _alarms(folder: Path) -> str:
    rows = []
    for (name, target, correlation), by in _groups(
        folder / "alarms.csv", "data_set", "target", "correlation"
    ):
        rows.append(
            (
                name,
                _percent(target, 0),
                f"{correlation:g}",
                _with_margin(by["obvious"], "coverage", "coverage"),
                _with_margin(by["interval"], "coverage", "coverage"),
            )
        )
    header = (
        "size",
        "recall",
        "correlation",
        "bootstrap of one split covers",
        "interval on all cases covers",
    )
    return _markdown(header, rows)


def _verdicts(folder: Path) -> str:
    rows = []
    for (name, target, scenario), by in _groups(folder / "verdicts.csv", "data_set", "target", "scenario"):
        rows.append(
            (
                name,
                _percent(target, 0),
                scenario,
                _percent(by["obvious"]["coverage"]),
                _with_margin(by["interval"], "coverage", "coverage"),
                _percent(by["swap"]["called_share"]),
                _with_margin(by["verdict"], "called_share", "called"),
            )
        )
    header = (
        "size", "recall", "columns", "bootstrap of one split covers", "interval covers",
        "swap test alone rejects", "called different",
    )  # fmt: skip
    return _markdown(header, rows)


def _groups(path: Path, *keys: str) -> list[tuple[tuple[Any, ...], dict[str, dict[str, Any]]]]:
    data = pl.read_csv(path)
    return [
        (key, {row["procedure"]: row for row in group.to_dicts()})
        for key, group in data.group_by(keys, maintain_order=True)
    ]


def _with_margin(row: dict[str, Any], share: str, name: str) -> str:
    if row[share] is None:
        return "not resolvable"
    low, high = (_percent(row[f"{name}_{end}"]) for end in ("low", "high"))
    return f"{_percent(row[share])} ({low} to {high})"


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
