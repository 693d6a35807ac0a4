"""Studies on the page: what compare and sweep wrote is what is shown."""

import json
from pathlib import Path

import pytest

from tests.report.material import make_run
from trust_cache.base.documents import sealed_bytes, unseal
from trust_cache.base.errors import InputError
from trust_cache.certificate.evidence import Options
from trust_cache.report.page import render_page
from trust_cache.report.page_studies import comparison_study, sweep_study
from trust_cache.report.report import make_report
from trust_cache.studies.compare.compare import compare
from trust_cache.studies.compare.compare_folder import write_comparison
from trust_cache.studies.sweep.sweep import sweep
from trust_cache.studies.sweep.sweep_request import describe_space
from trust_cache.synthetic.feature_cohort import simulate_cache


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", configurations=("ce", "closed-loop", "fixed-tau"), cases=400)


@pytest.fixture
def compared(run: Path, tmp_path: Path) -> Path:
    out = tmp_path / "compare"
    write_comparison(compare(run, resamples=200, swaps=200, resplits=20), out)
    return out


def test_a_comparison_is_shown_as_it_was_found(run: Path, compared: Path) -> None:
    document = json.loads((compared / "compare.json").read_text())
    study = comparison_study(compared)
    every = (*document["comparisons"], *document["auroc_comparisons"])
    assert study.sentences == tuple(item["sentence"] for item in every)
    assert [table.header[2] for table in study.tables] == ["Difference", "AUROC"]
    (figure,) = study.figures
    assert figure.data["difference"].to_list() == [item["difference"] for item in document["comparisons"]]
    assert figure.data["low"].to_list() == [item["low"] for item in document["comparisons"]]
    page = render_page(make_report([run, compared], Options()))
    assert 'id="comparison-intervals"' in page
    assert '<a href="#comparison">Comparison</a>' in page


def test_a_damaged_comparison_is_refused(compared: Path) -> None:
    (compared / "compare.json").write_text('{"schema": 2}')
    with pytest.raises(InputError, match="expected the result of compare with schema 1, found schema 2"):
        comparison_study(compared)
    (compared / "compare.json").write_text("[]")
    with pytest.raises(InputError, match="expected the result of compare"):
        comparison_study(compared)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "cache.zarr"
    simulate_cache("nlbs", out, views=1, cases=400)
    return out


@pytest.mark.parametrize(
    ("grid", "panels"),
    [
        (["lambda_dismiss=0,0.05", "margin=0.05,0.1,0.2"], 2),  # a heat map for each target
        (["lr=1e-5,1e-3"], 2),
        (["lr=1e-5,1e-3", "margin=0.1,0.2", "focal_gamma=1,2"], 6),  # each axis for each target
    ],
)
def test_a_sweep_is_shown_as_it_was_found(cache: Path, tmp_path: Path, grid: list[str], panels: int) -> None:
    done = sweep(cache, tmp_path / "sweep", describe_space(grid, None, None, None), epochs=1, threads=1)
    study = sweep_study(tmp_path / "sweep")
    (figure,) = study.figures
    assert len(figure.panels) == panels
    (table,) = study.tables
    for target, winner in done.winners.items():
        rows = figure.data.filter(target=target)
        assert rows.height == len(done.record.settings)
        assert rows["search_dismissal"].max() == pytest.approx(winner.search_dismissal)
        assert winner.setting in {row[0] for row in table.rows}
    for sentence, winner in zip(study.sentences, done.winners.values(), strict=True):
        assert winner.setting in sentence
        assert ("N/A" in sentence) == (not winner.point.met)


def test_an_unfinished_sweep_is_refused(cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    sweep(cache, out, describe_space(["lr=1e-5"]), epochs=1, threads=1)
    document, _ = unseal(json.loads((out / "sweep.json").read_text()))
    (out / "sweep.json").write_bytes(sealed_bytes(document | {"status": "training"}))
    with pytest.raises(InputError, match="the sweep is not finished"):
        sweep_study(out)
