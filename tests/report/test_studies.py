"""Studies on the page: what compare and sweep wrote is what is shown."""

import json
from pathlib import Path

import pytest

from tests.cache.material import FINGERPRINT
from tests.report.material import make_run
from trust_cache.base.documents import sealed_bytes, unseal
from trust_cache.base.errors import InputError
from trust_cache.certificate.certify import certify
from trust_cache.certificate.evidence import Options
from trust_cache.heads.head_settings import SETTING_NAMES
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


def test_runs_on_several_caches_are_shown_side_by_side(run: Path, tmp_path: Path) -> None:
    """The points are those of each run's own certificate, by one split; the comparison names its runs."""
    other = make_run(
        tmp_path / "other", configurations=("ce", "closed-loop", "fixed-tau"), cases=400, auroc=0.8
    )
    split = tmp_path / "split.csv"
    split.write_bytes(certify(run, seed=3).split.as_csv())
    out = tmp_path / "compare"
    write_comparison(compare([run, other], resamples=200, swaps=200, resplits=0), out)
    report = make_report([run, other, out], Options(split=split))
    (study,) = report.overviews
    (table,) = study.tables
    points = {
        (f"{point.configuration} ({path.name})", f"{point.target:.0%}"): point
        for path in (run, other)
        for point in certify(path, split=split).points
    }
    assert [row[0] for row in table.rows[:3]] == ["ce (run)", "ce (other)", "closed-loop (run)"]
    for row in table.rows:
        cells = dict(zip(table.header, row, strict=True))
        point = points.pop((row[0], cells["Target"]))
        assert cells["Encoder"] == FINGERPRINT.encoder
        assert cells["Status"] == point.status
        assert cells["Dismissal"] == ("N/A" if not point.met else f"{point.dismissal:.2%}")
        assert cells["Cancers missed"] == f"{point.positives_dismissed} of {point.positives}"
    assert not points
    page = render_page(report)
    assert page.index('id="result"') < page.index('id="runs"') < page.index('id="explorer"')
    assert "run \u2212 other: closed-loop" in page
    elsewhere = make_run(tmp_path / "elsewhere", configurations=("ce",), cases=300)
    (study,) = make_report([run, elsewhere], Options()).overviews
    assert study.notes[0].startswith("The runs have different cases")
    assert not make_report([run], Options()).overviews


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
        words = ", ".join(
            f"{axis.split('=')[0]}={getattr(winner.values, axis.split('=')[0]):g}"
            for axis in sorted(grid, key=_place)
        )
        assert words in {row[0] for row in table.rows}, "a winner is named by its settings"
    for sentence, winner in zip(study.sentences, done.winners.values(), strict=True):
        assert winner.setting not in sentence
        assert "=" in sentence
        assert ("N/A" in sentence) == (not winner.point.met)


def _place(axis: str) -> int:
    return SETTING_NAMES.index(axis.split("=", maxsplit=1)[0])


def test_an_unfinished_sweep_is_refused(cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    sweep(cache, out, describe_space(["lr=1e-5"]), epochs=1, threads=1)
    document, _ = unseal(json.loads((out / "sweep.json").read_text()))
    (out / "sweep.json").write_bytes(sealed_bytes(document | {"status": "training"}))
    with pytest.raises(InputError, match="the sweep is not finished"):
        sweep_study(out)
