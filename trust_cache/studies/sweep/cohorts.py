"""Cohorts of a bank: image scores of five folds to case scores, in memory and without tables."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trust_cache.certificate.cohort import Cohort, Images
from trust_cache.heads.folds import TEST
from trust_cache.heads.preparation import Preparation
from trust_cache.heads.settings import HeadSettings
from trust_cache.studies.sweep.catalogue import name_setting
from trust_cache.studies.sweep.score_files import FoldScores


@dataclass(frozen=True)
class BankCohort:
    """The cohort of a bank's settings in one repeat, and the settings whose scores are no numbers."""

    cohort: Cohort
    diverged: dict[str, int]  # setting -> the first fold where it did


def bank_cohort(
    work: Preparation, settings: Sequence[HeadSettings], folds: Sequence[FoldScores]
) -> BankCohort:
    """Put the folds' scores together; a case scores the maximum over its images."""
    names = [name_setting(item) for item in settings]
    scores = np.empty((len(names), work.labels.size))
    diverged: dict[str, int] = {}
    for number, fold in enumerate(folds):
        scores[:, fold.images] = fold.scores
        for head in np.flatnonzero(~np.isfinite(fold.scores).all(axis=1)):
            diverged.setdefault(names[head], number)
    order = np.argsort(work.cases.of_image, kind="stable")
    starts = np.searchsorted(work.cases.of_image[order], np.arange(work.cases.labels.size))
    by_case = np.maximum.reduceat(scores[:, order], starts, axis=1)
    one_each = work.labels.size == work.cases.labels.size
    images = [None if one_each else Images(work.cases.of_image, work.labels, row) for row in scores]
    cohort = Cohort(work.cases.case_ids, work.cases.labels, tuple(names), tuple(by_case), tuple(images))
    return BankCohort(cohort, diverged)


def label_cohort(work: Preparation) -> Cohort:
    """Return the cases without any scores: all that a split is drawn from."""
    return Cohort(work.cases.case_ids, work.cases.labels, (), (), ())


def fold_of_case(work: Preparation, repeat: int) -> NDArray[np.int64]:
    """Return the fold that tests each case."""
    return np.asarray(np.argmax(work.folds[repeat].parts == TEST, axis=0), dtype=np.int64)
