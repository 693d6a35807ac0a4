"""Exporting a model from a run: one head, its threshold, and a certificate only if it is its own."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_foreign
from trust_cache.cache.loading import load_rows
from trust_cache.cache.reading import Cache
from trust_cache.certificate.cohort import build_cohort
from trust_cache.certificate.scores import read_scores
from trust_cache.certificate.split import read_split
from trust_cache.certificate.verify import read_certificate, verify
from trust_cache.service.models.folder import OWN, StoredModel, read_model, write_model
from trust_cache.service.models.record import Model, Threshold, TrainedOn
from trust_cache.service.models.refit import refit
from trust_cache.service.models.runs import RunRecord, open_source, open_target, read_head, read_run
from trust_cache.service.models.scoring import known_by, score_cache
from trust_cache.statistics.thresholds import exact_share

SAME_TO = 1e-5  # other processors round a score differently by far less


@dataclass(frozen=True)
class Export:
    """A model that was written."""

    stored: StoredModel
    warnings: tuple[str, ...]
    kept: Path | None  # where an earlier model in its place went


def export_model(
    run: Path,
    out: Path,
    *,
    configuration: str,
    target: float = 0.98,
    cache: str | None = None,
    target_cache: str | None = None,
    certified: Path | None = None,
    threads: int | None = None,
    on_epoch: Callable[[int, int], None] = lambda _done, _of: None,
) -> Export:
    """Write the model folder of a run's configuration.

    From `fit-heads`: one head refit on the whole cache, not certified. From `external`: the very head, with
    the certificate at `target` of `certified` (default: the one inside the run) once it was recomputed and
    the scores it speaks of were found again with this head. Caches default to where the run found them.
    """
    exact_share(target)
    refuse_foreign(out, own=OWN)
    if threads is not None and threads < 1:
        raise InputError(f"threads: expected 1 or more, found {threads}")
    record = read_run(run, configuration)
    source = open_source(record, cache)
    rows = load_rows(source)
    trained_on = known_by(source, rows)
    if record.external:
        model, warnings = _external(record, target, target_cache, certified, trained_on)
    else:
        done = refit(record, source, rows, target, threads=threads or os.cpu_count() or 1, on_epoch=on_epoch)
        warnings = list(done.warnings)
        model = Model(
            configuration=configuration,
            origin="refit",
            fingerprint=record.fingerprint,
            head=done.head,
            threshold=done.threshold,
            reference=done.reference,
            trained_on=trained_on,
            made_from=record.as_document(),
        )
    kept = write_model(model, out)
    return Export(read_model(out), tuple(warnings), kept)


def _external(
    record: RunRecord,
    target: float,
    target_cache: str | None,
    certified: Path | None,
    trained_on: TrainedOn,
) -> tuple[Model, list[str]]:
    folder = certified if certified is not None else record.folder / "certified"
    path = find_certificate(folder, record.configuration, target)
    verification = verify(path, record.folder, folder / "split.csv")
    if not verification.holds:
        found = "; ".join(str(item) for item in verification.disagreements)
        raise InputError(f"{path}: does not agree with the scores of {record.folder} ({found})")
    certificate: dict[str, Any] = read_certificate(path)
    head = read_head(record)
    cache = open_target(record, target_cache)
    rows = load_rows(cache, views=1)
    scored = score_cache(cache, rows, head)
    _require_same_scores(record, cache, scored.images)
    split, _ = read_split(folder / "split.csv", build_cohort(read_scores(record.folder)))
    met = certificate["met"] is True
    warnings = [*trained_on.refuse_seen(cache, rows)]
    if not met:
        warnings.append(f"not certified: {certificate['reason']}")
    return Model(
        configuration=record.configuration,
        origin="external",
        fingerprint=record.fingerprint,
        head=head,
        threshold=Threshold(certificate["tau"], target, f"certificate of {cache.images:,} images"),
        reference=np.sort(scored.by_case[split.evaluation]),
        trained_on=trained_on,
        made_from=record.as_document() | {"target": record.target},
        certificate=certificate if met else None,
    ), warnings


def find_certificate(folder: Path, configuration: str, target: float) -> Path:
    """Return the certificate of a configuration at a target in a certified/ folder."""
    paths = sorted((folder / "certificates").glob("*.json"))
    if not paths:
        raise InputError(
            f"{folder}: expected certificates there, found none; make them with"
            f" `trust-cache certify RUN --out {folder}` and name the folder with --certified"
        )
    found = []
    for path in paths:
        certificate = read_certificate(path)
        if certificate.get("configuration") == configuration and certificate.get("target") == target:
            return path
        found.append(f"{certificate.get('configuration')} at {certificate.get('target')}")
    raise InputError(
        f"{folder}: expected a certificate of {configuration} at {target}, found {', '.join(found)}"
    )


def _require_same_scores(
    record: RunRecord, cache: Cache, scores: np.ndarray[Any, np.dtype[np.float64]]
) -> None:
    """Refuse a run whose scores are not those of its head: its certificate would be of something else."""
    stated = read_scores(record.folder).table.filter(pl.col("configuration") == record.configuration)
    here = cache.manifest.select("image_id").with_columns(here=pl.Series(scores))
    joined = here.join(stated.select("image_id", "score"), on="image_id", how="left")
    apart = (joined["here"] - joined["score"]).abs()
    if stated.height != cache.images or apart.null_count() or float(apart.max()) > SAME_TO:  # type: ignore[arg-type]
        raise InputError(
            f"{record.folder}: its scores.csv has other scores of {record.configuration} than its head gives"
            f" on {cache.source}; the run is damaged or mixed of two: make it again"
        )
