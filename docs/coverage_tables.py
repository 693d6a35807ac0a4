"""The tables about coverage in the statistics page, written from the CSV files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from coverage_simulation import DELTAS, LIKE, omission_rate
from numpy.typing import NDArray
from selection_simulation import paper_sizes

from trust_cache.statistics.bounds import clopper_pearson_upper
from trust_cache.statistics.stratified_draws import search_sizes
from trust_cache.statistics.thresholds import allowed_misses

OUT_OF_FOLD, PATIENTS, UNINFORMATIVE = "out_of_fold.csv", "patients.csv", "uninformative.csv"
MODELS = ("folds", "refit")
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Share:
    """A share of simulated cohorts and its Monte Carlo standard error."""

    count: int
    of: int

    @property
    def value(self) -> float:
        """The share."""
        return self.count / self.of

    @property
    def error(self) -> float:
        """The standard error of the share."""
        return float(np.sqrt(self.value * (1 - self.value) / self.of))

    def __str__(self) -> str:
        return self.rounded(2)

    def rounded(self, digits: int) -> str:
        """Return the share and its standard error in percent."""
        return f"{_percent(self.value, digits)} ± {100 * self.error:.{digits}f}"


@dataclass(frozen=True)
class Coverage:
    """The simulated certificates of one configuration at one target."""

    configuration: str
    target: float
    rows: pl.DataFrame

    def truth(self, model: str) -> Floats:
        """Return the true rate behind each certificate, of the fold models or the refit."""
        before = "" if model == "folds" else "refit_"
        return omission_rate(self.rows[f"{before}miss"].to_numpy(), self.rows[f"{before}spared"].to_numpy())

    def recall(self, model: str) -> float:
        """Return the mean true recall."""
        return 1.0 - float(np.mean(self.rows["miss" if model == "folds" else "refit_miss"].to_numpy()))

    def bounds(self, delta: float) -> Floats:
        """Return the bound of each certificate, from its counts."""
        k, n = (self.rows[name].to_numpy() for name in ("positives_dismissed", "dismissed"))
        return np.asarray(clopper_pearson_upper(k, n, delta))

    def met(self) -> Mask:
        """Mark the points that met their target."""
        _, positives = _evaluation()
        return (self.rows["positives_dismissed"] <= allowed_misses(positives, self.target)).to_numpy()

    def certified(self, delta: float) -> Mask:
        """Mark the points whose status is certified, the limit being the prevalence of evaluation."""
        cases, positives = _evaluation()
        some = (self.rows["dismissed"] > 0).to_numpy()
        return np.asarray(self.met() & some & (self.bounds(delta) < positives / cases))

    def failures(self, model: str, delta: float, among: Mask | None = None) -> Share:
        """Return how often the true rate is above the bound, among all or some points."""
        wrong = self.truth(model) > self.bounds(delta)
        chosen = wrong if among is None else wrong[among]
        return Share(int(np.count_nonzero(chosen)), chosen.size)

    def independent(self, delta: float) -> float:
        """Return the mean chance of a failure if the evaluation cases were new ones."""
        return float(np.mean(self.rows["chance_01" if delta == DELTAS[0] else "chance_05"].to_numpy()))

    def observed_to_expected(self) -> tuple[float, float]:
        """Return the dismissed cancers counted over those expected by the truth, and its standard error.

        The expected number of a cohort is its dismissed cases times the true rate of the fold models.
        """
        counted = self.rows["positives_dismissed"].to_numpy().astype(np.float64)
        expected = self.rows["dismissed"].to_numpy() * self.truth("folds")
        ratio = counted.sum() / expected.sum()
        return float(ratio), float(np.sqrt(np.sum((counted - ratio * expected) ** 2)) / expected.sum())


def read_coverage(folder: Path) -> list[Coverage]:
    """Return the simulated certificates by configuration and target."""
    rows = pl.read_csv(folder / OUT_OF_FOLD)
    groups = rows.group_by("configuration", "target", maintain_order=True)
    return [Coverage(str(name), float(str(target)), group) for (name, target), group in groups]


def render_tables(folder: Path) -> dict[str, str]:
    """Return every table about coverage as markdown, from the CSV files of `folder`."""
    coverage = read_coverage(folder)
    return {
        "out_of_fold": _failures(coverage),
        "out_of_fold_stated": _stated(coverage),
        "out_of_fold_means": _means(coverage),
        "patients": _patients(folder),
        "uninformative": _uninformative(folder),
    }


def _evaluation() -> tuple[int, int]:
    """Return the evaluation cases and the positives among them."""
    size = next(size for size in paper_sizes() if size.name.lower() == LIKE)
    cases, positives = search_sizes(size.cases, size.positives)
    return size.cases - cases, size.positives - positives


def _failures(coverage: Sequence[Coverage]) -> str:
    header = ["configuration", "target"]
    for delta in DELTAS:
        level = f"{100 * delta:g} %"
        header += [f"fold models, {level}", f"if independent, {level}", f"refit, {level}"]
    rows = []
    for item in coverage:
        cells = [*_names(item)]
        for delta in DELTAS:
            folds, refit = (str(item.failures(model, delta)) for model in MODELS)
            cells += [folds, _percent(item.independent(delta)), refit]
        rows.append(cells)
    return _markdown(header, rows)


def _stated(coverage: Sequence[Coverage]) -> str:
    header = ("configuration", "target", "delta", "met", "wrong, fold models", "wrong, refit",
        "certified", "wrong, fold models", "wrong, refit")  # fmt: skip
    rows = []
    for item in coverage:
        for delta in DELTAS:
            cells = [*_names(item), f"{100 * delta:g} %"]
            for among in (item.met(), item.certified(delta)):
                cells += [_percent(float(among.mean()), 0)]
                cells += [str(item.failures(model, delta, among)) for model in MODELS]
            rows.append(cells)
    return _markdown(header, rows)


def _means(coverage: Sequence[Coverage]) -> str:
    header = ("configuration", "target", "AUROC", "dismissed", "bound", "true rate, fold models",
        "true rate, refit", "true recall, fold models", "true recall, refit", "cancers counted / expected",
    )  # fmt: skip
    cases, _ = _evaluation()
    rows = []
    for item in coverage:
        auroc, dismissed = (float(np.mean(item.rows[name].to_numpy())) for name in ("auroc", "dismissed"))
        cells = [*_names(item), f"{auroc:.3f}", _percent(dismissed / cases, 1)]
        cells += [_percent(float(item.bounds(DELTAS[0]).mean()))]
        cells += [_percent(float(item.truth(model).mean())) for model in MODELS]
        cells += [_percent(item.recall(model), 1) for model in MODELS]
        ratio, error = item.observed_to_expected()
        cells += [f"{ratio:.3f} ± {error:.3f}"]
        rows.append(cells)
    return _markdown(header, rows)


def _patients(folder: Path) -> str:
    header = ("patients", "target", "wrong, all cases counted", "wrong, one case per patient",
        "mean true rate", "mean bound, all cases counted", "mean bound, one case per patient")  # fmt: skip
    rows = []
    for row in _rows(folder / PATIENTS):
        naive, ours = (Share(row[name], row["cohorts"]) for name in ("naive_failures", "failures"))
        means = [_percent(row[name]) for name in ("mean_truth", "mean_naive_bound", "mean_bound")]
        rows.append([row["scenario"], _percent(row["target"], 0), str(naive), str(ours), *means])
    return _markdown(header, rows)


def _uninformative(folder: Path) -> str:
    header = ("size", "target", "points compared", "certified", "exact chance")
    rows = []
    for row in _rows(folder / UNINFORMATIVE):
        found = Share(row["certified"], row["cohorts"])
        size = [row["data_set"], _percent(row["target"], 0), str(row["compared"])]
        rows.append([*size, found.rounded(3), _percent(row["chance"], 3)])
    return _markdown(header, rows)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    return pl.read_csv(path).iter_rows(named=True)


def _names(item: Coverage) -> tuple[str, str]:
    return item.configuration, _percent(item.target, 0)


def _percent(share: float, digits: int = 2) -> str:
    return f"{100 * share:.{digits}f} %"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
