"""Studies on the page: what compare wrote is what is shown."""

import json
from pathlib import Path

import pytest

from tests.report.material import make_run
from trust_cache.base.errors import InputError
from trust_cache.report.comparison import read_comparison
from trust_cache.report.evidence import Options
from trust_cache.report.page import render_page
from trust_cache.report.report import make_report
from trust_cache.studies.compare.compare import compare
from trust_cache.studies.compare.folder import write_comparison


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
    study = read_comparison(compared)
    assert study.sentences == tuple(item["sentence"] for item in document["comparisons"])
    (figure,) = study.figures
    assert figure.data["difference"].to_list() == [item["difference"] for item in document["comparisons"]]
    assert figure.data["low"].to_list() == [item["low"] for item in document["comparisons"]]
    page = render_page(make_report([run, compared], Options()))
    assert 'id="comparison-intervals"' in page
    assert '<a href="#comparison">Comparison</a>' in page


def test_a_damaged_comparison_is_refused(compared: Path) -> None:
    (compared / "compare.json").write_text('{"schema": 2}')
    with pytest.raises(InputError, match=r"expected schema 1, found 2; compare again"):
        read_comparison(compared)
    (compared / "compare.json").write_text("[]")
    with pytest.raises(InputError, match="not a readable result of compare"):
        read_comparison(compared)
