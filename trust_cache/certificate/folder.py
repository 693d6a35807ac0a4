"""The certified/ folder: every file of a certification, rendered first and then written as a whole."""

import io
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from trust_cache.base.documents import json_bytes
from trust_cache.base.files import write_folder
from trust_cache.base.names import file_stems
from trust_cache.base.tables import write_rows
from trust_cache.certificate.certify import Certification
from trust_cache.certificate.markup import to_latex, to_markdown
from trust_cache.certificate.points import POINT_KEYS, Point
from trust_cache.certificate.scores import Scores
from trust_cache.certificate.split import Split
from trust_cache.certificate.tables import all_tables, name_of, paper_table, reasons

SCHEMA = 1
OWN = frozenset(
    {"split.csv", "points.csv", "points.json", "table.md", "table.tex", "certificates"}
    | {"subgroups.csv", "resplits.csv"}
)
_RESPLIT_KEYS = (
    "configuration", "target", "tau", "cases", "positives", "dismissed", "positives_dismissed",
    "dismissal", "recall", "bound", "met",
)  # fmt: skip


def write_certification(certification: Certification, out: Path) -> Path | None:
    """Write the folder; return where an earlier one with other results was kept, if there was one."""
    return write_folder(out, render(certification), own=OWN)


def render(certification: Certification) -> dict[str, bytes]:
    """Return the files of the folder by relative name."""
    tables = all_tables(certification)
    remarks = (*reasons(certification), *certification.warnings)
    files = {
        "split.csv": _csv_of_split(certification),
        "points.csv": write_rows(POINT_KEYS, (asdict(point) for point in certification.points)),
        "points.json": json_bytes(as_document(certification)),
        "table.md": to_markdown(tables, remarks, certification.limits).encode(),
        "table.tex": to_latex(paper_table(certification)).encode(),
    }
    if certification.subgroups:
        files["subgroups.csv"] = write_rows(("column", "group", *POINT_KEYS), _subgroup_rows(certification))
    if certification.resplits:
        files["resplits.csv"] = write_rows(
            ("resplit", *_RESPLIT_KEYS),
            ({"resplit": item.resplit, **_plain(item.point)} for item in certification.resplits),
        )
    stems = file_stems(name_of(point.configuration) for point in certification.points)
    for point in certification.points:
        stem = stems[name_of(point.configuration)]
        certificate = json_bytes(as_certificate(point, certification))
        files[f"certificates/{stem}@{point.target!r}.json"] = certificate
    return files


def as_certificate(point: Point, certification: Certification) -> dict[str, Any]:
    """Return the certificate of one of a certification's points."""
    rule, versions = certification.settings.rule, certification.versions
    return bind_point(point, rule, certification.scores, certification.split, versions)


def bind_point(
    point: Point, rule: str, scores: Scores, split: Split, versions: Mapping[str, str]
) -> dict[str, Any]:
    """Return a certificate: the point and what binds it to these scores and this split."""
    return {
        "schema": SCHEMA,
        **asdict(point),
        "chosen_by": rule,
        "scores_sha256": scores.sha256,
        "split_sha256": split.sha256,
        "versions": versions,
    }


def as_document(certification: Certification) -> dict[str, Any]:
    """Return everything as one JSON document (points.json, `certify --json`)."""
    return {
        "schema": SCHEMA,
        "points": [asdict(point) for point in certification.points],
        "subgroups": _subgroup_rows(certification),
        "resplits": [asdict(spread) for spread in certification.spreads],
        "settings": asdict(certification.settings),
        "split": certification.split.chosen_by,
        "scores_sha256": certification.scores.sha256,
        "split_sha256": certification.split.sha256,
        "warnings": list(certification.warnings),
        "limits": list(certification.limits),
        "versions": certification.versions,
    }


def _subgroup_rows(certification: Certification) -> list[dict[str, Any]]:
    return [
        {"column": item.column, "group": item.group, **asdict(item.point)} for item in certification.subgroups
    ]


def _plain(point: Point) -> Mapping[str, Any]:
    """A shallow `asdict`: thousands of resplit rows need no deep copies."""
    return {item.name: getattr(point, item.name) for item in fields(point)}


def _csv_of_split(certification: Certification) -> bytes:
    text = io.BytesIO()
    certification.split.table.write_csv(text)
    return text.getvalue()
