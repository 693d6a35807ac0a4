"""Certifying a model on cases it never saw, and attaching the certificate to its folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trust_cache.base.documents import json_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_foreign, write_folder
from trust_cache.base.tables import write_rows
from trust_cache.cache.fingerprint import require_same_encoder
from trust_cache.cache.loading import load_rows
from trust_cache.cache.reading import Cache, open_cache
from trust_cache.certificate.certify import Certification, certify
from trust_cache.certificate.folder import OWN as CERTIFIED_OWN
from trust_cache.certificate.folder import as_certificate, render
from trust_cache.certificate.points import Point
from trust_cache.certificate.scores import check_scores
from trust_cache.heads.preparation import labels_sha256
from trust_cache.service.models.folder import StoredModel, read_model, write_model
from trust_cache.service.models.record import Threshold
from trust_cache.service.models.scoring import Scored, score_cache, scores_table

SCORES, SCORED_BY = "scores.csv", "scored_by.json"
OWN = CERTIFIED_OWN | {SCORES, SCORED_BY}


@dataclass(frozen=True)
class ModelCertification:
    """What certifying a model found, and what became of its folder."""

    certification: Certification
    kept: Path | None  # where earlier results in this place went
    attached: bool
    not_attached: str | None  # why, where it was asked for
    model_kept: Path | None  # where the model as it was before went


def certify_model(
    model: Path,
    cache: str,
    out: Path,
    *,
    targets: Sequence[float] | None = None,
    attach: bool = False,
    advance: Callable[[], None] = lambda: None,
    **terms: Any,
) -> ModelCertification:
    """Score a cache with a model's head, certify there, and write certified/ with the scores.

    The default target is the model's own; `terms` are those of `certify`. Cases that the head was trained on
    are refused. With `attach` the certificate at the model's target (or the only one) goes into the model
    folder with its threshold, if the target was met.
    """
    stored = read_model(model)
    wanted = tuple(targets or (stored.model.threshold.target,))
    chosen = _target_to_attach(stored, wanted) if attach else None
    refuse_foreign(out, own=OWN)
    opened = open_cache(cache)
    require_same_encoder(stored.model.fingerprint, opened.fingerprint, opened.source)
    rows = load_rows(opened, views=1)
    shared = stored.model.trained_on.refuse_seen(opened, rows)
    scored = score_cache(opened, rows, stored.model.head)
    table = scores_table(opened, scored, stored.model.configuration)
    scores = check_scores(table, str(out / SCORES))
    certification = certify(scores, targets=wanted, advance=advance, **terms)
    certification = replace(certification, warnings=(*shared, *certification.warnings))
    files = render(certification) | {
        SCORES: write_rows(table.columns, table.iter_rows(named=True)),
        SCORED_BY: json_bytes(_scored_by(stored, opened)),
    }
    kept = write_folder(out, files, own=OWN)
    if chosen is None:
        return ModelCertification(certification, kept, False, None, None)
    return _attach(stored, opened, certification, scored, chosen, kept)


def _target_to_attach(stored: StoredModel, targets: Sequence[float]) -> float:
    own = stored.model.threshold.target
    if own in targets:
        return own
    if len(targets) == 1:
        return targets[0]
    raise InputError(
        f"target: expected the model's own ({own}) among several with --attach, or a single one, found"
        f" {', '.join(map(str, targets))}"
    )


def _attach(
    stored: StoredModel,
    cache: Cache,
    certification: Certification,
    scored: Scored,
    target: float,
    kept: Path | None,
) -> ModelCertification:
    point = next(point for point in certification.points if point.target == target)
    if not _certifies(point):
        return ModelCertification(certification, kept, False, f"the target was not met: {point.reason}", None)
    model = replace(
        stored.model,
        threshold=Threshold(point.tau, target, f"certificate of {cache.images:,} images"),
        reference=np.sort(scored.by_case[certification.split.evaluation]),
        made_from=dict(stored.model.made_from) | {"certified_on": _identity(cache)},
        certificate=as_certificate(point, certification),
    )
    return ModelCertification(certification, kept, True, None, write_model(model, stored.folder))


def _certifies(point: Point) -> bool:
    return point.met is True and point.tau is not None


def _identity(cache: Cache) -> dict[str, Any]:
    return {
        "fingerprint": cache.fingerprint.as_document(),
        "images": cache.images,
        "manifest_sha256": labels_sha256(cache),
    }


def _scored_by(stored: StoredModel, cache: Cache) -> dict[str, Any]:
    return {
        "schema": 1,
        "model_sha256": stored.sha256,
        "configuration": stored.model.configuration,
        "cache": _identity(cache),
    }
