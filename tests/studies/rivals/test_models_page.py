"""The rivals' constants and the comparison of score models, as the page has them."""

import importlib
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

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


@pytest.mark.slow
def test_a_cohort_gives_the_committed_rows(study: ModuleType) -> None:
    preset, number = study.shown_cohorts()[0]
    committed = pl.read_csv(DOCS / "rivals_rows" / "models.csv").filter(pl.col("cohort") == number)
    found = pl.DataFrame(study.model_rows(preset, number, study.compare_models(preset, number)))
    assert found.drop("dismissal").equals(committed.drop("dismissal"))
    assert found["dismissal"].to_list() == pytest.approx(committed["dismissal"].to_list(), abs=0.002)
