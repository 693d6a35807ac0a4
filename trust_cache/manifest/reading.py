"""Reading a manifest back: every later step starts here."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.manifest import requirements
from trust_cache.manifest.adapters import adapter_for
from trust_cache.manifest.evidence import STANDARD
from trust_cache.manifest.findings import Findings, Item, Severity, counted, finding
from trust_cache.manifest.table import Manifest
from trust_cache.manifest.verbatim import read_metadata

_CHECKS = (
    requirements.ids_given,
    requirements.images_distinct,
    requirements.labels_binary,
    requirements.lateralities_known,
)


def read_manifest(path: Path | str, *, filled: Sequence[str] = ()) -> Manifest:
    """Read and check a manifest; the columns in `filled` (laterality, path) must have no empty cell.

    A manifest of features made elsewhere may lack laterality, projection and path: they are then null.
    Rows keep their order and further columns their text. `path` may be a URL.
    """
    metadata = read_metadata(path)
    adapted = adapter_for("csv", metadata).adapt(metadata)
    images = adapted.images
    # A manifest says 0 or 1, L or R; other words are only read when a manifest is made.
    number = pl.col("label_text").cast(pl.Float64, strict=False).is_not_null()
    same = pl.col("laterality") == pl.col("laterality_text")
    images = images.with_columns(
        pl.when(number).then(pl.col("label")), pl.when(same).then(pl.col("laterality"))
    )
    errors = tuple(found for check in _CHECKS for found in check(images))
    errors += tuple(found for name in filled for found in _filled(images, name))
    raise_errors(str(path), errors)
    return Manifest(pl.concat([images.select(STANDARD), adapted.further], how="horizontal"), path)


def raise_errors(source: str, errors: Findings) -> None:
    """Raise one error that names all of these findings, if there are any."""
    if len(errors) == 1:
        raise InputError(f"{source}: {errors[0].sentence}")
    if errors:
        lines = "".join(f"\n  - {error.sentence}" for error in errors)
        raise InputError(f"{source}: no manifest, for {len(errors)} reasons:{lines}")


def _filled(images: pl.DataFrame, name: str) -> Findings:
    absent = images.filter(pl.col(name).is_null())
    items = [
        Item(*row) for row in absent.select("case_id", "image_id", pl.format("line {}", "line")).iter_rows()
    ]
    summary = f"expected a {name} for every image, found none for {counted(absent.height, 'image')}"
    return finding(f"{name}-filled", Severity.ERROR, summary, items)
