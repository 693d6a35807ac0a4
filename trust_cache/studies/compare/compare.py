"""Compare configurations at the same recall: with a reference within a run, and between runs."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from trust_cache.base.errors import InputError, did_you_mean
from trust_cache.base.versions import versions_of
from trust_cache.certificate.cautions import (
    incomplete_warnings,
    protocol_warnings,
    score_warnings,
    stopped_warnings,
)
from trust_cache.certificate.score_table import COLUMNS
from trust_cache.manifest.protocol import PAPER, Protocol, find_protocol
from trust_cache.statistics.stratified_draws import count_patients
from trust_cache.studies.compare.compared_runs import (
    ReadRun,
    Source,
    check_same_cases,
    describe_runs,
    difference_warnings,
    join_runs,
    joint_sha256,
    name_runs,
    read_run,
)
from trust_cache.studies.compare.comparison_results import (
    ComparedRun,
    CompareSettings,
    Comparison,
    IncompleteCase,
)
from trust_cache.studies.compare.contrasts import (
    Trainings,
    find_auroc_contrasts,
    find_contrasts,
    find_pairs,
    find_splits,
    find_standings,
)
from trust_cache.studies.compare.verdicts import limits

_LOG = logging.getLogger(__name__)
DEFAULT_REFERENCE = "closed-loop"


def compare(
    source: Source | list[Source],
    *,
    names: Sequence[str] | None = None,
    targets: Sequence[float] = (0.98, 0.95),
    reference: str | None = None,
    resamples: int = 2_000,
    swaps: int = 2_000,
    seed: int = 0,
    resplits: int = 200,
    margin_points: float = 1.0,
    protocol: Protocol | Path | str = PAPER,
    case: str = COLUMNS.case,
    label: str = COLUMNS.label,
    score: str = COLUMNS.score,
    patient: str = COLUMNS.patient,
    positive: str | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Comparison:
    """Compare the configurations of a run folder, a scores file or a table with the reference.

    Of several runs on the same cases, each configuration is also compared between every two runs. `names`
    are the names of the runs, by default their encoders.
    `margin_points` is the margin of non-inferiority in percentage points of dismissal, `protocol` what a case
    must be to be dismissed. `case`, `label`, `score` and `patient` are names of columns, `positive` is the
    label of cancer where labels are not 0 and 1. `advance` is called after each resplit.
    """
    settings = CompareSettings(
        targets=tuple(map(float, targets)), reference=reference, resamples=resamples, swaps=swaps, seed=seed,
        resplits=resplits, margin_points=float(margin_points), protocol=find_protocol(protocol),
        case=case, label=label, score=score, patient=patient, positive=positive,
    )  # fmt: skip
    runs = [read_run(item, settings) for item in (source if isinstance(source, list) else [source])]
    check_same_cases(runs)
    return _compare_runs(runs, name_runs(runs, names), settings, advance)


def _compare_runs(
    runs: Sequence[ReadRun], named: Sequence[str], settings: CompareSettings, advance: Callable[[], None]
) -> Comparison:
    described = describe_runs(runs, named)
    chosen = choose_reference(_shared(runs, described), settings.reference, runs[0].scores[0].source)
    trainings = join_runs(runs, named)
    pairs = find_pairs(trainings.columns, chosen)
    cohort, kind = trainings.cohort, runs[0].scores[0].kind()
    repeats = len(trainings.all)
    _LOG.info(
        "%s: %d columns, %d cases, %d of them positive, %d trainings",
        ", ".join(named), len(trainings.columns), cohort.cases, cohort.positives, repeats,
    )  # fmt: skip
    splits, warnings = find_splits(cohort, settings, advance)
    digests = [joint_sha256([run.scores[number].sha256 for run in runs]) for number in range(repeats)]
    return Comparison(
        settings=settings,
        kind=kind,
        runs=described,
        scores_sha256=digests[0],
        repeats=repeats,
        repeats_sha256=tuple(digests[1:]),
        cases=cohort.cases,
        positives=cohort.positives,
        patients=count_patients(cohort.patients),
        reference=chosen,
        standings=find_standings(trainings, splits, settings),
        contrasts=find_contrasts(trainings, pairs, splits, settings),
        auroc_contrasts=find_auroc_contrasts(trainings, pairs, settings),
        incomplete_cases=_incomplete_cases(trainings),
        warnings=(
            *dict.fromkeys(text for run in runs for text in run.scores[0].warnings),
            *(text for run in runs for text in protocol_warnings(run.scores[0], settings.protocol)),
            *difference_warnings(runs, named),
            *score_warnings(cohort),
            *incomplete_warnings(cohort),
            *stopped_warnings(cohort),
            *warnings,
        ),
        limits=limits(kind, repeats=repeats, runs=len(runs), patients=cohort.repeated_patients),
        versions=versions_of("numpy", "scipy", "polars"),
    )


def _incomplete_cases(trainings: Trainings) -> tuple[IncompleteCase, ...]:
    """List the incomplete cases of every column, with their problems."""
    cohort = trainings.cohort
    return tuple(
        IncompleteCase(
            run=column.run,
            configuration=column.configuration,
            case_id=cohort.case_ids[case],
            label=int(cohort.labels[case]),
            reason="; ".join(problems),
        )
        for column, of_cases in zip(trainings.columns, cohort.problems, strict=True)
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


def _shared(read: Sequence[ReadRun], runs: Sequence[ComparedRun]) -> list[str]:
    """Return the configurations that all runs have; there must be something to compare."""
    first = runs[0]
    shared = [name for name in first.configurations if all(name in run.configurations for run in runs)]
    if len(runs) == 1 and len(shared) == 1:
        only = "no such column" if read[0].cohorts[0].configurations == (None,) else f"only {shared[0]}"
        raise InputError(
            f"{read[0].scores[0].source}: expected the scores of two or more configurations in the column"
            f" configuration, found {only}; there is nothing to compare"
        )
    if not shared:
        found = "; ".join(f"{run.name}: {', '.join(run.configurations)}" for run in runs)
        raise InputError(f"expected a configuration that all runs have, found {found}")
    return shared
