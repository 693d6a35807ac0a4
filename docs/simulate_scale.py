"""The tables of docs/scale.md: a cost model from measured figures, and a simulated cluster. Seeded.

`python docs/simulate_scale.py` prints both tables.
"""

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

# Measured by the commands on the page.
PREPROCESS_SECONDS = 4.5  # processor seconds of one 5355x4915 JPEG 2000 image
PNG_BYTES, DICOM_BYTES = 20_055_246, 22_505_042  # of that image
VIEW_FLOPS = 131_234_810_496  # of B5 at 1520x912
VIEW_CORE_SECONDS = 6.9  # on one core here
DIM, FLOAT16_BYTES, VIEWS = 2048, 2, 8

IMAGES_PER_CASE = 4.6  # RSNA's 54,706 images of 11,913 cases
CASES = (1_000_000, 10_000_000)
TERAFLOPS = (10, 30, 100)  # what a GPU really does of its nominal speed: 2018's, 2020's, 2022's kind
YEAR_SECONDS = 365 * 86_400

ITEMS = 10_000
SPREAD = 0.25  # of the logarithm of an item's duration; its median is the unit of time
STRAGGLERS, SLOWER = 0.02, 5.0  # share of tries on a machine that is slow just then, and by how much
BACK_AFTER = 3.0  # until a dead worker is replaced and its encoder loaded
MOST_TRIES = 12  # Dask's four, started three times
SEED = 9


@dataclass(frozen=True)
class Run:
    """The outcome of a simulated run."""

    makespan: float
    least: float  # all finished work shared evenly
    lost: float  # work of tries that died
    deaths: int
    most_tries: int
    given_up: int


def simulate(items: int, workers: int, deaths: float, size: float = 1.0) -> Run:
    """Run items over workers; a free worker takes the next item and may die during it."""
    generator = np.random.default_rng(SEED)
    fresh = deque(range(items))
    returned: list[tuple[float, int]] = []  # lost with their workers: when, which
    free = [(0.0, worker) for worker in range(workers)]
    tries = np.zeros(items, dtype=int)
    end = done = lost = 0.0
    died = given_up = 0
    while free and (fresh or returned):
        now, worker = heapq.heappop(free)
        if returned and returned[0][0] <= now:
            item = heapq.heappop(returned)[1]
        elif fresh:
            item = fresh.popleft()
        else:
            heapq.heappush(free, (returned[0][0], worker))
            continue
        tries[item] += 1
        duration = size * generator.lognormal(0.0, SPREAD)
        duration *= SLOWER if generator.random() < STRAGGLERS else 1.0
        # Workers die per time, not per item: a larger item has a proportionally larger chance.
        if generator.random() < 1 - (1 - deaths) ** size:
            at = now + generator.random() * duration
            died, lost = died + 1, lost + at - now
            heapq.heappush(free, (at + BACK_AFTER, worker))
            if tries[item] < MOST_TRIES:
                heapq.heappush(returned, (at, item))
            else:
                given_up += 1
            continue
        done += duration
        end = max(end, now + duration)
        heapq.heappush(free, (now + duration, worker))
    return Run(end, done / workers, lost / (done + lost), died, int(tries.max()), given_up)


def simulation_table() -> str:
    """Return the simulated runs as a table."""
    lines = [
        "| items | workers | deaths | time | over the least | work lost | workers died | most tries |",
        "|---|---|---|---|---|---|---|---|",
    ]
    cases = [(ITEMS, workers, deaths, 1.0) for workers in (8, 64, 512) for deaths in (0.0, 0.05)]
    cases += [(ITEMS // 8, 512, 0.05, 8.0)]
    for items, workers, deaths, size in cases:
        run = simulate(items, workers, deaths, size)
        name = f"{items:,}" if size == 1 else f"{items:,}, {size:.0f} times as large"
        lines.append(
            f"| {name} | {workers} | {100 * deaths:.0f} % | {run.makespan:,.0f} |"
            f" {100 * (run.makespan / run.least - 1):.0f} % | {100 * run.lost:.1f} % | {run.deaths:,} |"
            f" {run.most_tries} |"
        )
    return "\n".join(lines)


def cost_table() -> str:
    """Return the costs of one year."""
    rows: dict[str, list[str]] = {"images a year": []}
    for cases in CASES:
        images = cases * IMAGES_PER_CASE
        views = images * (VIEWS + 1)
        flops = views * VIEW_FLOPS
        cells = {
            "images a year": f"{images / 1e6:.1f} million",
            "preprocess: core hours": f"{images * PREPROCESS_SECONDS / 3600:,.0f}",
            "cores that keep up with that": f"{images * PREPROCESS_SECONDS / YEAR_SECONDS:.1f}",
            "DICOMs in": f"{images * DICOM_BYTES / 1e12:,.0f} TB",
            "PNGs": f"{images * PNG_BYTES / 1e12:,.0f} TB",
            "network, DICOMs in and PNGs out and in, evenly over the year": (
                f"{8 * images * (DICOM_BYTES + 2 * PNG_BYTES) / YEAR_SECONDS / 1e6:,.0f} Mbit/s"
            ),
            "views (K = 8)": f"{views / 1e6:.1f} million",
            **{
                f"extract: GPU hours at {tera} TFLOP/s": f"{flops / (tera * 1e12) / 3600:,.0f}"
                for tera in TERAFLOPS
            },
            "extract: GPU hours at 30 TFLOP/s, clean view only": (
                f"{images * VIEW_FLOPS / 30e12 / 3600:,.0f}"
            ),
            "extract: core hours without any GPU": f"{views * VIEW_CORE_SECONDS / 3600:,.0f}",
            "cache (K = 8)": f"{images * (VIEWS + 1) * DIM * FLOAT16_BYTES / 1e12:.2f} TB",
            "cache, clean view only": f"{images * DIM * FLOAT16_BYTES / 1e9:,.0f} GB",
            "shards of 32 images": f"{images / 32:,.0f}",
        }
        for name, cell in cells.items():
            rows.setdefault(name, []).append(cell)
    head = " | ".join(f"{count / 1e6:.0f} million cases" for count in CASES)
    lines = [f"| a year | {head} |", "|---|" + "---|" * len(CASES)]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())])


if __name__ == "__main__":
    print(cost_table(), simulation_table(), sep="\n\n")
