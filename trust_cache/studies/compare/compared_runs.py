"""The runs of a comparison: read them, check that they are of the same cases, name and join them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from trust_cache.base.digests import rows_sha256
from trust_cache.base.errors import InputError
from trust_cache.certificate.point_tables import name_of
from trust_cache.certificate.score_table import Cohort, Scores, as_scores, build_cohort, read_scores
from trust_cache.heads.run_folder import RECORD, RunFolder, RunRecord
from trust_cache.studies.compare.comparison_results import ComparedRun, CompareSettings, column_label
from trust_cache.studies.compare.contrasts import Column, Trainings

Source = pl.DataFrame | Path | str
_SHOWN = 3  # names in a message


@dataclass(frozen=True)
class ReadRun:
    """The scores of a run and of its repeats 1, 2, ..., with the cases of each."""

    scores: tuple[Scores, ...]
    cohorts: tuple[Cohort, ...]
    folder: RunFolder | None  # None: a table or a file

    @property
    def source(self) -> str:
        """The folder or file, for messages."""
        return self.scores[0].source if self.folder is None else str(self.folder.path)

    @property
    def record(self) -> RunRecord | None:
        """The content of run.json, where there is one."""
        return self.folder.record if self.folder is not None and self.folder.has(RECORD) else None

    @property
    def encoder(self) -> str | None:
        """The encoder of the cache that it was trained on."""
        return None if self.record is None else self.record.encoder


def read_run(source: Source, settings: CompareSettings) -> ReadRun:
    """Read the scores of a run folder with its repeats, of a file or of a table.

    The feature gate is that of the run itself: a case that it stops is incomplete in all repeats.
    """
    scores = [as_scores(source, settings.columns)]
    folder = (
        None if isinstance(source, pl.DataFrame) or not Path(source).is_dir() else RunFolder(Path(source))
    )
    if folder is not None:
        scores += [read_scores(repeat.path, settings.columns) for repeat in folder.repeats()]
    gated = [replace(table, manifest=scores[0].manifest) for table in scores]
    cohorts = [build_cohort(table, settings.protocol) for table in gated]
    if not cohorts[0].positives:
        raise InputError(f"{scores[0].source}: expected positive cases, found none: recall is not defined")
    for table, cohort in zip(scores[1:], cohorts[1:], strict=True):
        _check_repeat(table.source, cohorts[0], cohort)
    return ReadRun(tuple(scores), tuple(cohorts), folder)


def _check_repeat(source: str, cohort: Cohort, repeat: Cohort) -> None:
    if repeat.configurations != cohort.configurations:
        raise InputError(
            f"{source}: expected the run's own configurations {', '.join(map(str, cohort.configurations))},"
            f" found {', '.join(map(str, repeat.configurations))}"
        )
    if not (
        repeat.case_ids.equals(cohort.case_ids)
        and np.array_equal(repeat.labels, cohort.labels)
        and np.array_equal(repeat.patients, cohort.patients)
    ):
        raise InputError(
            f"{source}: expected the cases and labels of the run itself ({cohort.cases:,} cases,"
            f" {cohort.positives:,} positive), found others ({repeat.cases:,}, {repeat.positives:,})"
        )
    for index, name in enumerate(cohort.configurations):
        differing = np.flatnonzero(cohort.complete(index) != repeat.complete(index))
        if differing.size:
            raise InputError(
                f"{source}: expected the incomplete cases of the run itself, found case"
                f" {cohort.case_ids[int(differing[0])]} of {name} to differ ({differing.size} cases in all)"
            )


def check_same_cases(runs: Sequence[ReadRun]) -> None:
    """Refuse runs that differ in cases, labels, patients, images, folds or the number of trainings."""
    first = runs[0]
    for run in runs[1:]:
        if run.scores[0].sha256 == first.scores[0].sha256:
            raise InputError(
                f"{run.source}: expected other scores than those of {first.source}, found the same"
            )
        _check_cases(first, run)
        _check_images(first, run)
        _check_folds(first, run)
        if len(run.scores) != len(first.scores):
            raise InputError(
                f"{run.source}: expected {len(first.scores)} trainings, as {first.source} has, found"
                f" {len(run.scores)}; train it again with --repeats {len(first.scores)}"
            )


def _check_cases(first: ReadRun, run: ReadRun) -> None:
    one, other = first.cohorts[0], run.cohorts[0]
    for here, there, lacking in ((one, other, run), (other, one, first)):
        missing = here.case_ids.filter(~here.case_ids.is_in(there.case_ids.implode()))
        if missing.len():
            raise InputError(
                f"{run.source}: expected the cases of {first.source} ({one.cases:,}), found others:"
                f" {lacking.source} lacks {_shown(missing)}; compare runs on caches of one manifest"
            )
    differing = np.flatnonzero(one.labels != other.labels)
    if differing.size:
        raise InputError(
            f"{run.source}: expected the labels of {first.source}, found others for"
            f" {_shown(one.case_ids[differing])}; compare runs on caches of one manifest"
        )
    if not np.array_equal(one.patients, other.patients):
        raise InputError(
            f"{run.source}: expected the patients of {first.source}, found others; compare runs on caches of"
            " one manifest"
        )


def _check_images(first: ReadRun, run: ReadRun) -> None:
    """Refuse runs that examined other images of a case: their protocols differ."""
    images = [
        table.select("case_id", "image_id").unique().drop_nulls()
        for table in (first.scores[0].table, run.scores[0].table)
    ]
    if any(table.is_empty() for table in images):
        return  # scores of cases
    one, other = (images[0], images[1])
    differing = pl.concat(
        [one.join(other, on=one.columns, how="anti"), other.join(one, on=one.columns, how="anti")]
    )
    if differing.height:
        raise InputError(
            f"{run.source}: expected the images of {first.source} in every case, found others in"
            f" {_shown(differing['case_id'].unique().sort())}: the protocols differ; compare runs on caches"
            " of the same images"
        )


def _check_folds(first: ReadRun, run: ReadRun) -> None:
    kinds = [item.scores[0].kind() for item in (first, run)]
    if kinds[0] != kinds[1]:
        raise InputError(
            f"{run.source}: expected scores of the kind of {first.source} ({kinds[0]}), found {kinds[1]}"
        )
    one, other = (_folds(item) for item in (first, run))
    if one is None or other is None or one.columns != other.columns:
        one, other = (_tested_in(item.scores[0]) for item in (first, run))
    if one is None or other is None:
        return
    other = one.select("case_id").join(other, on="case_id", how="left", maintain_order="left")
    differing = one["case_id"].filter(
        ~pl.DataFrame({name: one[name].eq_missing(other[name]) for name in one.columns[1:]})
        .select(pl.all_horizontal(pl.all()))
        .to_series()
    )
    if differing.len():
        raise InputError(
            f"{run.source}: expected the folds of {first.source}, found others for {_shown(differing)}; train"
            f" it again with --folds {Path(first.source) / 'folds.csv'}"
        )


def _folds(run: ReadRun) -> pl.DataFrame | None:
    table = None if run.folder is None else run.folder.folds()
    return None if table is None else table.drop("label").sort("case_id")


def _tested_in(scores: Scores) -> pl.DataFrame | None:
    """Return the fold that scored each case, where the table has it."""
    if "fold" not in scores.table.columns:
        return None
    return scores.table.group_by("case_id").agg(pl.col("fold").first()).sort("case_id")


def _shown(cases: pl.Series) -> str:
    names = ", ".join(map(str, cases[:_SHOWN])) + (", ..." if cases.len() > _SHOWN else "")
    return f"case {names}" if cases.len() == 1 else f"{cases.len():,} cases ({names})"


def name_runs(runs: Sequence[ReadRun], given: Sequence[str] | None) -> list[str]:
    """Name the runs: as given, else by encoder, else by folder or file."""
    if given is not None:
        names = [name.strip() for name in given]
        if len(names) != len(runs) or len(set(names)) != len(names) or "" in names:
            raise InputError(
                f"names: expected {len(runs)} different names, one for each run, found {', '.join(given)}"
            )
        return names
    encoders = [run.encoder or "" for run in runs]
    places = [
        f"scores {number}" if not Path(run.source).exists() else Path(run.source).resolve().stem
        for number, run in enumerate(runs, start=1)
    ]
    for names in (encoders, places):
        if "" not in names and len(set(names)) == len(names):
            return names
    raise InputError(
        f"expected runs with different encoders or folder names, found {', '.join(places)} twice; name them"
        " with --names b5,b2"
    )


def describe_runs(runs: Sequence[ReadRun], names: Sequence[str]) -> tuple[ComparedRun, ...]:
    """Return the records of the runs."""
    return tuple(
        ComparedRun(
            name=name,
            encoder=run.encoder,
            source=run.source,
            configurations=tuple(map(name_of, run.cohorts[0].configurations)),
            scores_sha256=run.scores[0].sha256,
        )
        for name, run in zip(names, runs, strict=True)
    )


def join_runs(runs: Sequence[ReadRun], names: Sequence[str]) -> Trainings:
    """Join the columns of all runs, training by training.

    A case that is incomplete in one run is reviewed in all of them.
    """
    known = names if len(runs) > 1 else [None]
    columns = tuple(
        Column(name, name_of(configuration))
        for name, run in zip(known, runs, strict=True)
        for configuration in run.cohorts[0].configurations
    )
    cohorts = [
        _join([run.cohorts[number] for run in runs], names, columns) for number in range(len(runs[0].cohorts))
    ]
    return Trainings(columns, cohorts[0], tuple(cohorts[1:]))


def _join(cohorts: Sequence[Cohort], names: Sequence[str], columns: Sequence[Column]) -> Cohort:
    incomplete = [np.isnan(cohort.scores).any(axis=0) for cohort in cohorts]
    scores, problems = [], []
    for number, cohort in enumerate(cohorts):
        in_others = {
            int(case): (f"incomplete in {name}",)
            for place, name in enumerate(names)
            if place != number
            for case in np.flatnonzero(incomplete[place])
        }
        others = np.zeros(cohort.cases, dtype=np.bool_)
        others[list(in_others)] = True
        scores += [np.where(others, np.nan, column) for column in cohort.scores]
        problems += [in_others | dict(own) for own in cohort.problems]
    return replace(
        cohorts[0],
        configurations=tuple(column_label(*column) for column in columns),
        scores=tuple(scores),
        images=tuple(images for cohort in cohorts for images in cohort.images),
        problems=tuple(problems),
        aggregations=tuple(kind for cohort in cohorts for kind in cohort.aggregations),
    )


def joint_sha256(digests: Sequence[str]) -> str:
    """Return the digest of one run's scores, or of the list of several runs' digests."""
    return digests[0] if len(digests) == 1 else rows_sha256([digest] for digest in digests)


def difference_warnings(runs: Sequence[ReadRun], names: Sequence[str]) -> list[str]:
    """Warn where runs differ in more than their caches: settings of heads, training or views."""
    warnings = []
    first = runs[0].record
    for name, run in zip(names[1:], runs[1:], strict=True):
        other = run.record
        if first is None or other is None:
            continue
        shared = [key for key in first.configurations if key in other.configurations]
        changed = [key for key in shared if first.configurations[key] != other.configurations[key]]
        changed += [key for key in ("training", "views") if getattr(first, key) != getattr(other, key)]
        if changed:
            warnings.append(
                f"{name} was not trained as {names[0]} was ({', '.join(changed)}): a difference between them"
                " is not of the encoders alone"
            )
    return warnings
