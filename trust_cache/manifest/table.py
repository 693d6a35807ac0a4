"""The manifest: one validated row per image, the standard columns first, further ones as they were."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from trust_cache.manifest.evidence import STANDARD
from trust_cache.manifest.paths import resolve_path


@dataclass(frozen=True)
class ManifestImage:
    """One image of a manifest; `location` is its path as the system (or a URL's library) opens it."""

    image_id: str
    case_id: str
    label: int
    laterality: str | None
    projection: str | None
    path: str | None
    location: str | None


@dataclass(frozen=True)
class Manifest:
    """A checked table: text, null for empty cells, `label` an integer; the file it was read from."""

    table: pl.DataFrame
    path: Path | str

    def images(self) -> Iterator[ManifestImage]:
        """Yield the images in the order of the file."""
        for row in self.table.select(STANDARD).iter_rows(named=True):
            path = row["path"]
            yield ManifestImage(**row, location=None if path is None else resolve_path(self.path, path))


def manifest_bytes(table: pl.DataFrame) -> bytes:
    """Return a manifest as the CSV file that `read_manifest` reads back unchanged."""
    # Null and the empty text are both written as nothing: a file cannot tell them apart.
    empty = table.with_columns(pl.when(pl.col(pl.String) != "").then(pl.col(pl.String)).name.keep())
    return empty.write_csv(line_terminator="\n").encode()
