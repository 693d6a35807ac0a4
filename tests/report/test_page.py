"""Laws of the page's text: complete in itself, the same bytes, names stay text, sensible at the edges."""

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import polars as pl
import pytest

from tests.conftest import make_scores
from tests.heads.records import edit_record
from tests.report.material import HOSTILE, PRESETS, make_run
from trust_cache.certificate.certify import certify
from trust_cache.certificate.evidence import Options
from trust_cache.heads.run_folder import RunFolder
from trust_cache.report.embedding import chart_bundle, embedded_json, with_code
from trust_cache.report.page import render_page
from trust_cache.report.report import make_report

FETCHING = {"src", "srcset", "action", "formaction", "poster", "background", "ping", "manifest", "style"}


class Elements(HTMLParser):
    """Collects elements with their attributes, and the text between."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def made(*paths: Path, **options: object) -> str:
    return render_page(make_report(list(paths), Options(**options)))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run", cases=700)


@pytest.fixture(scope="module")
def page(run: Path) -> str:
    return made(run, by="site")


def test_it_refers_to_nothing_outside(page: str) -> None:
    for tag, attributes in Elements(page).found:
        assert tag not in {"link", "iframe", "object", "embed", "base", "img"}
        assert not FETCHING & set(attributes), (tag, attributes)
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), attributes
        assert not [name for name in attributes if name.startswith("on")]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert html.unescape(policy[1]).startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert page.count(chart_bundle()) == 1


def test_the_same_input_gives_the_same_bytes(run: Path, page: str) -> None:
    assert made(run, by="site") == page


def test_every_figure_has_a_text_a_reading_and_data(page: str) -> None:
    elements = Elements(page).found
    figures = [attributes["id"] for tag, attributes in elements if tag == "figure"]
    assert figures == [
        "dismissal-recall", "roc", "scores", "tau-by-epoch", "reliability", "case-image", "subgroups",
    ]  # fmt: skip
    described = [a for t, a in elements if a.get("role") == "img" and len(a.get("aria-label") or "") > 40]
    assert len(described) == len(figures)
    assert page.count("How to read it.") == len(figures)
    assert page.count(">Data as CSV</a>") == len(figures)
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_sentence_and_the_certificates_are_certifys(run: Path, page: str) -> None:
    points = certify(run, by="site").points
    text = " ".join(" ".join(Elements(page).text).split())
    for point in points:
        if point.configuration == "closed-loop" and point.met:
            assert f"{100 * point.dismissal:.2f}% of cases fell below the threshold" in text  # type: ignore[operator]
            assert f"{point.positives_dismissed} of the {point.positives} cancers" in text
    links = {
        attributes["download"]: unquote((attributes["href"] or "").partition(",")[2])
        for tag, attributes in Elements(page).found
        if tag == "a" and (attributes.get("download") or "").endswith(".json")
    }
    assert len(links) == len(points)
    for point in points:
        certificate = json.loads(links[f"{point.configuration}@{point.target!r}.json"])
        assert certificate["bound"] == point.bound


def test_what_it_does_not_mean_stands_there(run: Path, page: str) -> None:
    text = " ".join("".join(Elements(page).text).split())
    for limit in certify(run).limits:
        assert limit.replace("`", "") in text


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run <b>&", configurations=HOSTILE, sites=HOSTILE, cases=400)
    page = made(run, by="site")
    elements = Elements(page)
    assert [a.get("type") for t, a in elements.found if t == "script"] == [
        "application/json", "application/json", None, None,
    ]  # fmt: skip
    assert "img" not in {tag for tag, _ in elements.found}
    names = {a["title"] for _, a in elements.found if "title" in a}
    assert set(HOSTILE) <= names
    blocks = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, flags=re.DOTALL)
    (explorer, _) = (json.loads(block) for block in blocks)
    assert {series["name"] for series in explorer[0]["series"]} == set(HOSTILE)


def test_what_is_not_certified_is_not_green(tmp_path: Path) -> None:
    """Eleven dismissed with a bound of 34 % at a prevalence of 10 %, and reversed scores."""
    table = make_scores(1_000, 100).drop("image_id", "site")
    evaluation = certify(table).split.table.filter(pl.col("part") == "evaluation")["case_id"]
    low = table.filter(pl.col("case_id").is_in(evaluation) & (pl.col("label") == 0))["case_id"][:11]
    few = table.with_columns(score=pl.when(pl.col("case_id").is_in(low)).then(0.1).otherwise(0.9))
    backwards = table.with_columns(score=1 - pl.col("score"))
    for scores, said in ((few, "bound not below limit"), (backwards, "target missed")):
        scores.write_csv(tmp_path / "scores.csv")
        page = made(tmp_path / "scores.csv")
        assert said in page
        assert 'class="chip met"' not in page


def test_every_point_n_a(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", cases=500, positives=100, auroc=0.6)
    for seed in range(40):
        if not any(point.met for point in certify(run, seed=seed, targets=(0.98,)).points):
            break
    else:
        raise AssertionError("no split misses every target")
    page = made(run, seed=seed, targets=(0.98,))
    text = " ".join(" ".join(Elements(page).text).split())
    assert "Not certified: target missed." in text
    assert "every point is N/A" in text
    assert page.count('class="chip unmet"') >= len(PRESETS)
    assert 'id="explorer"' in page


def test_one_configuration_without_name_images_or_subgroups(tmp_path: Path) -> None:
    make_scores(500, 60).drop("image_id", "site").write_csv(tmp_path / "scores.csv")
    page = made(tmp_path / "scores.csv")
    elements = Elements(page).found
    figures = [attributes["id"] for tag, attributes in elements if tag == "figure"]
    assert figures == ["dismissal-recall", "roc", "scores", "reliability"]
    assert 'class="legend" aria-label' in page  # of the classes
    text = " ".join(" ".join(Elements(page).text).split())
    assert "Configuration scores (the only one)" in text
    assert "No subgroups were requested" in text
    assert "1 configuration" in text


def test_an_external_run_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", configurations=("ce", "closed-loop"), external=True, cases=500)
    text = " ".join(" ".join(Elements(made(run)).text).split())
    assert "Exact here: the model never saw these cases" in text


@pytest.mark.parametrize(
    ("made_by", "words"),
    [
        ({"encoder": "simulated", "weights_sha256": "simulated"}, "the features are synthetic"),
        ({"encoder": "mammo-clip-b5", "weights_sha256": "random:seed=0"}, "weights are random"),
        ({"encoder": "mammo-clip-b5", "weights_sha256": "ab" * 32}, None),
    ],
)
def test_figures_without_clinical_meaning_are_named(
    tmp_path: Path, made_by: dict[str, str], words: str | None
) -> None:
    folder = make_run(tmp_path / "run", configurations=("ce",))
    edit_record(folder, fingerprint=RunFolder(folder).record.fingerprint.as_document() | made_by)
    text = " ".join(Elements(made(folder)).text)
    assert ("mean nothing clinically" in text) == (words is not None)
    assert words is None or words in text


def test_the_page_says_how_to_make_it_again(run: Path) -> None:
    report = make_report([run], Options(seed=3), ["run/", "--out", "a page.html", "--seed", "3"])
    text = "".join(Elements(render_page(report)).text)
    assert "trust-cache report run/ --out 'a page.html' --seed 3" in text
    assert "trust-cache fit-heads cache.zarr --out" in text
    for fact in ("1" * 64, "seed 3", report.evidences[0].certification.scores.sha256):
        assert fact in text


def test_embedded_json_cannot_end_its_element() -> None:
    document = {"</script>": ["<!--", "\u2028", "\ud800", "'\"&"]}
    text = str(embedded_json(document))
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text) == document


def test_code_in_sentences_is_escaped() -> None:
    assert str(with_code("use `a < b` & <c>")) == "use <code>a &lt; b</code> &amp; &lt;c&gt;"
