"""The rivals' constants and the comparison of score models, as the page has them."""

import importlib
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest
from scipy.stats import ttest_rel

from trust_cache.studies.rivals.rival_models import LinearSettings

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("rivals_models")


def test_the_constants_are_the_best_of_the_page(study: ModuleType) -> None:
    rows = pl.read_csv(DOCS / "rivals_rows" / "constants.csv")
    best = study.best_constants(rows)
    assert set(best) == set(study.CONSTANTS)
    assert best.items() <= asdict(LinearSettings()).items()


def test_the_page_has_the_rows(study: ModuleType) -> None:
    rows = {name: pl.read_csv(DOCS / "rivals_rows" / f"{name}.csv") for name in ("constants", "models")}
    page = (DOCS / "rivals.md").read_text(encoding="utf-8")
    tables = importlib.import_module("statistics_tables").tables_in(page)
    assert tables["constants"] == study.constants_table(rows["constants"])
    assert tables["models"] == study.models_table(rows["models"])
    # No cohort that chose the constants is shown.
    assert not set(rows["constants"]["cohort"]) & set(rows["models"]["cohort"])


def test_the_page_claims_no_more_than_the_intervals(study: ModuleType) -> None:
    """Differences of `tuned` and each other model, paired by cohort, with Student's intervals by scipy."""
    rows = pl.read_csv(DOCS / "rivals_rows" / "models.csv")
    leads: dict[tuple[str, float], float] = {}
    reaches, resolved = [], {}
    for target in study.TARGETS:
        wide = rows.filter(target=target).pivot("model", index="cohort", values="dismissal")
        for name in study.MODELS:
            if name == "tuned":
                continue
            found = ttest_rel(wide["tuned"], wide[name])
            low, high = found.confidence_interval(0.95)
            leads[name, target] = 50 * (low + high)
            reaches.append(50 * (high - low))
            if low > 0 or high < 0:
                resolved[name, target] = f"({100 * low:.1f} to {100 * high:.1f})"
    of_maximum = [leads.pop((study.OF_MAXIMUM, target)) for target in study.TARGETS]
    rivals = [lead for (name, _), lead in leads.items() if name not in study.HEADS]
    heads = [lead for (name, _), lead in leads.items() if name in study.HEADS]
    page = " ".join((DOCS / "rivals.md").read_text(encoding="utf-8").split())
    assert f"{min(rivals):.1f} to {max(rivals):.1f} points ahead of the linear rivals" in page
    assert f"{min(heads):.1f} to {max(heads):.1f} points ahead of the paper's two heads" in page
    assert f"reach {min(reaches):.1f} to {max(reaches):.1f} points to either side" in page
    assert len(resolved) == (len(study.MODELS) - 1) * len(study.TARGETS)  # "none of them has zero"
    assert f"{of_maximum[0]:.1f} and {of_maximum[1]:.1f} points of it are the aggregation" in page


@pytest.mark.slow
def test_a_cohort_gives_the_committed_rows(study: ModuleType) -> None:
    preset, number = study.shown_cohorts()[0]
    committed = pl.read_csv(DOCS / "rivals_rows" / "models.csv").filter(pl.col("cohort") == number)
    found = pl.DataFrame(study.model_rows(preset, number, study.compare_models(preset, number)))
    assert found.drop("dismissal").equals(committed.drop("dismissal"))
    assert found["dismissal"].to_list() == pytest.approx(committed["dismissal"].to_list(), abs=0.002)
