"""The page: what stands on it, in order, put into its template."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from trust_cache.base.names import file_stems
from trust_cache.base.text_tables import confidence, percent, whole_percent
from trust_cache.certificate.certify import Certification
from trust_cache.certificate.points import Point
from trust_cache.certificate.tables import all_tables, name_of
from trust_cache.report.embedding import (
    TEMPLATES,
    chart_bundle,
    content_policy,
    download,
    embedded_json,
    embedded_script,
    with_code,
)
from trust_cache.report.evidence import Evidence
from trust_cache.report.explorer import explorer_document
from trust_cache.report.figure import Figure, dressed
from trust_cache.report.provenance import commands, provenance
from trust_cache.report.report import Report
from trust_cache.report.shown_tables import reasons_of, show_table
from trust_cache.report.study import Study
from trust_cache.studies.charts import render_spec

SIMULATED = "simulated"  # the encoder of invented cohorts, as their fingerprint names it
RANDOM = "random"  # begins the identity of weights from a seed
_KINDS = {
    "external": "scores of a model that never saw them",
    "out-of-fold": "out-of-fold scores",
    "unknown": "",
}
_HEADINGS = {"external": "External evaluation"}


def render_page(report: Report) -> str:
    """Return the page as HTML."""
    charts: dict[str, Any] = {}
    style = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    anchors = ("run", *(f"run-{number}" for number in range(2, len(report.evidences) + 1)))
    shown, *further = (
        _evidence(evidence, anchor, figures, charts)
        for evidence, anchor, figures in zip(report.evidences, anchors, report.figures, strict=True)
    )
    studies = [_study(study, charts) for study in report.studies]
    sections = [*further, *studies]
    context = {
        "policy": content_policy([chart_bundle(), script], [style]),
        "version": version("trust-cache"),
        "style": embedded_script(style),
        "script": embedded_script(script),
        "bundle": embedded_script(chart_bundle()),
        "contents": [
            ("result", "Result"), ("explorer", "Explorer"), ("figures", "Figures"), ("tables", "Tables"),
            *((section["anchor"], section["heading"]) for section in sections),
            ("provenance", "Provenance"),
        ],
        "notices": [text for evidence in report.evidences for text in _notices(evidence)],
        "main": shown,
        "others": further,
        "studies": studies,
        "provenance": provenance(report.evidences),
        "commands": "\n".join(commands(report.evidences, report.words)),
        "explorer": embedded_json([
            explorer_document(evidence) | {"leading": evidence.leading} for evidence in report.evidences
        ]),
        "charts": embedded_json(charts),
    }  # fmt: skip
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page.html.j2").render(context) + "\n"


def table_keys(certification: Certification) -> list[str]:
    """Name a certification's tables in their order, for anchors and files."""
    further = {
        "prevalence": certification.settings.prevalence is not None,
        "subgroups": bool(certification.subgroups),
        "resplits": bool(certification.spreads),
    }
    return ["paper", "details", *(key for key, there in further.items() if there)]


def _evidence(
    evidence: Evidence, anchor: str, figures: Sequence[Figure], charts: dict[str, Any]
) -> dict[str, Any]:
    certification = evidence.certification
    reasons = reasons_of(certification.points)
    tables = all_tables(certification)
    prefix = "" if anchor == "run" else f"{anchor}-"
    return {
        "name": evidence.name,
        "anchor": anchor,
        "heading": f"{_HEADINGS.get(evidence.kind, 'Another run')}: {evidence.name}",
        "summary": _summary(evidence),
        "leading": evidence.configurations[evidence.leading],
        "led_by": evidence.led_by,
        "sentences": [_sentence(point) for point in evidence.points_of(evidence.leading)],
        "targets": [whole_percent(target) for target in certification.settings.targets],
        "verdicts": _verdicts(evidence),
        "warnings": [with_code(text) for text in certification.warnings],
        "limits": [with_code(text) for text in certification.limits],
        "exactness": with_code(certification.limits[1]),
        "subgroups": bool(certification.subgroups),
        "figures": [_figure(figure, prefix, charts) for figure in figures],
        "tables": [
            show_table(table, f"{prefix}table-{key}", reasons)
            for key, table in zip(table_keys(certification), tables, strict=True)
        ],
    }


def _notices(evidence: Evidence) -> list[str]:
    """Say it where the features cannot mean anything clinically, by the fingerprint of what made them."""
    fingerprint = evidence.record.document.get("fingerprint")
    made = fingerprint if isinstance(fingerprint, dict) else {}
    if made.get("encoder") == SIMULATED:
        return [f"{evidence.name}: the features are invented. These figures mean nothing clinically."]
    if str(made.get("weights_sha256", "")).startswith(f"{RANDOM}:"):
        return [f"{evidence.name}: the encoder's weights are random. These figures mean nothing clinically."]
    return []


def _study(study: Study, charts: dict[str, Any]) -> dict[str, Any]:
    return {
        "anchor": study.key,
        "heading": study.heading,
        "sentences": study.sentences,
        "notes": [with_code(text) for text in study.notes],
        "figures": [_figure(figure, "", charts) for figure in study.figures],
        "tables": [
            show_table(table, f"{study.key}-{number}", study.reasons)
            for number, table in enumerate(study.tables, start=1)
        ],
    }


def _summary(evidence: Evidence) -> str:
    first, cohort = evidence.certification.points[0], evidence.cohort
    count = len(evidence.configurations)
    parts = (
        f"{cohort.cases:,} cases, {cohort.positives:,} with cancer",
        f"thresholds sought on {first.search_cases:,} ({first.search_positives:,} with cancer), judged on"
        f" {first.cases:,} ({first.positives:,})",
        f"{count} configuration{'s' if count > 1 else ''}",
        _KINDS[evidence.kind],
    )
    return " · ".join(part for part in parts if part)


def _sentence(point: Point) -> dict[str, Any]:
    return {
        "met": bool(point.met),
        "target": whole_percent(point.target),
        "dismissal": percent(point.dismissal),
        "bound": percent(point.bound),
        "confidence": confidence(point.delta),
        "missed": f"{point.positives_dismissed:,}",
        "positives": f"{point.positives:,}",
        "prevalence": percent(point.prevalence),
        "tau": "" if point.tau is None else f"{point.tau:.6g}",
        "reason": "" if point.reason is None else point.reason[:1].upper() + point.reason[1:],
    }


def _verdicts(evidence: Evidence) -> list[dict[str, Any]]:
    stems = file_stems(evidence.configurations)
    return [
        {
            "name": name,
            "points": [
                {
                    "met": bool(point.met),
                    "text": (
                        f"{percent(point.dismissal)} dismissed, at most {percent(point.bound)} with cancer"
                        if point.met
                        else point.reason
                    ),
                    "link": download(
                        f"{stems[name]}@{point.target!r}.json",
                        evidence.certificates[point.configuration, point.target],
                        "certificate",
                    ),
                }
                for point in evidence.points_of(index)
            ],
        }
        for index, name in enumerate(map(name_of, evidence.cohort.configurations))
    ]


def _figure(figure: Figure, prefix: str, charts: dict[str, Any]) -> dict[str, Any]:
    """Draw a figure's panels and keep their specifications for the page's script."""
    panels = []
    for number, panel in enumerate(figure.panels):
        name = f"{prefix}{figure.key}/{number}"
        charts[name] = dressed(panel.chart)
        svg = render_spec(charts[name], ".svg").decode()
        panels.append({"title": panel.title, "chart": name, "svg": Markup(svg)})  # noqa: S704
    anchor = f"{prefix}{figure.key}"
    return {
        "anchor": anchor,
        "square": figure.key == "roc",
        "title": figure.title,
        "reading": figure.reading,
        "alternative": figure.alternative,
        "legend": figure.legend,
        "panels": panels,
        "link": download(f"{anchor}.csv", figure.data.write_csv().encode(), "Data as CSV"),
    }
