"""Simulate certificates whose truth is known, and with --page refresh their tables in their page.

From the top of the project: python docs/make_coverage_tables.py --page docs/coverage.md
Training takes about a second for each cohort on one core. Cohorts that are in the CSV file already are not
simulated again, so an interrupted run is resumed by the same command.
"""

import argparse
import os
import time
from pathlib import Path

import coverage_simulation as simulation
import score_simulation as scores
from coverage_tables import OUT_OF_FOLD, PATIENTS, UNINFORMATIVE, render_tables
from selection_simulation import paper_sizes
from statistics_tables import fill_page
from threadpoolctl import threadpool_limits

from trust_cache.base.csv_tables import write_rows
from trust_cache.base.files import write_file

HERE = Path(__file__).resolve().parent
_REPORTED = 20


def main() -> None:
    """Simulate what is missing, then write the tables."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    simulate_missing(options.out / OUT_OF_FOLD, options.cohorts)
    for name, columns, rows in (
        (PATIENTS, scores.PATIENT_COLUMNS, lambda: _patients(options.patient_cohorts)),
        (UNINFORMATIVE, scores.UNINFORMATIVE_COLUMNS, lambda: _uninformative(options.score_cohorts)),
    ):
        path = options.out / name
        if not path.exists():
            write_file(path, write_rows(columns, rows()))
            print(path, flush=True)
    if options.page is not None:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(fill_page(page, render_tables(options.out)), encoding="utf-8")


def simulate_missing(path: Path, cohorts: int) -> None:
    """Append the rows of the cohorts 0, 1, ... that the file does not have, one cohort at a time."""
    done = keep_whole_cohorts(path)
    missing = [number for number in range(cohorts) if number not in done]
    if not missing:
        return
    population = simulation.Population(simulation.TRUTH)
    begin = time.monotonic()
    with path.open("ab") as file, threadpool_limits(1):
        for count, number in enumerate(missing, 1):
            rows = write_rows(simulation.COLUMNS, simulation.simulate(number, population))
            file.write(rows.split(b"\n", 1)[1])
            file.flush()
            os.fsync(file.fileno())
            if count % _REPORTED == 0:
                each = (time.monotonic() - begin) / count
                print(f"{len(done) + count} of {cohorts} cohorts, {each:.2f} s each", flush=True)


def keep_whole_cohorts(path: Path) -> set[int]:
    """Drop what a killed run left of an unfinished cohort; return the numbers of the finished ones."""
    header = ",".join(simulation.COLUMNS)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    if lines and lines[0].strip() != header:
        raise SystemExit(f"{path}: expected the columns {header}, found {lines[0].strip()}; start a new file")
    whole: dict[str, list[str]] = {}
    for line in lines[1:]:
        if line.endswith("\n") and line.count(",") == header.count(","):
            whole.setdefault(line.split(",", 1)[0], []).append(line)
    wanted = len(simulation.CONFIGURATIONS) * len(simulation.TARGETS)
    whole = {number: rows for number, rows in whole.items() if len(rows) == wanted}
    kept = "".join([header + "\n", *(row for rows in whole.values() for row in rows)])
    if kept != "".join(lines):
        write_file(path, kept.encode())
    return {int(number) for number in whole}


def _patients(cohorts: int) -> list[dict[str, object]]:
    return [row for law in scores.PATIENT_LAWS for row in scores.simulate_patients(law, cohorts, seed=0)]


def _uninformative(cohorts: int) -> list[dict[str, object]]:
    return [row for size in paper_sizes() for row in scores.simulate_uninformative(size, cohorts, seed=0)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohorts", type=int, default=2_000, help="cohorts that are trained and certified")
    parser.add_argument("--patient-cohorts", type=int, default=20_000, help="cohorts of each law of patients")
    parser.add_argument("--score-cohorts", type=int, default=100_000, help="cohorts of uninformative scores")
    parser.add_argument("--out", type=Path, default=HERE / "coverage_rows", help="folder of the CSV files")
    parser.add_argument("--page", type=Path, default=None, help="page whose tables to refresh")
    return parser.parse_args()


if __name__ == "__main__":
    main()
