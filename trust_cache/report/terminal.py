"""Summarise a run for the terminal: sentences, verdicts, and tau by epoch as a sparkline."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from trust_cache.base.text_tables import NO_NUMBER, Table, percent, whole_percent
from trust_cache.certificate.evidence import Evidence
from trust_cache.certificate.point_tables import (
    BOUND,
    NOT_AVAILABLE,
    describe_cases,
    name_of,
    reasons,
    sentences,
)

_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Essentials:
    """The content that `show` prints."""

    title: str
    table: Table
    sentences: tuple[str, ...]  # of the leading configuration
    reasons: tuple[str, ...]  # of its points that are not certified
    courses: tuple[str, ...]  # tau by epoch, one line per configuration
    warnings: tuple[str, ...]
    limits: tuple[str, ...]


def essentials(evidence: Evidence) -> Essentials:
    """Return the summary of a certified run."""
    cohort, certification = evidence.cohort, evidence.certification
    leading = replace(certification, points=tuple(evidence.points_of(evidence.leading)))
    size = f"{cohort.cases:,} cases, {cohort.positives:,} with cancer"
    return Essentials(
        title=f"{evidence.name}: {size}, {evidence.kind} scores",
        table=_table(evidence),
        sentences=tuple(sentences(leading)),
        reasons=tuple(reasons(leading)),
        courses=tuple(_courses(evidence.thresholds)),
        warnings=certification.warnings,
        limits=certification.limits,
    )


def sparkline(values: Sequence[float]) -> str:
    """Draw numbers as a line of blocks from the lowest to the highest; equal numbers are low blocks."""
    low, high = min(values), max(values)
    if low == high:
        return _BLOCKS[0] * len(values)
    last = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(last * (value - low) / (high - low))] for value in values)


def _table(evidence: Evidence) -> Table:
    rows = tuple(
        (
            name_of(point.configuration),
            whole_percent(point.target),
            point.status,
            NO_NUMBER if point.tau is None else f"{point.tau:.6g}",
            percent(point.dismissal) if point.met else NOT_AVAILABLE,
            percent(point.bound) if point.met else NOT_AVAILABLE,
            f"{point.positives_dismissed:,} of {point.positives:,}",
            percent(point.recall),
        )
        for point in evidence.certification.points
    )
    header = (
        "Configuration", "Target", "Status", "τ", "Dismissed", BOUND, "Cancers missed", "Recall",
    )  # fmt: skip
    return Table(f"On the evaluation subset: {describe_cases(evidence.certification.points)}", header, rows)


def _courses(thresholds: pl.DataFrame | None) -> list[str]:
    """Describe tau by epoch, the median over folds."""
    if thresholds is None:
        return []
    lines = []
    for (name,), rows in thresholds.group_by("configuration", maintain_order=True):
        course = rows.group_by("epoch").agg(pl.col("tau").median()).sort("epoch")["tau"].to_list()
        lines.append(
            f"{name}  {sparkline(course)}  {course[0]:.4g} to {course[-1]:.4g}"
            f" (median of {rows['fold'].n_unique()} folds, {len(course)} epochs)"
        )
    return lines
