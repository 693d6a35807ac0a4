"""Gather one set of scores with its certification, certificates and training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    SPLIT,
    CertifiedFolder,
    as_certificate,
    read_certified,
    read_resplits,
)
from trust_cache.certificate.certify import certify
from trust_cache.certificate.point_tables import name_of
from trust_cache.certificate.points import Point, Terms
from trust_cache.certificate.recertify import recertify
from trust_cache.certificate.score_table import (
    COLUMNS,
    Cohort,
    ScoreColumns,
    Scores,
    has_groups,
    read_scores,
)
from trust_cache.heads.run_folder import RECORD, THRESHOLDS, RunFolder, RunRecord
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
    by: tuple[str, ...] | None = None
    prevalence: float | None = None
    limit: float | None = None
    rule: str | None = None
    protocol: Protocol | str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)  # names that are not those of `ScoreColumns`
    configuration: str | None = None  # to lead with

    def given(self) -> dict[str, Any]:
        """Return the options that are set, by the names of `certify`'s arguments."""
        values = vars(self).items()
        own = ("configuration", "columns")  # of the page, and of reading the scores
        return {name: value for name, value in values if value is not None and name not in own}

    def named(self, columns: ScoreColumns = COLUMNS) -> ScoreColumns:
        """Return these columns with the names that are given."""
        return replace(columns, **self.columns)


@dataclass(frozen=True)
class Evidence:
    """A certified run, or a certified file of scores."""

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
    resplits: pl.DataFrame | None = None  # one row per split, configuration and target, if there were any

    @property
    def kind(self) -> str:
        """How the scores were made: external, out-of-fold or unknown."""
        return self.certification.scores.kind()

    @property
    def encoder(self) -> str | None:
        """The encoder of the run's features; None for scores without a run."""
        return None if self.record is None else self.record.encoder

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

    The first run is the subject; further runs share its targets and confidence, and its split if they have
    the same cases.
    """
    folders = [read_certified(folder) for folder in certified_folders]
    scores = [_read_as_certified(path, folders, options) for path in paths]
    certified = _match(folders, paths, scores)
    if paths[0] in certified and options.given():
        raise InputError(
            f"{certified[paths[0]].path}: holds its own settings and split; leave out the folder, or"
            f" {', '.join('--' + name.removesuffix('s') for name in options.given())}"
        )
    for path, table in zip(paths, scores, strict=True):
        # An external run has a certified folder inside. A named folder and options come first.
        if path not in certified and (path / INSIDE / POINTS).is_file() and not options.given():
            certified |= _match([read_certified(path / INSIDE)], [path], [table])
    main = _evidence(paths[0], scores[0], certified.get(paths[0]), options)
    settings = main.certification.settings
    names = ("targets", "delta", "by", "prevalence", "limit", "rule", "protocol")
    same = {name: getattr(settings, name) for name in names}
    shared = replace(options, split=None, configuration=None, **same)
    split = options.split if main.certified is None else main.certified / SPLIT
    others = []
    for path, table in zip(paths[1:], scores[1:], strict=True):
        same_split = replace(shared, split=split) if _same_cases(main.cohort, table) else shared
        chosen = _without_missing_column(table, same_split)
        others.append(_evidence(path, table, certified.get(path), chosen))
    return (main, *others)


def _same_cases(cohort: Cohort, scores: Scores) -> bool:
    """Whether the scores are of these cases."""
    return scores.table["case_id"].unique().sort().equals(cohort.case_ids)


def _evidence(path: Path, scores: Scores, certified: CertifiedFolder | None, options: Options) -> Evidence:
    certification = (
        record_attempt(certify(scores, **options.given() | dict(options.columns)), path)
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
        resplits=None if certified is None else read_resplits(certified),
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


def _read_as_certified(path: Path, folders: Sequence[CertifiedFolder], options: Options) -> Scores:
    """Read scores with the names of columns of the folder that certifies them, else with those given."""
    own = options.named()
    remembered = {options.named(folder.document.settings.columns): folder for folder in folders}
    for columns, folder in remembered.items():
        if columns == own:
            continue
        try:
            found = read_scores(path, columns)
        except InputError:
            continue  # the folder is of another run
        if found.sha256 == folder.document.scores_sha256:
            return found
    return read_scores(path, own)


def _match(
    folders: Sequence[CertifiedFolder], paths: Sequence[Path], scores: Sequence[Scores]
) -> dict[Path, CertifiedFolder]:
    """Match each certified folder with the run whose scores it certifies."""
    by_scores = {table.sha256: path for path, table in zip(paths, scores, strict=True)} if folders else {}
    matched: dict[Path, CertifiedFolder] = {}
    for certified in folders:
        folder = certified.path
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
    """Drop the columns of `by` that the scores and their manifest do not have."""
    return replace(options, by=tuple(by for by in options.by or () if has_groups(scores, by)))


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
