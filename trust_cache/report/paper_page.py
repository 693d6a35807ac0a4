"""The page of a reproduction: the paper's tables and figures with ours, in one HTML file without scripts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from trust_cache.figures.figure import Figure
from trust_cache.report.embedding import TEMPLATES, content_policy, download, embedded_script, with_code
from trust_cache.report.page import show_study
from trust_cache.report.page_studies import PageStudy, comparison_study
from trust_cache.report.paper_folder import LOOP, loop_drawing
from trust_cache.studies.reproduction.reproduction import Reproduction

_LOOP_READING = (
    "The loop of the paper. At the start of every epoch the head scores the calibration images, τ is the"
    " largest threshold whose dismissed images keep the bound, and the penalty pushes positives above"
    " τ + margin."
)


def render_paper_page(
    found: Reproduction,
    figures: Sequence[Figure],
    compared: Mapping[str, Path],
    *,
    notices: Sequence[str],
    warnings: Sequence[str],
    facts: Sequence[tuple[str, str]],
) -> str:
    """Return the page as HTML; `compared` are the compare folders by data set."""
    charts: dict[str, Any] = {}
    style = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    sections = [show_study(study, charts) for study in _studies(found, figures, compared)]
    context = {
        "policy": content_policy([], [style]),
        "version": version("trust-cache"),
        "style": embedded_script(style),
        "notices": notices,
        "sentences": [with_code(text) for text in found.sentences()],
        "warnings": warnings,
        "loop": _loop(),
        "sections": sections,
        "facts": facts,
    }
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("paper.html.j2").render(context) + "\n"


def _studies(found: Reproduction, figures: Sequence[Figure], compared: Mapping[str, Path]) -> list[PageStudy]:
    """Return the sections of the page in the order of the paper."""
    *in_domain, external, summary = found.tables
    further = found.further_tables
    tables = [
        PageStudy(item.key, item.table.title.split(":")[0], (), (), (item.table,), reasons=item.reasons)
        for item in (*in_domain, external, summary)
    ]
    comparisons = []
    for name, folder in compared.items():
        study = comparison_study(folder)
        drawn = tuple(replace(figure, key=f"{figure.key}-{name}") for figure in study.figures)
        heading = f"Is the difference real? {name.upper()}"
        notes = (*study.sentences, *study.notes)
        comparisons.append(
            replace(
                study, key=f"comparison-{name}", heading=heading, figures=drawn, sentences=(), notes=notes
            )
        )
    return [
        *tables,
        PageStudy("figure-1b", "Figure 1b. The closed loop in training", (), tuple(figures)),
        *comparisons,
        PageStudy("economics", "Economic estimate", (), (), (further["economics"],)),
        PageStudy("numbers", "Every published number", (), (), (further["numbers"],)),
    ]


def _loop() -> dict[str, Any]:
    """Return figure 1a as the template draws figures."""
    svg = loop_drawing()
    return {
        "anchor": "figure-1a",
        "square": False,
        "title": "Figure 1a. The closed loop",
        "reading": _LOOP_READING,
        "alternative": "The closed loop of training in four steps",
        "legend": (),
        "panels": [{"title": "", "chart": None, "svg": Markup(svg)}],  # noqa: S704  # a file of this package
        "link": download(LOOP, svg.encode(), "Drawing as SVG"),
    }
