"""The failures of images: the error, and failures.csv with one row per failed image."""

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from trust_cache.base.csv_tables import restore, write_rows
from trust_cache.base.errors import InputError

Stage = Literal["read", "decode", "intensity", "mask", "encode"]


class ImageError(InputError):
    """An image without a canonical picture; the reason is one sentence without header values."""

    def __init__(self, stage: Stage, reason: str) -> None:
        # Both are in `args`, so that the error can be pickled by a worker process.
        super().__init__(stage, reason)
        self.stage, self.reason = stage, reason

    def __str__(self) -> str:
        return f"{self.stage}: {self.reason}"


def refuse_if(fault: object, stage: Stage, reason: str) -> None:
    """Raise an ImageError where there is a fault."""
    if fault:
        raise ImageError(stage, reason)


FAILURES = "failures.csv"
COLUMNS = ("image_id", "stage", "reason")


@dataclass(frozen=True)
class Failure:
    """One row of failures.csv."""

    image_id: str
    stage: str
    reason: str


def failures_bytes(failures: Iterable[Failure]) -> bytes:
    """Return the table as a file, sorted by image; no cell is a formula in a spreadsheet."""
    ordered = sorted(failures, key=lambda failure: failure.image_id)
    return write_rows(COLUMNS, map(asdict, ordered), neutral=True)


def parse_failures(content: bytes) -> tuple[Failure, ...]:
    """Read a table back; incomplete rows are left out."""
    rows = csv.DictReader(io.StringIO(content.decode(errors="replace")))
    return tuple(
        Failure(*(restore(row[name]) for name in COLUMNS))
        for row in rows
        if all(row.get(name) for name in COLUMNS)
    )
