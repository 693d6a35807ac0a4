"""The page on monitoring says what its script computes, and the script what independent routes compute."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.stats import beta

DOCS = Path(__file__).resolve().parents[2] / "docs"
Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module


@pytest.mark.slow
def test_the_tables_of_the_page_are_the_script_s(load: Load) -> None:
    page = (DOCS / "monitoring.md").read_text(encoding="utf-8")
    assert load("statistics_tables").tables_in(page) == load("make_monitoring_tables").render_tables()


def test_the_numbers_in_the_words(load: Load) -> None:
    script = load("make_monitoring_tables")
    page = " ".join((DOCS / "monitoring.md").read_text(encoding="utf-8").split())
    assert "a bound of 0.88 % instead of 0.70 %" in page
    assert f"{100 * script.BOUND:.2f}" == "0.70"
    assert f"| 1 | {100 * beta.ppf(1 - 0.005, 2, 946):.2f} % | 0.88 % |" in script.looks_table()
    assert "| alarm | 2x | 3,318 | 5,773 | 2,000 |" in page
    assert "| confirmation | 0.25x | 1,561 | 3,211 | 2,000 |" in page
    shares = dict(re.findall(r"\| (false \w+) \| [\d.]+ % \| ([\d.]+) % \|", page))
    assert set(shares) == {"false confirmation", "false alarm"}
    assert all(float(share) <= 1.0 for share in shares.values())


def test_the_old_rule_by_simulation(load: Load) -> None:
    """The exact chance of a false confirmation at the best first look: four standard errors of 4,000."""
    script = load("make_monitoring_tables")
    generator, streams = np.random.default_rng(1), 4_000
    k = np.cumsum(generator.random((streams, script.WATCHED)) < script.BOUND, axis=1)
    n = np.arange(1, script.WATCHED + 1)
    counts = np.arange(script.WATCHED // 100)
    within = beta.sf(script.BOUND, counts + 1, np.maximum(n[:, None] - counts, 1e-9)) <= script.spent(1)
    fooled = (k < within.sum(axis=1)).any(axis=1).mean()  # within is true for the smallest counts
    (exact,) = re.findall(r"false confirmation \| ([\d.]+) %", script.adversary_table())
    chance = float(exact) / 100
    assert abs(fooled - chance) < 4 * np.sqrt(chance * (1 - chance) / streams) + 5e-5
