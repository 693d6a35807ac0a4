"""The tables of the comparison page, written from the CSV files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from trust_cache.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper

NOISE = Path(__file__).resolve().with_name("training_noise.csv")
SHOWN_TRAININGS = (1, 2, 3, 5)


def render_tables(folder: Path, noise: Path = NOISE) -> dict[str, str]:
    """Return every table of the page as markdown, from the files of `folder` and that of training noise."""
    return {"alarms": _alarms(folder), "verdicts": _verdicts(folder), "training_noise": _noise(noise)}


def count_called(noise: Path, trainings: int) -> pl.DataFrame:
    """Count by setting and measure how often two trainings of one configuration are called different."""
    rows = pl.read_csv(noise, schema_overrides={"called": pl.Boolean}).select(
        "setting", "cohort", "measure", called=pl.col("called") & (pl.col("held") >= trainings)
    )
    any_of_them = (
        rows.group_by("setting", "cohort", maintain_order=True)
        .agg(pl.col("called").any())
        .with_columns(measure=pl.lit("any of the three"))
    )
    return (
        pl.concat([rows, any_of_them.select(rows.columns)])
        .group_by("setting", "measure", maintain_order=True)
        .agg(cohorts=pl.len(), called=pl.col("called").sum())
        .sort("setting", descending=True, maintain_order=True)
    )


def _noise(path: Path) -> str:
    counted = [count_called(path, trainings) for trainings in SHOWN_TRAININGS]
    rows = []
    for group in zip(*(table.iter_rows() for table in counted), strict=True):
        setting, measure, cohorts, _ = group[0]
        rows.append((setting, measure, str(cohorts), *(_count_with_margin(row[3], cohorts) for row in group)))
    header = ("training", "measure", "cohorts", *map(_trainings, SHOWN_TRAININGS))
    return _markdown(header, rows)


def _trainings(number: int) -> str:
    return f"{number} training{'s' * (number > 1)}"


def _count_with_margin(count: int, of: int) -> str:
    ends = clopper_pearson_lower(count, of, 0.025), clopper_pearson_upper(count, of, 0.025)
    low, high = (_percent(float(end)) for end in ends)
    return f"{_percent(count / of)} ({low} to {high})"


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
