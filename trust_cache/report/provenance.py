"""Provenance of the page: digests, seeds, versions, and the commands that reproduce it."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trust_cache.base.places import redacted_urls
from trust_cache.base.versions import versions_of
from trust_cache.certificate.attempts import describe_attempts
from trust_cache.certificate.certification import Certification, Composition
from trust_cache.certificate.evidence import Evidence
from trust_cache.certificate.point_tables import name_of
from trust_cache.certificate.score_table import COLUMNS
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings, presets
from trust_cache.heads.run_folder import RunFolder, RunRecord
from trust_cache.manifest.data_terms import describe_terms
from trust_cache.manifest.protocol import PAPER

_SHOWN = (
    "seed", "repeats", "views", "images", "dim", "manifest_sha256", "folds_sha256", "cache", "test_cache",
)  # fmt: skip


@dataclass(frozen=True)
class Provenance:
    """A titled list of facts, with the record that they come from."""

    title: str
    facts: tuple[tuple[str, str], ...]
    record: str = ""


def provenance(evidences: Sequence[Evidence]) -> list[Provenance]:
    """Return the facts that identify the page's input."""
    parts = []
    for evidence in evidences:
        parts.append(_of_certification(evidence))
        if evidence.record is not None:
            parts.append(_of_run(evidence, evidence.record))
    versions = versions_of("altair", "numpy", "polars", "scipy", "vl-convert-python")
    return [*parts, Provenance("This page", (("versions", _listed(versions)),))]


def commands(evidences: Sequence[Evidence], words: Sequence[str]) -> list[str]:
    """Return the commands that reproduce the page, starting from the cache if it is known."""
    lines = []
    for evidence in evidences:
        lines += _training(evidence)
        if evidence.certified is not None:
            lines.append(_certifying(evidence, evidence.certified))
    return [*map(redacted_urls, lines), shlex.join(["trust-cache", "report", *words])]


def _of_certification(evidence: Evidence) -> Provenance:
    certification = evidence.certification
    settings = certification.settings
    return Provenance(
        f"Certification of {evidence.name}",
        (
            ("scores", f"{certification.scores.source} ({evidence.kind})"),
            ("scores sha256", certification.scores.sha256),
            ("split", certification.split.origin),
            ("split sha256", certification.split.sha256),
            ("threshold rule", settings.rule),
            ("targets", ", ".join(map(repr, settings.targets))),
            ("delta", repr(settings.delta)),
            ("limit", "the prevalence" if settings.limit is None else repr(settings.limit)),
            ("protocol", settings.protocol.name),
            ("points compared", _composition(certification.composition)),
            ("attempts", _attempts(certification)),
            ("versions", _listed(certification.versions)),
        ),
    )


def _composition(found: Composition) -> str:
    groups = "".join(f"; groups of {column}: {', '.join(names)}" for column, names in found.groups.items())
    names = ", ".join(map(name_of, found.configurations))
    targets = ", ".join(map(repr, found.targets))
    return f"{found.points} (configurations: {names}; targets: {targets}{groups})"


def _attempts(certification: Certification) -> str:
    if not certification.attempts:
        return "not recorded"
    told = describe_attempts(certification.attempts, certification.scores.sha256)
    return " | ".join(f"{number}. {text}" for number, text in enumerate(told, start=1))


def _of_run(evidence: Evidence, run: RunRecord) -> Provenance:
    record = run.as_document()
    facts: list[tuple[str, str]] = [("folder", str(evidence.path))]
    facts += [(name.replace("_", " "), _text(record[name])) for name in _SHOWN if name in record]
    facts += [(name, _listed(record[name])) for name in ("fingerprint", "versions")]
    facts += [("data and their terms", describe_terms(RunFolder(evidence.path).terms))]
    # A run by other hands may name its cache by a URL with a password.
    shown = tuple((name, redacted_urls(value)) for name, value in facts)
    text = redacted_urls(json.dumps(record, indent=2, ensure_ascii=False))
    return Provenance(f"Run {evidence.name}", shown, text)


def _training(evidence: Evidence) -> list[str]:
    """Return the command of fit-heads, for runs with a record."""
    record = evidence.record
    if evidence.kind == "external" or record is None:
        return []
    words = ["trust-cache", "fit-heads", record.cache, "--out", str(evidence.path)]
    options = {
        "--configurations": ",".join(record.configurations),
        "--epochs": record.training.epochs,
        **_training_options(record),
        "--seed": record.seed,
        "--views": record.views,
        "--repeats": record.repeats,
    }
    for name, value in options.items():
        words += [name, str(value)] if value or name == "--seed" else []
    return [shlex.join(words)]


def _training_options(record: RunRecord) -> dict[str, object]:
    """Return the settings that differ from the defaults of fit-heads and are the same in all heads."""
    standard = TrainingSettings()
    options: dict[str, object] = {
        f"--{name.replace('_', '-')}": getattr(record.training, name)
        for name in ("batch_positives", "batch_negatives")
        if getattr(record.training, name) != getattr(standard, name)
    }
    if record.training.dropped_of_256 != standard.dropped_of_256:
        options["--dropout"] = record.training.dropout
    for name in ("lr", "weight_decay", "clip"):
        heads = {key: head for key, head in record.configurations.items() if not head.tuned}  # it has none
        found = {getattr(head, name) for head in heads.values()}
        usual = {getattr(presets().get(key, HeadSettings()), name) for key in heads}
        if found != usual and len(found) == 1:
            options[f"--{name.replace('_', '-')}"] = repr(*found)
    return options


def _certifying(evidence: Evidence, out: Path) -> str:
    settings, split = evidence.certification.settings, evidence.certification.split
    words = ["trust-cache", "certify", str(evidence.path), "--out", str(out)]
    for target in settings.targets:
        words += ["--target", repr(target)]
    words += ["--delta", repr(settings.delta), "--rule", settings.rule, "--seed", str(settings.seed)]
    if not split.origin.startswith("seed "):
        words += ["--split", split.origin]
    for column in settings.by:
        words += ["--by", column]
    named = settings.columns
    options = {
        **{f"--{name}": value for name, value in vars(named).items() if value != getattr(COLUMNS, name)},
        "--prevalence": settings.prevalence,
        "--limit": settings.limit,
        "--protocol": None if settings.protocol == PAPER else settings.protocol.name,
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
