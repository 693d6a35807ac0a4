"""The exact truth follows a configuration's aggregation: as case scores of cohorts drawn in full."""

from typing import get_args

import numpy as np
import pytest
from scipy.stats import ks_2samp

from trust_cache.cache.feature_rows import rows_of_array
from trust_cache.heads.bank import HeadParameters, score_rows
from trust_cache.manifest.cases import Aggregation, find_cases
from trust_cache.synthetic.feature_cohort import SimulatedCohort
from trust_cache.synthetic.truth import Truth

DIM, CASES = 16, 3000
KINDS = get_args(Aggregation)


@pytest.fixture(scope="module")
def head() -> HeadParameters:
    generator = np.random.default_rng(2)
    gamma, beta, weight = (generator.standard_normal((1, DIM)).astype(np.float32) for _ in range(3))
    return HeadParameters(np.ones_like(gamma), 0 * beta, weight, np.zeros(1, np.float32))


@pytest.fixture(scope="module")
def drawn(head: HeadParameters) -> dict[str, np.ndarray]:
    """Scores of the negative cases of a cohort whose images are drawn and scored one by one."""
    cohort = SimulatedCohort("nlbs", seed=4, dim=DIM, cases=CASES)
    cases, images = find_cases(cohort.manifest), cohort.manifest.height
    rows = rows_of_array(np.ascontiguousarray(cohort.features(0, images, 1)))
    scores = score_rows(rows, np.arange(images), head)[0]
    return {kind: cases.score(scores, kind)[cases.labels == 0] for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_true_scores_are_aggregated_as_those_of_a_run(
    kind: Aggregation, head: HeadParameters, drawn: dict[str, np.ndarray]
) -> None:
    parts = (getattr(head, name)[0] for name in ("gamma", "beta", "weight"))
    truth = Truth("nlbs", dim=DIM).score(*parts, float(head.bias[0]), cases=20_000, aggregation=kind)
    expected = truth.scores[truth.labels == 0]
    for other in KINDS:
        alike = ks_2samp(drawn[other], expected).pvalue
        assert alike > 1e-3 if other == kind else alike < 1e-6, (kind, other, alike)
