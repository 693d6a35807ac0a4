"""External evaluation: train heads on all of one cache, freeze them, score and certify another cache."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file, write_folder
from trust_cache.cache.cache_reader import Cache, open_cache, refuse_unfinished
from trust_cache.cache.feature_rows import FeatureRows, open_rows
from trust_cache.cache.fingerprint import require_comparable
from trust_cache.certificate.attempts import record_attempt
from trust_cache.certificate.certification import Certification, CertifySettings
from trust_cache.certificate.certified_folder import as_document, render
from trust_cache.certificate.certify import certify
from trust_cache.certificate.score_table import COLUMNS, check_scores, read_scores
from trust_cache.heads.bank import initial_parameters, score_rows
from trust_cache.heads.draws import Draws
from trust_cache.heads.fit import EpochReport, OnEpoch, open_place, run_files, stuck_warnings, train_missing
from trust_cache.heads.fold_training import PartialRun, lock_beside
from trust_cache.heads.head_settings import HeadSettings, presets
from trust_cache.heads.run_folder import MANIFEST, SCORES, identify_cache
from trust_cache.heads.run_folder import OWN as RUN_OWN
from trust_cache.heads.trainer import COMPILED, Trainer, count_threads, load_kernels_aside
from trust_cache.heads.training_data import (
    FitSettings,
    Preparation,
    feature_warnings,
    fit_settings,
    prepare_final,
)
from trust_cache.manifest.cases import Aggregation, find_cases
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
    lr: float | None = None,
    weight_decay: float | None = None,
    clip: float | None = None,
    batch_positives: int = 20,
    batch_negatives: int = 60,
    dropout: float = 0.3,
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
    inside it. Without `terms.by` the groups are the sites of the test cache ("none": no groups). Wrong input
    is refused before training, shared images when they are found. After an interruption it starts over.
    """
    settings = fit_settings(
        configurations or {name: presets()[name] for name in FINAL}, epochs=epochs, lr=lr,
        weight_decay=weight_decay, clip=clip, batch_positives=batch_positives,
        batch_negatives=batch_negatives, dropout=dropout, seed=seed, views=views,
    )  # fmt: skip
    out, begin = Path(out), time.perf_counter()
    partial = open_place(out, resume=resume, overwrite=overwrite, own=OWN)
    threads, train, test = count_threads(threads), _opened(train_cache), _opened(test_cache)
    work, options, difference = _prepare(train, test, settings, folds, terms, split)
    if resume:
        partial.require_same(work.identity)
    rows, test_rows = _load(train, test, threads, trainer, low_memory=low_memory, on_shard=on_shard)
    loaded, search = time.perf_counter(), _OverlapSearch(train, test, on_epoch)
    with lock_beside(out), search.beside(rows, test_rows, partial):
        partial.begin(work.identity, resume=resume)
        resumed = train_missing(
            work, rows, partial, scored=test_rows, trainer=trainer, threads=threads, on_epoch=search.report
        )
        seconds = {"load": loaded - begin, "train": time.perf_counter() - loaded}
        work = replace(work, warnings=(*work.warnings, *search.warnings(), *stuck_warnings(work, partial)))
        how = {"threads": threads, "low_memory": low_memory, "resumed_folds": resumed, "seconds": seconds}
        run = run_files(work, partial, how | {"probe_difference": difference}, test)
        certification, rankings = _certify(run, partial, test, test_rows, options, settings)
        certified = {f"{CERTIFIED}/{name}": content for name, content in render(certification).items()}
        write_folder(out, run | certified, own=OWN, keep=False)
        partial.discard()
    warned = *work.warnings, *certification.warnings
    return External(out, certification, rankings, warned, seconds, bool(resumed))


def _opened(cache: Cache | Path | str) -> Cache:
    return cache if isinstance(cache, Cache) else open_cache(cache)


def refuse_unlike(train: Cache, test: Cache) -> float | None:
    """Refuse caches of different features, the same cache twice, and a test cache without a class.

    Return how much the features of their probes differ; None if they have none.
    """
    difference = require_comparable(
        (train.fingerprint, train.probe), (test.fingerprint, test.probe), test.source
    )
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
    return difference


def choose_groups(manifest: pl.DataFrame, by: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to certify by: those asked for, else a column of several sites, else none."""
    if by:
        return tuple(column for column in by if column != NO_GROUPS)
    columns = (name for name in SITE_COLUMNS if name in manifest.columns)
    return tuple(name for name in columns if manifest[name].drop_nulls().n_unique() > 1)[:1]


def _prepare(
    train: Cache,
    test: Cache,
    settings: FitSettings,
    folds: Path | None,
    terms: CertifySettings,
    split: Path | None,
) -> tuple[Preparation, dict[str, Any], float | None]:
    """Return what to train on, the options of `certify`, and how much the probes of the caches differ."""
    difference = refuse_unlike(train, test)
    for name, expected in vars(COLUMNS).items():
        found = getattr(terms, name)
        if found != expected:
            raise InputError(f"{name}: expected {expected}, as in every manifest, found {found!r}")
    work = prepare_final(train, settings, folds)
    options = {**vars(terms), "by": choose_groups(test.manifest, terms.by), "split": split}
    # Constant scores are certified first, so that wrong input is refused before training.
    score = pl.when(pl.Series(test.done)).then(0.5)  # nothing for an image without features
    table, names = test.manifest.with_columns(score=score), settings.configurations
    everyone = pl.concat([table.with_columns(configuration=pl.lit(name)) for name in names])
    certify(check_scores(everyone, test.source), **options | {"resplits": 0})
    identity = msgspec.structs.replace(work.identity, test=identify_cache(test))
    work = replace(work, identity=identity, warnings=(*work.warnings, *feature_warnings(test)))
    return work, options, difference


def _load(
    train: Cache,
    test: Cache,
    threads: int,
    trainer: Trainer,
    *,
    low_memory: bool,
    on_shard: Callable[[int, int], None],
) -> tuple[FeatureRows, FeatureRows]:
    """Open both caches, the test cache first, so that damage shows early; kernels load meanwhile."""
    load_kernels_aside(trainer)
    clean = open_rows(test, threads, low_memory=low_memory, views=1, on_shard=on_shard)
    return open_rows(train, threads, low_memory=low_memory, on_shard=on_shard), clean


class _OverlapSearch:
    """Look for images that both caches have in a thread beside the training, which has one thread."""

    def __init__(self, train: Cache, test: Cache, on_epoch: OnEpoch) -> None:
        self._caches, self._on_epoch = (train, test), on_epoch

    @contextmanager
    def beside(self, rows: FeatureRows, test_rows: FeatureRows, partial: PartialRun) -> Iterator[None]:
        """Search while the caller trains; the training of a refused run is not kept."""
        with ThreadPoolExecutor(1) as pool:
            self._found = pool.submit(find_overlap, *self._caches, rows, test_rows)
            try:
                yield
            except InputError:
                partial.discard()
                raise

    def report(self, epoch: EpochReport) -> None:
        """Report an epoch; refuse images that both caches have once they are known."""
        if self._found.done():
            self.warnings()
        self._on_epoch(epoch)

    def warnings(self) -> list[str]:
        """Wait for the end of the search; refuse shared images, return warnings about shared ids."""
        return refuse_overlap(self._found.result(), *(cache.source for cache in self._caches))


def _certify(
    run: Mapping[str, bytes],
    partial: PartialRun,
    test: Cache,
    test_rows: FeatureRows,
    options: Mapping[str, Any],
    settings: FitSettings,
) -> tuple[Certification, tuple[Ranking, ...]]:
    """Certify the scores from their file, which is still in the partial run's folder without its record.

    `settings` are those of the training: they say how images become cases, and the rankings compare with the
    head before it.
    """
    for name in (SCORES, MANIFEST):
        write_file(partial.folder / name, run[name])
    scores = replace(read_scores(partial.folder), source=str(partial.out / SCORES))
    kinds: dict[str | None, Aggregation] = {
        name: head.aggregation for name, head in settings.configurations.items()
    }
    certification = certify(scores.aggregated_as(kinds), **options)
    cohort, cases = certification.cohort, find_cases(test.manifest)
    initial = initial_parameters(Draws(settings.seed, 0), 1, test.dim)
    (images,) = score_rows(test_rows, np.arange(test.images), initial)
    untrained = [cases.score(images, kind) for kind in cohort.aggregations]
    rankings = rank_cases(cohort, untrained, cohort.patients, options["seed"])
    warnings = (*certification.warnings, *ranking_warnings(rankings))
    return record_attempt(replace(certification, warnings=warnings), partial.out), rankings
