"""Choose the settings of a sweep on the search subset and certify each winner once on evaluation."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.documents import json_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.versions import versions_of
from trust_cache.cache.cache_reader import Cache
from trust_cache.cache.feature_rows import FeatureRows
from trust_cache.certificate.certified_folder import bind_point, read_certificate
from trust_cache.certificate.points import (
    POINT_KEYS,
    Counts,
    Point,
    Terms,
    Threshold,
    choose_threshold,
    count,
    evaluate,
)
from trust_cache.certificate.score_table import (
    Cohort,
    Images,
    build_cohort,
    check_scores,
    examined_cohort,
    with_manifest,
)
from trust_cache.certificate.split import Split
from trust_cache.certificate.verify import verify
from trust_cache.heads.fold_training import gated_manifest
from trust_cache.heads.folds import FOLDS, TEST
from trust_cache.heads.head_settings import HeadSettings
from trust_cache.heads.run_folder import FoldScores, scores_table
from trust_cache.heads.training_data import Preparation
from trust_cache.manifest.protocol import Protocol
from trust_cache.statistics.auroc import auroc
from trust_cache.studies.sweep.sweep_folder import (
    NAME,
    POINT_COLUMNS,
    SPLIT,
    FinishedSweep,
    ScoreFiles,
    SweepRecord,
    WinnerRecord,
    read_record,
    read_sweep,
)
from trust_cache.studies.sweep.sweep_space import Bank, name_setting

REPEAT = 0  # the one whose scores are certified; the others show the noise of training
Key = tuple[str, int, float]  # setting, repeat, target


@dataclass(frozen=True)
class ExaminedCases:
    """The cases as the protocol sees them, without scores; the split is drawn from these.

    The feature gate is that of the first repeat's folds: a case that it stops is incomplete in all repeats.
    """

    manifest: pl.DataFrame  # with all that the protocol asks for
    cohort: Cohort


def examine(
    work: Preparation, protocol: Protocol, open_clean: Callable[[Cache], FeatureRows]
) -> ExaminedCases:
    """Apply the protocol to the cases; the features are opened only for the feature gate."""
    gated = protocol.feature_tail > 0
    manifest = gated_manifest(work, open_clean(work.cache), REPEAT) if gated else work.cache.manifest
    return ExaminedCases(manifest, examined_cohort(manifest, work.cache.done, protocol))


def bank_cohort(
    files: ScoreFiles, bank: Bank, repeat: int, cases: ExaminedCases
) -> tuple[Cohort, dict[str, int]]:
    """Put the folds' scores together; also return the first fold where a setting's are not finite.

    A case that is incomplete in the examined `cases` is incomplete for every setting.
    """
    examined = cases.cohort
    work, names = files.work, [name_setting(item) for item in bank.settings]
    scores = np.full((len(names), work.labels.size), np.nan)
    diverged: dict[str, int] = {}
    for number, fold in enumerate(files.read(bank, repeat)):
        scores[:, fold.images] = fold.scores
        there = work.cache.done[fold.images]
        for head in np.flatnonzero(~np.isfinite(fold.scores[:, there]).all(axis=1)):
            diverged.setdefault(names[head], number)
    by_case = work.cases.score(scores)
    by_case[:, ~examined.complete(0)] = np.nan
    one_each = work.labels.size == work.cases.labels.size
    images = [None if one_each else Images(work.cases.of_image, work.labels, row) for row in scores]
    cohort = replace(
        examined,
        configurations=tuple(names),
        scores=tuple(by_case),
        images=tuple(images),
        problems=(),
        aggregations=(),
    )
    return cohort, diverged


@dataclass(frozen=True)
class SearchOutcome:
    """A threshold and what it does on the search cases that it was chosen on."""

    threshold: Threshold
    counts: Counts
    auroc_case: float | None
    by_fold: tuple[Counts, ...]


def take_search(cohort: Cohort, split: Split) -> Cohort:
    """Return the search cases of a cohort, without anything of the others."""
    chosen = split.search
    return Cohort(
        case_ids=cohort.case_ids.filter(pl.Series(chosen)),
        labels=cohort.labels[chosen],
        patients=cohort.patients[chosen],
        configurations=cohort.configurations,
        scores=tuple(scores[chosen] for scores in cohort.scores),
        images=(None,) * len(cohort.configurations),
    )


def search_setting(
    search: Cohort,
    drawn: NDArray[np.bool_],
    index: int,
    targets: Sequence[float],
    terms: Terms,
    folds: NDArray[np.int64],
) -> list[SearchOutcome]:
    """Choose a setting's threshold for each target and count the cases below it.

    `drawn` marks one case of each patient; `folds` is by case.
    """
    everyone = np.ones(search.cases, dtype=np.bool_)
    whole = Split(search.case_ids, everyone, drawn, "the search cases")
    complete = search.complete(index)
    ranks = auroc(search.scores[index][complete], search.labels[complete])
    outcomes = []
    for target in targets:
        threshold = choose_threshold(search, whole, index, target, terms)
        by_fold = tuple(count(search, index, folds == fold, threshold.tau) for fold in range(FOLDS))
        outcomes.append(
            SearchOutcome(threshold, count(search, index, everyone, threshold.tau), ranks, by_fold)
        )
    return outcomes


def choose_winner(dismissed: Mapping[str, Sequence[int]]) -> str:
    """Return the setting that dismisses most search cases, summed over its repeats; the first of equals.

    All repeats share one search subset: the largest sum is the largest mean dismissal, without rounding.
    """
    return max(dismissed, key=lambda setting: sum(dismissed[setting]))


@dataclass(frozen=True)
class Assessment:
    """What the settings do on search, what was shown of evaluation, and which settings diverged."""

    outcomes: dict[Key, SearchOutcome] = field(default_factory=dict)
    shown: dict[Key, Point] = field(default_factory=dict)
    diverged: dict[tuple[str, int], int] = field(default_factory=dict)  # (setting, repeat) -> fold


def assess(record: SweepRecord, files: ScoreFiles, split: Split, cases: ExaminedCases) -> Assessment:
    """Assess every setting in every repeat; the scores of one bank are in memory at a time."""
    found = Assessment()
    for bank, repeat in itertools.product(record.banks, range(files.work.settings.repeats)):
        cohort, diverged = bank_cohort(files, bank, repeat, cases)
        found.diverged.update({(name, repeat): fold for name, fold in diverged.items()})
        _assess_bank(found, cohort, repeat, record, files, split)
    return found


def terms_of(record: SweepRecord) -> Terms:
    """Return what all bounds of a sweep depend on."""
    identity = record.identity
    return Terms(identity.rule, identity.delta, record.compared, limit=identity.limit)


def choose_winners(record: SweepRecord, found: Assessment) -> dict[float, str]:
    """Return the winner for each target; a setting that diverged anywhere does not take part."""
    failed = {setting for setting, _ in found.diverged}
    names = [name for item in record.settings if (name := name_setting(item)) not in failed]
    repeats = range(record.identity.repeats)
    winners = {}
    for target in record.identity.targets if names else ():
        winners[target] = choose_winner(
            {name: [found.outcomes[name, r, target].counts.dismissed for r in repeats] for name in names}
        )
    return winners


def _assess_bank(
    found: Assessment, cohort: Cohort, repeat: int, record: SweepRecord, files: ScoreFiles, split: Split
) -> None:
    search = take_search(cohort, split)
    folds = np.argmax(files.work.folds[repeat].parts == TEST, axis=0)[split.search]  # that tests each case
    targets, terms = record.identity.targets, terms_of(record)
    for index, name in enumerate(map(str, cohort.configurations)):
        if (name, repeat) in found.diverged:
            continue
        for outcome in search_setting(search, split.drawn[split.search], index, targets, terms, folds):
            key = (name, repeat, outcome.threshold.target)
            found.outcomes[key] = outcome
            if name in record.shown:
                found.shown[key] = evaluate(cohort, split, index, outcome.threshold, terms)


def certify_winner(
    record: SweepRecord,
    found: Assessment,
    files: ScoreFiles,
    split: Split,
    cases: ExaminedCases,
    target: float,
    name: str,
) -> tuple[WinnerRecord, dict[str, bytes]]:
    """Certify the winner for one target; also return its files: certificate, and the scores behind it."""
    bank, head, settings = next(
        (bank, head, settings)
        for bank in record.banks
        for head, settings in enumerate(bank.settings)
        if name_setting(settings) == name
    )
    folds = [FoldScores(part.images, part.scores[[head]]) for part in files.read(bank, REPEAT)]
    table = scores_table(folds, files.work.cache.manifest, [name], [str(fold) for fold in range(FOLDS)])
    identity = record.identity
    if identity.protocol.examines_pictures:
        table = with_manifest(table, cases.manifest)
    scores = check_scores(table, "the winner's scores")
    cohort = build_cohort(scores, identity.protocol)
    terms = terms_of(record)
    point = evaluate(cohort, split, 0, choose_threshold(cohort, split, 0, target, terms), terms)
    how = {  # the certificate must not pass for that of a single head
        "repeats": identity.repeats,
        "evaluation_shown_before": record.looks[-1].after_showing,
        "values": settings.as_document(),
    }
    counts = [found.outcomes[name, repeat, target].counts for repeat in range(identity.repeats)]
    winner = WinnerRecord(
        setting=name,
        values=settings,
        search_dismissal=sum(item.dismissed for item in counts) / sum(item.cases for item in counts),
        point=point,
        certificate=f"certificates/winner@{target!r}.json",
        scores=f"winner/scores@{target!r}.csv",
    )
    certificate = bind_point(
        point,
        identity.certify_settings,
        scores,
        split,
        composition=record.composition,
        versions=versions_of("numpy", "scipy", "polars"),
        sweep=how,
    )
    return winner, {winner.scores: table.write_csv().encode(), winner.certificate: json_bytes(certificate)}


def verify_winners(folder: Path) -> FinishedSweep:
    """Read a finished sweep and recompute its winners' certificates; refuse what does not agree."""
    sweep, record = read_sweep(folder), read_record(folder)
    for target, winner in sweep.winners.items():
        path = folder / winner.certificate
        found = verify(path, folder / winner.scores, folder / SPLIT)
        certificate = read_certificate(path)
        stated = Point(**{key: getattr(certificate, key) for key in POINT_KEYS})
        problems = {
            "; ".join(map(str, found.disagreements)): not found.holds,
            f"it is not the winner's point in {NAME}": stated != winner.point or stated.target != target,
            f"it is not compared with the settings, targets and looks of {NAME}": record is None
            or certificate.composition != record.composition,
        }
        for problem, applies in problems.items():
            if applies:
                raise InputError(f"{path}: {problem}; sweep again in another folder")
    return sweep


def winners_toml(winners: Mapping[float, WinnerRecord]) -> bytes:
    """Return the winners as configurations that `fit-heads` takes."""
    lines = []
    for target, winner in winners.items():
        lines.append(f'["winner@{target!r}"]')
        for name, value in winner.values.as_document().items():
            if value is not None:
                lines.append(f"{name} = {json.dumps(value)}")  # JSON writes texts, numbers and truth as TOML
        lines.append("")
    return "\n".join(lines).encode()


def result_rows(
    record: SweepRecord, found: Assessment, winners: Mapping[float, WinnerRecord]
) -> list[dict[str, Any]]:
    """Return the rows of results.csv; evaluation only where it may be seen."""
    settings = {name_setting(item): item for item in record.settings}
    return [_row(record, found, winners, settings[key[0]], key) for key in _keys(record)]


def _keys(record: SweepRecord) -> Iterator[Key]:
    names = (name_setting(item) for item in record.settings)
    return itertools.product(names, range(record.identity.repeats), record.identity.targets)


def _row(
    record: SweepRecord,
    found: Assessment,
    winners: Mapping[float, WinnerRecord],
    settings: HeadSettings,
    key: Key,
) -> dict[str, Any]:
    name, repeat, target = key
    row: dict[str, Any] = {"setting": name, **settings.as_document(), "repeat": repeat, "target": target}
    row |= {"configuration": name, "compared": record.compared, "delta": record.identity.delta}
    won = target in winners and winners[target].setting == name
    row |= {"winner": won, "evaluation_shown": name in record.shown}
    if (name, repeat) in found.diverged:
        fold = found.diverged[name, repeat]
        return row | {"reason": f"training diverged in fold {fold}: its scores are not finite"}
    outcome = found.outcomes[key]
    row |= {
        "point_tau": outcome.threshold.tau,
        **_count_cells(outcome.counts),
        "search_dismissal": outcome.counts.dismissed / outcome.counts.cases,
        "search_auroc_case": outcome.auroc_case,
    }
    point = winners[target].point if won and repeat == REPEAT else found.shown.get(key)
    return row if point is None else row | {name: getattr(point, key) for key, name in POINT_COLUMNS.items()}


def _count_cells(counts: Counts) -> dict[str, int]:
    return {f"search_{name}": number for name, number in vars(counts).items()}


def fold_rows(record: SweepRecord, found: Assessment) -> Iterator[dict[str, Any]]:
    """Yield the rows of fold_results.csv: what each threshold does on the search cases of each fold."""
    for key in _keys(record):
        for fold, counts in enumerate(found.outcomes[key].by_fold if key in found.outcomes else ()):
            place = dict(zip(("setting", "repeat", "target"), key, strict=True))
            yield {**place, "fold": fold, **_count_cells(counts)}
