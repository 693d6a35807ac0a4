"""A study beside the runs, as the page shows it."""

from dataclasses import dataclass

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
