"""The numbers about bounds at all thresholds at once: their price, and how often they fail."""

import itertools
from dataclasses import asdict

import numpy as np
from selection_simulation import AUROC, DELTA, Size, paper_sizes

from tests.binormal import Binormal
from tests.risk_laws import RISK_LAWS, count_failures
from trust_cache.statistics.bands import band_ranks, simultaneous_band
from trust_cache.statistics.bounds import Floats, Integers, clopper_pearson_upper

Row = dict[str, object]

PRICE_COLUMNS = (
    "data_set", "target", "cases", "dismissed", "positives_dismissed", "ranks", "bound", "at_a_rank",
    "at_a_rank_of_five", "at_forty_ranks",
)  # fmt: skip
FREE_COLUMNS = (
    "data_set", "low", "high", "cohorts", "pointwise", "kept", "lowered", "lowered_dismissal",
    "kept_of_forty", "lowered_of_forty", "lowered_dismissal_of_forty",
)  # fmt: skip
FAILURE_COLUMNS = (
    "law", "cases", "cohorts", "lowered", "kept", "rank_below", "pointwise_cohorts", "pointwise",
)  # fmt: skip

# The paper's closed loop: data set, target, evaluation cases, dismissed, cancers among them.
PUBLISHED = (
    ("NLBS", 0.98, 4_797, 947, 1), ("NLBS", 0.95, 4_797, 1_041, 2),
    ("RSNA", 0.98, 9_530, 1_364, 6), ("RSNA", 0.95, 9_530, 1_876, 13),
)  # fmt: skip
DISMISSALS = (0.05, 0.1, 0.2, 0.4, 0.6)
THRESHOLDS = 25  # between two of these dismissals
CONFIGURATIONS = 5
EVEN_RANKS = 40  # the alternative: equally spaced
COHORTS_A_REPLICATE = 7  # of the failures: 21,000 in all
REPLICATES_A_COHORT = 6  # of the price: 500 in all


def price() -> list[Row]:
    """Return the bounds at the paper's counts: pointwise, at a rank, with five configurations shown."""
    rows = []
    for name, target, cases, n, k in PUBLISHED:
        ranks = band_ranks(cases).size
        shares = (1, ranks, CONFIGURATIONS * ranks, EVEN_RANKS)
        bounds = (clopper_pearson_upper(k, n, DELTA / share) for share in shares)
        rows.append(dict(zip(PRICE_COLUMNS, (name, target, cases, n, k, ranks, *bounds), strict=True)))
    return rows


def free_thresholds(replicates: int, seed: int) -> list[Row]:
    """Return the mean bounds of thresholds by their dismissal, in cohorts of the paper's evaluation sizes."""
    cohorts = max(1, replicates // REPLICATES_A_COHORT)
    return [row for size in paper_sizes() for row in _free(size, cohorts, seed)]


def _free(size: Size, cohorts: int, seed: int) -> list[Row]:
    generator = np.random.Generator(np.random.PCG64([seed, size.cases, EVEN_RANKS]))
    positives = size.positives - size.search[0]
    cases = size.cases - sum(size.search)
    model = Binormal(positives / cases, AUROC)
    # Thresholds that do not favour ranks of either kind: many, evenly spread.
    dismissed = np.array([np.linspace(*ends, THRESHOLDS) * cases for ends in itertools.pairwise(DISMISSALS)])
    found = np.array(
        [
            _bounds(*model.draw(cases, generator, positives), dismissed.astype(np.int64).ravel())
            for _ in range(cohorts)
        ]
    )
    means = found.mean(axis=0).reshape(-1, *dismissed.shape).mean(axis=2)
    return [
        dict(zip(FREE_COLUMNS, (size.name, low, high, cohorts, *values), strict=True))
        for (low, high), values in zip(itertools.pairwise(DISMISSALS), means.T.tolist(), strict=True)
    ]


def _bounds(scores: Floats, labels: Integers, dismissed: Integers) -> Floats:
    """Return what each threshold gets: the columns from `pointwise` on, each for all thresholds."""
    order = np.argsort(scores)
    missed = np.concatenate([[0], np.cumsum(labels[order])])
    taus = scores[order][dismissed]
    band = simultaneous_band(scores, labels, DELTA)
    lowered = [rank for rank in map(band.lower, taus.tolist()) if rank is not None]
    step = scores.size / EVEN_RANKS
    above, below = ((step * side(dismissed / step)).astype(np.int64) for side in (np.ceil, np.floor))
    even = {n: clopper_pearson_upper(missed[n], n, DELTA / EVEN_RANKS) for n in {*above, *below}}
    return np.array(
        [
            clopper_pearson_upper(missed[dismissed], dismissed, DELTA),
            band.keep(taus),
            [rank.bound for rank in lowered],
            [rank.dismissed / scores.size for rank in lowered],
            [even[n] for n in above] * (above / dismissed),
            [even[n] for n in below],
            below / scores.size,
        ]
    )


def failures(replicates: int, seed: int) -> list[Row]:
    """Return in how many cohorts of each law the bound of some threshold is below the true rate."""
    cohorts = COHORTS_A_REPLICATE * replicates
    return [
        {"law": name, "cases": cases, **asdict(count_failures(name, DELTA, cohorts, seed))}
        for name, (_, cases) in RISK_LAWS.items()
    ]
