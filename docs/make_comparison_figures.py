"""Make the figures and CSV files of the comparison page, and with --page refresh the tables in it.

From the top of the project: python docs/make_comparison_figures.py --page docs/comparison.md
"""

import argparse
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import comparison_charts as charts
import comparison_simulation as simulation
import polars as pl
from comparison_tables import render_tables
from selection_simulation import paper_sizes
from statistics_tables import fill_page

from trust_cache.base.csv_tables import write_rows
from trust_cache.figures.chart_style import save_chart

HERE = Path(__file__).resolve().parent
Rows = list[dict[str, object]]


def main() -> None:
    """Simulate, write the numbers, draw them."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    sizes = paper_sizes()
    pairs = [
        simulation.equal_columns(size, correlation)
        for size in sizes
        for correlation in simulation.CORRELATIONS
    ]
    alarms = partial(
        simulation.simulate_intervals, cohorts=options.many, resamples=options.resamples, seed=options.seed
    )
    verdicts = partial(
        simulation.simulate, cohorts=options.cohorts, resamples=options.resamples, seed=options.seed
    )
    for name, run, items in (
        ("alarms.csv", alarms, pairs),
        ("verdicts.csv", verdicts, [item for size in sizes for item in simulation.scenarios(size)]),
    ):
        rows = _map(run, items, options.processes)
        (options.out / name).write_bytes(write_rows(simulation.COLUMNS, rows))
        print(options.out / name)
    for name, draw in (("alarms", charts.alarm_chart), ("verdicts", charts.verdict_chart)):
        path = options.out / f"{name}.svg"
        save_chart(draw(pl.read_csv(options.out / f"{name}.csv")), path)
        print(path)
    if options.page is not None:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(fill_page(page, render_tables(options.out)), encoding="utf-8")


def _map(
    run: Callable[[simulation.Scenario], Rows], items: Sequence[simulation.Scenario], processes: int
) -> Rows:
    # Not fork: polars has threads.
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        return [row for rows in pool.map(run, items) for row in rows]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohorts", type=int, default=200, help="cohorts of each scenario")
    parser.add_argument("--many", type=int, default=600, help="cohorts where only intervals are made")
    parser.add_argument("--resamples", type=int, default=600, help="resamples and swaps of each cohort")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--out", type=Path, default=HERE / "comparison_figures", help="folder of the figures and CSV files"
    )
    parser.add_argument("--page", type=Path, default=None, help="page whose tables to refresh")
    return parser.parse_args()


if __name__ == "__main__":
    main()
