"""The table examined.csv of a cache: what `extract` found in external pictures.

The table has a row for each examined picture, with the digest of its file: a row says nothing about another
file of that name. Each row has a digest of its cells: a changed row counts as none.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trust_cache.base.csv_tables import restore, write_rows
from trust_cache.base.digests import rows_sha256
from trust_cache.manifest.picture_checks import SEPARATOR, finding, same_pictures

EXAMINED = "examined.csv"
_CELLS = ("image_id", "picture_blake3", "sketch", "warnings")
_DIGEST = "row_sha256"  # of the other cells


@dataclass(frozen=True)
class ExaminedPicture:
    """One row of examined.csv: what was found in the picture with this digest."""

    image_id: str
    picture_blake3: str
    sketch: str  # by which equal pictures are recognised
    warnings: tuple[str, ...] = ()


def examined_bytes(rows: Iterable[ExaminedPicture]) -> bytes:
    """Return the table as a file, sorted by image; no cell is a formula in a spreadsheet."""
    ordered = sorted(rows, key=lambda row: row.image_id)
    cells = [(row.image_id, row.picture_blake3, row.sketch, SEPARATOR.join(row.warnings)) for row in ordered]
    rows_with_digest = ((*texts, rows_sha256([texts])) for texts in cells)
    columns = (*_CELLS, _DIGEST)
    named = (dict(zip(columns, texts, strict=True)) for texts in rows_with_digest)
    return write_rows(columns, named, neutral=True)


def parse_examined(content: bytes) -> tuple[ExaminedPicture, ...]:
    """Read a table back; incomplete and changed rows are left out."""
    rows = csv.DictReader(io.StringIO(content.decode(errors="replace"), newline=""))
    found = []
    for row in rows:
        cells = [restore(row.get(name) or "") for name in _CELLS]
        if row.get(_DIGEST) == rows_sha256([cells]):
            image_id, digest, sketch, texts = cells
            found.append(
                ExaminedPicture(image_id, digest, sketch, tuple(filter(None, texts.split(SEPARATOR))))
            )
    return tuple(found)


def warnings_of_pictures(
    rows: Iterable[ExaminedPicture], cases: Mapping[str, str], digests: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return the warnings about pictures by image: those of the table, and which pictures are equal.

    `digests` has the pictures that have features. One that the table does not have was not examined.
    """
    known = {row.image_id: row for row in rows if digests.get(row.image_id) == row.picture_blake3}
    same = same_pictures({name: (cases[name], row.sketch) for name, row in known.items()})
    found = {}
    for name in digests:
        row = known.get(name)
        texts = (finding("unexamined", "its pixels were not examined"),) if row is None else row.warnings
        found[name] = (*texts, *filter(None, [same.get(name)]))
    return {name: texts for name, texts in found.items() if texts}
