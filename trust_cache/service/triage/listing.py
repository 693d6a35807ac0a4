"""Examinations from a manifest: case_id, laterality, projection and path of every image; no labels."""

from collections import Counter
from pathlib import Path

from trust_cache.base.errors import InputError
from trust_cache.base.tables import LINE, read_text_table, restore
from trust_cache.manifest.paths import resolve_path
from trust_cache.service.triage.examinations import Examination, Picture, group_pictures

COLUMNS = ("case_id", "laterality", "projection", "path")


def list_examinations(manifest: Path, folder: Path | None = None) -> list[Examination]:
    """Read the examinations of a manifest; relative paths start from `folder`, else from the manifest's own.

    What a row lacks is its examination's problem, not the file's; only a row without a case is refused.
    """
    table = read_text_table(manifest, COLUMNS, lines=True)
    named = "image_id" in table.columns
    start = manifest if folder is None else folder / manifest.name
    pictures = []
    for row in table.iter_rows(named=True):
        if row["case_id"] is None:
            raise InputError(f"{manifest}: line {row[LINE]}: expected a case_id, found none")
        path = row["path"]
        image_id = (row["image_id"] if named else path) or f"line {row[LINE]}"
        side, projection = ((row[name] or "").upper() or None for name in ("laterality", "projection"))
        pictures.append(
            (
                restore(row["case_id"]),
                Picture(
                    image_id=restore(image_id),
                    location="" if path is None else resolve_path(start, path),
                    laterality=side if side in ("L", "R") else None,
                    projection=projection,
                    problem="the manifest names no file" if path is None else None,
                ),
            )
        )
    twice = [
        name for name, count in Counter(picture.image_id for _, picture in pictures).items() if count > 1
    ]
    if twice:
        raise InputError(f"{manifest}: image_id {twice[0]} stands more than once")
    return group_pictures(pictures)
