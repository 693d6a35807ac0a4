"""Gather one set of scores with its certification, certificates and training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.documents import json_bytes
from trust_cache.base.errors import InputError
from trust_cache.certificate.attempts import record_attempt
from trust_cache.certificate.certification import Certification
from trust_cache.certificate.certified_folder import (
    POINTS,
    CertifiedFolder,
    as_certificate,
    read_certified,
)
from trust_cache.certificate.certify import certify
from trust_cache.certificate.point_tables import name_of
from trust_cache.certificate.points import Point, Terms
from trust_cache.certificate.recertify import recertify
from trust_cache.certificate.score_table import Cohort, Scores, read_scores
from trust_cache.heads.run_folder import RECORD, THRESHOLDS, RunFolder, RunRecord
from trust_cache.manifest.cases import PATIENT
from trust_cache.manifest.protocol import Protocol

INSIDE = "certified"  # the folder that `external` writes into its run
OURS = "closed-loop"  # the method of the paper: it leads if it is among the configurations


@dataclass(frozen=True)
class Options:
    """How to certify runs that have no certified folder; None is the default of `certify`."""

    targets: tuple[float, ...] | None = None
    delta: float | None = None
    seed: int | None = None
    split: Path | None = None
    by: str | None = None
    prevalence: float | None = None
    limit: float | None = None
    protocol: Protocol | str | None = None
    patient: str | None = None
    configuration: str | None = None  # to lead with

    def given(self) -> dict[str, Any]:
        """Return the options that are set, by the names of `certify`'s arguments."""
        values = vars(self).items()
        own = ("configuration", "patient")  # of the page, and of reading the scores
        return {name: value for name, value in values if value is not None and name not in own}


@dataclass(frozen=True)
class Evidence:
    """A certified run, or certified scores from a CSV file."""

    name: str
    path: Path
    certification: Certification
    cohort: Cohort
    certificates: Mapping[tuple[str | None, float], bytes]
    record: RunRecord | None  # None: scores without a run
    thresholds: pl.DataFrame | None  # of training; None where no configuration has a tau
    leading: int  # the position of the configuration that the page leads with
    led_by: str  # the reason for that choice
    certified: Path | None = None

    @property
    def kind(self) -> str:
        """How the scores were made: external, out-of-fold or unknown."""
        return self.certification.scores.kind()

    @property
    def terms(self) -> Terms:
        """The settings that the bounds depend on."""
        settings = self.certification.settings
        compared = self.certification.points[0].compared
        return Terms(settings.rule, settings.delta, compared, settings.prevalence, settings.limit)

    @property
    def configurations(self) -> list[str]:
        """The names of the configurations for readers."""
        return [name_of(name) for name in self.cohort.configurations]

    def evaluated(self, index: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the scores and labels of a configuration's complete evaluation cases."""
        members = self.certification.split.evaluation & self.cohort.complete(index)
        return self.cohort.scores[index][members], self.cohort.labels[members]

    def points_of(self, index: int) -> list[Point]:
        """Return the points of one configuration, one per target."""
        name = self.cohort.configurations[index]
        return [point for point in self.certification.points if point.configuration == name]


def gather(
    paths: Sequence[Path], options: Options, certified_folders: Sequence[Path] = ()
) -> tuple[Evidence, ...]:
    """Read and certify the runs, each by its certified folder where there is one.

    The first run is the subject; further runs share its targets and confidence, but not its split.
    """
    scores = [read_scores(path, options.patient or PATIENT) for path in paths]
    certified = _match(certified_folders, paths, scores)
    if paths[0] in certified and options.given():
        raise InputError(
            f"{certified[paths[0]].path}: holds its own settings and split; leave out the folder, or"
            f" {', '.join('--' + name.removesuffix('s') for name in options.given())}"
        )
    for path, table in zip(paths, scores, strict=True):
        # An external run has a certified folder inside. A named folder and options come first.
        if path not in certified and (path / INSIDE / POINTS).is_file() and not options.given():
            certified |= _match([path / INSIDE], [path], [table])
    main = _evidence(paths[0], scores[0], certified.get(paths[0]), options)
    settings = main.certification.settings
    names = ("targets", "delta", "by", "prevalence", "limit", "protocol")
    same = {name: getattr(settings, name) for name in names}
    shared = replace(options, split=None, configuration=None, **same)
    others = (
        _evidence(path, table, certified.get(path), _without_missing_column(table, shared))
        for path, table in zip(paths[1:], scores[1:], strict=True)
    )
    return (main, *others)


def _evidence(path: Path, scores: Scores, certified: CertifiedFolder | None, options: Options) -> Evidence:
    certification = (
        record_attempt(certify(scores, **options.given()), path)
        if certified is None
        else recertify(certified, scores)
    )
    _require_positives(path, certification)
    certificates = (
        {
            (p.configuration, p.target): json_bytes(as_certificate(p, certification))
            for p in certification.points
        }
        if certified is None
        else certified.certificates
    )
    cohort = certification.cohort
    run = RunFolder(path)
    thresholds = run.thresholds() if run.has(THRESHOLDS) else None
    leading, led_by = _lead(cohort, certification, options.configuration)
    return Evidence(
        name=path.resolve().stem if path.is_file() else path.resolve().name,
        path=path,
        certification=certification,
        cohort=cohort,
        certificates=certificates,
        record=run.record if run.has(RECORD) else None,
        thresholds=None if thresholds is None or thresholds.is_empty() else thresholds,
        leading=leading,
        led_by=led_by,
        certified=None if certified is None else certified.path,
    )


def evidence_of(certification: Certification) -> Evidence:
    """Return a certification alone as evidence, for its figures."""
    path = Path(certification.scores.source)
    _require_positives(path, certification)
    leading, led_by = _lead(certification.cohort, certification, None)
    return Evidence(
        name=path.stem,
        path=path,
        certification=certification,
        cohort=certification.cohort,
        certificates={},
        record=None,
        thresholds=None,
        leading=leading,
        led_by=led_by,
    )


def _require_positives(path: Path, certification: Certification) -> None:
    """Refuse scores that no curve can be drawn of."""
    cohort = certification.cohort
    for index, name in enumerate(cohort.configurations):
        members = certification.split.evaluation & cohort.complete(index)
        if not np.any(cohort.labels[members]):
            raise InputError(
                f"{path}: {name_of(name)}: expected complete positive cases for evaluation, found none:"
                " there is no curve to draw; `trust-cache certify` still gives the counts"
            )


def _match(
    folders: Sequence[Path], paths: Sequence[Path], scores: Sequence[Scores]
) -> dict[Path, CertifiedFolder]:
    """Match each certified folder with the run whose scores it certifies."""
    by_scores = {table.sha256: path for path, table in zip(paths, scores, strict=True)} if folders else {}
    matched: dict[Path, CertifiedFolder] = {}
    for folder in folders:
        certified = read_certified(folder)
        digest = certified.document.scores_sha256
        path = by_scores.get(digest)
        if path is None:
            raise InputError(
                f"{folder}: certifies other scores (sha256 {digest[:12]}) than those of"
                f" {', '.join(map(str, paths))}; certify the run again, or leave the folder out"
            )
        if path in matched:
            raise InputError(
                f"expected one certified folder for {path}, found {matched[path].path} and {folder}"
            )
        matched[path] = certified
    return matched


def _without_missing_column(scores: Scores, options: Options) -> Options:
    """Drop `by` where the scores and their manifest have no such column."""
    if options.by is None or options.by in scores.table.columns:
        return options
    header = "" if scores.manifest is None else scores.manifest.open(encoding="utf-8").readline()
    return options if options.by in header.strip().split(",") else replace(options, by=None)


def _lead(cohort: Cohort, certification: Certification, asked: str | None) -> tuple[int, str]:
    """Choose the leading configuration and say why; never by results on the evaluation subset."""
    names = [name_of(name) for name in cohort.configurations]
    if asked is not None:
        if asked not in names:
            raise InputError(f"--configuration: expected one of {', '.join(names)}, found {asked}")
        return names.index(asked), "as requested"
    if len(names) == 1:
        return 0, "the only one"
    if OURS in names:
        return names.index(OURS), "the method proposed in the paper"
    search = certification.split.search
    first = certification.settings.targets[0]
    taus = [point.tau for point in certification.points if point.target == first]
    dismissed = [
        0 if tau is None else int(np.count_nonzero(scores[search] < tau))
        for tau, scores in zip(taus, cohort.scores, strict=True)
    ]
    return int(np.argmax(dismissed)), "the largest dismissal on the search subset"
