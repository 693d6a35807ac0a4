"""The certified folder: its files, the records in them, the only writer and the only reader."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from trust_cache.base.csv_tables import read_text_table, restored, write_rows
from trust_cache.base.digests import changed_files, digests_of, file_stems
from trust_cache.base.documents import (
    Document,
    json_bytes,
    parse_json,
    read_json,
    read_sealed,
    sealed_bytes,
    typed,
)
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_results
from trust_cache.base.text_tables import to_latex, to_markdown
from trust_cache.certificate.certification import (
    Attempt,
    Certification,
    CertifySettings,
    Composition,
    SplitOrigin,
)
from trust_cache.certificate.point_tables import all_tables, name_of, paper_table, reasons
from trust_cache.certificate.points import POINT_KEYS, Point, SubgroupPoint
from trust_cache.certificate.resplits import Spread
from trust_cache.certificate.score_table import COLUMNS, Cohort, ScoreColumns, Scores
from trust_cache.certificate.split import Split, draw_split, read_split
from trust_cache.manifest.cases import Aggregation
from trust_cache.manifest.protocol import Protocol

SCHEMA = 1
POINTS, SPLIT, CERTIFICATES = "points.json", "split.csv", "certificates"
INCOMPLETE, BAND, RESPLITS = "incomplete.csv", "band.csv", "resplits.csv"
OWN = frozenset(
    {
        SPLIT, "points.csv", POINTS, "table.md", "table.tex", CERTIFICATES, "subgroups.csv", RESPLITS,
        INCOMPLETE, BAND,
    }
)  # fmt: skip
_BAND_COLUMNS = ("configuration", "threshold", "dismissed", "positives_dismissed", "bound", "share")

_RESPLIT_KEYS = (
    "configuration", "target", "tau", "cases", "positives", "dismissed", "positives_dismissed",
    "dismissal", "recall", "bound", "met",
)  # fmt: skip


class Certificate(Point, frozen=True, kw_only=True):
    """A point, and what binds it to its scores, split, rule, protocol and what it was compared with."""

    schema: int
    rule: str
    seed: int
    split_origin: SplitOrigin
    aggregation: Aggregation
    protocol: Protocol
    scores_sha256: str
    split_sha256: str
    composition: Composition  # everything that `compared` counts
    attempts: tuple[Attempt, ...]  # on these scores and others in their place; empty: no log was kept
    versions: dict[str, str]
    sweep: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET  # how the winner of a sweep was chosen


class SubgroupRow(Point, frozen=True, kw_only=True):
    """The point of one subgroup as the files have it."""

    column: str
    group: str


class PointsDocument(Document, frozen=True, kw_only=True, omit_defaults=True):
    """points.json, and what `certify --json` prints."""

    schema: int
    points: tuple[Point, ...]
    subgroups: tuple[SubgroupRow, ...]
    resplits: tuple[Spread, ...]
    settings: CertifySettings
    split: str  # its origin: "seed 0" or a file
    scores_sha256: str
    split_sha256: str
    composition: Composition
    attempts: tuple[Attempt, ...]
    warnings: tuple[str, ...]
    limits: tuple[str, ...]
    versions: dict[str, str]
    files: dict[str, str] = msgspec.field(default_factory=dict)  # sha256 of the folder's other files by name

    @property
    def subgroup_points(self) -> tuple[SubgroupPoint, ...]:
        """The points of subgroups as a certification has them."""
        return tuple(
            SubgroupPoint(row.column, row.group, Point(**{key: getattr(row, key) for key in POINT_KEYS}))
            for row in self.subgroups
        )


@dataclass(frozen=True)
class CertifiedFolder:
    """A certified folder that was read: its document, and the bytes of each certificate."""

    path: Path
    document: PointsDocument
    certificates: Mapping[tuple[str | None, float], bytes]  # by configuration and target
    sealed: bool  # whether the document fits its seal

    @property
    def aggregations(self) -> dict[str | None, Aggregation]:
        """How image scores became case scores, by configuration."""
        read = (
            typed(parse_json(content), Certificate, where=self.path, what="a certificate")
            for content in self.certificates.values()
        )
        return {certificate.configuration: certificate.aggregation for certificate in read}

    def require_unchanged(self) -> None:
        """Refuse a folder with a file that was changed since it was written; name the first."""
        for problem in changed_files(self.path, self.document.files, "certify again"):
            raise InputError(problem)
        if not self.sealed:
            raise InputError(f"{self.path / POINTS}: changed since it was written; certify again")


def read_certified(path: Path) -> CertifiedFolder:
    """Read the document of a certified folder and its certificates, one per point."""
    try:
        what = "the points of certify"
        document, unchanged = read_sealed(path / POINTS, PointsDocument, what=what, schema=SCHEMA)
        files = {file: file.read_bytes() for file in sorted((path / CERTIFICATES).glob("*.json"))}
    except OSError as error:
        raise InputError(f"{path}: not a readable folder of certify ({error}); certify again") from error
    read = [(read_certificate(file), content) for file, content in files.items()]
    certificates = {(found.configuration, found.target): content for found, content in read}
    expected = {(point.configuration, point.target) for point in document.points}
    if expected != set(certificates):
        raise InputError(
            f"{path}: expected a certificate for each of its {len(expected)} points, found"
            f" {len(certificates)}; certify again"
        )
    return CertifiedFolder(path, document, certificates, sealed=unchanged)


def read_subgroups(folder: Path, configuration: str, target: float) -> tuple[SubgroupRow, ...]:
    """Return the subgroup points of a configuration at a target; none where the folder has no points."""
    try:
        what = "the points of certify"
        document = read_json(folder / POINTS, PointsDocument, what=what, schema=SCHEMA, sealed=True)
    except FileNotFoundError:
        return ()
    wanted = (configuration, target)
    return tuple(row for row in document.subgroups if (row.configuration, row.target) == wanted)


def read_resplits(folder: CertifiedFolder) -> pl.DataFrame | None:
    """Read the points of `--resplits`; None without them."""
    if not folder.document.resplits:
        return None
    file = folder.path / RESPLITS
    types = {"resplit": pl.Int64, **dict.fromkeys(("target", "dismissal", "bound"), pl.Float64)}
    try:
        table = read_text_table(file, ("resplit", *_RESPLIT_KEYS)).with_columns(
            pl.col("configuration").pipe(restored).fill_null(name_of(None)), met=pl.col("met") == "true"
        )
        table = table.cast(types)  # type: ignore[arg-type]
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{file}: expected the points of resplits, found other cells ({error})") from error
    return table.select("configuration", "target", "resplit", "dismissal", "bound", "met")


def recorded_columns(points: Path, given: Mapping[str, str] | None = None) -> ScoreColumns:
    """Return the names of the scores' columns in points.json, where there is one; `given` come first."""
    columns = COLUMNS
    if points.is_file():
        document, _ = read_sealed(points, PointsDocument, what="the points of certify")
        columns = document.settings.columns
    return replace(columns, **given or {})


def find_certificate(folder: Path, configuration: str, target: float) -> Path:
    """Return the certificate of a configuration at a target in a certified folder."""
    paths = sorted((folder / CERTIFICATES).glob("*.json"))
    if not paths:
        raise InputError(
            f"{folder}: expected certificates there, found none; make them with"
            f" `trust-cache certify RUN --out {folder}` and name the folder with --certified"
        )
    found = []
    for path in paths:
        certificate = read_certificate(path)
        if (certificate.configuration, certificate.target) == (configuration, target):
            return path
        found.append(f"{certificate.configuration} at {certificate.target}")
    raise InputError(
        f"{folder}: expected a certificate of {configuration} at {target}, found {', '.join(found)}"
    )


def read_certificate(path: Path) -> Certificate:
    """Read a certificate file."""
    return typed(read_certificate_keys(path), Certificate, where=path, what="a certificate")


def read_certificate_keys(path: Path) -> dict[str, Any]:
    """Read a certificate file without checking its keys, for `verify`, which names every wrong one."""
    try:
        content = parse_json(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable JSON file ({error})") from error
    if not isinstance(content, dict) or "schema" not in content:
        raise InputError(f"{path}: expected a certificate with a schema, found none")
    if not {"tau", "bound", "scores_sha256"} & set(content):
        raise InputError(f"{path}: has a schema but none of the keys of a certificate")
    schema = content["schema"]
    if type(schema) is not int or schema != SCHEMA:
        raise InputError(
            f"{path}: expected certificate schema {SCHEMA}, found {schema!r};"
            " a newer one needs a newer trust-cache"
        )
    return content


def draw_or_read_split(cohort: Cohort, seed: int, path: Path | str | None) -> tuple[Split, list[str]]:
    """Draw a split from the seed, or read it from a file; also return warnings."""
    if path is None:
        return draw_split(cohort, seed), []
    split, warnings = read_split(Path(path), cohort, seed)
    return split, warnings or _labels_changed(Path(path), cohort, split)


def _labels_changed(path: Path, cohort: Cohort, split: Split) -> list[str]:
    """Warn if the points beside a split file were computed with other labels."""
    try:
        what = "the points of certify"
        document = read_json(path.with_name(POINTS), PointsDocument, what=what, sealed=True)
        recorded = [document.points[0].search_positives, document.points[0].positives]
    except (OSError, InputError, IndexError):
        return []  # a split file needs no certified folder around it
    found = [int(np.count_nonzero(cohort.labels[part])) for part in (split.search, split.evaluation)]
    if recorded == found:
        return []
    return [
        f"{path}: the labels changed since this split was made: search and evaluation had"
        f" {recorded[0]} and {recorded[1]} positives then, {found[0]} and {found[1]} now"
    ]


def write_certification(certification: Certification, out: Path, *, overwrite: bool = False) -> None:
    """Write the folder; one that exists is refused, or replaced with `overwrite`."""
    write_results(out, render(certification), own=OWN, overwrite=overwrite)


def render(certification: Certification) -> dict[str, bytes]:
    """Return the files of the folder by relative name."""
    notes = (*reasons(certification), *certification.warnings)
    document = as_document(certification)
    files = {
        SPLIT: certification.split.as_csv(),
        "points.csv": write_rows(POINT_KEYS, document["points"], neutral=True),
        "table.md": to_markdown([*all_tables(certification).values()], notes, certification.limits).encode(),
        "table.tex": to_latex(paper_table(certification)).encode(),
    }
    if (incomplete := list_incomplete(certification.cohort)) is not None:
        files[INCOMPLETE] = incomplete
    if certification.bands:
        of_bands = [
            {"configuration": name} | row
            for name, band in zip(certification.cohort.configurations, certification.bands, strict=True)
            for row in band.rows()
        ]
        files[BAND] = write_rows(_BAND_COLUMNS, of_bands, neutral=True)
    if certification.subgroups:
        of_groups = document["subgroups"]
        files["subgroups.csv"] = write_rows(("column", "group", *POINT_KEYS), of_groups, neutral=True)
    if certification.resplits:
        rows = ({"resplit": item.resplit, **item.point.as_document()} for item in certification.resplits)
        files[RESPLITS] = write_rows(("resplit", *_RESPLIT_KEYS), rows, neutral=True)
    stems = file_stems(name_of(point.configuration) for point in certification.points)
    for point in certification.points:
        name = f"{CERTIFICATES}/{stems[name_of(point.configuration)]}@{point.target!r}.json"
        files[name] = json_bytes(as_certificate(point, certification))
    return files | {POINTS: sealed_bytes(document | {"files": digests_of(files)})}


def list_incomplete(cohort: Cohort) -> bytes | None:
    """Return incomplete.csv: one row per configuration and incomplete case; None where all are complete."""
    rows = [
        {
            "configuration": name,
            "case_id": cohort.case_ids[case],
            "label": int(cohort.labels[case]),
            "reason": "; ".join(problems),
        }
        for name, of_cases in zip(cohort.configurations, cohort.problems, strict=True)
        for case, problems in sorted(of_cases.items())
    ]
    columns = ("configuration", "case_id", "label", "reason")
    return write_rows(columns, rows, neutral=True) if rows else None


def as_certificate(point: Point, certification: Certification) -> dict[str, Any]:
    """Return the certificate of one of a certification's points, ready for JSON."""
    return bind_point(
        point,
        certification.settings,
        certification.scores,
        certification.split,
        composition=certification.composition,
        attempts=certification.attempts,
        versions=certification.versions,
    )


def bind_point(
    point: Point,
    settings: CertifySettings,
    scores: Scores,
    split: Split,
    *,
    composition: Composition,
    versions: Mapping[str, str],
    attempts: tuple[Attempt, ...] = (),
    sweep: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET,
) -> dict[str, Any]:
    """Return a certificate, ready for JSON: the point and what binds it to these scores and this split."""
    certificate = Certificate(
        **point.as_document(),
        schema=SCHEMA,
        rule=settings.rule,
        seed=settings.seed,
        split_origin="given" if split.given else "drawn",
        aggregation=scores.aggregation(point.configuration),
        protocol=settings.protocol,
        scores_sha256=scores.sha256,
        split_sha256=split.sha256,
        composition=composition,
        attempts=attempts,
        versions=dict(versions),
        sweep=sweep,
    )
    return {"schema": SCHEMA} | certificate.as_document()


def subgroup_rows(certification: Certification) -> tuple[SubgroupRow, ...]:
    """Return the points of a certification's subgroups as the files have them."""
    return tuple(
        SubgroupRow(column=item.column, group=item.group, **item.point.as_document())
        for item in certification.subgroups
    )


def as_document(certification: Certification) -> dict[str, Any]:
    """Return everything as one document (points.json, `certify --json`)."""
    return PointsDocument(
        schema=SCHEMA,
        points=certification.points,
        subgroups=subgroup_rows(certification),
        resplits=certification.spreads,
        settings=certification.settings,
        split=certification.split.origin,
        scores_sha256=certification.scores.sha256,
        split_sha256=certification.split.sha256,
        composition=certification.composition,
        attempts=certification.attempts,
        warnings=certification.warnings,
        limits=certification.limits,
        versions=certification.versions,
    ).as_document()
