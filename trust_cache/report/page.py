"""Render a report as one HTML page that works offline."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from trust_cache.base.digests import file_stems
from trust_cache.base.files import write_file
from trust_cache.base.text_tables import confidence, percent, whole_percent
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.certificate.cautions import exactness
from trust_cache.certificate.evidence import Evidence
from trust_cache.certificate.point_tables import all_tables, name_of, next_steps
from trust_cache.certificate.points import Point
from trust_cache.figures.chart_style import render_spec
from trust_cache.figures.figure import Figure, styled_spec
from trust_cache.heads.run_folder import RunFolder
from trust_cache.manifest.data_terms import label_warnings
from trust_cache.report.embedding import (
    TEMPLATES,
    chart_bundle,
    content_policy,
    download,
    embedded_json,
    embedded_script,
    with_code,
)
from trust_cache.report.explorer import explorer_document
from trust_cache.report.page_studies import PageStudy
from trust_cache.report.page_tables import choice_tables, reasons_of, show_table
from trust_cache.report.provenance import commands, provenance
from trust_cache.report.report import Report
from trust_cache.statistics.rules import RULES

SIMULATED = "simulated"  # the encoder in the fingerprint of synthetic cohorts
RANDOM = "random"  # starts the identity of random weights
_KINDS = {
    "external": "scores of a model that was not trained on them",
    "out-of-fold": "out-of-fold scores",
    "unknown": "",
}


def write_page(report: Report, out: Path) -> int:
    """Write the page atomically; return its size in bytes."""
    page = render_page(report).encode()
    write_file(out, page)
    return len(page)


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
    overviews = [show_study(study, charts) for study in report.overviews]
    studies = [show_study(study, charts) for study in report.studies]
    sections = [*further, *studies]
    context = {
        "policy": content_policy([chart_bundle(), script], [style]),
        "version": version("trust-cache"),
        "style": embedded_script(style),
        "script": embedded_script(script),
        "bundle": embedded_script(chart_bundle()),
        "contents": [
            ("result", "Result"), *((section["anchor"], section["heading"]) for section in overviews),
            ("explorer", "Explorer"), ("figures", "Figures"), ("tables", "Tables"),
            *((section["anchor"], section["heading"]) for section in sections),
            ("provenance", "Provenance"),
        ],
        "notices": [text for evidence in report.evidences for text in _notices(evidence)],
        "title": report.title or shown["name"],
        "main": shown,
        "others": further,
        "overviews": overviews,
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


def _evidence(
    evidence: Evidence, anchor: str, figures: Sequence[Figure], charts: dict[str, Any]
) -> dict[str, Any]:
    certification = evidence.certification
    noticed = _about_labels(evidence)
    reasons = reasons_of(certification.points)
    kind = "External evaluation" if evidence.kind == "external" else "Another run"
    prefix = "" if anchor == "run" else f"{anchor}-"
    return {
        "name": evidence.name,
        "anchor": anchor,
        "heading": f"{kind}: {evidence.name}",
        "summary": _summary(evidence),
        "leading": evidence.configurations[evidence.leading],
        "led_by": evidence.led_by,
        "sentences": [_sentence(point) for point in evidence.points_of(evidence.leading)],
        "targets": [whole_percent(target) for target in certification.settings.targets],
        "verdicts": _verdicts(evidence),
        "advice": [with_code(text) for text in next_steps(certification)],
        "rule": with_code(_rule_words(certification.settings.rule)),
        "warnings": [with_code(text) for text in certification.warnings if text not in noticed],
        "limits": [with_code(text) for text in certification.limits],
        "exactness": with_code(exactness(evidence.kind)),
        "subgroups": bool(certification.subgroups),
        "figures": [show_figure(figure, prefix, charts) for figure in figures],
        "tables": [
            show_table(table, f"{prefix}table-{key}", reasons)
            for key, table in (
                *all_tables(certification).items(),
                *(
                    (f"choices-{number}", table)
                    for number, table in enumerate(choice_tables(evidence.record))
                ),
            )
        ],
    }


def _rule_words(rule: str) -> str:
    """Say how the thresholds were chosen."""
    return f"Thresholds were chosen on the search subset by the rule `{rule}`: {RULES[rule].promise}."


def _notices(evidence: Evidence) -> list[str]:
    """Warn where features have no clinical meaning, by their encoder, or labels another one than cancer."""
    if evidence.record is None:
        return []
    about_data = [f"{evidence.name}: {text}." for text in _about_labels(evidence)]
    about_features = features_notice(evidence.name, evidence.record.fingerprint)
    return about_data if about_features is None else [about_features, *about_data]


def _about_labels(evidence: Evidence) -> tuple[str, ...]:
    return () if evidence.record is None else label_warnings(RunFolder(evidence.path).terms)


def features_notice(name: str, made: Fingerprint) -> str | None:
    """Warn where features have no clinical meaning; None where they may have one."""
    nothing = "These figures mean nothing clinically."
    if made.encoder == SIMULATED:
        return f"{name}: the features are synthetic. {nothing}"
    if made.weights_sha256.startswith(f"{RANDOM}:"):
        return f"{name}: the encoder's weights are random. {nothing}"
    return None


def show_study(study: PageStudy, charts: dict[str, Any]) -> dict[str, Any]:
    """Prepare a study for the page; add the specifications of its figures to `charts`."""
    return {
        "anchor": study.key,
        "heading": study.heading,
        "sentences": study.sentences,
        "notes": [with_code(text) for text in study.notes],
        "figures": [show_figure(figure, "", charts) for figure in study.figures],
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
        f"thresholds chosen on {first.search_cases:,} ({first.search_positives:,} with cancer), evaluated on"
        f" {first.cases:,} ({first.positives:,})",
        f"{first.incomplete:,} of these incomplete and reviewed ({first.incomplete_positives:,} with cancer)"
        if first.incomplete
        else "",
        f"bounds from one case of each of {first.patients:,} patients" if first.set_aside else "",
        f"{count} configuration{'s' if count > 1 else ''}",
        "" if evidence.encoder is None else f"encoder {evidence.encoder}",
        _KINDS[evidence.kind],
    )
    return " · ".join(part for part in parts if part)


def _sentence(point: Point) -> dict[str, Any]:
    return {
        "certified": point.certified,
        "status": point.status,
        "several": bool(point.set_aside),
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
                    "certified": point.certified,
                    "status": point.status,
                    "text": (
                        f"{percent(point.dismissal)} dismissed, at most {percent(point.bound)} with cancer"
                        if point.certified
                        else point.reason
                    ),
                    "link": download(
                        f"{stems[name]}@{point.target!r}.json",
                        evidence.certificates[point.configuration, point.target],
                        "certificate" if point.certified else "counts",
                    ),
                }
                for point in evidence.points_of(index)
            ],
        }
        for index, name in enumerate(map(name_of, evidence.cohort.configurations))
    ]


def show_figure(figure: Figure, prefix: str, charts: dict[str, Any]) -> dict[str, Any]:
    """Draw a figure's panels; add their specifications to `charts` for the page's script."""
    panels = []
    for number, panel in enumerate(figure.panels):
        name = f"{prefix}{figure.key}/{number}"
        charts[name] = styled_spec(panel.chart)
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
