"""What two sets need for an external evaluation, found out before any training."""

from typing import Any

import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.cache.fingerprint import require_same_encoder
from trust_cache.cache.reading import Cache, refuse_unfinished
from trust_cache.certificate.certify import certify
from trust_cache.certificate.scores import check_scores
from trust_cache.heads.preparation import labels_sha256

SITE_COLUMNS = ("site_id", "site")
NO_GROUPS = "none"


def refuse_unlike(source: Cache, target: Cache) -> None:
    """Refuse sets of different features, the same set twice, and a target without one of the classes."""
    require_same_encoder(source.fingerprint, target.fingerprint, target.source)
    if source.dim != target.dim:
        raise InputError(
            f"{target.source}: expected {source.dim} features, as {source.source} has, found {target.dim}"
        )
    if source.source == target.source:
        raise InputError(f"{target.source}: expected another set than the one to train on, found the same")
    for cache in (source, target):
        refuse_unfinished(cache)
    positives, images = int(target.manifest["label"].cast(int).sum()), target.images
    for word, found in (("positive", positives), ("negative", images - positives)):
        if not found:
            raise InputError(
                f"{target.source}: expected {word} images to certify on, found none of {images:,}"
            )


def find_groups(manifest: pl.DataFrame, by: str | None) -> str | None:
    """Return the column to certify by: the one asked for, else a column of several sites, else none."""
    if by is not None:
        return None if by == NO_GROUPS else by
    columns = (name for name in SITE_COLUMNS if name in manifest.columns)
    return next((name for name in columns if manifest[name].drop_nulls().n_unique() > 1), None)


def rehearse(target: Cache, names: list[str], options: dict[str, Any]) -> None:
    """Certify invented scores of the target, so that whatever would be refused is refused before training."""
    table = target.manifest.with_columns(score=pl.lit(0.5))
    everyone = pl.concat([table.with_columns(configuration=pl.lit(name)) for name in names])
    certify(check_scores(everyone, target.source), **options | {"resplits": 0})


def target_identity(target: Cache) -> dict[str, Any]:
    """Return what makes the target this target."""
    return {
        "target": {
            "fingerprint": target.fingerprint.as_document(),
            "images": target.images,
            "manifest_sha256": labels_sha256(target),
        }
    }
