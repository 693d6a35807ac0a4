"""Make the figures and CSV files of the statistics page, and with --page refresh the tables in it.

From the top of the project: python docs/make_statistics_figures.py --page docs/statistics.md docs/choosing.md
"""

import argparse
import io
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import altair as alt
import band_numbers
import polars as pl
import selection_simulation
import statistics_charts as charts
import statistics_numbers as numbers
from statistics_tables import fill_page, render_tables

from trust_cache.base.csv_tables import write_rows

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Simulate, write the numbers, draw them."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, content in make_numbers(options.replicates, options.resplits, options.seed):
        (options.out / name).write_bytes(content)
        print(options.out / name)
    for name, chart in draw(options.out):
        _save(chart, options.out / name)
        print(options.out / name)
    for page in options.page:
        filled = fill_page(page.read_text(encoding="utf-8"), render_tables(options.out))
        page.write_text(filled, encoding="utf-8")


def make_numbers(replicates: int, resplits: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield each CSV file by name."""
    yield "law.csv", write_rows(numbers.LAW_COLUMNS, numbers.law())
    yield "chances.csv", write_rows(numbers.CHANCE_COLUMNS, numbers.chances())
    yield "failures.csv", write_rows(numbers.FAILURE_COLUMNS, numbers.failures())
    yield "fixed_classes.csv", write_rows(numbers.FIXED_CLASS_COLUMNS, numbers.fixed_classes())
    yield "rebuilt_counts.csv", write_rows(numbers.REBUILT_COLUMNS, numbers.rebuilt_counts())
    yield "float_targets.csv", write_rows(numbers.FLOAT_COLUMNS, numbers.float_targets())
    yield "examples.csv", write_rows(numbers.EXAMPLE_COLUMNS, numbers.examples())
    yield "band_price.csv", write_rows(band_numbers.PRICE_COLUMNS, band_numbers.price())
    yield (
        "band_free.csv",
        write_rows(band_numbers.FREE_COLUMNS, band_numbers.free_thresholds(replicates, seed)),
    )
    yield (
        "band_failures.csv",
        write_rows(band_numbers.FAILURE_COLUMNS, band_numbers.failures(replicates, seed)),
    )
    yield "one_head.csv", write_rows(numbers.ONE_HEAD_COLUMNS, numbers.one_head(replicates, seed))
    points, spreads = numbers.resplit_cohorts(resplits, seed)
    yield "resplits.csv", write_rows(numbers.RESPLIT_COLUMNS, points)
    yield "spreads.csv", write_rows(numbers.SPREAD_COLUMNS, spreads)
    yield "selection.csv", write_rows(selection_simulation.COLUMNS, _simulate(replicates, seed))


def draw(folder: Path) -> Iterator[tuple[str, alt.TopLevelMixin]]:
    """Yield each figure by name, from the CSV files of `folder`."""
    yield "selection.svg", charts.selection_chart(pl.read_csv(folder / "selection.csv"))
    yield "resplits.svg", charts.resplit_chart(pl.read_csv(folder / "resplits.csv"))
    law = pl.read_csv(folder / "law.csv")
    yield "chances.svg", charts.chance_chart(pl.read_csv(folder / "chances.csv"), law)
    yield "failures.svg", charts.failure_chart(pl.read_csv(folder / "failures.csv"))


def _simulate(replicates: int, seed: int) -> list[dict[str, object]]:
    """Run the selection simulation with one process for each data set."""
    sizes = selection_simulation.paper_sizes()
    run = partial(selection_simulation.simulate_selection, replicates=replicates, seed=seed)
    # Not fork: polars has threads.
    with ProcessPoolExecutor(len(sizes), mp_context=multiprocessing.get_context("spawn")) as pool:
        return [row for rows in pool.map(run, sizes) for row in rows]


def _save(chart: alt.TopLevelMixin, path: Path) -> None:
    text = io.StringIO()
    chart.save(text, format="svg")  # type: ignore[attr-defined]
    path.write_text(text.getvalue(), encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--replicates", type=int, default=3_000, help="replicates of the selection simulation"
    )
    parser.add_argument("--resplits", type=int, default=1_000, help="splits of each cohort")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, default=HERE / "figures", help="folder of the figures and CSV files"
    )
    parser.add_argument("--page", type=Path, nargs="*", default=[], help="pages whose tables to refresh")
    return parser.parse_args()


if __name__ == "__main__":
    main()
