"""failures.csv: one row for each image that failed, at which stage and why."""

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from trust_cache.base.tables import restore, write_rows

COLUMNS = ("image_id", "stage", "reason")


@dataclass(frozen=True)
class Failure:
    """One row of failures.csv."""

    image_id: str
    stage: str
    reason: str


def failures_bytes(failures: Iterable[Failure]) -> bytes:
    """Return the table as a file, sorted by image; people open it, so no cell of it is a formula."""
    ordered = sorted(failures, key=lambda failure: failure.image_id)
    return write_rows(COLUMNS, map(asdict, ordered), neutral=True)


def parse_failures(content: bytes) -> tuple[Failure, ...]:
    """Read a table back; rows that are none of ours are left out."""
    rows = csv.DictReader(io.StringIO(content.decode(errors="replace")))
    return tuple(
        Failure(*(restore(row[name]) for name in COLUMNS))
        for row in rows
        if all(row.get(name) for name in COLUMNS)
    )
