"""Export a model from a run: one head, its threshold, and its certificate if there is one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.csv_tables import read_text_table
from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_existing
from trust_cache.cache.cache_reader import Cache
from trust_cache.cache.feature_rows import FeatureRows, open_rows
from trust_cache.cache.fingerprint import imported_warning
from trust_cache.certificate.certified_folder import (
    SPLIT,
    Certificate,
    SubgroupRow,
    find_certificate,
    read_certificate,
    read_subgroups,
)
from trust_cache.certificate.score_table import build_cohort, read_scores
from trust_cache.certificate.split import read_split
from trust_cache.certificate.verify import verify
from trust_cache.clinic.model_folder import (
    OWN,
    Model,
    ModelThreshold,
    StoredModel,
    certificate_problem,
    read_model,
    write_model,
)
from trust_cache.clinic.model_scoring import TrainedOn, read_key, score_cache
from trust_cache.heads.bank import HeadParameters
from trust_cache.heads.fold_training import fold_gate, fold_job, gate_tails, train_fold
from trust_cache.heads.folds import CALIBRATE
from trust_cache.heads.run_folder import FOLDS_FILE, RunFolder
from trust_cache.heads.trainer import COMPILED, Trainer, count_threads
from trust_cache.heads.training_data import FitSettings, prepare_final
from trust_cache.manifest.cases import FEATURE_TAIL
from trust_cache.manifest.data_terms import DataTerms, sharing_warnings, terms_of
from trust_cache.manifest.protocol import SCREENING, Protocol, find_protocol
from trust_cache.statistics.feature_gate import FeatureGate
from trust_cache.statistics.thresholds import exact_share, select_threshold

SAME_TO = 1e-5  # rounding on other processors changes a score by far less
_SAME_TAIL = 0.02  # of a share with four digits, far out in the tail
_NO_THRESHOLD = "no calibration case is positive, so there is no threshold: triage dismisses nothing"


@dataclass(frozen=True)
class ReadyHead:
    """A head with its threshold, and the sorted scores of cases that it was not fitted on."""

    head: HeadParameters
    threshold: ModelThreshold
    protocol: Protocol
    reference: NDArray[np.float64]
    warnings: tuple[str, ...]
    gate: FeatureGate
    certificate: Certificate | None = None
    evaluation_terms: tuple[DataTerms, ...] = ()
    subgroups: tuple[SubgroupRow, ...] = ()


def refit(
    run: RunFolder,
    configuration: str,
    cache: Cache,
    rows: FeatureRows,
    target: float,
    *,
    protocol: Protocol = SCREENING,
    threads: int = 1,
    trainer: Trainer = COMPILED,
    on_epoch: Callable[[int, int], None] = lambda _done, _of: None,
) -> ReadyHead:
    """Train the run's configuration on 90 % of its cases, as an external evaluation does.

    The threshold keeps the target on the calibration cases, which the head was not fitted on. They have few
    positives: only a certificate on other cases bounds the risk of this threshold.
    """
    record, settings = run.record, run.settings(configuration)
    epochs = record.training.epochs
    final = FitSettings({configuration: settings}, record.training.settings, record.seed, 1, record.views)
    work = prepare_final(cache, final, None)
    job = fold_job(work, rows, [settings], 0, 0)
    if settings.tuned:  # the threshold needs cases that the head was not fitted on
        job = replace(job, images=replace(job.images, calibrate=job.images.calibrate[:0]))
    trained = train_fold(job, trainer, threads=threads, on_epoch=lambda epoch: on_epoch(epoch, epochs))
    head = trained.parameters
    scored = score_cache(cache, rows, head, settings.aggregation)
    if not np.all(np.isfinite(scored.images[cache.done])):
        raise InputError(
            f"{configuration}: training diverged, its scores are not finite;"
            " lower its lr or the weights of its losses"
        )
    # Cases with an image without features are reviewed whatever the threshold.
    calibrating = (work.folds[0].parts[0] == CALIBRATE) & ~np.isnan(scored.by_case)
    scores, labels = scored.by_case[calibrating], scored.cases.labels[calibrating]
    positives = int(np.count_nonzero(labels))
    chosen_by = f"recall on {labels.size} calibration cases, {positives} of them positive"
    tau = select_threshold(scores, labels, target) if positives else None
    warnings = work.warnings if positives else (*work.warnings, _NO_THRESHOLD)
    threshold = ModelThreshold(tau, target, chosen_by)
    gate = fold_gate(work, rows, 0, 0)
    return ReadyHead(head, threshold, protocol, np.sort(scores), tuple(warnings), gate)


@dataclass(frozen=True)
class Export:
    """An exported model and its warnings."""

    stored: StoredModel
    warnings: tuple[str, ...]


def export_model(
    run: Path,
    out: Path,
    *,
    configuration: str,
    target: float = 0.98,
    cache: str | None = None,
    test_cache: str | None = None,
    certified: Path | None = None,
    protocol: Protocol | Path | str = SCREENING,
    key: Path | None = None,
    valid_until: str | None = None,
    overwrite: bool = False,
    threads: int | None = None,
    on_epoch: Callable[[int, int], None] = lambda _done, _of: None,
) -> Export:
    """Write the model folder of a run's configuration; one that exists is refused without `overwrite`.

    From `fit-heads`: one head refit on the whole cache, not certified. From `external`: the run's head, with
    the certificate at `target` in `certified` (default: the certified folder inside the run). The certificate
    is recomputed first, and the head must reproduce its scores. Caches default to the paths in the run.
    `protocol` is what `triage` asks of a case; a certificate has its own. With `key`, a file that is made if
    there is none, the model has digests of its case ids. `valid_until` is the last day for `triage`.
    """
    exact_share(target)
    wanted = find_protocol(protocol)
    refuse_existing(out, own=OWN, overwrite=overwrite)
    _keep_apart(key, out)
    threads = count_threads(threads)
    folder = RunFolder(run)
    folder.settings(configuration)
    opened = folder.open_train_cache(cache)
    rows = open_rows(opened)
    secret = None if key is None else read_key(key, create=True)
    trained_on = TrainedOn.from_cache(opened, rows, secret)
    if folder.record.test is not None:
        gate = _external_gate(folder, opened, rows)
        ready = _external(folder, configuration, target, test_cache, certified, trained_on, secret, gate)
        if ready.certificate is None:
            ready = replace(ready, protocol=wanted)
    else:
        ready = refit(
            folder, configuration, opened, rows, target, protocol=wanted, threads=threads, on_epoch=on_epoch
        )
    model = _made_model(folder, configuration, ready, trained_on, opened, valid_until)
    write_model(model, out, keep=False)
    return Export(read_model(out), (*_model_warnings(model, out), *ready.warnings))


def _made_model(
    folder: RunFolder,
    configuration: str,
    ready: ReadyHead,
    trained_on: TrainedOn,
    cache: Cache,
    valid_until: str | None,
) -> Model:
    terms = {"training": terms_of(cache.manifest), "evaluation": ready.evaluation_terms}
    return Model(
        configuration=configuration,
        aggregation=folder.settings(configuration).aggregation,
        origin="refit" if folder.record.test is None else "external",
        fingerprint=folder.record.fingerprint,
        probe=cache.probe,
        head=ready.head,
        threshold=ready.threshold,
        protocol=ready.protocol,
        reference=ready.reference,
        trained_on=trained_on,
        gate=ready.gate,
        made_from=_made_from(folder, configuration),
        certificate=ready.certificate,
        valid_until=valid_until,
        terms={part: found for part, found in terms.items() if found},
        subgroups=ready.subgroups,
    )


def _model_warnings(model: Model, out: Path) -> list[str]:
    imported = imported_warning(model.fingerprint)
    return [*([] if imported is None else [f"{out}: {imported}"]), *sharing_warnings(model.terms)]


def _keep_apart(key: Path | None, out: Path) -> None:
    if key is not None and key.resolve().is_relative_to(out.resolve()):
        raise InputError(f"{key}: expected a key outside the model folder {out}; keep them apart")


def _external(
    run: RunFolder,
    configuration: str,
    target: float,
    test_cache: str | None,
    certified: Path | None,
    trained_on: TrainedOn,
    key: bytes | None,
    gate: FeatureGate,
) -> ReadyHead:
    folder = certified if certified is not None else run.path / "certified"
    path = find_certificate(folder, configuration, target)
    verification = verify(path, run.path, folder / SPLIT)
    if not verification.holds:
        found = "; ".join(str(item) for item in verification.disagreements)
        raise InputError(f"{path}: does not agree with the scores of {run.path} ({found})")
    certificate = read_certificate(path)
    head = run.head(configuration)
    cache = run.open_test_cache(test_cache)
    rows = open_rows(cache, views=1)
    scored = score_cache(cache, rows, head, certificate.aggregation)
    _require_same_scores(run, configuration, cache, scored.images)
    _require_same_tails(run, cache, gate_tails(gate, rows, np.arange(cache.images)))
    cohort = build_cohort(read_scores(run.path), certificate.protocol)
    split, _ = read_split(folder / SPLIT, cohort, certificate.seed)
    warnings = trained_on.refuse_seen(cache, rows, key)
    problem = certificate_problem(certificate)
    if problem is not None:
        warnings = (*warnings, f"not certified: {problem}")
    index = cohort.configurations.index(configuration)
    reference = np.sort(cohort.scores[index][split.evaluation & cohort.complete(index)])
    return ReadyHead(
        head=head,
        threshold=ModelThreshold(
            certificate.tau,
            target,
            f"{'certificate' if problem is None else 'search cases'} of {cache.images:,} images",
        ),
        protocol=certificate.protocol,
        reference=reference,
        warnings=warnings,
        gate=gate,
        certificate=certificate if problem is None else None,
        evaluation_terms=terms_of(cache.manifest),
        subgroups=read_subgroups(folder, configuration, target) if problem is None else (),
    )


def _external_gate(run: RunFolder, cache: Cache, rows: FeatureRows) -> FeatureGate:
    """Fit the feature gate of an external run again, on the same fold."""
    record = run.record
    configurations = dict(record.configurations)
    settings = FitSettings(configurations, record.training.settings, record.seed, 1, record.views)
    return fold_gate(prepare_final(cache, settings, run.path / FOLDS_FILE), rows, 0, 0)


def _require_same_tails(run: RunFolder, cache: Cache, tails: NDArray[np.float64]) -> None:
    """Refuse a run whose feature gate is another: the certificate would be of other cases."""
    file = run.manifest_file
    stated = None if file is None else read_text_table(file, ("image_id", FEATURE_TAIL))
    if stated is None or stated["image_id"].to_list() != cache.manifest["image_id"].to_list():
        raise InputError(f"{run.path}: expected a manifest of {cache.source}, found another: make it again")
    found = stated[FEATURE_TAIL].cast(pl.Float64).fill_null(np.nan).to_numpy()
    if not np.allclose(found, tails, rtol=_SAME_TAIL, equal_nan=True):
        raise InputError(
            f"{run.path}: its feature gate gives other values on {cache.source} than its manifest has;"
            " the run is damaged or mixed from two runs: make it again"
        )


def _made_from(run: RunFolder, configuration: str) -> dict[str, object]:
    """Return where a model comes from, without paths of this machine."""
    record = run.record.as_document()
    kept = {name: record[name] for name in ("seed", "views", "manifest_sha256", "test") if name in record}
    head, training = record["configurations"][configuration], run.record.training.settings.as_document()
    return {"run": run.path.resolve().name, "head": head, "training": training} | kept


def _require_same_scores(
    run: RunFolder, configuration: str, cache: Cache, scores: NDArray[np.float64]
) -> None:
    """Refuse a run whose scores its head does not reproduce: the certificate would be of another model."""
    stated = read_scores(run.path).table.filter(pl.col("configuration") == configuration)
    here = cache.manifest.select("image_id").with_columns(here=pl.Series(scores))
    joined = here.join(stated.select("image_id", "score"), on="image_id", how="left")
    apart = (joined["here"] - joined["score"]).abs()
    without = joined["here"].is_nan()
    differ = bool((apart > SAME_TO).any()) or not joined["score"].is_null().equals(without)
    if stated.height != cache.images or differ:
        raise InputError(
            f"{run.path}: its scores.csv has other scores of {configuration} than its head gives"
            f" on {cache.source}; the run is damaged or mixed from two runs: make it again"
        )
