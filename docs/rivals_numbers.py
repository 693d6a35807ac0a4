"""The measured numbers of docs/rivals.md: promises by simulation, and the same scores in MAPIE and crepes.

    python docs/rivals_numbers.py

prints the tables of the page. Everything is seeded; the rules are those that `trust-cache rivals` applies.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from crepes import ConformalClassifier
from mapie.risk_control import BinaryClassificationController, BinaryRisk
from numpy.typing import NDArray
from scipy.special import expit, logit

from tests.binormal import Binormal
from trust_cache.statistics.bounds import smallest_samples
from trust_cache.statistics.rules import RULES, MissRule, bonferroni

RSNA = Binormal(prevalence=486 / 11_913, auroc=0.87)
SEARCH = 2_383  # cases of RSNA's search subset
TARGET, LEVEL, DELTA = 0.95, 0.01, 0.01

Scores = NDArray[np.float64]
Labels = NDArray[np.int64]

MISS_RISK = BinaryRisk(lambda _y, p: p == 0, lambda y, _p: y == 1, higher_is_better=False)
OMISSION_RISK = BinaryRisk(lambda y, _p: y == 1, lambda _y, p: p == 0, higher_is_better=False)


@dataclass(frozen=True)
class Promise:
    """The results of a rule over many search subsets with a known truth."""

    rule: str
    cohorts: int
    feasible: int
    failures: int  # thresholds whose true rate exceeds what was allowed
    mean_rate: float  # the true rate on average, 0 where nothing is dismissed
    rate_error: float  # of that mean
    mean_dismissal: float


def measure(
    rule: str, model: Binormal, cohorts: int, seed: int, *, delta: float = DELTA, cases: int = SEARCH
) -> Promise:
    """Apply a rule to seeded search subsets and look up the true rate at its threshold."""
    generator = np.random.default_rng(seed)
    on_misses = isinstance(RULES[rule], MissRule)
    allowed = 1 - TARGET if on_misses else LEVEL
    rates, dismissals, feasible = np.zeros(cohorts), np.zeros(cohorts), 0
    for cohort in range(cohorts):
        scores, labels = model.draw(cases, generator)
        tau = RULES[rule].choose(scores, labels, TARGET if on_misses else LEVEL, delta).tau
        if tau is None:
            continue
        feasible += 1
        rates[cohort] = model.miss_rate(tau) if on_misses else model.omission_rate(tau)
        missed = model.prevalence * model.miss_rate(tau)
        dismissals[cohort] = missed + (1 - model.prevalence) * model.spared_rate(tau)
    return Promise(
        rule, cohorts, feasible, int(np.count_nonzero(rates > allowed)), float(rates.mean()),
        float(rates.std() / np.sqrt(cohorts)), float(dismissals.mean()),
    )  # fmt: skip


def cohorts(number: int, seed: int = 0) -> Iterator[tuple[Scores, Labels]]:
    """Yield RSNA-sized search subsets with 97 positives."""
    generator = np.random.default_rng(seed)
    for _ in range(number):
        yield RSNA.draw(SEARCH, generator, 97)


def calibrated(scores: Scores) -> Scores:
    """Return the chance of cancer given the score: the output of a calibrated classifier."""
    shift = RSNA.shift
    return np.asarray(expit(shift * logit(scores) - shift**2 / 2 + logit(RSNA.prevalence)))


def control(
    scores: Scores, labels: Labels, risk: BinaryRisk, allowed: float, grid: Scores | None, method: str
) -> BinaryClassificationController:
    """Calibrate MAPIE's controller on scores; a grid of None is its own."""
    more = {} if grid is None else {"list_predict_params": grid}
    controller = BinaryClassificationController(
        lambda x: np.column_stack([1 - x[:, 0], x[:, 0]]), risk, allowed, confidence_level=1 - DELTA,
        best_predict_param_choice=risk, fwer_method=method, **more,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing was found, which is counted
        controller.calibrate(scores[:, None], labels)
    return controller


def largest(controller: BinaryClassificationController) -> float | None:
    """Return the largest threshold that the controller found valid."""
    found = controller.valid_predict_params
    return float(found.max()) if len(found) else None


def bonferroni_grid(scores: Scores, labels: Labels) -> Scores:
    """Return the thresholds that our Bonferroni rule tests on these scores."""
    tests = bonferroni(scores, labels, LEVEL, DELTA).tests
    ranks = smallest_samples(tests - 1, LEVEL, DELTA / tests)
    return np.sort(scores)[ranks[ranks < scores.size]]


def rounded_up(npv: bool, largest_n: int = 1_000) -> tuple[int, int]:
    """Count the (k, n) whose k becomes k + 1 in ceil(n * rate), and all of them.

    The rate is k / n, or, by the negative predictive value, 1 - (n - k) / n.
    """
    wrong = total = 0
    for n in range(1, largest_n + 1):
        k = np.arange(n + 1)
        rate = 1 - (n - k) / n if npv else k / n
        wrong += int(np.count_nonzero(np.ceil(n * rate) > k))
        total += k.size
    return wrong, total


def dismissed_by_crepes(scores: Scores, labels: Labels, later: Scores) -> NDArray[np.bool_]:
    """Dismiss cases whose label "cancer" a class-conditional conformal classifier rejects at 1 - target."""
    classifier = ConformalClassifier().fit(-scores[labels == 1])
    p_values = classifier.predict_p(-later[:, None], smoothing=False)[:, 0]
    return np.asarray(p_values <= round(1 - TARGET, 12))


def promises_table(number: int = 2_000) -> str:
    """Return the table of promises as Markdown."""
    flat = Binormal(prevalence=LEVEL * 1.0001, auroc=0.5)
    lines = [
        "| rule | scores | feasible | fails | mean rate | mean dismissal |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for rule in RULES:
        models = {"AUROC 0.87": RSNA} | ({} if isinstance(RULES[rule], MissRule) else {"no skill": flat})
        for name, model in models.items():
            found = measure(rule, model, number, seed=11)
            shares = (found.feasible / number, found.failures / number, found.mean_rate, found.mean_dismissal)
            lines.append(
                f"| {rule} | {name} | " + " | ".join(f"{100 * share:.2f} %" for share in shares) + " |"
            )
    return "\n".join(lines)


def peers_table(number: int = 100) -> str:
    """Return the comparison with MAPIE and crepes as Markdown."""
    counts = dict.fromkeys(("miss", "bonferroni", "default", "default_miss", "crepes"), 0)
    for scores, labels in cohorts(number):
        positives = np.sort(scores[labels == 1])
        mapie = control(scores, labels, MISS_RISK, round(1 - TARGET, 12), positives, "fixed_sequence")
        counts["miss"] += largest(mapie) == RULES["ltt"].choose(scores, labels, TARGET, DELTA).tau
        mapie = control(scores, labels, OMISSION_RISK, LEVEL, bonferroni_grid(scores, labels), "bonferroni")
        ours = RULES["ltt-for-bonferroni"].choose(scores, labels, LEVEL, DELTA).tau
        counts["bonferroni"] += largest(mapie) == ours
        chances = calibrated(scores)
        mapie = control(chances, labels, OMISSION_RISK, LEVEL, None, "bonferroni_holm")
        counts["default"] += largest(mapie) is not None
        mapie = control(chances, labels, MISS_RISK, round(1 - TARGET, 12), None, "bonferroni_holm")
        counts["default_miss"] += (largest(mapie) or 0.0) > 0.0
        tau = RULES["crc"].choose(scores, labels, TARGET, DELTA).tau
        later = np.linspace(0, 1, 5_001)
        counts["crepes"] += bool(np.all(dismissed_by_crepes(scores, labels, later) == (later < (tau or 0.0))))
    rows = [
        ("MAPIE, miss rate, positives' scores as grid, fixed sequence: our `ltt` threshold", counts["miss"]),
        ("MAPIE, cancer among the dismissed, our grid, Bonferroni: our threshold", counts["bonferroni"]),
        ("crepes, no smoothing: dismisses exactly whom our `crc` dismisses", counts["crepes"]),
        ("MAPIE, its own grid, miss rate: a threshold above 0", counts["default_miss"]),
        ("MAPIE, its own grid, cancer among the dismissed: any threshold", counts["default"]),
    ]
    lines = ["| on the same scores | cohorts of " + str(number) + " |", "| --- | --- |"]
    lines += [f"| {text} | {count} |" for text, count in rows]
    for text, npv in (("k / n", False), ("1 - NPV", True)):
        wrong, total = rounded_up(npv)
        lines.append(
            f"| MAPIE's ceil(n rate), rate = {text}: k + 1 for k, n <= 1,000 | {wrong:,} of {total:,} pairs |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(promises_table(), peers_table(), sep="\n\n")
