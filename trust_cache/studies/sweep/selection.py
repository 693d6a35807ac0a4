"""The choice of a winner from the search subset alone: evaluation cases never get here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.certificate.cohort import Cohort
from trust_cache.certificate.points import Counts, Terms, Threshold, choose_threshold, count
from trust_cache.certificate.split import Split
from trust_cache.heads.folds import FOLDS
from trust_cache.statistics.auroc import auroc


@dataclass(frozen=True)
class SearchOutcome:
    """A threshold and what it does on the very cases that it was chosen on."""

    threshold: Threshold
    counts: Counts
    auroc_case: float | None
    by_fold: tuple[Counts, ...]


def take_search(cohort: Cohort, split: Split) -> Cohort:
    """Return the search cases of a cohort; nothing of the others is left in it."""
    chosen = split.search
    return Cohort(
        case_ids=cohort.case_ids.filter(pl.Series(chosen)),
        labels=cohort.labels[chosen],
        configurations=cohort.configurations,
        scores=tuple(scores[chosen] for scores in cohort.scores),
        images=(None,) * len(cohort.configurations),
    )


def search_setting(
    search: Cohort, index: int, targets: Sequence[float], terms: Terms, folds: NDArray[np.int64]
) -> list[SearchOutcome]:
    """Choose one setting's threshold for each target and count what lies below it; `folds` is by case."""
    whole = Split(search.case_ids, np.ones(search.cases, dtype=np.bool_), "the search cases")
    scores, labels = search.scores[index], search.labels
    ranks = auroc(scores, labels)
    outcomes = []
    for target in targets:
        threshold = choose_threshold(search, whole, index, target, terms)
        by_fold = tuple(
            count(scores[folds == fold], labels[folds == fold], threshold.tau) for fold in range(FOLDS)
        )
        outcomes.append(SearchOutcome(threshold, count(scores, labels, threshold.tau), ranks, by_fold))
    return outcomes


def choose_winner(dismissed: Mapping[str, Sequence[int]]) -> str | None:
    """Return the setting that dismisses most search cases, summed over its repeats; of equals the first.

    All repeats share one search subset, so that the largest sum of counts is the largest mean dismissal,
    without rounding.
    """
    totals = {setting: sum(counts) for setting, counts in dismissed.items()}
    return max(totals, key=lambda setting: totals[setting], default=None)
