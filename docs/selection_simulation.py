"""The simulation of selection: the effect of choosing one of many heads on the bound of the chosen one.

The heads of a replicate are equally good: binormal scores of one AUROC, equicorrelated within each
class. Every head gets its threshold from its own search subset; the truth about that threshold,
P(cancer | score < tau), is known in closed form, so a bound is right or wrong.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from tests.binormal import Binormal
from trust_cache.manifest.datasets.dataset import describe_dataset
from trust_cache.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper
from trust_cache.statistics.stratified_draws import search_sizes
from trust_cache.statistics.thresholds import allowed_misses, threshold_allowing

DELTA = 0.01
HEADS = 100
TARGETS = (0.98, 0.95)
AUROC = 0.72
CORRELATIONS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99)
# The influence of the assumed AUROC: two others, at two correlations.
OTHER_AUROCS = (0.65, 0.8)
OTHER_CORRELATIONS = (0.0, 0.9)
AUROCS_AT = {
    correlation: (AUROC, *(OTHER_AUROCS if correlation in OTHER_CORRELATIONS else ()))
    for correlation in CORRELATIONS
}
PROCEDURES = ("fixed", "search", "evaluation", "corrected")
COLUMNS = (
    "data_set", "cases", "positives", "target", "auroc", "correlation", "procedure",
    "errors", "replicates", "error_rate", "low", "high",
)  # fmt: skip

Singles = NDArray[np.float32]
Key = tuple[float, float, float, str]  # AUROC, correlation, target, procedure


@dataclass(frozen=True)
class Size:
    """A cohort's size and the stratified search subset that follows from it."""

    name: str
    cases: int
    positives: int

    @property
    def search(self) -> tuple[int, int]:
        """The positives and the negatives of the search subset."""
        cases, positives = search_sizes(self.cases, self.positives)
        return positives, cases - positives

    @property
    def prevalence(self) -> float:
        """The share of positives."""
        return self.positives / self.cases


@dataclass(frozen=True)
class Noise:
    """Standard normals of one class: one for each case, one for each head and case."""

    common: Singles
    own: Singles

    def mix(self, correlation: float) -> Singles:
        """Return head x case scores, N(0, 1) each, with this correlation between heads."""
        return np.float32(correlation**0.5) * self.common + np.float32((1.0 - correlation) ** 0.5) * self.own


@dataclass(frozen=True)
class Outcome:
    """What each head's threshold does on the search and on the evaluation subset."""

    tau: NDArray[np.float64]
    search_dismissed: NDArray[np.int64]
    dismissed: NDArray[np.int64]
    positives_dismissed: NDArray[np.int64]


def paper_sizes() -> tuple[Size, ...]:
    """Return the sizes of the paper's two data sets."""
    expected = {name: describe_dataset(name).counts for name in ("nlbs", "rsna")}
    return tuple(Size(name.upper(), item.cases, item.positive_cases) for name, item in expected.items())


def simulate_selection(size: Size, replicates: int, seed: int) -> list[dict[str, object]]:
    """Return one row for each setting, target and procedure, with the errors of its bound.

    All settings share a replicate's random numbers: their differences come from the settings alone, and the
    points along one curve are not independent of each other.
    """
    # SFC64 is numpy's fastest generator, and drawing the numbers is most of the work.
    generator = np.random.Generator(np.random.SFC64([seed, size.cases]))
    errors: Counter[Key] = Counter()
    for _ in range(replicates):
        positive = _draw(size.positives, generator)
        negative = _draw(size.cases - size.positives, generator)
        for correlation, aurocs in AUROCS_AT.items():
            above, below = positive.mix(correlation), negative.mix(correlation)
            for auroc, target in itertools.product(aurocs, TARGETS):
                model = Binormal(size.prevalence, auroc)
                outcome = certify_heads(above + np.float32(model.shift), below, size, target)
                for procedure, wrong in judge(outcome, model):
                    errors[auroc, correlation, target, procedure] += wrong
    keys = (
        (auroc, correlation, target, procedure)
        for correlation, aurocs in AUROCS_AT.items()
        for auroc, target, procedure in itertools.product(aurocs, TARGETS, PROCEDURES)
    )
    return [_row(size, key, errors[key], replicates) for key in keys]


def certify_heads(positive: Singles, negative: Singles, size: Size, target: float) -> Outcome:
    """Choose every head's threshold on the search subset and count below it on both subsets.

    Cases of a class are exchangeable, so the first ones are a valid stratified draw.
    """
    search_positives, search_negatives = size.search
    misses = allowed_misses(search_positives, target)
    taus, counts = [], []
    for above, below in zip(positive, negative, strict=True):
        tau = threshold_allowing(above[:search_positives], misses)
        missed, spared = above < tau, below < tau
        searched = np.count_nonzero(missed[:search_positives]) + np.count_nonzero(spared[:search_negatives])
        k = np.count_nonzero(missed[search_positives:])
        taus.append(tau)
        counts.append((searched, k + np.count_nonzero(spared[search_negatives:]), k))
    columns = np.array(counts, dtype=np.int64).T
    return Outcome(np.array(taus), columns[0], columns[1], columns[2])


def judge(outcome: Outcome, model: Binormal) -> Iterator[tuple[str, bool]]:
    """Yield for each procedure whether the truth is above the bound of the head that it chose."""
    # The thresholds are normal deviates; the model's are behind its sigmoid.
    truth = model.omission_rate(expit(outcome.tau))
    k, n = outcome.positives_dismissed, outcome.dismissed
    bounds = clopper_pearson_upper(k, n, DELTA)
    yield "fixed", bool(truth[0] > bounds[0])
    searched = int(np.argmax(outcome.search_dismissed))
    yield "search", bool(truth[searched] > bounds[searched])
    best = int(np.argmin(bounds))
    yield "evaluation", bool(truth[best] > bounds[best])
    yield "corrected", bool(truth[best] > clopper_pearson_upper(k[best], n[best], DELTA / HEADS))


def _draw(cases: int, generator: np.random.Generator) -> Noise:
    return Noise(
        generator.standard_normal(cases, dtype=np.float32),
        generator.standard_normal((HEADS, cases), dtype=np.float32),
    )


def _row(size: Size, key: Key, errors: int, replicates: int) -> dict[str, object]:
    """Describe one proportion with its 95 % Clopper-Pearson interval: the Monte Carlo error."""
    auroc, correlation, target, procedure = key
    return {
        "data_set": size.name,
        "cases": size.cases,
        "positives": size.positives,
        "target": target,
        "auroc": auroc,
        "correlation": correlation,
        "procedure": procedure,
        "errors": errors,
        "replicates": replicates,
        "error_rate": errors / replicates,
        "low": clopper_pearson_lower(errors, replicates, 0.025),
        "high": clopper_pearson_upper(errors, replicates, 0.025),
    }
