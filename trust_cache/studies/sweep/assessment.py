"""All settings on the search subset, bank by bank; on evaluation only those that a user asked to see."""

from collections.abc import Callable
from dataclasses import dataclass, field

from trust_cache.certificate.points import Point, Terms, evaluate
from trust_cache.certificate.split import Split
from trust_cache.heads.preparation import Preparation
from trust_cache.studies.sweep.catalogue import Bank, name_setting
from trust_cache.studies.sweep.cohorts import bank_cohort, fold_of_case
from trust_cache.studies.sweep.record import Record
from trust_cache.studies.sweep.score_files import ScoreFiles
from trust_cache.studies.sweep.selection import SearchOutcome, choose_winner, search_setting, take_search

Key = tuple[str, int, float]  # setting, repeat, target


@dataclass(frozen=True)
class Assessment:
    """What the settings do on search, what was shown of evaluation, and which settings diverged."""

    outcomes: dict[Key, SearchOutcome] = field(default_factory=dict)
    shown: dict[Key, Point] = field(default_factory=dict)
    diverged: dict[tuple[str, int], int] = field(default_factory=dict)  # (setting, repeat) -> fold


def assess(
    record: Record,
    terms: Terms,
    work: Preparation,
    files: ScoreFiles,
    split: Split,
    on_bank: Callable[[], None] = lambda: None,
) -> Assessment:
    """Assess every setting in every repeat; one bank's scores are in memory at a time."""
    found = Assessment()
    for bank in record.banks:
        for repeat in range(work.settings.repeats):
            _assess_bank(found, bank, repeat, record, terms, work, files, split)
        on_bank()
    return found


def terms_of(record: Record) -> Terms:
    """Return what every bound of a sweep depends on."""
    return Terms(record.identity["rule"], record.identity["delta"], record.compared)


def choose_winners(record: Record, found: Assessment) -> dict[float, str]:
    """Return the winner for each target; a setting that diverged anywhere does not take part."""
    failed = {setting for setting, _ in found.diverged}
    names = [name for item in record.settings if (name := name_setting(item)) not in failed]
    repeats = range(record.identity["repeats"])
    winners = {}
    for target in record.identity["targets"]:
        dismissed = {
            name: [found.outcomes[name, repeat, target].counts.dismissed for repeat in repeats]
            for name in names
        }
        winner = choose_winner(dismissed)
        if winner is not None:
            winners[target] = winner
    return winners


def _assess_bank(
    found: Assessment,
    bank: Bank,
    repeat: int,
    record: Record,
    terms: Terms,
    work: Preparation,
    files: ScoreFiles,
    split: Split,
) -> None:
    made = bank_cohort(work, bank.settings, files.read(bank, repeat))
    search = take_search(made.cohort, split)
    folds = fold_of_case(work, repeat)[split.search]
    targets = record.identity["targets"]
    for index, setting in enumerate(bank.settings):
        name = name_setting(setting)
        if name in made.diverged:
            found.diverged[name, repeat] = made.diverged[name]
            continue
        for outcome in search_setting(search, index, targets, terms, folds):
            key = (name, repeat, outcome.threshold.target)
            found.outcomes[key] = outcome
            if name in record.shown:
                found.shown[key] = evaluate(made.cohort, split.evaluation, index, outcome.threshold, terms)
