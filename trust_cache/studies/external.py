"""External evaluation: train heads on all of one cache, freeze them, score and certify another cache."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file, write_folder
from trust_cache.cache.cache_reader import Cache, open_cache, refuse_unfinished
from trust_cache.cache.feature_rows import FeatureRows, open_rows
from trust_cache.cache.fingerprint import require_same_encoder
from trust_cache.certificate.attempts import record_attempt
from trust_cache.certificate.certification import Certification, CertifySettings
from trust_cache.certificate.certified_folder import as_document, render
from trust_cache.certificate.certify import certify
from trust_cache.certificate.score_table import check_scores, read_scores
from trust_cache.heads.bank import initial_parameters, score_rows
from trust_cache.heads.draws import Draws
from trust_cache.heads.fit import OnEpoch, open_place, run_files, train_missing
from trust_cache.heads.fold_training import PartialRun, lock_beside
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings, presets
from trust_cache.heads.run_folder import MANIFEST, SCORES, identify_cache
from trust_cache.heads.run_folder import OWN as RUN_OWN
from trust_cache.heads.trainer import COMPILED, Trainer, count_threads
from trust_cache.heads.training_data import FitSettings, Preparation, feature_warnings, prepare_final
from trust_cache.manifest.cases import PATIENT, Cases, find_cases
from trust_cache.studies.overlap import find_overlap, refuse_overlap
from trust_cache.studies.ranking import Ranking, rank_cases, ranking_warnings

_LOG = logging.getLogger(__name__)

FINAL = ("ce", "closed-loop")  # the paper's two final models
CERTIFIED = "certified"  # the folder of certificates inside the run
OWN = RUN_OWN | {CERTIFIED}
TERMS = CertifySettings()
SITE_COLUMNS = ("site_id", "site")
NO_GROUPS = "none"


@dataclass(frozen=True)
class External:
    """A finished external evaluation."""

    folder: Path
    certification: Certification
    rankings: tuple[Ranking, ...]  # of each configuration over the cases of the test cache
    warnings: tuple[str, ...]
    seconds: dict[str, float]
    resumed: bool
    kept: Path | None  # where an earlier run in this place went

    @property
    def certified(self) -> Path:
        """The folder of points, tables and certificates."""
        return self.folder / CERTIFIED

    def as_document(self) -> dict[str, Any]:
        """Return points, rankings and warnings, ready for JSON."""
        document = as_document(self.certification)
        ranking = [item.as_document() for item in self.rankings]
        return document | {"ranking": ranking, "warnings": list(self.warnings)}


def evaluate_externally(
    train_cache: Cache | Path | str,
    test_cache: Cache | Path | str,
    out: Path | str,
    *,
    configurations: Mapping[str, HeadSettings] | None = None,
    epochs: int = 20,
    seed: int = 0,
    views: int | None = None,
    folds: Path | None = None,
    threads: int | None = None,
    low_memory: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    terms: CertifySettings = TERMS,
    split: Path | None = None,
    trainer: Trainer = COMPILED,
    on_epoch: OnEpoch = lambda _: None,
    on_shard: Callable[[int, int], None] = lambda _done, _of: None,
) -> External:
    """Train on all cases of one cache, score the clean views of another, certify there; write a run folder.

    The folder is that of `fit_heads` with the one fold `external`, and the certificates in `certified/`
    inside it. Without `terms.by` the groups are the sites of the test cache, if it has several ("none": no
    groups). Wrong input is refused before training. If it is interrupted in training, it starts over.
    """
    chosen = dict(configurations or {name: presets()[name] for name in FINAL})
    settings = FitSettings(chosen, TrainingSettings(epochs=epochs), seed, 1, views)
    out, begin = Path(out), time.perf_counter()
    partial = open_place(out, resume=resume, overwrite=overwrite, own=OWN)
    threads = count_threads(threads)
    train, test = (
        item if isinstance(item, Cache) else open_cache(item) for item in (train_cache, test_cache)
    )
    work, options = _prepare(train, test, settings, folds, terms, split)
    if resume:
        partial.require_same(work.identity)
    rows, test_rows = _load(train, test, threads=threads, low_memory=low_memory, on_shard=on_shard)
    shared = refuse_overlap(find_overlap(train, test, rows, test_rows), train.source, test.source)
    work = replace(work, warnings=(*work.warnings, *shared))
    loaded = time.perf_counter()
    with lock_beside(out):
        partial.begin(work.identity, resume=resume)
        resumed = train_missing(
            work, rows, partial, scored=test_rows, trainer=trainer, threads=threads, on_epoch=on_epoch
        )
        seconds = {"load": loaded - begin, "train": time.perf_counter() - loaded}
        _LOG.info("trained %d heads in %.1f s", work.heads, seconds["train"])
        how = {"threads": threads, "low_memory": low_memory, "resumed_folds": resumed, "seconds": seconds}
        run = run_files(work, partial, how, test)
        initial = initial_parameters(Draws(seed, 0), 1, test.dim)
        (scores,) = score_rows(test_rows, np.arange(test.images), initial)
        certification, rankings = _certify(run, partial, find_cases(test.manifest), scores, options)
        certified = {f"{CERTIFIED}/{name}": content for name, content in render(certification).items()}
        kept = write_folder(out, run | certified, own=OWN, keep=not overwrite)
        partial.discard()
    warnings = (*work.warnings, *certification.warnings)
    return External(out, certification, rankings, warnings, seconds, bool(resumed), kept)


def refuse_unlike(train: Cache, test: Cache) -> None:
    """Refuse caches of different features, the same cache twice, and a test cache without a class."""
    require_same_encoder(train.fingerprint, test.fingerprint, test.source)
    if train.dim != test.dim:
        raise InputError(
            f"{test.source}: expected {train.dim} features, as {train.source} has, found {test.dim}"
        )
    if train.source == test.source:
        raise InputError(f"{test.source}: expected another cache than the one to train on, found the same")
    for cache in (train, test):
        refuse_unfinished(cache)
    labels = find_cases(test.manifest).labels
    for word, label in (("positive", 1), ("negative", 0)):
        if not np.any(labels == label):
            raise InputError(
                f"{test.source}: expected {word} cases to certify on, found none of {labels.size:,}"
            )


def find_groups(manifest: pl.DataFrame, by: str | None) -> str | None:
    """Return the column to certify by: the one asked for, else a column of several sites, else none."""
    if by is not None:
        return None if by == NO_GROUPS else by
    columns = (name for name in SITE_COLUMNS if name in manifest.columns)
    return next((name for name in columns if manifest[name].drop_nulls().n_unique() > 1), None)


def _prepare(
    train: Cache,
    test: Cache,
    settings: FitSettings,
    folds: Path | None,
    terms: CertifySettings,
    split: Path | None,
) -> tuple[Preparation, dict[str, Any]]:
    """Return what to train on and the options of `certify`, both checked against the test cache."""
    refuse_unlike(train, test)
    if terms.patient != PATIENT:
        raise InputError(
            f"patient: expected {PATIENT}, the column of patients in a manifest, found {terms.patient!r}"
        )
    work = prepare_final(train, settings, folds)
    options = {**vars(terms), "by": find_groups(test.manifest, terms.by), "split": split}
    # Constant scores are certified first, so that wrong input is refused before training.
    score = pl.when(pl.Series(test.done)).then(0.5)  # nothing for an image without features
    table, names = test.manifest.with_columns(score=score), settings.configurations
    everyone = pl.concat([table.with_columns(configuration=pl.lit(name)) for name in names])
    certify(check_scores(everyone, test.source), **options | {"resplits": 0})
    identity = msgspec.structs.replace(work.identity, test=identify_cache(test))
    return replace(work, identity=identity, warnings=(*work.warnings, *feature_warnings(test))), options


def _load(
    train: Cache, test: Cache, *, threads: int, low_memory: bool, on_shard: Callable[[int, int], None]
) -> tuple[FeatureRows, FeatureRows]:
    """Open both caches, the test cache first, so that damage shows early."""
    test_rows = open_rows(test, threads, low_memory=low_memory, views=1, on_shard=on_shard)
    return open_rows(train, threads, low_memory=low_memory, on_shard=on_shard), test_rows


def _certify(
    run: Mapping[str, bytes],
    partial: PartialRun,
    cases: Cases,
    untrained: NDArray[np.float64],
    options: Mapping[str, Any],
) -> tuple[Certification, tuple[Ranking, ...]]:
    """Certify the scores from their file, which is still in the partial run's folder.

    `untrained` are the image scores of the head before training.
    """
    for name in (SCORES, MANIFEST):
        write_file(partial.folder / name, run[name])
    scores = replace(read_scores(partial.folder), source=str(partial.out / SCORES))
    certification = certify(scores, **options)
    rankings = rank_cases(
        certification.cohort, cases.score(untrained), certification.cohort.patients, options["seed"]
    )
    warnings = (*certification.warnings, *ranking_warnings(rankings))
    return record_attempt(replace(certification, warnings=warnings), partial.out), rankings
