"""External evaluation: heads trained on the whole of one set, frozen, scored and certified on another."""

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_current, write_file, write_folder
from trust_cache.base.versions import versions_of
from trust_cache.cache.loading import load_rows, map_rows
from trust_cache.cache.reading import Cache, open_cache
from trust_cache.cache.rows import FeatureRows
from trust_cache.certificate.certify import Certification, certify
from trust_cache.certificate.cohort import build_cohort
from trust_cache.certificate.folder import as_document, render
from trust_cache.certificate.scores import read_scores
from trust_cache.certificate.settings import CertifySettings
from trust_cache.heads.bank import initial_parameters, score_rows
from trust_cache.heads.draws import Draws
from trust_cache.heads.final_split import EXTERNAL
from trust_cache.heads.fit import refuse_existing
from trust_cache.heads.fold_task import FoldTask
from trust_cache.heads.partial import PartialRun
from trust_cache.heads.preparation import FitSettings, Preparation, prepare_final
from trust_cache.heads.results import FoldResult, finish_fold
from trust_cache.heads.run_files import OWN as RUN_OWN
from trust_cache.heads.run_files import render_run
from trust_cache.heads.settings import HeadSettings, TrainingSettings, presets
from trust_cache.heads.training import EpochReport, train_missing, trained
from trust_cache.studies.external_sets import find_groups, refuse_unlike, rehearse, target_identity
from trust_cache.studies.overlap import find_overlap, refuse_overlap
from trust_cache.studies.ranking import Ranking, rank_cases, ranking_warnings

_LOG = logging.getLogger(__name__)

FINAL = ("ce", "closed-loop")  # the paper's two final models
CERTIFIED = "certified"  # the folder of certificates inside the run
OWN = RUN_OWN | {CERTIFIED}
TERMS = CertifySettings()


@dataclass(frozen=True)
class External:
    """A finished external evaluation."""

    folder: Path
    certification: Certification
    rankings: tuple[Ranking, ...]  # of each configuration over all cases of the target
    warnings: tuple[str, ...]
    seconds: dict[str, float]
    resumed: bool
    kept: Path | None  # where an earlier run in this place went

    @property
    def certified(self) -> Path:
        """The folder of points, tables and certificates."""
        return self.folder / CERTIFIED

    def as_document(self) -> dict[str, Any]:
        """Return the points with what was found beside them, as JSON has it."""
        document = as_document(self.certification)
        ranking = [item.as_document() for item in self.rankings]
        return document | {"ranking": ranking, "warnings": list(self.warnings)}


def evaluate_externally(
    source: Cache | Path | str,
    target: Cache | Path | str,
    out: Path | str,
    *,
    configurations: Mapping[str, HeadSettings] | None = None,
    epochs: int = 20,
    seed: int = 0,
    views: int | None = None,
    splits: Path | None = None,
    threads: int | None = None,
    low_memory: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    terms: CertifySettings = TERMS,
    split: Path | None = None,
    on_epoch: Callable[[EpochReport], None] = lambda _: None,
    on_shard: Callable[[int, int], None] = lambda _done, _of: None,
) -> External:
    """Train on all cases of `source`, score the clean views of `target`, certify there; write a run folder.

    The folder is that of `fit_heads` with the one fold `external`, and the certificates in `certified/`
    inside it. Without `terms.by` the groups are the target's sites, where it has several ("none": no groups).
    Whatever can be refused is refused before training. Interrupted while it trains, it starts over.
    """
    chosen = dict(configurations or {name: presets()[name] for name in FINAL})
    settings = FitSettings(chosen, TrainingSettings(epochs=epochs), seed, 1, views)
    out, begin = Path(out), time.perf_counter()
    refuse_current(out)
    partial = PartialRun(out)
    refuse_existing(out, partial, resume=resume, overwrite=overwrite, own=OWN)
    threads = (os.cpu_count() or 1) if threads is None else threads
    if threads < 1:
        raise InputError(f"threads: expected 1 or more, found {threads}")
    trained_on, scored = (item if isinstance(item, Cache) else open_cache(item) for item in (source, target))
    work, options = _prepare(trained_on, scored, settings, splits, terms, split)
    if resume:
        partial.require_same(work.identity)
    rows, target_rows = _load(trained_on, scored, threads=threads, low_memory=low_memory, on_shard=on_shard)
    overlap = find_overlap(trained_on, scored, rows, target_rows)
    shared = refuse_overlap(overlap, trained_on.source, scored.source)
    work = replace(work, warnings=(*work.warnings, *shared))
    loaded = time.perf_counter()
    with partial.lock():
        partial.begin(work.identity, resume=resume)
        resumed = train_missing(work, rows, partial, threads, _scoring(scored, target_rows), on_epoch)
        seconds = {"load": loaded - begin, "train": time.perf_counter() - loaded}
        _LOG.info("trained %d heads in %.1f s", work.heads, seconds["train"])
        how = {"threads": threads, "low_memory": low_memory, "resumed_folds": resumed, "seconds": seconds}
        run = _render(work, scored, partial, how)
        untrained = _untrained_scores(scored, target_rows, seed)
        certification, rankings = _certify(run, partial, out, untrained, options)
        certified = {f"{CERTIFIED}/{name}": content for name, content in render(certification).items()}
        kept = write_folder(out, run | certified, own=OWN, keep=not overwrite)
        partial.discard()
    warnings = (*work.warnings, *certification.warnings)
    return External(out, certification, rankings, warnings, seconds, bool(resumed), kept)


def _prepare(
    source: Cache,
    target: Cache,
    settings: FitSettings,
    splits: Path | None,
    terms: CertifySettings,
    split: Path | None,
) -> tuple[Preparation, dict[str, Any]]:
    """Return what to train on and what to call `certify` with, both looked at with the target in hand."""
    refuse_unlike(source, target)
    work = prepare_final(source, settings, splits)
    options = {**vars(terms), "by": find_groups(target.manifest, terms.by), "split": split}
    rehearse(target, list(settings.configurations), options)
    return replace(work, identity=work.identity | target_identity(target)), options


def _load(
    source: Cache, target: Cache, *, threads: int, low_memory: bool, on_shard: Callable[[int, int], None]
) -> tuple[FeatureRows, FeatureRows]:
    """Load or map the source, and the clean views of the target: first these, so that damage shows early."""
    if low_memory:
        mapped = map_rows(target, threads=threads, on_shard=on_shard)
        return map_rows(source, threads=threads, on_shard=on_shard), mapped
    clean = load_rows(target, threads=threads, views=1, on_shard=on_shard)
    return load_rows(source, threads=threads, on_shard=on_shard), clean


def _scoring(target: Cache, rows: FeatureRows) -> Callable[[FoldTask, int, int], FoldResult]:
    images = np.arange(target.images)
    return lambda task, _repeat, _fold: finish_fold(task, images, rows)


def _untrained_scores(target: Cache, rows: FeatureRows, seed: int) -> NDArray[np.float64]:
    """Return the scores of the target's cases, sorted by case_id, by the head that training started from."""
    (scores,) = score_rows(rows, np.arange(target.images), initial_parameters(Draws(seed, 0), 1, target.dim))
    table = target.manifest.select("case_id").with_columns(score=pl.Series(scores))
    return table.group_by("case_id").agg(pl.col("score").max()).sort("case_id")["score"].to_numpy()


def _render(
    work: Preparation, target: Cache, partial: PartialRun, how: Mapping[str, Any]
) -> dict[str, bytes]:
    """Return the files of the run: the splits are the source's, the manifest and the scores the target's."""
    record = {
        **work.identity,
        "repeat": 0,
        "cache": str(work.cache.source),
        "target_cache": str(target.source),
        **how,
        "warnings": list(work.warnings),
        "versions": versions_of("numpy", "scipy", "numba", "scikit-learn"),
    }
    return render_run(
        [trained(partial, 0, EXTERNAL)],
        manifest=target.manifest,
        configurations=work.settings.configurations,
        folds=work.folds[0],
        record=record,
    )


def _certify(
    run: Mapping[str, bytes],
    partial: PartialRun,
    out: Path,
    untrained: NDArray[np.float64],
    options: Mapping[str, Any],
) -> tuple[Certification, tuple[Ranking, ...]]:
    """Certify the scores as they will stand in their file, which is still beside its place."""
    for name in ("scores.csv", "manifest.csv"):
        write_file(partial.folder / name, run[name])
    scores = replace(read_scores(partial.folder), source=str(out / "scores.csv"))
    certification = certify(scores, **options)
    rankings = rank_cases(build_cohort(scores), untrained)
    warnings = (*certification.warnings, *ranking_warnings(rankings))
    return replace(certification, warnings=warnings), rankings
