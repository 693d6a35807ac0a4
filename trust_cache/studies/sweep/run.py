"""A sweep from a cache to its folder: begin or go on, train what is missing, choose, certify, write."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from trust_cache.base.documents import json_bytes
from trust_cache.base.durable import refusals_in_words
from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_current, refuse_foreign, write_file
from trust_cache.base.locks import FileLock
from trust_cache.base.work import Cluster
from trust_cache.cache.loading import load_rows, map_rows
from trust_cache.cache.reading import Cache, open_cache
from trust_cache.certificate.cautions import resolution_warnings
from trust_cache.certificate.settings import CertifySettings
from trust_cache.certificate.split import Split, draw_split, read_split
from trust_cache.heads.folds import FOLDS, read_folds
from trust_cache.heads.preparation import FitSettings, Preparation, part_warnings, prepare
from trust_cache.heads.settings import HeadSettings, TrainingSettings
from trust_cache.statistics.bounds import smallest_sample
from trust_cache.studies.sweep import tables
from trust_cache.studies.sweep.assessment import Assessment, assess, choose_winners, terms_of
from trust_cache.studies.sweep.catalogue import find_axes
from trust_cache.studies.sweep.cohorts import label_cohort
from trust_cache.studies.sweep.estimate import refuse_large
from trust_cache.studies.sweep.figures import draw_figures
from trust_cache.studies.sweep.on_cluster import train_on_cluster
from trust_cache.studies.sweep.record import (
    FINISHED,
    NAME,
    TRAINING,
    Record,
    as_document,
    read_record,
    require_same,
    write_record,
)
from trust_cache.studies.sweep.score_files import FOLDER, ScoreFiles
from trust_cache.studies.sweep.space import Space
from trust_cache.studies.sweep.training import HeadsReport, OnHeads, train_missing
from trust_cache.studies.sweep.winners import Winner, certify_winner, winners_toml

_LOG = logging.getLogger(__name__)
OWN = frozenset(
    {NAME, FOLDER, "splits.csv", "repeats", "split.csv", "results.csv", "results.parquet", "folds.csv"}
    | {"failures.csv", "certificates", "winner", "figures"}
)


@dataclass(frozen=True)
class Sweep:
    """A finished sweep."""

    folder: Path
    record: Record
    winners: dict[float, Winner]
    document: dict[str, Any]  # what sweep.json says
    trained: int  # heads, in this call
    reused: int  # heads of earlier calls
    diverged: int  # settings
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class SweepSettings:
    """What all settings of a sweep share."""

    training: TrainingSettings
    seed: int
    repeats: int
    views: int | None
    targets: tuple[float, ...]
    delta: float
    rule: str = "recall"

    def __post_init__(self) -> None:
        CertifySettings(self.targets, self.delta, self.seed, self.rule)


def sweep(
    cache: Cache | Path | str,
    out: Path | str,
    space: Space | None = None,
    *,
    epochs: int = 20,
    seed: int = 0,
    views: int | None = None,
    repeats: int = 1,
    targets: Sequence[float] = (0.98, 0.95),
    delta: float = 0.01,
    threads: int | None = None,
    low_memory: bool = False,
    cluster: Cluster | None = None,
    show_evaluation: bool = False,
    yes: bool = False,
    on_shard: Callable[[int, int], None] = lambda _done, _of: None,
    on_heads: OnHeads = lambda _: None,
) -> Sweep:
    """Train the settings of a space over five folds and certify the one that wins on the search subset.

    What is there already of a sweep in `out` is kept: only new settings and unfinished folds are trained.
    Without a space it goes on with the settings it has. A cluster's workers must reach the cache under the
    same name.
    """
    shared = SweepSettings(
        TrainingSettings(epochs=epochs), seed, repeats, views, tuple(float(t) for t in targets), delta
    )
    threads = (os.cpu_count() or 1) if threads is None else threads
    if threads < 1:
        raise InputError(f"threads: expected 1 or more, found {threads}")
    out = Path(out)
    refuse_foreign(out, own=OWN)
    if space is None and not (out / NAME).exists():
        raise InputError(
            f"{out}: there is no sweep to go on with; give axes such as --grid lambda_dismiss=0,0.05"
        )
    opened = cache if isinstance(cache, Cache) else open_cache(cache)
    with _lock(out):
        earlier = read_record(out)
        work, split = _prepare(opened, out, shared, earlier)
        identity = _identity(work, split, shared)
        if earlier is not None:
            require_same(out, earlier.identity, identity)
        record = earlier or Record(identity)
        if space is not None:
            refuse_large(work, space.count, threads, yes=yes)
            record = record.extended(space.settings(seed))
        positives = int(work.cases.labels[split.search].sum())
        few = resolution_warnings(shared.targets, positives)
        warnings = (*work.warnings, *_loop_warnings(work, record), *few)
        files = ScoreFiles(out, work)
        _begin(out, work, split, record, new=earlier is None)
        files.clean()
        report = _train(record, work, files, cluster or threads, on_shard, on_heads, low_memory=low_memory)
        record = record.looked(show=show_evaluation)
        # Counted before anything is evaluated: a kill in between cannot make a look unseen.
        write_record(out, as_document(record, TRAINING, {}))
        return _finish(out, record, work, files, split, warnings, report)


def _lock(out: Path) -> FileLock:
    refuse_current(out)
    with refusals_in_words(str(out)):
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
    return FileLock(out.with_name(f".{out.name}.lock"), str(out))


def _prepare(
    cache: Cache, out: Path, shared: SweepSettings, earlier: Record | None
) -> tuple[Preparation, Split]:
    """Draw folds and split, or take those that the folder has."""
    work = prepare(cache, FitSettings({}, shared.training, shared.seed, shared.repeats, shared.views), None)
    cohort = label_cohort(work)
    if earlier is None:
        return work, draw_split(cohort, shared.seed)
    if earlier.identity["repeats"] == shared.repeats:
        folds = tuple(read_folds(out / _splits_file(r), work.cases)[0] for r in range(shared.repeats))
        work = replace(work, folds=folds)
    return work, read_split(out / "split.csv", cohort)[0]


def _splits_file(repeat: int) -> str:
    return f"repeats/{repeat}/splits.csv" if repeat else "splits.csv"


def _identity(work: Preparation, split: Split, shared: SweepSettings) -> dict[str, Any]:
    kept = ("repeats", "views", "training", "fingerprint", "images", "dim", "manifest_sha256")
    return {
        "seeds": {"training": shared.seed, "split": shared.seed, "random": shared.seed},
        **{key: work.identity[key] for key in kept},
        "targets": list(shared.targets),
        "delta": shared.delta,
        "rule": shared.rule,
        "splits_sha256": [folds.sha256 for folds in work.folds],
        "split_sha256": split.sha256,
    }


def _loop_warnings(work: Preparation, record: Record) -> list[str]:
    """Warn once where a closed loop cannot find a threshold: for the level that asks for most images."""
    needs = {
        (item.level, item.delta): smallest_sample(0, item.level, item.delta)
        for item in record.settings
        if item.closed_loop
    }
    if not needs:
        return []
    level, delta = max(needs, key=lambda pair: needs[pair])
    name = f"settings with level={level:g} and delta={delta:g}"
    example = {name: HeadSettings(tau="closed-loop", level=level, delta=delta)}
    found = part_warnings(replace(work, settings=replace(work.settings, configurations=example)))
    return [text for text in found if text.startswith(name)]


def _begin(out: Path, work: Preparation, split: Split, record: Record, *, new: bool) -> None:
    """Put folds, split and record on the disk before the first head is trained."""
    if new:
        for repeat, folds in enumerate(work.folds):
            write_file(out / _splits_file(repeat), folds.table.write_csv().encode())
        write_file(out / "split.csv", split.table.write_csv().encode())
    write_record(out, as_document(record, TRAINING, {}))


def _train(
    record: Record,
    work: Preparation,
    files: ScoreFiles,
    workers: int | Cluster,
    on_shard: Callable[[int, int], None],
    on_heads: OnHeads,
    *,
    low_memory: bool,
) -> HeadsReport:
    heads = len(record.settings) * FOLDS * work.settings.repeats
    last = HeadsReport(heads, heads, heads)
    if not any(files.missing(bank, r) for bank in record.banks for r in range(work.settings.repeats)):
        return last

    def remember(report: HeadsReport) -> None:
        nonlocal last
        last = report
        on_heads(report)

    if isinstance(workers, Cluster):
        train_on_cluster(work, record.banks, files, workers, remember, low_memory=low_memory)
    else:
        rows = (map_rows if low_memory else load_rows)(work.cache, threads=workers, on_shard=on_shard)
        train_missing(work, rows, record.banks, files, workers, remember)
    _LOG.info("%d heads, %d of them trained before", last.heads, last.reused)
    return last


def _finish(
    out: Path,
    record: Record,
    work: Preparation,
    files: ScoreFiles,
    split: Split,
    warnings: tuple[str, ...],
    report: HeadsReport,
) -> Sweep:
    """Choose and certify the winners and write all files; sweep.json, which says finished, last."""
    found = assess(record, terms_of(record), work, files, split)
    winners = {
        target: certify_winner(record, found, work, files, split, target, name)
        for target, name in choose_winners(record, found).items()
    }
    record = record.won({repr(target): winner.setting for target, winner in winners.items()})
    diverged = {setting for setting, _ in found.diverged}
    further = _further(record, work, split, winners, diverged, warnings)
    document = as_document(record, FINISHED, further)
    for name, content in _render(record, found, winners).items():
        write_file(out / name, content)
    if not diverged:
        (out / "failures.csv").unlink(missing_ok=True)
    write_record(out, document)
    trained = report.heads - report.reused
    return Sweep(out, record, winners, document, trained, report.reused, len(diverged), warnings)


def _render(record: Record, found: Assessment, winners: Mapping[float, Winner]) -> dict[str, bytes]:
    rows = tables.result_rows(record, found, winners)
    frame = tables.results_frame(rows)
    files = {
        "results.csv": tables.results_csv(rows),
        "results.parquet": tables.results_parquet(frame),
        "folds.csv": tables.folds_csv(record, found),
    }
    if found.diverged:
        files["failures.csv"] = tables.failures_csv(found)
    for winner in winners.values():
        files[winner.scores_file] = winner.scores
        files[winner.certificate_file] = json_bytes(winner.certificate)
    if winners:
        files["winner/configurations.toml"] = winners_toml(winners)
    folds = pl.DataFrame(list(tables.fold_rows(record, found)), schema=tables.FOLD_TYPES)
    return files | draw_figures(find_axes(record.settings), frame, folds)


def _further(
    record: Record,
    work: Preparation,
    split: Split,
    winners: Mapping[float, Winner],
    diverged: set[str],
    warnings: tuple[str, ...],
) -> dict[str, Any]:
    settings, repeats = len(record.settings), work.settings.repeats
    return {
        "counts": {
            "settings": settings,
            "folds": FOLDS,
            "repeats": repeats,
            "heads": settings * FOLDS * repeats,
            "banks": len(record.banks),
            "diverged": len(diverged),
            "cases": int(work.cases.labels.size),
            "positives": int(work.cases.labels.sum()),
            "search_cases": int(split.search.sum()),
            "search_positives": int(work.cases.labels[split.search].sum()),
            "looks": len(record.looks),
            "compared": record.compared,
        },
        "winner": {
            repr(target): {
                "setting": winner.setting,
                "values": asdict(winner.settings),
                "search_dismissal": winner.search_dismissal,
                "point": asdict(winner.point),
                "certificate": winner.certificate_file,
                "scores": winner.scores_file,
            }
            for target, winner in winners.items()
        },
        "warnings": list(warnings),
    }
