"""Certify a model on cases it never saw, and attach the certificate to its folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.csv_tables import write_rows
from trust_cache.base.digests import changed_files, digests_of
from trust_cache.base.documents import parse_json, sealed_bytes, typed, unseal
from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_existing, write_results
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.feature_rows import open_rows
from trust_cache.cache.fingerprint import require_comparable
from trust_cache.certificate.attempts import record_attempt
from trust_cache.certificate.certification import Certification
from trust_cache.certificate.certified_folder import OWN as CERTIFIED_OWN
from trust_cache.certificate.certified_folder import Certificate, as_certificate, render, subgroup_rows
from trust_cache.certificate.certify import certify
from trust_cache.certificate.score_table import COLUMNS, ScoreColumns, check_scores
from trust_cache.clinic.model_folder import (
    ModelThreshold,
    StoredModel,
    certificate_problem,
    read_model,
    write_model,
)
from trust_cache.clinic.model_scoring import ScoredCache, read_key, score_cache
from trust_cache.heads.fold_training import gate_tails
from trust_cache.heads.run_folder import identify_cache
from trust_cache.manifest.cases import FEATURE_TAIL
from trust_cache.manifest.data_terms import terms_of

SCORES, SCORED_BY = "scores.csv", "scored_by.json"
OWN = CERTIFIED_OWN | {SCORES, SCORED_BY}


@dataclass(frozen=True)
class ModelCertification:
    """The certification of a model, and whether its folder now has the certificate."""

    certification: Certification
    attached: bool
    not_attached: str | None  # the reason, if it was requested
    model_kept: Path | None  # where the earlier model went


def certify_model(
    model: Path,
    cache: str,
    out: Path,
    *,
    targets: Sequence[float] | None = None,
    attach: bool = False,
    key: Path | None = None,
    overwrite: bool = False,
    advance: Callable[[], None] = lambda: None,
    **terms: Any,
) -> ModelCertification:
    """Score a cache with a model's head, certify the scores, and write the certified folder with the scores.

    The default target and protocol are the model's own; `terms` are those of `certify`. Cases that the head
    was trained on are refused; `key` is that of the model's digests of case ids, if it has them. The attempt
    is written to the log beside the model folder. With `attach`, the certificate at the model's target (or at
    the only target), its threshold and its protocol are written into the model folder if it is certified.
    """
    stored = read_model(model)
    secret = None if key is None else read_key(key)
    terms["protocol"] = terms.get("protocol") or stored.model.protocol
    own = stored.model.threshold.target
    wanted = tuple(targets or (own,))
    if attach and own not in wanted and len(wanted) > 1:
        raise InputError(
            f"target: with --attach expected the model's own ({own}) among the targets, or one target, found"
            f" {', '.join(map(str, wanted))}"
        )
    refuse_existing(out, own=OWN, overwrite=overwrite)
    opened = open_cache(cache)
    made = stored.model.fingerprint, stored.model.probe
    difference = require_comparable(made, (opened.fingerprint, opened.probe), opened.source)
    rows = open_rows(opened, views=1)
    shared = stored.model.trained_on.refuse_seen(opened, rows, secret)
    scored = score_cache(opened, rows, stored.model.head, stored.model.aggregation)
    tails = gate_tails(stored.model.gate, rows, np.arange(opened.images))
    table = scores_table(opened, scored, stored.model.configuration, tails)
    columns = ScoreColumns(patient=terms.get("patient", COLUMNS.patient))
    scores = check_scores(table, str(out / SCORES), columns).aggregated_as(
        {stored.model.configuration: stored.model.aggregation}
    )
    certification = certify(scores, targets=wanted, advance=advance, **terms)
    certification = replace(certification, warnings=(*shared, *certification.warnings))
    certification = record_attempt(certification, model)
    scores_file = {SCORES: write_rows(table.columns, table.iter_rows(named=True))}
    scored_by = {
        "schema": 1,
        "model_sha256": stored.sha256,
        "configuration": stored.model.configuration,
        "cache": identify_cache(opened).as_document(),
        "probe_difference": difference,  # between the runtimes of the model and of the cache
        "files": digests_of(scores_file),
    }
    files = render(certification) | scores_file | {SCORED_BY: sealed_bytes(scored_by)}
    write_results(out, files, own=OWN, overwrite=overwrite)
    if not attach:
        return ModelCertification(certification, False, None, None)
    return _attach(stored, opened, certification, own if own in wanted else wanted[0])


def scored_by_problems(folder: Path) -> tuple[str, ...]:
    """Return what is wrong with a folder's record of the model that scored; nothing where there is none."""
    path = folder / SCORED_BY
    if not path.is_file():
        return ()
    try:
        document, unchanged = unseal(parse_json(path.read_bytes()))
    except ValueError:
        document, unchanged = None, False
    if not unchanged:
        return (f"{path}: changed since `trust-cache certify --model` wrote it; certify again",)
    return tuple(changed_files(folder, document["files"], "certify again"))


def scores_table(
    cache: Cache, scored: ScoredCache, configuration: str, tails: NDArray[np.float64]
) -> pl.DataFrame:
    """Return the scores with the columns of an external run's scores.csv and the manifest's other columns.

    `tails` are what the model's feature gate says about the images.
    """
    identity = ("case_id", "image_id", "label", "configuration", "fold", "score", FEATURE_TAIL)
    return pl.DataFrame(
        {
            "configuration": [configuration] * cache.images,
            "fold": ["external"] * cache.images,
            **{name: cache.manifest[name] for name in ("case_id", "image_id", "label")},
            "score": _written(scored.images),
            FEATURE_TAIL: _written(tails),
        }
    ).hstack(cache.manifest.select(pl.exclude(identity)))


def _written(values: NDArray[np.float64]) -> list[str | None]:
    return [None if np.isnan(value) else repr(value) for value in values.tolist()]


def _attach(
    stored: StoredModel,
    cache: Cache,
    certification: Certification,
    target: float,
) -> ModelCertification:
    point = next(point for point in certification.points if point.target == target)
    certificate = typed(
        as_certificate(point, certification), Certificate, where=stored.folder, what="a certificate"
    )
    problem = certificate_problem(certificate)
    if problem is not None:
        return ModelCertification(certification, False, problem, None)
    cohort, split = certification.cohort, certification.split
    model = replace(
        stored.model,
        protocol=certificate.protocol,
        threshold=ModelThreshold(point.tau, target, f"certificate of {cache.images:,} images"),
        reference=np.sort(cohort.scores[0][split.evaluation & cohort.complete(0)]),
        made_from=dict(stored.model.made_from) | {"certified_on": identify_cache(cache).as_document()},
        certificate=certificate,
        terms={**stored.model.terms, "evaluation": terms_of(cache.manifest)},
        subgroups=tuple(row for row in subgroup_rows(certification) if row.target == target),
    )
    return ModelCertification(certification, True, None, write_model(model, stored.folder))
