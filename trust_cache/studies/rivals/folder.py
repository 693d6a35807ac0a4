"""The rivals/ folder: results, table, splits and scores of a study, written as a whole."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from trust_cache.base.documents import json_bytes
from trust_cache.base.files import write_folder
from trust_cache.base.tables import write_rows
from trust_cache.certificate.markup import to_markdown
from trust_cache.studies.rivals.outcomes import RESULT_KEYS, rows_of
from trust_cache.studies.rivals.rules import RULES
from trust_cache.studies.rivals.study import Study
from trust_cache.studies.rivals.tables import promises, rivals_table

SCHEMA = 1
OWN = frozenset({"results.csv", "rivals.json", "table.md", "split.csv", "splits.csv", "scores.csv"})


def write_study(study: Study, out: Path) -> Path | None:
    """Write the folder; return where an earlier one with other results was kept, if there was one."""
    return write_folder(out, render(study), own=OWN)


def render(study: Study) -> dict[str, bytes]:
    """Return the files of the folder by name; folds and scores only where they were made here."""
    reasons = (
        f"{item.score_model}, {item.rule}: {item.reason}"
        for item in study.outcomes
        if item.reason is not None
    )
    remarks = (*dict.fromkeys(reasons), *study.warnings)
    files = {
        "results.csv": write_rows(RESULT_KEYS, rows_of(study.outcomes)),
        "rivals.json": json_bytes(as_document(study)),
        "table.md": to_markdown([rivals_table(study)], remarks, (*promises(study), *study.limits)).encode(),
        "split.csv": study.split.table.write_csv().encode(),
    }
    if study.folds is not None:
        files["splits.csv"] = study.folds.write_csv().encode()
        columns = ("configuration", "fold", "case_id", "image_id", "label", "score")
        rows = study.scores.table.select(columns).iter_rows(named=True)
        files["scores.csv"] = write_rows(columns, rows)
    return files


def as_document(study: Study) -> dict[str, Any]:
    """Return everything as one JSON document (rivals.json, `rivals --json`)."""
    return {
        "schema": SCHEMA,
        "results": rows_of(study.outcomes),
        "promises": {name: RULES[name].promise for name in study.settings.rules},
        "settings": asdict(study.settings),
        "training": study.training,
        "scores": study.scores.source,
        "scores_sha256": study.scores.sha256,
        "split": study.split.chosen_by,
        "split_sha256": study.split.sha256,
        "warnings": list(study.warnings),
        "limits": list(study.limits),
        "versions": study.versions,
    }
