"""The rivals' promises by simulation: seeded search subsets whose truth is known in closed form."""

import importlib
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.binormal import Binormal
from trust_cache.statistics.rules import allowance
from trust_cache.studies.rivals.rival_rules import RULES

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[3] / "docs"
COHORTS = 2_000
# Below any threshold a hair more cancer than allowed: whatever such a rule dismisses is a failure.
NO_SKILL = Binormal(prevalence=0.01 * 1.0001, auroc=0.5)


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("rivals_numbers")


def margin(delta: float) -> float:
    return float(3 * np.sqrt(delta * (1 - delta) / COHORTS))


@pytest.mark.parametrize(("rule", "delta"), [("rcps", 0.1), ("ltt", 0.01)])
def test_the_miss_rate_with_confidence(numbers: ModuleType, rule: str, delta: float) -> None:
    found = numbers.measure(rule, numbers.RSNA, COHORTS, seed=21, delta=delta)
    assert found.failures / COHORTS <= delta + margin(delta)
    assert found.failures / COHORTS > delta / 10  # not idle
    assert found.feasible > COHORTS / 2


def test_the_miss_rate_on_average(numbers: ModuleType) -> None:
    """CRC keeps its mean; the paper's rule has the mean (a + 1) / (C + 1) of its Beta law and exceeds it."""
    crc, paper = (numbers.measure(rule, numbers.RSNA, COHORTS, seed=22) for rule in ("crc", "recall"))
    assert crc.mean_rate <= 0.05 + 3 * crc.rate_error
    assert paper.mean_rate > 0.05 + 3 * paper.rate_error
    generator = np.random.default_rng(22)
    for found in (crc, paper):
        counts = generator.binomial(numbers.SEARCH, numbers.RSNA.prevalence, 20_000)
        law = [(allowance(found.rule, int(c), 0.95, 0.01).misses + 1) / (c + 1) for c in counts]  # type: ignore[operator]
        assert found.mean_rate == pytest.approx(np.mean(law), abs=4 * found.rate_error)


@pytest.mark.parametrize("delta", [0.01, 0.1])
@pytest.mark.parametrize("rule", [name for name, rule in RULES.items() if rule.risk != "miss rate"])
def test_cancer_among_the_dismissed(numbers: ModuleType, rule: str, delta: float) -> None:
    for model in (numbers.RSNA, NO_SKILL):
        found = numbers.measure(rule, model, COHORTS, seed=23, delta=delta)
        assert found.failures / COHORTS <= delta + margin(delta)
    assert found.failures == found.feasible  # without skill every threshold is one too many
    if delta == 0.1:
        assert found.feasible > 0


def test_the_first_test_of_the_sequence_fails_at_its_exact_rate(numbers: ModuleType) -> None:
    """Without skill the sequence dismisses anybody iff the lowest 459 (230 at delta 0.1) hold no cancer."""
    found = numbers.measure("ltt-for-sequence", NO_SKILL, COHORTS, seed=24, delta=0.1)
    expected = (1 - NO_SKILL.prevalence) ** 230
    assert expected == pytest.approx(0.099, abs=0.001)
    assert found.feasible / COHORTS == pytest.approx(expected, abs=4 / 3 * margin(0.1))


def test_the_page_says_what_was_measured(numbers: ModuleType) -> None:
    page = (DOCS / "rivals.md").read_text(encoding="utf-8")
    tables = dict(re.findall(r"<!-- table: (\w+) -->\n(.*?)\n<!-- end -->", page, flags=re.DOTALL))
    assert tables["promises"] == numbers.promises_table()
    assert tables["peers"] == numbers.peers_table()
