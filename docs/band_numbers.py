"""The numbers about bounds at all thresholds at once: their price, and how often they fail."""

from dataclasses import asdict

import numpy as np
from selection_simulation import AUROC, DELTA, Size, paper_sizes

from tests.binormal import Binormal
from tests.risk_laws import RISK_LAWS, count_failures
from trust_cache.statistics.bands import band_ranks, simultaneous_band
from trust_cache.statistics.bounds import clopper_pearson_upper

Row = dict[str, object]

PRICE_COLUMNS = (
    "data_set", "target", "cases", "dismissed", "positives_dismissed", "ranks", "bound", "at_a_rank",
    "at_a_rank_of_five", "at_forty_ranks",
)  # fmt: skip
FREE_COLUMNS = (
    "data_set", "dismissal", "cohorts", "pointwise", "kept", "lowered", "lowered_dismissal", "kept_of_forty",
)  # fmt: skip
FAILURE_COLUMNS = (
    "law", "cases", "cohorts", "lowered", "kept", "rank_below", "pointwise_cohorts", "pointwise",
)  # fmt: skip

# The paper's closed loop: data set, target, evaluation cases, dismissed, cancers among them.
PUBLISHED = (
    ("NLBS", 0.98, 4_797, 947, 1), ("NLBS", 0.95, 4_797, 1_041, 2),
    ("RSNA", 0.98, 9_530, 1_364, 6), ("RSNA", 0.95, 9_530, 1_876, 13),
)  # fmt: skip
DISMISSALS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
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
    """Return the mean bounds at thresholds of given dismissal, for cohorts of the paper's evaluation sizes."""
    cohorts = max(1, replicates // REPLICATES_A_COHORT)
    return [row for size in paper_sizes() for row in _free(size, cohorts, seed)]


def _free(size: Size, cohorts: int, seed: int) -> list[Row]:
    generator = np.random.Generator(np.random.PCG64([seed, size.cases, EVEN_RANKS]))
    positives = size.positives - size.search[0]
    cases = size.cases - sum(size.search)
    model = Binormal(positives / cases, AUROC)
    ranks = np.array([round(share * cases) for share in DISMISSALS])
    found = np.zeros((cohorts, len(FREE_COLUMNS) - 3, ranks.size))
    for cohort in found:
        scores, labels = model.draw(cases, generator, positives)
        order = np.argsort(scores)
        missed = np.concatenate([[0], np.cumsum(labels[order])])
        taus = scores[order][ranks]
        band = simultaneous_band(scores, labels, DELTA)
        lowered = [band.lower(float(tau)) for tau in taus]
        # Ranks at every fortieth of the cases: the next higher one, kept.
        even = -(-ranks * EVEN_RANKS // cases) * cases // EVEN_RANKS
        of_forty = clopper_pearson_upper(missed[even], even, DELTA / EVEN_RANKS) * even / ranks
        cohort[:] = (
            clopper_pearson_upper(missed[ranks], ranks, DELTA),
            band.keep(taus),
            [1.0 if rank is None else rank.bound for rank in lowered],
            [0.0 if rank is None else rank.dismissed / cases for rank in lowered],
            of_forty,
        )
    return [
        dict(zip(FREE_COLUMNS, (size.name, share, cohorts, *means), strict=True))
        for share, means in zip(DISMISSALS, found.mean(axis=0).T.tolist(), strict=True)
    ]


def failures(replicates: int, seed: int) -> list[Row]:
    """Return in how many cohorts of each law the bound of some threshold is below the true rate."""
    cohorts = COHORTS_A_REPLICATE * replicates
    return [
        {"law": name, "cases": cases, **asdict(count_failures(name, DELTA, cohorts, seed))}
        for name, (_, cases) in RISK_LAWS.items()
    ]
