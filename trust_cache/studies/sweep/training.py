"""The training of a sweep: bank by bank and repeat by repeat, each fold's scores kept as it ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trust_cache.cache.rows import FeatureRows
from trust_cache.heads.bank import score_rows
from trust_cache.heads.draws import Draws
from trust_cache.heads.fold_task import FoldImages, FoldTask
from trust_cache.heads.folds import CALIBRATE, FIT, FOLDS, TEST
from trust_cache.heads.preparation import Preparation
from trust_cache.heads.schedule import train
from trust_cache.studies.sweep.catalogue import Bank
from trust_cache.studies.sweep.score_files import ScoreFiles


@dataclass(frozen=True)
class HeadsReport:
    """What a progress bar shows: heads, those of earlier calls included; an epoch counts as its share."""

    heads: int
    done: float
    reused: int


OnHeads = Callable[[HeadsReport], None]


def train_missing(
    work: Preparation,
    rows: FeatureRows,
    banks: Sequence[Bank],
    files: ScoreFiles,
    threads: int,
    on_heads: OnHeads,
) -> None:
    """Train every fold that has no scores yet.

    One bank of one repeat at a time: five folds' weights are all that is in memory, whatever the sweep.
    """
    todo, report = find_missing(work, banks, files)
    for bank, repeat, folds in todo:

        def advance(head_shares: float) -> None:
            nonlocal report
            report = replace(report, done=report.done + head_shares)
            on_heads(report)

        if folds:
            _train_bank(work, rows, bank, repeat, folds, files, threads, advance)


def find_missing(
    work: Preparation, banks: Sequence[Bank], files: ScoreFiles
) -> tuple[list[tuple[Bank, int, list[int]]], HeadsReport]:
    """Return each bank and repeat with its folds that have no scores yet, and how far the whole is."""
    repeats = range(work.settings.repeats)
    heads = sum(len(bank.settings) for bank in banks) * FOLDS * work.settings.repeats
    todo = [(bank, repeat, files.missing(bank, repeat)) for bank in banks for repeat in repeats]
    reused = heads - sum(len(bank.settings) * len(folds) for bank, _, folds in todo)
    return todo, HeadsReport(heads, float(reused), reused)


def _train_bank(
    work: Preparation,
    rows: FeatureRows,
    bank: Bank,
    repeat: int,
    folds: Sequence[int],
    files: ScoreFiles,
    threads: int,
    advance: Callable[[float], None],
) -> None:
    training = work.settings.training
    if work.settings.views is not None:
        rows = replace(rows, views=work.settings.views + 1)
    tasks: dict[FoldTask, int] = {}
    for fold in folds:
        images = FoldImages(work.labels, *(work.images(repeat, fold, part) for part in (FIT, CALIBRATE)))
        draws = Draws(work.settings.seed, fold, repeat)
        tasks[FoldTask(rows, images, bank.settings, training, draws)] = fold

    def after_epoch(task: FoldTask, epoch: int) -> None:
        if epoch == training.epochs:
            fold = tasks[task]
            scores = score_rows(rows, work.images(repeat, fold, TEST), task.parameters)
            files.keep(bank, repeat, fold, scores)
        advance(len(bank.settings) / training.epochs)

    train(list(tasks), threads, after_epoch)
