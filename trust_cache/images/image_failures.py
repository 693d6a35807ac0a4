"""The failures and warnings of images: the error, failures.csv and warnings.csv."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from trust_cache.base.csv_tables import restore, write_rows
from trust_cache.base.errors import InputError
from trust_cache.manifest.picture_checks import SEPARATOR, check_of

Stage = Literal["read", "decode", "intensity", "mask", "encode"]


# What to do about an image without a picture, by the stage at which it failed.
_ADVICE: dict[str, str] = {
    "read": "Ask the site for the file again, or review the case",
    "decode": "Ask the site to export the image again, or review the case",
    "intensity": "Correct the look-up tables in the header, or export the image again",
    "mask": "Look at the picture, and review the case",
    "encode": "Look at the picture, and review the case",
}


def with_advice(failure: str) -> str:
    """Return a failure, a text such as `mask: ...`, with what to do about it.

    One that ends with a finding of the pixel gate says it already.
    """
    advice = _ADVICE.get(failure.partition(":")[0])
    last = failure.rpartition(SEPARATOR)[2]
    return failure if advice is None or check_of(last) else f"{failure}. {advice}"


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


FAILURES, WARNINGS = "failures.csv", "warnings.csv"
COLUMNS = ("image_id", "stage", "reason")
WARNING_COLUMNS = ("image_id", "warning")


@dataclass(frozen=True)
class Failure:
    """One row of failures.csv."""

    image_id: str
    stage: str
    reason: str


@dataclass(frozen=True)
class ImageWarning:
    """One row of warnings.csv."""

    image_id: str
    warning: str

    def __str__(self) -> str:
        return f"{self.image_id}: {self.warning}"


def failures_bytes(failures: Iterable[Failure]) -> bytes:
    """Return the table as a file, sorted by image; no cell is a formula in a spreadsheet."""
    ordered = sorted(failures, key=lambda failure: failure.image_id)
    return write_rows(COLUMNS, map(asdict, ordered), neutral=True)


def parse_failures(content: bytes) -> tuple[Failure, ...]:
    """Read a table back; incomplete rows are left out."""
    return tuple(Failure(*cells) for cells in _complete_rows(content, COLUMNS))


def warnings_bytes(warnings: Iterable[ImageWarning]) -> bytes:
    """Return the table as a file, sorted by image; no cell is a formula in a spreadsheet."""
    ordered = sorted(warnings, key=lambda warning: warning.image_id)
    return write_rows(WARNING_COLUMNS, map(asdict, ordered), neutral=True)


def parse_warnings(content: bytes) -> tuple[ImageWarning, ...]:
    """Read a table back; incomplete rows are left out."""
    return tuple(ImageWarning(*cells) for cells in _complete_rows(content, WARNING_COLUMNS))


def _complete_rows(content: bytes, columns: Sequence[str]) -> Iterator[list[str]]:
    for row in csv.DictReader(io.StringIO(content.decode(errors="replace"))):
        if all(row.get(name) for name in columns):
            yield [restore(row[name]) for name in columns]
