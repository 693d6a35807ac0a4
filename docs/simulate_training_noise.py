"""How often `compare` calls two trainings of one configuration different: the table of the comparison page.

Every cohort is a synthetic cache. One configuration is trained on it ten times, under ten seeds of initial
weights, batches and folds. Five of the trainings pose as one configuration, five as another, and `compare`
judges the two. Each verdict "different" is false.

From the top of the project: python docs/simulate_training_noise.py --page docs/comparison.md
A cohort's rows are appended to the CSV file as soon as it ends; the same command resumes.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import numpy as np
import polars as pl
from comparison_tables import NOISE, render_tables
from msgspec.structs import replace
from statistics_tables import fill_page

from trust_cache.base.csv_tables import write_rows
from trust_cache.cache.cache_reader import Cache
from trust_cache.heads.fit import fit_heads
from trust_cache.heads.folds import CALIBRATION_SHARE, FOLD_COLUMNS, FOLDS
from trust_cache.heads.head_settings import presets
from trust_cache.manifest.cases import find_cases
from trust_cache.statistics.stratified_draws import random_keys
from trust_cache.studies.compare.compare import compare
from trust_cache.studies.compare.comparison_results import AurocContrast, Contrast
from trust_cache.synthetic.feature_cohort import simulate_cache

HERE = Path(__file__).resolve().parent
CASES = 3_750  # of RSNA's prevalence: 153 positives, about the fewest that resolve 98 % recall
DIM = 32
EPOCHS = 20
TRAININGS = 5  # of each of the two posing configurations
RESAMPLES = 600
POSED = ("first", "second")
COLUMNS = ("setting", "cohort", "measure", "difference", "low", "high", "p_adjusted", "called", "held")


@dataclass(frozen=True)
class Setting:
    """A learning rate: how far training takes the heads from their random start."""

    name: str
    lr: float


SETTINGS = (Setting("trained to convergence", 1e-3), Setting("the paper's learning rate", 3e-5))


def judge_cohort(cohort: int, folder: Path) -> list[dict[str, object]]:
    """Simulate a cohort, train, pose and compare; return one row per setting and measure."""
    cache = simulate_cache(
        "rsna", folder / "cache.zarr", views=0, seed=cohort, dim=DIM, cases=CASES, threads=1
    )
    trained = [train(cache, TRAININGS * 2 * cohort + number, folder) for number in range(2 * TRAININGS)]
    rows: list[dict[str, object]] = []
    for number, setting in enumerate(SETTINGS):
        posed = pose([scores.filter(configuration=setting.name) for scores in trained], folder / str(number))
        found = compare(
            posed,
            reference=POSED[0],
            resamples=RESAMPLES,
            swaps=RESAMPLES,
            seed=cohort,
            resplits=0,
        )
        start = {"setting": setting.name, "cohort": cohort}
        rows += [
            start | {"measure": f"dismissal at {100 * item.target:g} % recall"} | describe(item)
            for item in found.contrasts
        ]
        rows += [start | {"measure": "AUROC"} | describe(item) for item in found.auroc_contrasts]
    return rows


def describe(item: Contrast | AurocContrast) -> dict[str, object]:
    """Return a contrast's numbers, whether its first training alone is called different, and its signs."""
    noise = item.training_noise
    differences = () if noise is None else noise.differences
    same = takewhile(lambda value: value * differences[0] > 0, differences)
    alpha = 0.05
    excluded = item.low is not None and item.high is not None and (item.low > 0 or item.high < 0)
    called = item.p_adjusted is not None and item.p_adjusted <= alpha and excluded
    return {name: getattr(item, name) for name in ("difference", "low", "high", "p_adjusted")} | {
        "called": called,
        "held": sum(1 for _ in same),
    }


def train(cache: Cache, seed: int, folder: Path) -> pl.DataFrame:
    """Train the settings once under a seed of their own; return the scores."""
    heads = {setting.name: replace(presets()["ce"], lr=setting.lr) for setting in SETTINGS}
    folds, run = folder / f"folds-{seed}.csv", folder / f"run-{seed}"
    draw_folds(cache, seed).write_csv(folds)
    fit_heads(cache, run, configurations=heads, epochs=EPOCHS, seed=seed, folds=folds, threads=1)
    return pl.read_csv(run / "scores.csv", schema_overrides={"case_id": pl.String})


def pose(trained: Sequence[pl.DataFrame], folder: Path) -> Path:
    """Write a run folder in which two names share the trainings."""
    for training in range(TRAININGS):
        two = trained[2 * training : 2 * training + 2]
        named = [
            scores.with_columns(configuration=pl.lit(name)) for name, scores in zip(POSED, two, strict=True)
        ]
        home = folder / "repeats" / str(training) if training else folder
        home.mkdir(parents=True)
        pl.concat(named).write_csv(home / "scores.csv")
    return folder


def draw_folds(cache: Cache, seed: int) -> pl.DataFrame:
    """Deal the cases of each class to five folds in random order; a tenth of all calibrates."""
    cases = find_cases(cache.manifest)
    keys = random_keys(cases.labels.size, seed)
    dealt = np.empty(cases.labels.size, dtype=np.int64)
    for label in (0, 1):
        members = np.flatnonzero(cases.labels == label)
        dealt[members[np.argsort(keys[members])]] = np.arange(members.size)
    tested, calibrating = dealt % FOLDS, dealt // FOLDS % (CALIBRATION_SHARE * (FOLDS - 1) // FOLDS) == 0
    parts = {
        column: np.where(tested == fold, "test", np.where(calibrating, "calibrate", "fit"))
        for fold, column in enumerate(FOLD_COLUMNS)
    }
    return pl.DataFrame({"case_id": cases.case_ids, "label": cases.labels} | parts)


def main() -> None:
    """Append the missing cohorts; refresh the tables of a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohorts", type=int, default=200, help="number of cohorts")
    parser.add_argument("--out", type=Path, default=NOISE, help="CSV file to append to")
    parser.add_argument("--page", type=Path, default=None, help="page whose tables to refresh")
    options = parser.parse_args()
    done = set(pl.read_csv(options.out)["cohort"]) if options.out.exists() else set()
    for cohort in sorted(set(range(options.cohorts)) - done):
        with tempfile.TemporaryDirectory() as folder:
            content = write_rows(COLUMNS, judge_cohort(cohort, Path(folder)))
        if options.out.exists():
            content = content.partition(b"\n")[2]
        with options.out.open("ab") as file:
            file.write(content)
    if options.page is not None:
        page = options.page.read_text(encoding="utf-8")
        tables = render_tables(HERE / "comparison_figures", options.out)
        options.page.write_text(fill_page(page, tables), encoding="utf-8")


if __name__ == "__main__":
    main()
