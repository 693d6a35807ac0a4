"""The final head of a configuration: refit on all cases of a cache, 90 % to fit and 10 % to calibrate."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.reading import Cache
from trust_cache.cache.rows import FeatureRows
from trust_cache.heads.bank import HeadParameters
from trust_cache.heads.draws import Draws
from trust_cache.heads.fold_task import FoldImages, FoldTask
from trust_cache.heads.folds import CALIBRATE, FIT
from trust_cache.heads.preparation import FitSettings, prepare_final
from trust_cache.heads.schedule import train
from trust_cache.service.models.record import Threshold
from trust_cache.service.models.runs import RunRecord
from trust_cache.service.models.scoring import score_cache
from trust_cache.statistics.thresholds import select_threshold


@dataclass(frozen=True)
class Refit:
    """A head fitted on 90 % of the cases, with what the other 10 % say about it."""

    head: HeadParameters
    threshold: Threshold
    reference: NDArray[np.float64]  # scores of the calibration cases
    warnings: tuple[str, ...]


def refit(
    run: RunRecord,
    cache: Cache,
    rows: FeatureRows,
    target: float,
    *,
    threads: int,
    on_epoch: Callable[[int, int], None] = lambda _done, _of: None,
) -> Refit:
    """Train the run's configuration on all of its cache, as an external evaluation would.

    The threshold keeps the target on the calibration cases, which the head was not fitted on: with so few
    positives it is a starting point. Only a certificate on other cases makes it more.
    """
    settings = FitSettings({run.configuration: run.head}, run.training, run.seed, 1, run.views)
    work = prepare_final(cache, settings, None)
    images = FoldImages(work.labels, *(work.images(0, 0, part) for part in (FIT, CALIBRATE)))
    used = replace(rows, views=run.views + 1)
    task = FoldTask(used, images, [run.head], run.training, Draws(run.seed, 0, 0))
    train([task], threads, lambda _task, epoch: on_epoch(epoch, run.training.epochs))
    head = task.parameters
    scored = score_cache(cache, rows, head)
    if not np.all(np.isfinite(scored.images)):
        raise InputError(
            f"{run.configuration}: training diverged, its scores are not finite;"
            " lower its lr or the weights of its losses"
        )
    calibrating = work.folds[0].parts[0] == CALIBRATE
    scores, labels = scored.by_case[calibrating], scored.cases.labels[calibrating]
    threshold, warnings = _threshold(scores, labels, target)
    return Refit(head, threshold, np.sort(scores), (*work.warnings, *warnings))


def _threshold(
    scores: NDArray[np.float64], labels: NDArray[np.int64], target: float
) -> tuple[Threshold, tuple[str, ...]]:
    positives = int(np.count_nonzero(labels))
    chosen_by = f"recall on {labels.size} calibration cases, {positives} of them positive"
    if not positives:
        warning = "no calibration case is positive: there is no threshold, and triage dismisses nothing"
        return Threshold(None, target, chosen_by), (warning,)
    return Threshold(select_threshold(scores, labels, target), target, chosen_by), ()
