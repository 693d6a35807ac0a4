"""One set of scores with all that a report says of it: its certification, certificates and training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trust_cache.base.documents import json_bytes
from trust_cache.base.errors import InputError
from trust_cache.certificate.certify import Certification, certify
from trust_cache.certificate.cohort import Cohort, build_cohort
from trust_cache.certificate.folder import as_certificate
from trust_cache.certificate.points import Point, Terms
from trust_cache.certificate.scores import Scores, read_scores
from trust_cache.certificate.tables import name_of
from trust_cache.report.certified_folder import CertifiedFolder, read_certified
from trust_cache.report.folders import Folders
from trust_cache.report.run_record import RunRecord, read_record

INSIDE = "certified"  # the folder that `external` writes into its run
OURS = "closed-loop"  # the method of the paper: what a page leads with where it is there


@dataclass(frozen=True)
class Options:
    """How to certify where no certified folder says it; None: certify's own default."""

    targets: tuple[float, ...] | None = None
    delta: float | None = None
    seed: int | None = None
    split: Path | None = None
    by: str | None = None
    prevalence: float | None = None
    configuration: str | None = None  # to lead with

    def given(self) -> dict[str, Any]:
        """Return what was asked of the certification, by the names that `certify` has."""
        asked = {
            "targets": self.targets, "delta": self.delta, "seed": self.seed,
            "split": self.split, "by": self.by, "prevalence": self.prevalence,
        }  # fmt: skip
        return {name: value for name, value in asked.items() if value is not None}


@dataclass(frozen=True)
class Evidence:
    """A run (or scores from elsewhere), certified."""

    name: str
    path: Path
    certification: Certification
    cohort: Cohort
    certificates: Mapping[tuple[str | None, float], bytes]
    record: RunRecord
    leading: int  # the configuration that the page leads with, by position
    led_by: str  # why it is that one
    certified: Path | None = None

    @property
    def kind(self) -> str:
        """How the scores were made: external, out-of-fold or unknown."""
        return self.certification.scores.kind()

    @property
    def terms(self) -> Terms:
        """What the bounds depend on besides the counts."""
        settings = self.certification.settings
        compared = self.certification.points[0].compared
        return Terms(settings.rule, settings.delta, compared, settings.prevalence)

    @property
    def configurations(self) -> list[str]:
        """The names of the configurations as they are shown."""
        return [name_of(name) for name in self.cohort.configurations]

    def points_of(self, index: int) -> list[Point]:
        """Return the points of one configuration, a target each."""
        name = self.cohort.configurations[index]
        return [point for point in self.certification.points if point.configuration == name]


def gather(folders: Folders, options: Options) -> tuple[Evidence, ...]:
    """Read and certify the run and the further runs, each by its certified folder where there is one."""
    paths = (folders.run, *folders.further)
    scores = [read_scores(path) for path in paths]
    certified = _match(folders.certified, paths, scores)
    if folders.run in certified and options.given():
        raise InputError(
            f"{certified[folders.run].path}: holds its own settings and split; leave out the folder, or"
            f" {', '.join('--' + name.removesuffix('s') for name in options.given())}"
        )
    for path, table in zip(paths, scores, strict=True):
        # An external run brings its own; what was named or asked for goes first.
        if path not in certified and (path / INSIDE / "points.json").is_file() and not options.given():
            certified |= _match([path / INSIDE], [path], [table])
    main = _evidence(paths[0], scores[0], certified.get(paths[0]), options)
    shared = _for_others(main, options)
    others = (
        _evidence(path, table, certified.get(path), _if_it_has_the_column(table, shared))
        for path, table in zip(paths[1:], scores[1:], strict=True)
    )
    return (main, *others)


def _evidence(path: Path, scores: Scores, certified: CertifiedFolder | None, options: Options) -> Evidence:
    certification = (
        certify(scores, **options.given()) if certified is None else certified.certification(scores)
    )
    cohort = build_cohort(scores)
    leading, led_by = _lead(cohort, certification, options.configuration)
    return Evidence(
        name=path.resolve().stem if path.is_file() else path.resolve().name,
        path=path,
        certification=certification,
        cohort=cohort,
        certificates=(
            certified.certificates
            if certified is not None
            else {
                (point.configuration, point.target): json_bytes(as_certificate(point, certification))
                for point in certification.points
            }
        ),
        record=read_record(path),
        leading=leading,
        led_by=led_by,
        certified=None if certified is None else certified.path,
    )


def _match(
    folders: Sequence[Path], paths: Sequence[Path], scores: Sequence[Scores]
) -> dict[Path, CertifiedFolder]:
    """Give each certified folder to the run whose scores it certifies."""
    by_scores = {table.sha256: path for path, table in zip(paths, scores, strict=True)} if folders else {}
    matched: dict[Path, CertifiedFolder] = {}
    for folder in folders:
        certified = read_certified(folder)
        path = by_scores.get(certified.scores_sha256)
        if path is None:
            raise InputError(
                f"{folder}: certifies other scores (sha256 {certified.scores_sha256[:12]}) than those of"
                f" {', '.join(map(str, paths))}; certify the run again, or leave the folder out"
            )
        if path in matched:
            raise InputError(
                f"expected one certified folder for {path}, found {matched[path].path} and {folder}"
            )
        matched[path] = certified
    return matched


def _for_others(main: Evidence, options: Options) -> Options:
    """Certify further runs at the same targets and confidence; the split is theirs."""
    settings = main.certification.settings
    return replace(
        options,
        targets=settings.targets,
        delta=settings.delta,
        by=settings.by,
        prevalence=settings.prevalence,
        split=None,
        configuration=None,
    )


def _if_it_has_the_column(scores: Scores, options: Options) -> Options:
    if options.by is None or options.by in scores.table.columns:
        return options
    header = "" if scores.manifest is None else scores.manifest.open(encoding="utf-8").readline()
    return options if options.by in header.strip().split(",") else replace(options, by=None)


def _lead(cohort: Cohort, certification: Certification, asked: str | None) -> tuple[int, str]:
    """Choose the configuration to lead with: never by its result on the evaluation subset."""
    names = [name_of(name) for name in cohort.configurations]
    if asked is not None:
        if asked not in names:
            raise InputError(f"--configuration: expected one of {', '.join(names)}, found {asked}")
        return names.index(asked), "as asked"
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
