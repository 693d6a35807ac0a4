"""The comparison: scores and settings in, every configuration against the reference out."""

import logging
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path

from trust_cache.base.errors import InputError
from trust_cache.base.versions import versions_of
from trust_cache.certificate.cautions import score_warnings
from trust_cache.certificate.cohort import Cohort, build_cohort
from trust_cache.certificate.resplits import Resplit, certify_resplits
from trust_cache.certificate.scores import Scores, read_scores
from trust_cache.statistics.splits import search_sizes
from trust_cache.studies.compare.contrasts import find_contrasts
from trust_cache.studies.compare.repeats import read_repeats
from trust_cache.studies.compare.results import Comparison
from trust_cache.studies.compare.settings import CompareSettings
from trust_cache.studies.compare.standings import TERMS, find_standings
from trust_cache.studies.compare.words import limits

_LOG = logging.getLogger(__name__)
DEFAULT_REFERENCE = "closed-loop"


def compare(
    source: Path | str,
    *,
    targets: Sequence[float] = (0.98, 0.95),
    reference: str | None = None,
    resamples: int = 2_000,
    swaps: int = 2_000,
    seed: int = 0,
    resplits: int = 200,
    advance: Callable[[], None] = lambda: None,
) -> Comparison:
    """Compare every configuration of a run folder or a scores file with the reference.

    `advance` is called after each resplit.
    """
    settings = CompareSettings(tuple(map(float, targets)), reference, resamples, swaps, seed, resplits)
    scores = read_scores(Path(source))
    names = _names(scores)
    chosen = choose_reference(names, reference, scores.source)
    cohort = build_cohort(scores)
    if not cohort.positives:
        raise InputError(f"{scores.source}: expected positive cases, found none: recall is not defined")
    repeats = read_repeats(Path(source), cohort)
    _LOG.info(
        "%s: %d configurations, %d cases, %d of them positive, %d repeats",
        scores.source, len(names), cohort.cases, cohort.positives, 1 + len(repeats),
    )  # fmt: skip
    splits, warnings = _resplit(cohort, settings, advance)
    standings = find_standings(cohort, names, [other for _, other in repeats], splits, settings)
    return Comparison(
        settings=settings,
        source=scores.source,
        kind=scores.kind(),
        scores_sha256=scores.sha256,
        repeats_sha256=tuple(repeat.sha256 for repeat, _ in repeats),
        cases=cohort.cases,
        positives=cohort.positives,
        reference=chosen,
        standings=standings,
        contrasts=find_contrasts(cohort, names, chosen, standings, splits, settings),
        warnings=(*score_warnings(cohort), *warnings),
        limits=limits(scores.kind(), repeats=1 + len(repeats)),
        versions=versions_of("numpy", "scipy", "polars"),
    )


def choose_reference(names: Sequence[str], wanted: str | None, source: str) -> str:
    """Return the configuration that all others are compared with."""
    if wanted is None:
        return DEFAULT_REFERENCE if DEFAULT_REFERENCE in names else names[0]
    if wanted not in names:
        nearest = get_close_matches(wanted, names, n=1, cutoff=0.4)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise InputError(f"reference: expected one of {', '.join(names)} ({source}), found {wanted!r}{hint}")
    return wanted


def _names(scores: Scores) -> list[str]:
    found = scores.configurations
    if len(found) == 1:
        only = "no such column" if found == [None] else f"only {found[0]}"
        raise InputError(
            f"{scores.source}: expected the scores of two or more configurations in the column"
            f" configuration, found {only}; there is nothing to compare"
        )
    return [str(name) for name in found]


def _resplit(
    cohort: Cohort, settings: CompareSettings, advance: Callable[[], None]
) -> tuple[tuple[Resplit, ...], list[str]]:
    _, search_positives = search_sizes(cohort.cases, cohort.positives)
    if not 0 < search_positives < cohort.positives:
        return (), [
            f"{cohort.positives} positives are too few to split for search and evaluation: no resplits"
        ]
    splits = certify_resplits(
        cohort, settings.targets, TERMS, seed=settings.seed, resplits=settings.resplits, advance=advance
    )
    return splits, []
