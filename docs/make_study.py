"""Run the study of the closed loop, cell by cell; the same command resumes. `make study` calls it.

From the top of the project: python docs/make_study.py --page docs/study.md
Two processes share the cells. All of it takes a few hours on two cores; `--part` runs one part alone.
"""

import argparse
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import polars as pl
import study_charts as charts
from statistics_tables import fill_page
from study_simulation import STUDY, Cell, Part
from study_tables import read_rows, render_tables
from threadpoolctl import threadpool_limits

from trust_cache.base.csv_tables import write_rows
from trust_cache.base.files import write_file
from trust_cache.figures.chart_style import save_chart

HERE = Path(__file__).resolve().parent
ROWS = HERE / "study_rows"
KEYS = ("setting", "cohort")
FIGURES = {
    "differences_nlbs": ("configurations_nlbs", charts.differences_chart),
    "differences_rsna": ("configurations_rsna", charts.differences_chart),
    "rates": ("sensitivity", charts.rates_chart),
    "penalty": ("sensitivity", charts.penalty_chart),
    "mechanism": ("mechanism", charts.mechanism_chart),
    "views": ("views", charts.views_chart),
}
_REPORTED = 20


def main() -> None:
    """Run the cells that are missing, then write figures and tables."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    for part in STUDY:
        if options.part in (None, part.name):
            run_missing(part, options.out, options.processes)
    if options.page is not None:
        draw_figures(options.out, options.figures)
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(fill_page(page, render_tables(options.out)), encoding="utf-8")


def draw_figures(rows: Path, out: Path) -> None:
    """Draw the figures of the parts that were run."""
    out.mkdir(parents=True, exist_ok=True)
    for name, (part, draw) in FIGURES.items():
        if path_of(find_part(part), rows).exists():
            save_chart(draw(read_part(part, rows)), out / f"{name}.svg")


def path_of(part: Part, folder: Path) -> Path:
    """Return the CSV file of a part."""
    return folder / f"{part.name}.csv"


def run_missing(part: Part, folder: Path, processes: int) -> None:
    """Append the rows of the cells that the file does not have, a cell at a time; sort them at the end."""
    path, columns = path_of(part, folder), (*KEYS, *part.columns)
    done = keep_whole_cells(path, columns)
    missing = [cell for cell in part.cells() if (cell.setting, cell.cohort) not in done]
    if not missing:
        return
    begin = time.monotonic()
    names = [(cell.setting, cell.cohort) for cell in missing]
    # Not fork: polars has threads.
    spawn = multiprocessing.get_context("spawn")
    with path.open("ab") as file, ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        futures = [pool.submit(run_cell, part.name, *name) for name in names]
        for count, future in enumerate(as_completed(futures), 1):
            file.write(future.result())
            file.flush()
            os.fsync(file.fileno())
            if count % _REPORTED == 0 or count == len(missing):
                each = (time.monotonic() - begin) / count
                print(f"{part.name}: {count} of {len(missing)} cells, {each:.1f} s each", flush=True)
    order = {(cell.setting, cell.cohort): number for number, cell in enumerate(part.cells())}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[1:] = sorted(lines[1:], key=lambda line: order[_key(line)])  # rows of a cell keep their order
    write_file(path, "".join(lines).encode())


def run_cell(part: str, setting: str, cohort: int) -> bytes:
    """Return the CSV lines of one cell."""
    found = find_part(part)
    cell = find_cell(found, setting, cohort)
    with threadpool_limits(1):
        rows = [{"setting": setting, "cohort": cohort, **row} for row in cell.work()]
    return write_rows((*KEYS, *found.columns), rows).split(b"\n", 1)[1]


def find_part(name: str) -> Part:
    """Return the part of this name."""
    return next(part for part in STUDY if part.name == name)


def find_cell(part: Part, setting: str, cohort: int) -> Cell:
    """Return a cell of a part."""
    return next(cell for cell in part.cells() if (cell.setting, cell.cohort) == (setting, cohort))


def keep_whole_cells(path: Path, columns: Sequence[str]) -> set[tuple[str, int]]:
    """Drop what a killed run left of its last cell; return the cells that are there."""
    header = ",".join(columns) + "\n"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    if lines and lines[0] != header:
        raise SystemExit(f"{path}: expected the columns {header}found {lines[0]}start a new file")
    cells: dict[tuple[str, int], list[str]] = {}
    for line in lines[1:]:
        if line.endswith("\n") and line.count(",") == header.count(","):
            cells.setdefault(_key(line), []).append(line)
    usual: dict[str, int] = {}
    for (setting, _), rows in cells.items():
        usual[setting] = max(len(rows), usual.get(setting, 0))
    whole = {key: rows for key, rows in cells.items() if len(rows) == usual[key[0]]}
    kept = "".join([header, *(row for rows in whole.values() for row in rows)])
    if kept != "".join(lines):
        write_file(path, kept.encode())
    return set(whole)


def read_part(name: str, folder: Path = ROWS) -> pl.DataFrame:
    """Return the rows of a part."""
    return read_rows(path_of(find_part(name), folder))


def _key(line: str) -> tuple[str, int]:
    setting, cohort, _ = line.split(",", 2)
    return setting, int(cohort)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=[part.name for part in STUDY], default=None, help="one part alone")
    parser.add_argument("--out", type=Path, default=ROWS, help="folder of the CSV files")
    parser.add_argument("--figures", type=Path, default=HERE / "study_figures", help="folder of the figures")
    parser.add_argument("--page", type=Path, default=None, help="page whose tables and figures to refresh")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
