"""The numbers behind the statistics page: every table is a list of rows made with the library's functions."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, ndtri
from scipy.stats import binom
from selection_simulation import AUROC, DELTA, TARGETS, Size, paper_sizes

from tests.binormal import Binormal
from trust_cache.certificate.certify import certify
from trust_cache.statistics.bounds import clopper_pearson_upper, smallest_sample, smallest_samples
from trust_cache.statistics.prevalence import omission_at_prevalence
from trust_cache.statistics.rules import allowance, chance_target_met
from trust_cache.statistics.thresholds import allowed_misses

Row = dict[str, object]

RULES = ("recall", "crc", "ltt")
STRONG_MODEL = Size("2,977 patients", 2_977, 122)  # the shape of a public RSNA model's validation part
RESPLIT_COLUMNS = (
    "cohort", "target", "resplit", "cases", "positives", "dismissed", "positives_dismissed", "bound", "met",
)  # fmt: skip
SPREAD_COLUMNS = (
    "cohort", "cases", "positives", "auroc", "search_positives", "target", "resplits", "met", "met_share",
    "met_share_expected", "dismissal_q05", "dismissal_q50", "dismissal_q95", "bound_q05", "bound_q50",
    "bound_q95",
)  # fmt: skip
CHANCE_COLUMNS = ("rule", "target", "search_positives", "evaluation_positives", "chance_met")
LAW_COLUMNS = ("data_set", *CHANCE_COLUMNS, "misses", "needed")
ONE_HEAD_COLUMNS = (
    "data_set", "target", "draws", "errors", "error_rate", "met", "errors_met", "error_rate_met",
    "chance_met", "ceiling",
)  # fmt: skip
FAILURE_COLUMNS = ("n", "rate", "failure")
FIXED_CLASS_COLUMNS = ("data_set", "auroc", "worst_failure", "miss_rate", "omission_rate")
REBUILT_COLUMNS = ("largest_m", "pairs", "way", "wrong", "wrong_share", "too_large")
FLOAT_COLUMNS = (
    "way",
    "pairs",
    "wrong",
    "targets",
    "first_target",
    "first_c",
    "first_misses",
    "exact_misses",
)
EXAMPLE_COLUMNS = ("quantity", "value")

LARGEST_SEARCH = 300  # search positives
EVALUATION_TO_SEARCH = 4
LARGEST_RATE = 0.03
STEPS_A_TOOTH = 12
MISS_RATES = np.linspace(0.002, 0.3, 250)
LARGEST_M = 2_000
LARGEST_C = 1_000
FLOAT_TARGETS = tuple(percent / 100 for percent in range(99, 49, -1))
DRAWS_A_REPLICATE = 100  # of one head, which costs three random numbers instead of a cohort


def resplit_cohorts(resplits: int, seed: int) -> tuple[list[Row], list[Row]]:
    """Certify one cohort of each shape over many splits: one row per split, and one row per spread."""
    points, spreads = [], []
    for size, auroc in ((paper_sizes()[0], AUROC), (STRONG_MODEL, 0.886)):
        generator = np.random.Generator(np.random.PCG64([seed, size.cases]))
        scores, labels = Binormal(size.prevalence, auroc).draw(size.cases, generator, size.positives)
        case_ids = [f"{number:05d}" for number in range(size.cases)]
        table = pl.DataFrame({"case_id": case_ids, "label": labels, "score": scores})
        certification = certify(table, targets=TARGETS, delta=DELTA, seed=seed, resplits=resplits)
        for item in certification.resplits:
            known = {"cohort": size.name, "resplit": item.resplit}
            points.append(
                {name: known.get(name, getattr(item.point, name, None)) for name in RESPLIT_COLUMNS}
            )
        for spread in certification.spreads:
            row: Row = {"cohort": size.name, "cases": size.cases, "positives": size.positives, "auroc": auroc}
            row["search_positives"] = size.search[0]
            row |= {name: getattr(spread, name) for name in SPREAD_COLUMNS if hasattr(spread, name)}
            row |= {f"dismissal_{name}": value for name, value in spread.dismissal.items()}
            row |= {f"bound_{name}": value for name, value in spread.bound.items()}
            spreads.append(row)
    return points, spreads


def chances() -> list[Row]:
    """Return how often each rule meets its target, by search positives; infeasible: no row."""
    rows = [
        _chance(rule, target, search, EVALUATION_TO_SEARCH * search)
        for target in TARGETS
        for rule in RULES
        for search in range(1, LARGEST_SEARCH + 1)
    ]
    return [row for row in rows if row["chance_met"] is not None]


def law() -> list[Row]:
    """Return the Beta-binomial law's figures at the sizes of the page."""
    rows = []
    for size in (*paper_sizes(), STRONG_MODEL):
        search = size.search[0]
        for target in TARGETS:
            for rule in RULES:
                row = _chance(rule, target, search, size.positives - search)
                allowed = allowance(rule, search, target, DELTA)
                rows.append(
                    {"data_set": size.name, **row, "misses": allowed.misses, "needed": allowed.needed}
                )
    return rows


def _chance(rule: str, target: float, search: int, evaluation: int) -> Row:
    return {
        "rule": rule,
        "target": target,
        "search_positives": search,
        "evaluation_positives": evaluation,
        "chance_met": chance_target_met(rule, search, evaluation, target, DELTA),
    }


def one_head(replicates: int, seed: int) -> list[Row]:
    """Return how often the bound of a head fixed beforehand is wrong, over all points and the met ones.

    Of one head only three numbers matter: its miss rate, which is Beta(a + 1, C - a) after the paper's
    rule, and the two binomial counts given that rate.
    """
    generator = np.random.Generator(np.random.PCG64([seed, DRAWS_A_REPLICATE]))
    draws = DRAWS_A_REPLICATE * replicates
    rows: list[Row] = []
    for size in paper_sizes():
        search = size.search[0]
        model = Binormal(size.prevalence, AUROC)
        positives = size.positives - search
        negatives = size.cases - size.positives - size.search[1]
        for target in TARGETS:
            misses = allowed_misses(search, target)
            tau = expit(ndtri(generator.beta(misses + 1, search - misses, draws)) + model.shift)
            k = generator.binomial(positives, model.miss_rate(tau))
            n = k + generator.binomial(negatives, model.spared_rate(tau))
            wrong = model.omission_rate(tau) > clopper_pearson_upper(k, n, DELTA)
            met = k <= allowed_misses(positives, target)
            chance = chance_target_met("recall", search, positives, target, DELTA) or 0.0
            counts = (draws, *(int(np.count_nonzero(item)) for item in (wrong, met, wrong & met)))
            rows.append(_one_head_row(size.name, target, counts, chance))
    return rows


def _one_head_row(name: str, target: float, counts: tuple[int, int, int, int], chance: float) -> Row:
    draws, errors, met, errors_met = counts
    return {
        "data_set": name,
        "target": target,
        "draws": draws,
        "errors": errors,
        "error_rate": errors / draws,
        "met": met,
        "errors_met": errors_met,
        "error_rate_met": errors_met / met,
        "chance_met": chance,
        "ceiling": DELTA / chance,
    }


def failures(sizes: tuple[int, ...] = (300, 947)) -> list[Row]:
    """Return the exact chance that U(K, n) < rate for K binomial: no simulation, no approximation.

    Between two bounds the set of failing counts does not change; each stretch starts where the rate
    has just passed a bound, which is where the chance is largest.
    """
    rows: list[Row] = []
    for n in sizes:
        bounds = clopper_pearson_upper(np.arange(n + 1), n, DELTA)
        rates = _teeth(bounds[bounds < LARGEST_RATE])
        # The count of k with U(k, n) < rate, U being increasing in k.
        failing = np.searchsorted(bounds, rates, side="left")
        chance = np.where(failing > 0, binom.cdf(failing - 1, n, rates), 0.0)
        rows += [
            {"n": n, "rate": float(rate), "failure": float(value)}
            for rate, value in zip(rates, chance, strict=True)
        ]
    return rows


def _teeth(bounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rates from 0 on: every bound itself, just above it, and steps to the next one."""
    edges = np.array([0.0, *bounds, LARGEST_RATE])
    stretches = [
        np.linspace(np.nextafter(low, 1.0), high, STEPS_A_TOOTH) for low, high in itertools.pairwise(edges)
    ]
    return np.concatenate(stretches)


def fixed_classes() -> list[Row]:
    """Return the largest exact chance of a wrong bound where the split fixes the evaluation positives.

    Then k and n - k are two binomials and k given n is not one; the bound's proof is for independent
    cases. U(k, n) < rate is n >= n_min(k), so the chance is a finite sum; its maximum is over a grid.
    """
    rows: list[Row] = []
    for size in paper_sizes():
        positives = size.positives - size.search[0]
        negatives = size.cases - size.positives - size.search[1]
        for auroc in (0.5, AUROC, 0.886):
            model = Binormal(positives / (positives + negatives), auroc)
            worst = max(
                (_chance_wrong(model, float(miss), positives, negatives), float(miss)) for miss in MISS_RATES
            )
            rate = model.omission_rate(expit(ndtri(worst[1]) + model.shift))
            values = (size.name, auroc, *worst, float(rate))
            rows.append(dict(zip(FIXED_CLASS_COLUMNS, values, strict=True)))
    return rows


def _chance_wrong(model: Binormal, miss_rate: float, positives: int, negatives: int) -> float:
    tau = expit(ndtri(miss_rate) + model.shift)
    # At more than the median of k a bound below the rate has no chance worth adding.
    k = np.arange(int(binom.median(positives, miss_rate)) + 1)
    needed = smallest_samples(int(k[-1]), float(model.omission_rate(tau)), DELTA)
    enough = binom.sf(needed - k - 1, negatives, float(model.spared_rate(tau)))
    return float(np.sum(binom.pmf(k, positives, miss_rate) * enough))


def rebuilt_counts() -> list[Row]:
    """Count the pairs (m, k) whose k is not recovered from a rate: m times the rate, truncated."""
    ways: dict[str, Callable[[NDArray[np.int64], int], NDArray[np.float64]]] = {
        "k/m": lambda k, m: k / m,
        "1 - (m-k)/m": lambda k, m: 1.0 - (m - k) / m,
    }
    rows: list[Row] = []
    for way, rate in ways.items():
        pairs = wrong = too_large = 0
        for m in range(1, LARGEST_M + 1):
            k = np.arange(m + 1)
            rebuilt = np.trunc(m * rate(k, m)).astype(np.int64)
            pairs += k.size
            wrong += int(np.count_nonzero(rebuilt != k))
            too_large += int(np.count_nonzero(rebuilt > k))
        rows.append(
            {
                "largest_m": LARGEST_M,
                "pairs": pairs,
                "way": way,
                "wrong": wrong,
                "wrong_share": wrong / pairs,
                "too_large": too_large,
            }
        )
    return rows


def float_targets() -> list[Row]:
    """Count the (target, C) whose allowed misses a common floating-point form gets wrong."""
    ways: dict[str, Callable[[int, float], int]] = {
        "floor(C * (1 - r))": lambda c, r: math.floor(c * (1 - r)),
        "floor(C - C * r)": lambda c, r: math.floor(c - c * r),
        "largest k with 1 - k/C >= r": lambda c, r: _largest(c, r, lambda k: 1 - k / c >= r),
        "largest k with (C-k)/C >= r": lambda c, r: _largest(c, r, lambda k: (c - k) / c >= r),
        "floor(C * (1 - Fraction(r)))": lambda c, r: math.floor(c * (1 - Fraction(r))),
    }
    pairs = itertools.product(FLOAT_TARGETS, range(1, LARGEST_C + 1))
    exact = {(target, c): allowed_misses(c, target) for target, c in pairs}
    rows: list[Row] = []
    for way, misses in ways.items():
        found = ((target, c, misses(c, target), right) for (target, c), right in exact.items())
        wrong = [item for item in found if item[2] != item[3]]
        first = wrong[0] if wrong else (None, None, None, None)
        values = (way, len(exact), len(wrong), len({item[0] for item in wrong}), *first)
        rows.append(dict(zip(FLOAT_COLUMNS, values, strict=True)))
    return rows


def _largest(c: int, target: float, keeps: Callable[[int], bool]) -> int:
    """Return the largest k that the condition keeps, looking where rounding could have moved it."""
    near = round(c * (1 - target))
    return max(k for k in range(max(near - 2, 0), near + 3) if k == 0 or keeps(k))


def examples() -> list[Row]:
    """Return the worked figures of the page: closed-loop at 98 % on NLBS and RSNA, from its counts."""
    nlbs = {"cases": 4_797, "positives": 119, "dismissed": 947, "positives_dismissed": 1}
    rsna = {"cases": 9_530, "positives": 389, "dismissed": 1_364, "positives_dismissed": 6}
    values: dict[str, float | int] = {
        "nlbs_bound": clopper_pearson_upper(1, 947, DELTA),
        "nlbs_bound_corrected_10": clopper_pearson_upper(1, 947, DELTA / 10),
        "nlbs_bound_from_k_0": clopper_pearson_upper(0, 947, DELTA),
        "nlbs_k_rebuilt": int(947 * (1 / 947)),
        "nlbs_recall": 1 - 1 / 119,
        "nlbs_recall_lower": 1.0 - clopper_pearson_upper(1, 119, DELTA),
        "rsna_bound": clopper_pearson_upper(6, 1_364, DELTA),
        "n_min_0_at_1_percent_delta_05": smallest_sample(0, 0.01, 0.05),
        "n_min_0_at_1_percent": smallest_sample(0, 0.01, DELTA),
        "n_min_1_at_1_percent": smallest_sample(1, 0.01, DELTA),
        "n_min_2_at_1_percent": smallest_sample(2, 0.01, DELTA),
    }
    for name, counts in (("nlbs", nlbs), ("rsna", rsna)):
        for label, prevalence in (("own", counts["positives"] / counts["cases"]), ("0.005", 0.005)):
            omission = omission_at_prevalence(**counts, prevalence=prevalence, delta=DELTA)
            values[f"{name}_for_upper_at_{label}"] = omission.false_omission_rate_upper
            values[f"{name}_missed_per_1000_at_{label}"] = omission.missed_per_1000_upper
    return [{"quantity": name, "value": value} for name, value in values.items()]
