"""Where the numbers come from: digests, seeds, versions, and the commands that make the page again."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trust_cache.base.versions import versions_of
from trust_cache.report.evidence import Evidence

_SHOWN = ("seed", "repeats", "views", "images", "dim", "manifest_sha256")


@dataclass(frozen=True)
class Provenance:
    """A titled list of facts, and the record they are from."""

    title: str
    facts: tuple[tuple[str, str], ...]
    record: str = ""


def provenance(evidences: Sequence[Evidence]) -> list[Provenance]:
    """Return what binds the page to its input."""
    parts = []
    for evidence in evidences:
        parts.append(_of_certification(evidence))
        if evidence.record.document:
            parts.append(_of_run(evidence))
    versions = versions_of("altair", "numpy", "polars", "scipy", "vl-convert-python")
    return [*parts, Provenance("This page", (("versions", _listed(versions)),))]


def commands(evidences: Sequence[Evidence], words: Sequence[str]) -> list[str]:
    """Return the command lines that make the page again, from the cache on where it is known."""
    lines = []
    for evidence in evidences:
        lines += _training(evidence)
        if evidence.certified is not None:
            lines.append(_certifying(evidence, evidence.certified))
    return [*lines, shlex.join(["trust-cache", "report", *words])]


def _of_certification(evidence: Evidence) -> Provenance:
    certification = evidence.certification
    settings = certification.settings
    return Provenance(
        f"Certification of {evidence.name}",
        (
            ("scores", f"{certification.scores.source} ({evidence.kind})"),
            ("scores sha256", certification.scores.sha256),
            ("split chosen by", certification.split.chosen_by),
            ("split sha256", certification.split.sha256),
            ("threshold rule", settings.rule),
            ("targets", ", ".join(map(repr, settings.targets))),
            ("delta", repr(settings.delta)),
            ("points compared", str(evidence.terms.compared)),
            ("versions", _listed(certification.versions)),
        ),
    )


def _of_run(evidence: Evidence) -> Provenance:
    record = evidence.record.document
    facts: list[tuple[str, str]] = [("folder", str(evidence.path))]
    facts += [(name.replace("_", " "), _text(record[name])) for name in _SHOWN if name in record]
    facts += [("splits sha256", _text(record["splits_sha256"]))] if "splits_sha256" in record else []
    for name in ("cache", "source", "target"):
        if isinstance(record.get(name), str):
            facts.append((name, record[name]))
    if isinstance(record.get("fingerprint"), dict):
        facts.append(("fingerprint", _listed(record["fingerprint"])))
    if isinstance(record.get("versions"), dict):
        facts.append(("versions", _listed(record["versions"])))
    return Provenance(f"Run {evidence.name}", tuple(facts), json.dumps(record, indent=2, ensure_ascii=False))


def _training(evidence: Evidence) -> list[str]:
    """Return the command of a run of fit-heads as far as its record says it."""
    record = evidence.record.document
    training = record.get("training")
    if (
        evidence.kind == "external"
        or not isinstance(record.get("cache"), str)
        or not isinstance(training, dict)
    ):
        return []
    words = ["trust-cache", "fit-heads", record["cache"], "--out", str(evidence.path)]
    options = {
        "--configurations": ",".join(record.get("configurations", {})),
        "--epochs": training.get("epochs"),
        "--seed": record.get("seed"),
        "--views": record.get("views"),
        "--repeats": record.get("repeats"),
    }
    for name, value in options.items():
        words += [name, str(value)] if value not in (None, "", 0) or name == "--seed" else []
    return [shlex.join(words)]


def _certifying(evidence: Evidence, out: Path) -> str:
    settings, split = evidence.certification.settings, evidence.certification.split
    words = ["trust-cache", "certify", str(evidence.path), "--out", str(out)]
    for target in settings.targets:
        words += ["--target", repr(target)]
    words += ["--delta", repr(settings.delta), "--rule", settings.rule, "--seed", str(settings.seed)]
    if not split.chosen_by.startswith("seed "):
        words += ["--split", split.chosen_by]
    options = {
        "--by": settings.by,
        "--prevalence": settings.prevalence,
        "--resplits": settings.resplits or None,
    }
    for name, value in options.items():
        words += [] if value is None else [name, str(value)]
    return shlex.join(words)


def _listed(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in facts.items())


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "{" + _listed(value) + "}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
