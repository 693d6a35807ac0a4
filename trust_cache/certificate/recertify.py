"""Verify a certified folder: certify its scores again and compare every point, certificate and table."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trust_cache.base.documents import json_bytes, parse_json, typed
from trust_cache.base.errors import InputError
from trust_cache.base.versions import versions_of
from trust_cache.certificate.certification import Certification
from trust_cache.certificate.certified_folder import (
    CERTIFICATES,
    POINTS,
    RESPLITS,
    SPLIT,
    Certificate,
    CertifiedFolder,
    as_certificate,
    read_certified,
    render,
)
from trust_cache.certificate.certify import certify
from trust_cache.certificate.points import POINT_KEYS, Point
from trust_cache.certificate.score_table import Scores, read_scores
from trust_cache.certificate.split import draw_split
from trust_cache.certificate.verify import agree, verify_counts
from trust_cache.heads.run_folder import RECORD, SCORES

_TABLES = frozenset({"table.md", "table.tex", "band.csv"})  # that another version may write differently


@dataclass(frozen=True)
class FolderVerification:
    """What was verified in a certified folder, and the first thing that does not agree."""

    folder: Path
    certificates: int
    scores: Path | None  # None: no scores were found, and only the counts were recomputed
    problem: str | None


def verify_certified(
    folder: Path, scores: Path | None = None, *, columns: Mapping[str, str] | None = None
) -> FolderVerification:
    """Verify a certified folder by its scores; without them, each certificate by its own counts.

    The default scores are those in the folder (`certify --model`) or of the run that it is in (`external`).
    """
    certified = read_certified(folder)
    source = scores if scores is not None else _find_scores(folder)
    try:
        if source is None:
            _require_counts(certified)
            certified.require_unchanged()
        else:
            recertify(
                certified, read_scores(source, replace(certified.document.settings.columns, **columns or {}))
            )
        problem = None
    except InputError as error:
        problem = str(error)
    return FolderVerification(folder, len(certified.certificates), source, problem)


def recertify(folder: CertifiedFolder, scores: Scores) -> Certification:
    """Certify the scores with a folder's settings and split; return the folder's numbers if they agree."""
    document = folder.document
    settings = document.settings
    scores = scores.aggregated_as(folder.aggregations)
    again = certify(scores, split=folder.path / SPLIT, **vars(settings) | {"resplits": 0})
    given = document.split != f"seed {settings.seed}"
    if not given and draw_split(again.cohort, settings.seed).sha256 != again.split.sha256:
        raise InputError(f"{folder.path}: split.csv is not drawn from {document.split}; certify again")
    again = replace(
        again,
        split=replace(again.split, origin=document.split, given=given),
        attempts=document.attempts,
    )
    _require_same(folder, again)
    stated = replace(
        again,
        settings=settings,
        points=document.points,
        subgroups=document.subgroup_points,
        spreads=document.resplits,
        warnings=document.warnings,
        versions=document.versions,
    )
    _require_files(folder, stated)
    folder.require_unchanged()
    return stated


def _find_scores(folder: Path) -> Path | None:
    if (folder / SCORES).is_file():
        return folder / SCORES
    run = folder.resolve().parent
    return run if (run / RECORD).is_file() and (run / SCORES).is_file() else None


def _require_counts(folder: CertifiedFolder) -> None:
    """Refuse a certificate that does not follow from its own counts, or that points.json contradicts."""
    document = folder.document
    for point in document.points:
        place = f"{folder.path}: the certificate of {point.configuration} at {point.target}"
        stated = parse_json(folder.certificates[point.configuration, point.target])
        certificate = typed(stated, Certificate, where=folder.path, what="a certificate")
        for problem in verify_counts(certificate):
            raise InputError(f"{place}: {problem}; certify again")
        for key in (*POINT_KEYS, "composition", "attempts", "scores_sha256", "split_sha256"):
            expected = getattr(point if key in POINT_KEYS else document, key)
            if getattr(certificate, key) != expected:
                raise InputError(
                    f"{place}: {key} is {getattr(certificate, key)!r}, {POINTS} says {expected!r};"
                    " certify again"
                )


def _require_same(folder: CertifiedFolder, again: Certification) -> None:
    document = folder.document
    for name, found in (("split_sha256", again.split.sha256), ("scores_sha256", again.scores.sha256)):
        if getattr(document, name) != found:
            what = "split.csv is not the split" if name == "split_sha256" else "these are not the scores"
            raise InputError(f"{folder.path}: {what} of {POINTS}; certify again")
    if document.composition != again.composition:
        raise InputError(
            f"{folder.path}: {POINTS}: composition is {document.composition.as_document()}, the scores give"
            f" {again.composition.as_document()}; certify again"
        )
    _require_same_points(folder, "points", document.points, again.points)
    of_groups = tuple(item.point for item in document.subgroup_points)
    _require_same_points(folder, "subgroups", of_groups, tuple(item.point for item in again.subgroups))
    if [(item.column, item.group) for item in document.subgroups] != [
        (item.column, item.group) for item in again.subgroups
    ]:
        raise InputError(f"{folder.path}: {POINTS}: the subgroups are not those of the scores; certify again")
    for point in again.points:
        _require_same_certificate(folder, parse_json(json_bytes(as_certificate(point, again))))


def _require_same_points(
    folder: CertifiedFolder, what: str, stated: tuple[Point, ...], found: tuple[Point, ...]
) -> None:
    if len(stated) != len(found):
        raise InputError(
            f"{folder.path}: {POINTS}: expected {len(found)} {what}, found {len(stated)}; certify again"
        )
    for one, other in zip(stated, found, strict=True):
        for key in POINT_KEYS:
            value, recomputed = getattr(one, key), getattr(other, key)
            if not agree(value, recomputed):
                raise InputError(
                    f"{folder.path}: {POINTS}: {what}: {one.configuration} at {one.target}: {key} is"
                    f" {value!r}, the scores and the split give {recomputed!r}; certify again"
                )


def _require_same_certificate(folder: CertifiedFolder, recomputed: dict[str, Any]) -> None:
    """Refuse a certificate that says anything else than its scores and split."""
    name, target = recomputed["configuration"], recomputed["target"]
    stated = parse_json(folder.certificates[name, target])
    for key in sorted({*stated, *recomputed} - {"versions"}):
        value, expected = stated.get(key, "nothing"), recomputed.get(key, "nothing")
        if not agree(value, expected):
            raise InputError(
                f"{folder.path}: the certificate of {name} at {target}: {key} is {value!r}, the scores and"
                f" the split give {expected!r}; certify again"
            )


def _require_files(folder: CertifiedFolder, stated: Certification) -> None:
    """Refuse tables that are not those of the points; a table for readers only if this version wrote it."""
    skipped = {POINTS, SPLIT, RESPLITS}  # compared by content; resplits are not repeated here
    if stated.versions != versions_of("numpy", "scipy", "polars"):
        skipped |= _TABLES
    for name, content in render(stated).items():
        if name in skipped or name.startswith(f"{CERTIFICATES}/"):
            continue
        file = folder.path / name
        if not file.is_file() or file.read_bytes() != content:
            raise InputError(f"{file}: is not what {POINTS} and the scores give; certify again")
