"""Figures on scores as they are: crowded at zero, imported, over other splits; and what the page says."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import Run
from tests.conftest import make_scores
from tests.heads.cohorts import a_cohort, write_cohort
from trust_cache.base.errors import InputError
from trust_cache.certificate.certified_folder import write_certification
from trust_cache.certificate.certify import certify
from trust_cache.certificate.evidence import Evidence, Options, gather
from trust_cache.figures.curve_figures import recall_figure, roc_figure
from trust_cache.figures.figure import Figure, figure_files, styled_spec
from trust_cache.figures.score_axis import choose_axis
from trust_cache.figures.score_figures import distribution_figure, reliability_figure
from trust_cache.figures.study_figures import resplit_figure
from trust_cache.report.page import render_page
from trust_cache.report.report import make_report


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores of two models, beta-distributed near 0: on a linear axis all thresholds are in the first bin."""
    generator = np.random.default_rng(0)
    labels = generator.random(4_000) < 0.05
    tables = [
        pl.DataFrame(
            {
                "configuration": name,
                "case_id": [f"{number:05d}" for number in range(labels.size)],
                "label": labels.astype(int),
                "score": generator.beta(np.where(labels, power, 0.4), np.where(labels, 12, 60)),
            }
        )
        for name, power in (("ce", 2.0), ("mine", 2.6))
    ]
    path = tmp_path_factory.mktemp("crowded") / "scores.csv"
    pl.concat(tables).write_csv(path)
    return path


@pytest.fixture(scope="module")
def evidence(crowded: Path) -> Evidence:
    (found,) = gather([crowded], Options())
    return found


def axes_of(figure: Figure) -> list[dict[str, Any]]:
    """All encodings of the x axis."""
    text = json.dumps([styled_spec(panel.chart) for panel in figure.panels])
    found: list[dict[str, Any]] = []

    def walk(part: object) -> None:
        if isinstance(part, dict):
            if isinstance(part.get("encoding"), dict) and isinstance(part["encoding"].get("x"), dict):
                found.append(part["encoding"]["x"])
            for value in part.values():
                walk(value)
        elif isinstance(part, list):
            for value in part:
                walk(value)

    walk(json.loads(text))
    return found


def test_crowded_scores_get_a_logit_axis(evidence: Evidence) -> None:
    figure = distribution_figure(evidence)
    assert {axis["title"] for axis in axes_of(figure)} == {"case score (logit scale)"}
    assert "the logit scale spreads them" in figure.reading
    data = figure.data.filter(pl.col("configuration") == "mine")
    assert data.filter(pl.col("label") == 0)["share"].max() < 0.3, "no bin holds most of a class"
    assert data["low"].is_between(0, 1).all()
    for name in evidence.configurations:
        points = evidence.points_of(evidence.configurations.index(name))
        taus = [point.tau for point in points if point.tau is not None]
        bins = [int((data.filter(pl.col("label") == 0)["low"] <= tau).sum()) for tau in taus]
        assert min(bins) > 5, "a threshold is not in the first bins"


def test_even_scores_keep_a_linear_axis(scores_file: Any) -> None:
    (found,) = gather([scores_file()], Options())
    assert {axis["title"] for axis in axes_of(distribution_figure(found))} == {"case score"}


@pytest.mark.parametrize(
    ("low", "high", "kind"), [(1e-4, 0.99, "logit"), (1e-3, 900.0, "log"), (-5.0, 900.0, "linear")]
)
def test_the_kind_of_axis(low: float, high: float, kind: str) -> None:
    scores = np.append(np.geomspace(1e-3, 0.05, 900), [low, 0.9 * high, high])
    assert choose_axis([scores]).kind == kind
    assert choose_axis([np.zeros(5)]).kind == "linear"


@given(st.lists(st.floats(min_value=0, max_value=1), min_size=1, max_size=50))
def test_places_keep_the_order_and_lead_back(values: list[float]) -> None:
    scores = np.concatenate([np.sort(values), np.geomspace(1e-6, 1e-3, 60), [0.9]])
    axis = choose_axis([scores])
    places = axis.place(np.sort(scores))
    assert np.all(np.isfinite(places))
    assert np.all(np.diff(places) >= 0)
    inside = np.clip(np.sort(scores), axis.low, axis.high)
    assert np.allclose(axis.score(places), inside, rtol=1e-6, atol=1e-12)


def test_end_labels_stay_at_their_ticks(evidence: Evidence) -> None:
    for figure in (recall_figure(evidence), roc_figure(evidence)):
        spec = styled_spec(figure.panels[0].chart)
        assert spec["config"]["axis"]["labelFlush"] is False


def test_marks_say_their_target_by_shape(evidence: Evidence) -> None:
    for figure in (recall_figure(evidence), roc_figure(evidence)):
        named = {entry.name: entry.shape for entry in figure.legend if entry.shape}
        assert named == {"target 98%": "circle", "target 95%": "square"}
        text = json.dumps(styled_spec(figure.panels[0].chart))
        assert '"field": "target_text"' in text
        assert figure.paper is not None
        on_paper = json.dumps(styled_spec(figure.paper()))
        assert '"title": "target"' in on_paper


def test_reliability_has_one_unit_and_shows_what_is_near_zero(evidence: Evidence) -> None:
    figure = reliability_figure(evidence)
    text = json.dumps([styled_spec(panel.chart) for panel in figure.panels])
    assert '"type": "sqrt"' in text
    assert {axis["axis"]["format"] for axis in axes_of(figure) if axis.get("axis")} == {".3~%"}
    assert "trained on batches" not in figure.reading, "imported scores: nothing is known of their training"
    assert "maximum over its images" not in distribution_figure(evidence).reading


def test_reliability_of_scores_that_are_no_shares(tmp_path: Path) -> None:
    make_scores().with_columns(score=100 * pl.col("score") - 20).write_csv(tmp_path / "s.csv")
    (found,) = gather([tmp_path / "s.csv"], Options())
    figure = reliability_figure(found)
    assert "no diagonal" in figure.reading
    assert figure_files(figure, "r")["r.png"].startswith(b"\x89PNG")


def test_the_caption_of_a_run_names_its_batches(run: Run, tmp_path: Path) -> None:
    cache = write_cohort(tmp_path / "c.zarr", *a_cohort(cases=200, positives=60))
    assert (
        run("fit-heads", cache, "--out", tmp_path / "run", "--epochs", 1, "--configurations", "ce").code == 0
    )
    (found,) = gather([tmp_path / "run"], Options())
    assert "trained on batches with more cancers" in reliability_figure(found).reading
    assert "maximum over its images" in distribution_figure(found).reading


def test_resplits_have_a_figure_from_the_folder(crowded: Path, tmp_path: Path) -> None:
    made = certify(crowded, resplits=12)
    write_certification(made, tmp_path / "certified")
    (found,) = gather([crowded], Options(), [tmp_path / "certified"])
    figure = resplit_figure(found)
    assert figure is not None
    assert figure.data.height == 12 * 2 * 2
    points = {
        (item.resplit, item.point.configuration, item.point.target): item.point for item in made.resplits
    }
    for row in figure.data.iter_rows(named=True):
        point = points[row["resplit"], row["configuration"], row["target"]]
        assert (row["dismissal"], row["bound"], row["met"]) == (point.dismissal, point.bound, bool(point.met))
    page = render_page(make_report([crowded, tmp_path / "certified"], Options()))
    assert "The same scores over other random splits" in page
    (plain,) = gather([crowded], Options())
    assert resplit_figure(plain) is None
    file = tmp_path / "certified" / "resplits.csv"
    file.write_text("\n".join(file.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(InputError, match=r"resplits.csv: changed since it was written"):
        gather([crowded], Options(), [tmp_path / "certified"])


def test_a_page_where_nothing_is_certified_says_what_to_do(crowded: Path) -> None:
    made = make_report([crowded], Options(rule="ltt"), title="A <b>title</b>")
    page = render_page(made)
    assert "<h1>A &lt;b&gt;title&lt;/b&gt;</h1>" in page
    result = page[page.index('<section id="result">') : page.index('<section id="explorer"')]
    for words in ("what to do next", "--rule crc", "lower <code>--target</code>", "Certify on more cases"):
        assert words in result
    assert ">certificate</a>" not in result
    assert result.count(">counts</a>") == 4
    assert "the paper&#39;s threshold rule meets its target" not in page, "the text follows the rule used"
    assert "by the rule <code>ltt</code>" in page
    good = render_page(make_report([crowded], Options()))
    assert "what to do next" not in good
    assert ">certificate</a>" in good
    assert "by the rule <code>recall</code>" in good


def test_rivals_have_a_figure_and_a_section(run: Run, crowded: Path, tmp_path: Path) -> None:
    assert run("rivals", "--scores", crowded, "--out", tmp_path / "rivals", "--level", 0.05).code == 0
    assert (tmp_path / "rivals" / "rivals.png").read_bytes().startswith(b"\x89PNG")
    words = ("--out", tmp_path / "page.html", "--title", "Mine")
    assert run("report", crowded, tmp_path / "rivals", *words).code == 0
    page = (tmp_path / "page.html").read_text()
    assert '<section id="rivals">' in page
    assert "Threshold rules on the same split" in page
    assert "<h1>Mine</h1>" in page
    document = json.loads((tmp_path / "rivals" / "rivals.json").read_text())
    assert {row["rule"] for row in document["results"]} >= {"recall", "crc", "ltt", "sgr"}
    section = page[page.index('<section id="rivals">') :]
    for rule in ("recall", "crc", "sgr"):
        assert rule in section
