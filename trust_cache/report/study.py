"""A study beside the runs, as the page shows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trust_cache.base.text_tables import Table
from trust_cache.report.figure import Figure


@dataclass(frozen=True)
class Study:
    """A study beside the runs: a sweep or a comparison."""

    key: str
    heading: str
    sentences: tuple[str, ...]
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    reasons: Mapping[tuple[str, str], str] = field(default_factory=dict)  # why a cell of a table is N/A
