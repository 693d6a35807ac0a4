"""The repeats of a run: the scores of other trainings on the same cases, checked against the run's own."""

from pathlib import Path

from trust_cache.base.documents import parse_json
from trust_cache.base.errors import InputError
from trust_cache.certificate.cohort import Cohort, build_cohort
from trust_cache.certificate.scores import Scores, read_scores


def read_repeats(run: Path, cohort: Cohort) -> list[tuple[Scores, Cohort]]:
    """Read repeats/1, repeats/2, ... of a run folder; none for a file of scores or a run without them."""
    folder = run / "repeats"
    recorded = _recorded(run / "run.json")
    numbers = _numbers(folder) if folder.is_dir() else []
    expected = list(range(1, max(recorded, len(numbers) + 1)))
    missing = [number for number in expected if number not in numbers]
    if missing:
        raise InputError(
            f"{folder}: expected the repeats {', '.join(map(str, expected))}, found"
            f" {', '.join(map(str, numbers)) or 'none'}: repeat {missing[0]} is missing; copy the whole run"
            " folder, or train it again with fit-heads --repeats"
        )
    repeats = []
    for number in expected:
        scores = read_scores(folder / str(number))
        repeat = build_cohort(scores)
        _check_same(scores.source, cohort, repeat)
        repeats.append((scores, repeat))
    return repeats


def _recorded(record: Path) -> int:
    """Return how many repeats the run says it has; 1 where it says nothing."""
    try:
        return int(parse_json(record.read_text(encoding="utf-8"))["repeats"])
    except (OSError, ValueError, LookupError, TypeError):
        return 1


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.is_dir() and path.name.isdecimal())


def _check_same(source: str, cohort: Cohort, repeat: Cohort) -> None:
    if repeat.configurations != cohort.configurations:
        raise InputError(
            f"{source}: expected the run's own configurations {_listed(cohort)}, found {_listed(repeat)}"
        )
    same = repeat.case_ids.equals(cohort.case_ids) and bool((repeat.labels == cohort.labels).all())
    if not same:
        raise InputError(
            f"{source}: expected the cases and labels of the run itself ({cohort.cases:,} cases,"
            f" {cohort.positives:,} positive), found others ({repeat.cases:,}, {repeat.positives:,})"
        )


def _listed(cohort: Cohort) -> str:
    return ", ".join(str(name) for name in cohort.configurations)
