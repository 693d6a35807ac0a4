"""Compare every configuration of a run with a reference, at the same recall."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from trust_cache.base.errors import InputError, did_you_mean
from trust_cache.base.versions import versions_of
from trust_cache.certificate.cautions import incomplete_warnings, score_warnings
from trust_cache.certificate.score_table import Cohort, Scores, as_scores, build_cohort, read_scores
from trust_cache.heads.run_folder import RunFolder
from trust_cache.manifest.cases import PATIENT
from trust_cache.manifest.protocol import PAPER, Protocol, find_protocol
from trust_cache.statistics.stratified_draws import count_patients
from trust_cache.studies.compare.comparison_results import CompareSettings, Comparison, IncompleteCase
from trust_cache.studies.compare.contrasts import (
    Trainings,
    find_auroc_contrasts,
    find_contrasts,
    find_splits,
    find_standings,
)
from trust_cache.studies.compare.verdicts import limits

_LOG = logging.getLogger(__name__)
DEFAULT_REFERENCE = "closed-loop"


def read_repeats(run: Path, cohort: Cohort, settings: CompareSettings) -> list[tuple[Scores, Cohort]]:
    """Read the scores of repeat 1, 2, ... of a run folder; none for a file of scores."""
    repeats = []
    for folder in RunFolder(run).repeats():
        scores = read_scores(folder.path, settings.patient)
        repeat = build_cohort(scores, settings.protocol)
        _check_same(scores.source, cohort, repeat)
        _check_complete(scores.source, cohort, repeat)
        repeats.append((scores, repeat))
    return repeats


def _check_same(source: str, cohort: Cohort, repeat: Cohort) -> None:
    if repeat.configurations != cohort.configurations:
        raise InputError(
            f"{source}: expected the run's own configurations {', '.join(map(str, cohort.configurations))},"
            f" found {', '.join(map(str, repeat.configurations))}"
        )
    if not (
        repeat.case_ids.equals(cohort.case_ids)
        and np.array_equal(repeat.labels, cohort.labels)
        and np.array_equal(repeat.patients, cohort.patients)
    ):
        raise InputError(
            f"{source}: expected the cases and labels of the run itself ({cohort.cases:,} cases,"
            f" {cohort.positives:,} positive), found others ({repeat.cases:,}, {repeat.positives:,})"
        )


def _check_complete(source: str, cohort: Cohort, repeat: Cohort) -> None:
    for index, name in enumerate(cohort.configurations):
        differing = np.flatnonzero(cohort.complete(index) != repeat.complete(index))
        if differing.size:
            raise InputError(
                f"{source}: expected the incomplete cases of the run itself, found case"
                f" {cohort.case_ids[int(differing[0])]} of {name} to differ ({differing.size} cases in all)"
            )


def compare(
    source: pl.DataFrame | Path | str,
    *,
    targets: Sequence[float] = (0.98, 0.95),
    reference: str | None = None,
    resamples: int = 2_000,
    swaps: int = 2_000,
    seed: int = 0,
    resplits: int = 200,
    margin_points: float = 1.0,
    protocol: Protocol | Path | str = PAPER,
    patient: str = PATIENT,
    advance: Callable[[], None] = lambda: None,
) -> Comparison:
    """Compare every configuration of a run folder, a scores file or a table with the reference.

    `margin_points` is the margin of non-inferiority in percentage points of dismissal, `protocol` what a case
    must be to be dismissed, `patient` the column of patients. `advance` is called after each resplit.
    """
    settings = CompareSettings(
        targets=tuple(map(float, targets)), reference=reference, resamples=resamples, swaps=swaps, seed=seed,
        resplits=resplits, margin_points=float(margin_points), protocol=find_protocol(protocol),
        patient=patient,
    )  # fmt: skip
    scores = as_scores(source, patient)
    names = _names(scores)
    chosen = choose_reference(names, reference, scores.source)
    cohort = build_cohort(scores, settings.protocol)
    if not cohort.positives:
        raise InputError(f"{scores.source}: expected positive cases, found none: recall is not defined")
    repeats = [] if isinstance(source, pl.DataFrame) else read_repeats(Path(source), cohort, settings)
    _LOG.info(
        "%s: %d configurations, %d cases, %d of them positive, %d repeats",
        scores.source, len(names), cohort.cases, cohort.positives, 1 + len(repeats),
    )  # fmt: skip
    trainings = Trainings(cohort, tuple(other for _, other in repeats))
    splits, warnings = find_splits(cohort, settings, advance)
    return Comparison(
        settings=settings,
        kind=scores.kind(),
        scores_sha256=scores.sha256,
        repeats=1 + len(repeats),
        repeats_sha256=tuple(repeat.sha256 for repeat, _ in repeats),
        cases=cohort.cases,
        positives=cohort.positives,
        patients=count_patients(cohort.patients),
        reference=chosen,
        standings=find_standings(trainings, splits, settings),
        contrasts=find_contrasts(trainings, chosen, splits, settings),
        auroc_contrasts=find_auroc_contrasts(trainings, chosen, settings),
        incomplete_cases=_incomplete_cases(cohort),
        warnings=(*score_warnings(cohort), *incomplete_warnings(cohort), *warnings),
        limits=limits(scores.kind(), repeats=1 + len(repeats), patients=cohort.repeated_patients),
        versions=versions_of("numpy", "scipy", "polars"),
    )


def _incomplete_cases(cohort: Cohort) -> tuple[IncompleteCase, ...]:
    """List the incomplete cases of every configuration, with their problems."""
    return tuple(
        IncompleteCase(
            configuration=str(name),
            case_id=cohort.case_ids[case],
            label=int(cohort.labels[case]),
            reason="; ".join(problems),
        )
        for name, of_cases in zip(cohort.configurations, cohort.problems, strict=True)
        for case, problems in sorted(of_cases.items())
    )


def choose_reference(names: Sequence[str], wanted: str | None, source: str) -> str:
    """Return the configuration that all others are compared with."""
    if wanted is None:
        return DEFAULT_REFERENCE if DEFAULT_REFERENCE in names else names[0]
    if wanted not in names:
        hint = did_you_mean(wanted, names)
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
    return list(map(str, found))
