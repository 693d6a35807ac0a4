"""The page in a real browser: silent, without requests, and its explorer shows the library's numbers."""

import csv
import json
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect
from scipy.stats import beta

from tests.report.conftest import PATIENCE, Visit, Visitor
from tests.report.material import HOSTILE, make_run
from trust_cache.base.text_tables import percent
from trust_cache.certificate.certified_folder import write_certification
from trust_cache.certificate.certify import certify
from trust_cache.certificate.evidence import Options
from trust_cache.report.page import write_page
from trust_cache.report.report import make_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture(scope="module")
def certified(run: Path) -> Path:
    out = run.parent / "certified"
    write_certification(certify(run, seed=3, prevalence=0.005), out)
    return out


@pytest.fixture(scope="module")
def page_file(run: Path, certified: Path) -> Path:
    external = make_run(run.parent / "abroad", configurations=("ce", "closed-loop"), external=True, seed=5)
    file = run.parent / "report.html"
    write_page(make_report([run, certified, external], Options()), file)
    return file


def values(visit: Visit) -> dict[str, str]:
    names = ("search-dismissed", "search-missed", "dismissed", "missed", "bound")
    return {name: visit.page.locator(f"#{name}").get_attribute("value") or "" for name in names}


def text(visit: Visit, name: str) -> str:
    return visit.page.locator(f"#{name}").inner_text()


def cases_of(run: Path, certified: Path, configuration: str) -> list[tuple[str, float, int]]:
    """Part, score and label of each case, read without the library."""
    with (certified / "split.csv").open() as file:
        part = {row["case_id"]: row["part"] for row in csv.DictReader(file)}
    score: dict[str, float] = {}
    label: dict[str, int] = {}
    with (run / "scores.csv").open() as file:
        for row in csv.DictReader(file):
            if row["configuration"] == configuration:
                score[row["case_id"]] = max(score.get(row["case_id"], 0.0), float(row["score"]))
                label[row["case_id"]] = max(label.get(row["case_id"], 0), int(row["label"]))
    return [(part[case], score[case], label[case]) for case in score]


def expect_scipys_numbers(visit: Visit, run: Path, certified: Path, configuration: str) -> None:
    tau = float(visit.page.locator("#threshold-text").get_attribute("data-tau") or "nan")
    cases = cases_of(run, certified, configuration)
    below = {
        part: [label for where, score, label in cases if where == part and score < tau]
        for part in ("search", "evaluation")
    }
    n, k = len(below["evaluation"]), sum(below["evaluation"])
    bound = 1.0 if k == n else beta.ppf(0.99, k + 1, n - k)
    shown = values(visit)
    assert (int(shown["search-dismissed"]), int(shown["search-missed"])) == (
        len(below["search"]),
        sum(below["search"]),
    )
    assert (int(shown["dismissed"]), int(shown["missed"])) == (n, k)
    assert float(shown["bound"]) == pytest.approx(bound, rel=1e-9)
    assert text(visit, "bound") == percent(bound)
    evaluated = [label for where, _, label in cases if where == "evaluation"]
    expect_scipys_band(visit, tau, [case[1:] for case in cases if case[0] == "evaluation"])
    assert text(visit, "dismissal") == percent(n / len(evaluated))
    assert text(visit, "recall") == percent(1 - k / sum(evaluated))


def expect_scipys_band(visit: Visit, tau: float, cases: list[tuple[float, int]]) -> None:
    """The simultaneous bounds by their definition: 18 ranks, each with delta / 18 / 5 configurations."""
    scores = sorted(score for score, _ in cases)
    places = {(len(scores) - 1) * 5**step // 6**step for step in range(18)}

    def at(threshold: float) -> tuple[int, float]:
        below = [label for score, label in cases if score < threshold]
        n, k = len(below), sum(below)
        return n, 1.0 if k == n else float(beta.isf(0.01 / len(places) / 5, k + 1, n - k))

    ranks = sorted(scores[place] for place in places)
    n = sum(score < tau for score in scores)
    kept = lowered = None
    if above := [rank for rank in ranks if rank >= tau]:
        rank_n, bound = at(above[0])
        kept = min(1.0, bound * rank_n / n) if n else 1.0
    if below := [rank for rank in ranks if rank <= tau]:
        lowered = at(below[-1])[1]
        assert f"{float(text(visit, 'lowered-tau')):.6g}" == f"{below[-1]:.6g}"
    shown = [
        visit.page.locator(f"#{name}").get_attribute("value") or "" for name in ("simultaneous", "lowered")
    ]
    assert float(shown[0]) == pytest.approx(1.0 if kept is None else kept, rel=1e-9)
    assert shown[1] == "" if lowered is None else float(shown[1]) == pytest.approx(lowered, rel=1e-9)


def test_it_is_silent_and_asks_for_nothing(visit: Visitor, page_file: Path) -> None:
    opened = visit(page_file)
    opened.draw_everything()
    assert opened.messages == []
    assert opened.requests == [page_file.resolve().as_uri()]


def test_at_the_certified_threshold_it_shows_the_certificates_numbers(
    visit: Visitor, page_file: Path, certified: Path
) -> None:
    opened = visit(page_file)
    options = opened.page.locator("#configuration option")
    shown = 0
    for index in range(5):
        name = options.nth(index).inner_text()
        opened.page.select_option("#configuration", index=index)
        for button in opened.page.locator("#jumps button").all():
            button.click()
            target = float(button.inner_text().split("%")[0]) / 100
            file = certified / "certificates" / f"{name}@{target!r}.json"
            certificate = json.loads(file.read_text())
            found = values(opened)
            assert float(found["bound"]) == certificate["bound"]
            assert int(found["dismissed"]) == certificate["dismissed"]
            assert int(found["missed"]) == certificate["positives_dismissed"]
            for key, name_of_it in (
                ("dismissal", "dismissal"), ("recall", "recall"), ("recall-lower", "recall_lower"),
                ("bound", "bound"), ("omission", "false_omission_rate"),
                ("image-dismissal", "image_dismissal"),
            ):  # fmt: skip
                assert text(opened, key) == percent(certificate[name_of_it])
            assert text(opened, "assumed-omission") == percent(
                certificate["assumed_false_omission_rate_upper"], 4
            )
            status = text(opened, "status")
            assert status == ("" if certificate["status"] == "certified" else "N/A: ") + certificate["status"]
            assert (
                float(opened.page.locator("#threshold-text").get_attribute("data-tau") or "")
                == (certificate["tau"])
            )
            shown += 1
    assert shown == 10


def test_another_threshold_has_the_bound_of_scipy_and_is_not_certified(
    visit: Visitor, page_file: Path, run: Path, certified: Path
) -> None:
    opened = visit(page_file)
    threshold = opened.page.locator("#threshold")
    last = int(threshold.get_attribute("max") or "0")
    assert last > 200
    for stop in (0, 1, 7, last // 5, last // 3, last // 2, last - 1, last):
        threshold.fill(str(stop))
        expect_scipys_numbers(opened, run, certified, "closed-loop")
    threshold.fill(str(last // 2))
    assert text(opened, "status") == "explored, not certified"
    state = text(opened, "state-text")
    assert (
        f"at most {text(opened, 'simultaneous')} of those have cancer, whatever threshold you choose" in state
    )
    assert f"{text(opened, 'bound')} if this threshold had been fixed beforehand" in state


def test_the_target_moves_the_threshold_by_the_rule_on_search(
    visit: Visitor, page_file: Path, run: Path, certified: Path
) -> None:
    opened = visit(page_file)
    target = opened.page.locator("#target")
    cases = cases_of(run, certified, "closed-loop")
    positives = sorted(score for part, score, label in cases if part == "search" and label)
    for step in (0, 10, 25, 40):  # 80, 85, 92.5 and 100 %
        target.fill(str(step))
        recall = (160 + step) / 200
        assert text(opened, "target-text") == f"{100 * recall:g}%"
        allowed = len(positives) * (40 - step) // 200
        tau = float(opened.page.locator("#threshold-text").get_attribute("data-tau") or "nan")
        assert tau == positives[allowed]
        expect_scipys_numbers(opened, run, certified, "closed-loop")


def test_the_keyboard_alone_is_enough(visit: Visitor, page_file: Path) -> None:
    opened = visit(page_file)
    keyboard = opened.page.keyboard

    def tab_to(name: str) -> None:
        for _ in range(80):
            keyboard.press("Tab")
            if opened.page.evaluate("document.activeElement.id") == name:
                return
        raise AssertionError(f"Tab never reached {name}")

    keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.className") == "skip"
    tab_to("configuration")
    before = text(opened, "state-text")
    keyboard.press("ArrowUp")  # the configuration before
    assert text(opened, "state-text") != before
    tab_to("threshold")
    stop = int(opened.page.locator("#threshold").input_value())
    keyboard.press("ArrowRight")
    assert int(opened.page.locator("#threshold").input_value()) == stop + 1
    assert text(opened, "status") == "explored, not certified"
    spoken = opened.page.locator("#threshold").get_attribute("aria-valuetext") or ""
    assert spoken.startswith(text(opened, "threshold-text"))
    keyboard.press("End")
    assert text(opened, "dismissal") == "100.00%"
    tab_to("target")
    keyboard.press("End")
    assert text(opened, "search-recall") == "100.00%"
    keyboard.press("Tab")  # the first certified target
    keyboard.press("Enter")
    assert text(opened, "status") in {"certified", "N/A: target missed"}
    tab_to("fee")
    keyboard.type("31")
    saved = float(text(opened, "saved"))
    expect(opened.page.locator("#cost")).to_contain_text(f"{saved * 31:,.0f}")
    assert opened.messages == []


def test_another_cohort_can_be_explored_apart(visit: Visitor, page_file: Path) -> None:
    opened = visit(page_file)
    assert opened.page.locator("#configuration optgroup").count() == 2
    opened.page.select_option("#configuration", value="1/1")
    assert text(opened, "state-text").startswith("closed-loop, threshold")
    assert opened.page.locator("#run-2 h2").inner_text() == "External evaluation: abroad"


def test_an_n_a_says_why_to_pointer_and_keyboard(visit: Visitor, page_file: Path, certified: Path) -> None:
    reasons = [point["reason"] for point in json.loads((certified / "points.json").read_text())["points"]]
    assert any(reasons)  # the split was chosen so that some target is missed
    opened = visit(page_file)
    cell = opened.page.locator("#tables .na").first
    bubble = cell.locator(".bubble")
    expect(bubble).to_be_hidden()
    cell.hover()
    expect(bubble).to_be_visible()
    assert bubble.inner_text() in reasons
    opened.page.mouse.move(0, 0)
    expect(bubble).to_be_hidden()
    cell.focus()
    expect(bubble).to_be_visible()
    note = cell.get_attribute("href") or ""
    assert bubble.inner_text() in opened.page.locator(note).inner_text()


def test_the_certificate_can_be_saved(
    visit: Visitor, page_file: Path, certified: Path, tmp_path: Path
) -> None:
    opened = visit(page_file)
    link = opened.page.locator(".verdicts a[download='closed-loop@0.98.json']").first
    with opened.page.expect_download(timeout=PATIENCE) as started:
        link.click()
    started.value.save_as(tmp_path / "saved.json")
    expected = (certified / "certificates" / "closed-loop@0.98.json").read_bytes()
    assert (tmp_path / "saved.json").read_bytes() == expected


def test_hostile_names_are_text(visit: Visitor, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", configurations=HOSTILE, sites=HOSTILE, cases=600)
    file = tmp_path / "report.html"
    write_page(make_report([run], Options(by=("site",), configuration=HOSTILE[2])), file)
    opened = visit(file)
    opened.draw_everything()
    assert opened.page.evaluate("window.harmed") is None
    assert opened.messages == []
    assert opened.requests == [file.resolve().as_uri()]
    for name in HOSTILE:
        shown = " ".join(name.split())  # HTML folds white space
        row = opened.page.locator(".verdicts tbody th .name", has_text=shown)
        assert row.count() >= 1, name
        options = [" ".join(item.split()) for item in opened.page.locator("option").all_inner_texts()]
        assert shown in options
    # The tooltip of a mark is the one place where Vega itself writes HTML.
    opened.page.locator("#dismissal-recall .live .mark-symbol path").first.hover(force=True)
    tooltip = opened.page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert tooltip.locator("script, img, b").count() == 0
    assert opened.page.evaluate("window.harmed") is None
    assert opened.messages == []


def test_without_scripts_everything_but_the_explorer_is_there(visit: Visitor, page_file: Path) -> None:
    opened = visit(page_file, java_script_enabled=False)
    expect(opened.page.locator("#controls")).to_be_hidden()
    expect(opened.page.locator("#dismissal-recall .still svg")).to_be_visible()
    expect(opened.page.locator("#result .sentence").first).to_be_visible()
    expect(opened.page.get_by_text("The explorer needs JavaScript")).to_be_visible()


@pytest.mark.parametrize("width", [390, 1100])
def test_nothing_sticks_out(visit: Visitor, page_file: Path, width: int) -> None:
    opened = visit(page_file, viewport={"width": width, "height": 800})
    opened.draw_everything()
    root = "document.documentElement"
    assert opened.page.evaluate(f"{root}.scrollWidth - {root}.clientWidth") == 0
    wide = (
        "[...document.querySelectorAll('.live svg')].filter(s => s.clientWidth > s.parentElement.clientWidth)"
    )
    assert opened.page.evaluate(f"{wide}.length") == 0


def test_dark_mode_turns_charts_too(visit: Visitor, page_file: Path) -> None:
    light, dark = (visit(page_file, color_scheme=scheme) for scheme in ("light", "dark"))
    colours = []
    for opened in (light, dark):
        opened.draw_everything()
        script = """place => {
            const element = document.querySelector(place), style = getComputedStyle(element);
            return element instanceof SVGElement ? style.fill : style.backgroundColor;
        }"""
        colours.append(
            [opened.page.evaluate(script, place) for place in ("body", ".live .role-axis-label text")]
        )
    assert all(one != other for one, other in zip(*colours, strict=True))


def test_print_keeps_the_explored_state_and_drops_the_controls(visit: Visitor, page_file: Path) -> None:
    opened = visit(page_file, color_scheme="dark")
    opened.draw_everything()
    opened.page.locator("#threshold").fill("41")
    state = text(opened, "state-text")
    opened.page.emulate_media(media="print")
    expect(opened.page.locator("#controls")).to_be_hidden()
    expect(opened.page.locator("#state-text")).to_have_text(state)
    expect(opened.page.locator("#status")).to_have_text("explored, not certified")
    expect(opened.page.locator("#dismissal-recall .still svg")).to_be_visible()
    expect(opened.page.locator("#dismissal-recall .live")).to_be_hidden()
    assert opened.page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    opened.page.emulate_media(media="screen")
    pdf = opened.page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")


def test_links_hold_the_data_of_their_figures(visit: Visitor, page_file: Path) -> None:
    opened = visit(page_file)
    links = opened.page.locator("figcaption a[download]")
    assert links.count() >= 8
    for link in links.all():
        head, _, body = (link.get_attribute("href") or "").partition(",")
        assert head == "data:text/csv;charset=utf-8"
        rows = list(csv.DictReader(unquote(body).splitlines()))
        assert rows
        assert all(None not in row and None not in row.values() for row in rows)
