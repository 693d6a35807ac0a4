"""The failures and warnings of images: the error, failures.csv and warnings.csv."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from trust_cache.base.csv_tables import restore, write_rows
from trust_cache.base.errors import InputError, StoppedError
from trust_cache.base.places import read_bytes

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


def read_url(place: str) -> bytes:
    """Read an image behind a URL; a refused or impossible one is a failure of this image.

    A missing one stays FileNotFoundError. A store that does not answer stops the command; a web server that
    does not is a failure too, because a manifest's path may name any server.
    """
    try:
        return read_bytes(place)
    except InputError as error:
        raise ImageError("read", str(error).removeprefix(f"{place}: ")) from None
    except StoppedError:
        if not place.lower().startswith(("http://", "https://")):
            raise
        raise ImageError("read", "the web server does not answer") from None


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
