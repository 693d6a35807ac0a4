"""Sweep settings over a cache: train what is missing, choose winners on search, certify each once."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from trust_cache.base.digests import digests_of
from trust_cache.base.errors import InputError
from trust_cache.base.executor import Cluster
from trust_cache.base.files import refuse_existing, write_file
from trust_cache.base.text_tables import whole_percent
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.feature_rows import FeatureRows, open_rows
from trust_cache.certificate.cautions import (
    column_warnings,
    incomplete_warnings,
    limit_warnings,
    resolution_warnings,
    stopped_warnings,
)
from trust_cache.certificate.certification import CertifySettings
from trust_cache.certificate.certified_folder import list_incomplete
from trust_cache.certificate.split import Split, draw_split, read_split
from trust_cache.heads.fold_training import lock_beside
from trust_cache.heads.folds import FOLDS
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings
from trust_cache.heads.trainer import COMPILED, Trainer, count_threads, load_kernels_aside
from trust_cache.heads.training_data import FitSettings, Preparation, part_warnings, prepare
from trust_cache.manifest.protocol import PAPER, Protocol, find_protocol
from trust_cache.statistics.bounds import smallest_sample
from trust_cache.studies.sweep import sweep_choice, sweep_folder, sweep_training
from trust_cache.studies.sweep.sweep_choice import ExaminedCases
from trust_cache.studies.sweep.sweep_folder import ScoreFiles, SweepIdentity, SweepRecord, WinnerRecord
from trust_cache.studies.sweep.sweep_request import refuse_large
from trust_cache.studies.sweep.sweep_space import Space, find_axes
from trust_cache.studies.sweep.sweep_training import HeadsReport, OnHeads

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sweep:
    """A finished sweep."""

    folder: Path
    record: SweepRecord
    winners: dict[float, WinnerRecord]
    document: sweep_folder.SweepDocument  # the content of sweep.json
    counts: sweep_folder.SweepCounts
    trained: int  # heads, in this call
    reused: int  # heads of earlier calls
    warnings: tuple[str, ...]


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
    limit: float | None = None,
    protocol: Protocol | Path | str = PAPER,
    threads: int | None = None,
    low_memory: bool = False,
    cluster: Cluster | None = None,
    show_evaluation: bool = False,
    yes: bool = False,
    resume: bool = False,
    trainer: Trainer = COMPILED,
    on_shard: Callable[[int, int], None] = lambda _done, _of: None,
    on_heads: OnHeads = lambda _: None,
) -> Sweep:
    """Train the settings of a space over five folds and certify the one that wins on the search subset.

    A sweep that is already in `out` is refused, or with `resume` continued and extended by a space. `limit`
    and `protocol` are those of `certify`. The workers of a cluster must reach the cache by the same name.
    """
    fit = FitSettings({}, TrainingSettings(epochs=epochs), seed, repeats, views)
    threads, out, rules = count_threads(threads), Path(out), find_protocol(protocol)
    terms = CertifySettings(tuple(map(float, targets)), delta, seed, limit=limit, protocol=rules)
    _check_place(out, space, resume=resume)
    opened = cache if isinstance(cache, Cache) else open_cache(cache)
    with lock_beside(out):
        earlier = sweep_folder.read_record(out)
        clean = partial(open_rows, threads=threads, low_memory=low_memory, views=1)
        work, cases, split, record = _prepare(opened, out, fit, terms, earlier, clean)
        if space is not None:
            refuse_large(work, space.count, threads, yes=yes)
            record = record.extended(space.settings(seed))
        warnings = _warnings(work, record, split, cases)
        files = ScoreFiles(out, work)
        draws = sweep_folder.draw_files(work.folds, split, list_incomplete(cases.cohort))
        for name, content in draws.items():
            write_file(out / name, content)
        sweep_folder.write_document(out, record.document(sweep_folder.TRAINING))
        files.clean()
        missing = sweep_training.find_missing(record.banks, files)
        if missing.report.reused < missing.report.heads:
            if cluster:
                mapped = low_memory
                sweep_training.train_on_cluster(missing, files, cluster, trainer, on_heads, low_memory=mapped)
            else:
                rows = _open(opened, threads, trainer, low_memory=low_memory, on_shard=on_shard)
                sweep_training.train_missing(missing, files, rows, trainer, threads, on_heads)
            _LOG.info("%d heads, %d of them trained before", missing.report.heads, missing.report.reused)
        record = record.looked(show=show_evaluation)
        # Counted before anything is evaluated: a kill in between cannot hide a look.
        sweep_folder.write_document(out, record.document(sweep_folder.TRAINING))
        return _finish(out, record, files, split, cases, warnings, missing.report, draws)


def _open(
    cache: Cache, threads: int, trainer: Trainer, *, low_memory: bool, on_shard: Callable[[int, int], None]
) -> FeatureRows:
    load_kernels_aside(trainer)
    return open_rows(cache, threads, low_memory=low_memory, on_shard=on_shard)


def _check_place(out: Path, space: Space | None, *, resume: bool) -> None:
    how = "continue or extend the sweep in it with --resume"
    refuse_existing(out, own=sweep_folder.OWN, overwrite=resume, resume=how)
    if space is None and not (out / sweep_folder.NAME).exists():
        example = "--grid lambda_dismiss=0,0.05"
        raise InputError(f"{out}: there is no sweep to resume; give axes such as {example}")


def _prepare(
    cache: Cache,
    out: Path,
    fit: FitSettings,
    terms: CertifySettings,
    earlier: SweepRecord | None,
    open_clean: Callable[[Cache], FeatureRows],
) -> tuple[Preparation, ExaminedCases, Split, SweepRecord]:
    """Draw folds and split for a new record, or take those of the folder, whose sweep must be the same."""
    work = prepare(cache, fit, None)
    if earlier is not None:
        work = sweep_folder.read_draws(out, work, earlier.identity)
    cases = sweep_choice.examine(work, terms.protocol, open_clean)
    if earlier is None:
        split = draw_split(cases.cohort, fit.seed)
    else:
        split, _ = read_split(out / sweep_folder.SPLIT, cases.cohort, fit.seed)
        split = replace(split, given=False)  # it was drawn at the first start
    kept = (
        "repeats", "views", "training", "fingerprint", "images", "dim", "manifest_sha256",
        "content_sha256", "images_without_features",
    )  # fmt: skip
    identity = SweepIdentity(
        seeds=dict.fromkeys(("training", "split", "random"), terms.seed),
        **{name: getattr(work.identity, name) for name in kept},
        targets=terms.targets,
        delta=terms.delta,
        rule=terms.rule,
        limit=terms.limit,
        protocol=terms.protocol,
        folds_sha256=tuple(folds.sha256 for folds in work.folds),
        split_sha256=split.sha256,
    )
    if earlier is not None:
        sweep_folder.require_same(out, earlier.identity, identity)
    return work, cases, split, earlier or SweepRecord(identity)


def _warnings(work: Preparation, record: SweepRecord, split: Split, cases: ExaminedCases) -> tuple[str, ...]:
    examined = cases.cohort
    found = int(examined.labels[split.search & examined.complete(0)].sum())
    few = resolution_warnings(record.identity.targets, found) if found else []
    stopped = (*incomplete_warnings(examined), *stopped_warnings(examined))
    unknown = column_warnings(cases.manifest.columns, record.identity.protocol)
    return (*work.warnings, *_loop_warnings(work, record), *few, *stopped, *unknown)


def _loop_warnings(work: Preparation, record: SweepRecord) -> list[str]:
    """Warn once where a closed loop cannot find a threshold: for the level that needs most images."""
    needs = {
        (item.loop_level, item.loop_delta): smallest_sample(0, item.loop_level, item.loop_delta)
        for item in record.settings
        if item.closed_loop
    }
    if not needs:
        return []
    level, delta = max(needs, key=lambda pair: needs[pair])
    name = f"settings with loop_level={level:g} and loop_delta={delta:g}"
    example = {name: HeadSettings(tau="closed-loop", loop_level=level, loop_delta=delta)}
    found = part_warnings(replace(work, settings=replace(work.settings, configurations=example)))
    return [text for text in found if text.startswith(name)]


def _finish(
    out: Path,
    record: SweepRecord,
    files: ScoreFiles,
    split: Split,
    cases: ExaminedCases,
    warnings: tuple[str, ...],
    report: HeadsReport,
    draws: Mapping[str, bytes],
) -> Sweep:
    """Choose and certify the winners and write all files; sweep.json, which says finished, last."""
    found = sweep_choice.assess(record, files, split, cases)
    winners: dict[float, WinnerRecord] = {}
    certified: dict[str, bytes] = {}
    for target, name in sweep_choice.choose_winners(record, found).items():
        winners[target], made = sweep_choice.certify_winner(record, found, files, split, cases, target, name)
        certified |= made
    points = [winner.point for winner in winners.values()]
    warnings = (
        *warnings, *(limit_warnings(points) if points else ()), *edge_warnings(record.settings, winners),
    )  # fmt: skip
    record = record.won({repr(target): winner.setting for target, winner in winners.items()})
    settings, repeats, labels = len(record.settings), record.identity.repeats, files.work.cases.labels
    counts = sweep_folder.SweepCounts(
        settings=settings,
        folds=FOLDS,
        repeats=repeats,
        heads=settings * FOLDS * repeats,
        banks=len(record.banks),
        diverged=len({setting for setting, _ in found.diverged}),
        cases=int(labels.size),
        positives=int(labels.sum()),
        search_cases=int(split.search.sum()),
        search_positives=int(labels[split.search].sum()),
        looks=len(record.looks),
        compared=record.compared,
    )
    records = {repr(target): winner for target, winner in winners.items()}
    rendered = _render(record, found, winners) | certified
    digests = digests_of(rendered | dict(draws)) | files.digests(record.banks)
    document = record.document(
        sweep_folder.FINISHED, counts=counts, winner=records, warnings=warnings, files=digests
    )
    for path, content in rendered.items():
        write_file(out / path, content)
    if not found.diverged:
        (out / sweep_folder.FAILURES).unlink(missing_ok=True)
    sweep_folder.write_document(out, document)
    trained = report.heads - report.reused
    return Sweep(out, record, winners, document, counts, trained, report.reused, warnings)


def edge_warnings(settings: Sequence[HeadSettings], winners: Mapping[float, WinnerRecord]) -> list[str]:
    """Warn of a winner with the lowest or highest of three or more values of an axis: better may lie beyond.

    Zero is no edge: weights, rates and margins end there.
    """
    warnings: dict[str, list[str]] = {}
    for name, values in find_axes(settings).items():
        numbers = [value for value in values if isinstance(value, float)]
        if len(numbers) < 3:  # noqa: PLR2004
            continue
        for target, winner in winners.items():
            value = getattr(winner.values, name)
            if value in (numbers[0], numbers[-1]) and value != 0:
                end = "lowest" if value == numbers[0] else "highest"
                tried = f"the {end} of the {len(numbers)} values tried"
                text = f"{name}={value:g}, {tried}; extend the axis beyond it"
                warnings.setdefault(text, []).append(whole_percent(target))
    return [f"the winner at {' and '.join(targets)} has {text}" for text, targets in warnings.items()]


def _render(
    record: SweepRecord, found: sweep_choice.Assessment, winners: Mapping[float, WinnerRecord]
) -> dict[str, bytes]:
    rows, by_fold = (
        sweep_choice.result_rows(record, found, winners),
        list(sweep_choice.fold_rows(record, found)),
    )
    files = sweep_folder.table_files(rows, by_fold, found.diverged)
    if winners:
        files[sweep_folder.CONFIGURATIONS] = sweep_choice.winners_toml(winners)
    frames = sweep_folder.results_frame(rows), sweep_folder.folds_frame(by_fold)
    # Charts take a fifth of a second to import: every command of stage two would wait for it.
    from trust_cache.figures.figure import figure_files  # noqa: PLC0415
    from trust_cache.figures.sweep_figures import sweep_figure  # noqa: PLC0415

    figure = sweep_figure(find_axes(record.settings), *frames)
    return files | ({} if figure is None else figure_files(figure, f"{sweep_folder.FIGURES}/dismissal"))
