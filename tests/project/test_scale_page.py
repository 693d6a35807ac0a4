"""The page on scale says what its script computes, and the script's clusters behave as clusters must."""

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from trust_cache.base.dask_cluster import _STARTS

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("simulate_scale")


def test_the_tables_of_the_page_are_the_script_s(script: ModuleType) -> None:
    page = (DOCS / "scale.md").read_text(encoding="utf-8")
    tables = dict(re.findall(r"<!-- (costs|simulation) -->\n(.*?)\n<!-- end -->", page, flags=re.DOTALL))
    assert tables == {"costs": script.cost_table(), "simulation": script.simulation_table()}


def test_a_cluster_without_faults_is_a_list_schedule(script: ModuleType) -> None:
    run = script.simulate(1_000, 16, 0.0)
    longest = script.SLOWER * 3  # beyond four standard deviations of a straggler
    # Graham 1969: no list schedule is later than the even share plus the longest item.
    assert run.least <= run.makespan <= run.least + longest
    assert (run.deaths, run.lost, run.most_tries, run.given_up) == (0, 0.0, 1, 0)


def test_deaths_lose_half_an_item_each_and_nothing_for_good(script: ModuleType) -> None:
    run = script.simulate(script.ITEMS, 64, 0.05)
    expected = script.ITEMS * 0.05 / 0.95
    assert abs(run.deaths - expected) < 4 * (expected / 0.95) ** 0.5  # four standard deviations
    assert run.given_up == 0
    assert abs(run.lost - 0.025) < 0.005
    assert 4 * _STARTS == script.MOST_TRIES
