"""Simulations of certificates from scores alone: patients with several cases, and uninformative scores.

Both draw scores and labels, and leave split, threshold, bound and status to the library.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import beta, binom
from selection_simulation import Size

from tests.binormal import Binormal
from trust_cache.certificate.points import CERTIFIED, Point, Terms, choose_threshold, evaluate
from trust_cache.certificate.score_table import Cohort
from trust_cache.certificate.split import Split, draw_split
from trust_cache.statistics.bounds import clopper_pearson_upper
from trust_cache.statistics.thresholds import allowed_misses

TARGETS = (0.98, 0.95)
DELTA = 0.01
RULE = "recall"
PATIENT_COLUMNS = (
    "scenario", "target", "cohorts", "naive_failures", "failures", "mean_truth", "mean_naive_bound",
    "mean_bound", "mean_cases", "mean_patients",
)  # fmt: skip
COMPARED = (1, 10)
UNINFORMATIVE_COLUMNS = ("data_set", "target", "compared", "cohorts", "certified", "chance")
_NODES = 20_001


@dataclass(frozen=True)
class PatientLaw:
    """Patients with several cases, and a closed form for a random case of a random patient.

    A patient has cancer with chance `with_cancer`; then each case is positive with chance `repeated`, else
    none is. Scores are binormal, with a part `shared` of their variance common to the cases of a patient. A
    patient with or without cancer has 1 to `most` or `most_with_cancer` cases, each number equally likely.
    """

    name: str
    patients: int = 2_000
    with_cancer: float = 0.028
    repeated: float = 0.9
    shared: float = 0.9
    auroc: float = 0.75
    most: int = 5
    most_with_cancer: int = 5

    @property
    def scores(self) -> Binormal:
        """The law of a random case of a random patient: the number of cases does not change it."""
        return Binormal(self.with_cancer * self.repeated, self.auroc)

    def draw(self, generator: Generator) -> Cohort:
        """Draw a cohort."""
        ill = generator.random(self.patients) < self.with_cancer
        sizes = generator.integers(1, np.where(ill, self.most_with_cancer, self.most) + 1)
        patients = np.repeat(np.arange(self.patients), sizes)
        labels = (ill[patients] & (generator.random(patients.size) < self.repeated)).astype(np.int64)
        common = generator.standard_normal(self.patients)[patients]
        own = generator.standard_normal(patients.size)
        latent = np.sqrt(self.shared) * common + np.sqrt(1 - self.shared) * own + self.scores.shift * labels
        return as_cohort(expit(latent), labels, patients)


PATIENT_LAWS = (
    PatientLaw("several correlated cases"),
    PatientLaw("fewer cases with cancer", most_with_cancer=2, with_cancer=0.045),
    PatientLaw("one case each", most=1, most_with_cancer=1, patients=6_000),
)


def as_cohort(scores: NDArray[np.float64], labels: NDArray[np.int64], patients: NDArray[np.int64]) -> Cohort:
    """Return a cohort of one configuration with one image per case."""
    return Cohort(_case_ids(labels.size), labels, patients, (None,), (scores,), (None,))


@cache
def _case_ids(cases: int) -> pl.Series:
    return pl.Series([f"{case:06d}" for case in range(cases)])


def certify(cohort: Cohort, split: Split, target: float, compared: int = 1) -> Point:
    """Return the point of the paper's rule."""
    terms = Terms(RULE, DELTA, compared)
    return evaluate(cohort, split, 0, choose_threshold(cohort, split, 0, target, terms), terms)


def simulate_patients(law: PatientLaw, cohorts: int, seed: int) -> list[dict[str, object]]:
    """Count for each target how often the true rate is above the naive bound and above the library's.

    The naive bound takes all evaluation cases as independent.
    """
    generator = np.random.default_rng([seed, law.patients, law.most_with_cancer])
    found: dict[float, list[tuple[float, float, float, int, int]]] = {target: [] for target in TARGETS}
    for number in range(cohorts):
        cohort = law.draw(generator)
        split = draw_split(cohort, number)
        for target in TARGETS:
            point = certify(cohort, split, target)
            naive = clopper_pearson_upper(point.positives_dismissed, point.dismissed, DELTA)
            truth = float(law.scores.omission_rate(point.tau or 0.0))
            found[target].append((truth, naive, point.bound, point.cases, point.patients))
    rows = []
    for target, values in found.items():
        truth, naive, bound, cases, patients = np.array(values).T
        rows.append(
            {
                "scenario": law.name,
                "target": target,
                "cohorts": cohorts,
                "naive_failures": int(np.count_nonzero(naive < truth)),
                "failures": int(np.count_nonzero(bound < truth)),
                "mean_truth": float(truth.mean()),
                "mean_naive_bound": float(naive.mean()),
                "mean_bound": float(bound.mean()),
                "mean_cases": float(cases.mean()),
                "mean_patients": float(patients.mean()),
            }
        )
    return rows


def simulate_uninformative(size: Size, cohorts: int, seed: int) -> list[dict[str, object]]:
    """Count how often scores without information are certified."""
    generator = np.random.default_rng([seed, size.cases])
    certified = {(target, compared): 0 for target in TARGETS for compared in COMPARED}
    for number in range(cohorts):
        labels = generator.permutation(np.arange(size.cases) < size.positives).astype(np.int64)
        cohort = as_cohort(generator.random(size.cases), labels, np.arange(size.cases))
        split = draw_split(cohort, number)
        for target in TARGETS:
            for compared in COMPARED:
                if certify(cohort, split, target, compared).status != CERTIFIED:
                    break  # with more points compared the bound only grows
                certified[target, compared] += 1
    return [
        {
            "data_set": size.name,
            "target": target,
            "compared": compared,
            "cohorts": cohorts,
            "certified": count,
            "chance": chance_certified(size, target, compared),
        }
        for (target, compared), count in certified.items()
    ]


def chance_certified(size: Size, target: float, compared: int) -> float:
    """Return the chance that scores without information are certified, by quadrature.

    tau is then the (a + 1)-th smallest of the search positives' uniform scores, a beta variable; given tau,
    dismissed positives and negatives of evaluation are binomial.
    """
    search_positives, search_negatives = size.search
    positives = size.positives - search_positives
    cases = size.cases - search_positives - search_negatives
    misses = allowed_misses(search_positives, target)
    levels = (np.arange(_NODES) + 0.5) / _NODES
    taus = beta.ppf(levels, misses + 1, search_positives - misses)
    chance = 0.0
    for k in range(allowed_misses(positives, target) + 1):
        negatives = np.arange(1 if k == 0 else 0, cases - positives + 1)
        bounds = clopper_pearson_upper(k, k + negatives, DELTA / compared)
        below = negatives[bounds < positives / cases]
        if below.size:
            enough = binom.sf(below[0] - 1, cases - positives, taus)
            chance += float(np.mean(binom.pmf(k, positives, taus) * enough))
    return chance
