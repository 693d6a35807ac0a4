"""The run folder of `fit-heads` and `external`: names, columns and keys of its files, read and written here.

run.json            what was trained, on what, and how (`RunRecord`)
folds.csv           which case each fold fits on, calibrates on and tests
scores.csv          one row per configuration and image; the score is empty where an image has no features
thresholds.csv      tau at the start of every epoch, for the configurations that have one
trajectories.csv    quantiles of the calibration scores at the start of every epoch, by label
heads.safetensors   the heads' parameters [configuration, fold, ...]
manifest.csv        the images scored, with all columns of the cache's manifest, and `feature_tail`: the share
                    of images like those that the fold was fitted on whose features are as unusual
repeats/<r>/        the same files for repeat 1, 2, ...
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save

from trust_cache.base.csv_tables import read_text_table, write_rows
from trust_cache.base.digests import digests_of, file_sha256, rows_sha256
from trust_cache.base.documents import Document, read_json, sealed_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.text_tables import NO_NUMBER, Table
from trust_cache.cache.fingerprint import IMPORTED, Fingerprint, require_same_fingerprint
from trust_cache.heads.folds import EXTERNAL, Folds
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings, TunedChoice
from trust_cache.manifest.cases import (
    CASE_LABEL,
    FEATURE_TAIL,
    LATERALITY,
    MAXIMUM,
    NEEDS_SIDES,
    PATIENT,
    Aggregation,
    find_cases,
)
from trust_cache.manifest.data_terms import DataTerms, terms_of
from trust_cache.statistics.auroc import auroc

if TYPE_CHECKING:  # certify reads scores and needs neither numba nor zarr, which take seconds to import
    from trust_cache.cache.cache_reader import Cache
    from trust_cache.heads.bank import HeadParameters
    from trust_cache.heads.trainer import TrainedFold

SCHEMA = 1
RECORD, MANIFEST, FOLDS_FILE, SCORES = "run.json", "manifest.csv", "folds.csv", "scores.csv"
THRESHOLDS, TRAJECTORIES = "thresholds.csv", "trajectories.csv"
HEADS, REPEATS = "heads.safetensors", "repeats"
OWN = frozenset({RECORD, MANIFEST, FOLDS_FILE, SCORES, THRESHOLDS, TRAJECTORIES, HEADS, REPEATS})
QUANTILE_NAMES = ("q05", "q25", "q50", "q75", "q95")
_SCORE_COLUMNS = ("configuration", "fold", "case_id", "image_id", "label", "score")
_TAU_COLUMNS = ("configuration", "fold", "epoch", "tau")
_THRESHOLD_COLUMNS = (*_TAU_COLUMNS, "dismissed", "positives_dismissed")
_TRAJECTORY_COLUMNS = ("configuration", "fold", "epoch", "label", *QUANTILE_NAMES)
_NUMBERS = {"epoch": pl.Int64, "label": pl.Int64, **dict.fromkeys(("tau", *QUANTILE_NAMES), pl.Float64)}
_PARTS = ("gamma", "beta", "weight", "bias")  # of HeadParameters, in its order


class RecordedTraining(TrainingSettings, frozen=True, kw_only=True):
    """The training settings as run.json has them."""

    dropout: float

    @property
    def settings(self) -> TrainingSettings:
        """The settings alone."""
        return TrainingSettings(**{name: getattr(self, name) for name in TrainingSettings.__struct_fields__})


class CacheRecord(Document, frozen=True, omit_defaults=True):
    """What identifies a cache."""

    fingerprint: Fingerprint
    images: int
    manifest_sha256: str
    content_sha256: str  # of the whole cache: fingerprint, manifest, features and pictures
    images_without_features: int = 0


class RunIdentity(Document, frozen=True, kw_only=True, omit_defaults=True):
    """All that decides the bytes of a run."""

    schema: int
    configurations: dict[str, HeadSettings]
    training: RecordedTraining
    seed: int
    repeats: int
    views: int  # augmented views that batches are drawn from
    fingerprint: Fingerprint
    images: int
    dim: int
    manifest_sha256: str
    content_sha256: str  # of the cache
    folds_sha256: list[str]  # of every repeat
    images_without_features: int = 0
    test: CacheRecord | None = None  # of an external run: the set that it was scored on


class RunRecord(RunIdentity, frozen=True, kw_only=True, omit_defaults=True):
    """The content of run.json."""

    repeat: int
    cache: str
    test_cache: str | None = None
    probe_difference: float | None = None  # of an external run: between the runtimes of its two caches
    threads: int
    low_memory: bool
    resumed_folds: int
    seconds: dict[str, float]
    warnings: list[str]
    versions: dict[str, str]
    files: dict[str, str]  # digests of the repeat's other files by name
    choices: dict[str, dict[str, TunedChoice]] = msgspec.field(
        default_factory=dict
    )  # of tuned heads, by fold
    rows: int = 0  # of scores.csv
    cases: int = 0
    positive_cases: int = 0

    @property
    def encoder(self) -> str:
        """The name of the encoder that made the features."""
        return self.fingerprint.encoder.removeprefix(f"{IMPORTED} ")


@dataclass(frozen=True)
class FoldScores:
    """The scores [head, image] of one fold's heads on images, given by their number in the cache."""

    images: NDArray[np.int64]
    scores: NDArray[np.float64]  # NaN where an image has no features

    def diverged(self, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which heads have a score that is not finite; `present` tells which images have features."""
        finite = np.isfinite(self.scores[:, present[self.images]])
        return np.asarray(~finite.all(axis=1))


@dataclass(frozen=True)
class FoldResult(FoldScores):
    """A trained fold and its scores."""

    trained: "TrainedFold"
    tails: NDArray[np.float64]  # of the feature gate (statistics/feature_gate); NaN without features


@dataclass(frozen=True)
class RunFolder:
    """A run folder; each file is read and checked when it is asked for."""

    path: Path

    def has(self, name: str) -> bool:
        """Whether a file is there. A folder with scores.csv alone can be certified."""
        return (self.path / name).is_file()

    @cached_property
    def record(self) -> RunRecord:
        """The content of run.json."""
        try:
            what = "the record of a run"
            return read_json(self.path / RECORD, RunRecord, what=what, schema=SCHEMA, sealed=True)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InputError(f"{self.path}: expected a run folder with {RECORD} in it, found none") from error

    @property
    def scores_file(self) -> Path:
        """The path of scores.csv."""
        return self._file(SCORES)

    @property
    def manifest_file(self) -> Path | None:
        """The path of manifest.csv, where there is one."""
        return self._file(MANIFEST) if self.has(MANIFEST) else None

    @property
    def terms(self) -> tuple[DataTerms, ...]:
        """The terms of the data sets of the images that were scored; empty without manifest.csv."""
        path = self.manifest_file
        return () if path is None else terms_of(read_text_table(path, ("image_id",)))

    @property
    def aggregations(self) -> dict[str | None, Aggregation]:
        """How each configuration's image scores become case scores."""
        return {name: settings.aggregation for name, settings in self.record.configurations.items()}

    def folds(self) -> pl.DataFrame | None:
        """Read folds.csv as text, where there is one."""
        return read_text_table(self._file(FOLDS_FILE), ("case_id", "label")) if self.has(FOLDS_FILE) else None

    def thresholds(self) -> pl.DataFrame:
        """Read configuration, fold, epoch and tau; empty where no configuration has a tau."""
        return self._table(THRESHOLDS, _TAU_COLUMNS)

    def trajectories(self) -> pl.DataFrame:
        """Read configuration, fold, epoch, label and the quantiles."""
        return self._table(TRAJECTORIES, _TRAJECTORY_COLUMNS)

    def repeats(self) -> list["RunFolder"]:
        """Return the folders of repeat 1, 2, ...; each that run.json counts must be there."""
        folder = self.path / REPEATS
        names = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
        found = sorted(int(name) for name in names if name.isdecimal())
        recorded = self.record.repeats if self.has(RECORD) else 1
        expected = range(1, max(recorded, len(found) + 1))
        missing = [number for number in expected if number not in found]
        if missing:
            raise InputError(
                f"{folder}: expected the repeats {', '.join(map(str, expected))}, found"
                f" {', '.join(map(str, found)) or 'none'}: repeat {missing[0]} is missing; copy the whole run"
                " folder, or train it again with fit-heads --repeats"
            )
        return [RunFolder(folder / str(number)) for number in expected]

    def settings(self, configuration: str) -> HeadSettings:
        """Return the settings of one of its configurations."""
        known = self.record.configurations
        if configuration not in known:
            raise InputError(
                f"{self.path}: expected one of its configurations ({', '.join(known)}), found"
                f" {configuration!r}"
            )
        return known[configuration]

    def head(self, configuration: str, fold: str = EXTERNAL) -> "HeadParameters":
        """Read the head of a configuration in a fold; an external run has one fold."""
        from trust_cache.heads.bank import HeadParameters  # noqa: PLC0415 - numba takes seconds to import

        path = self._file(HEADS)
        try:
            with safe_open(path, framework="np") as file:
                names = json.loads(file.metadata()["names"])
                place = names["configurations"].index(configuration), names["folds"].index(fold)
                arrays = [np.ascontiguousarray(file.get_tensor(part)[place][None]) for part in _PARTS]
        except Exception as error:  # safetensors has many ways to say that a file is damaged
            raise InputError(
                f"{path}: expected the head of {configuration}, fold {fold} ({error})"
            ) from error
        return HeadParameters(*arrays)

    def open_train_cache(self, given: str | None = None) -> "Cache":
        """Open the cache that the run was trained on, at the recorded or the given place, and check it."""
        record = self.record
        expected = CacheRecord(
            record.fingerprint,
            record.images,
            record.manifest_sha256,
            record.content_sha256,
            record.images_without_features,
        )
        return _open_same(record.cache, given, "--cache", expected)

    def open_test_cache(self, given: str | None = None) -> "Cache":
        """Open the cache that an external run was scored on and check it."""
        record = self.record
        if record.test is None or record.test_cache is None:
            raise InputError(f"{self.path}: expected an external run, found one without a test cache")
        return _open_same(record.test_cache, given, "--test-cache", record.test)

    def problems(self) -> list[str]:
        """Compare all files of the run and its repeats with their records; return what does not fit."""
        found: list[str] = []
        try:
            for name in self.record.files:
                try:
                    self._file(name)
                except InputError as error:
                    found.append(str(error))
            for repeat in self.repeats() if not self.record.repeat else ():
                found += repeat.problems()
        except InputError as error:
            found.append(str(error))
        return found

    def _file(self, name: str) -> Path:
        """Return the path of a file; refuse one that is missing or not as it was written."""
        path = self.path / name
        if not self.has(name):
            raise InputError(f"{self.path}: expected a run folder with {name} in it, found none")
        if self.has(RECORD) and file_sha256(path) != (expected := self.record.files.get(name)):
            difference = self._difference(path) if name == SCORES else f"its sha256 is not {expected}"
            raise InputError(
                f"{path}: changed since the run was written ({difference}); copy the whole run folder again,"
                " or train it again"
            )
        return path

    def _difference(self, scores: Path) -> str:
        """Describe the first difference between scores.csv and what the run has scored."""
        names = ["configuration", "image_id", "case_id", "label"]
        found = read_text_table(scores, names).select(names)
        images = read_text_table(self._file(MANIFEST), names[1:]).select(names[1:])
        every = pl.DataFrame({"configuration": list(self.record.configurations)})
        expected = every.join(images, how="cross")
        if found.height != self.record.rows:
            rows = f"expected {self.record.rows:,} rows, found {found.height:,}"
            return f"{rows}{self._first(expected, found)}"
        return f"a row or a score differs{self._first(expected, found)}"

    @staticmethod
    def _first(expected: pl.DataFrame, found: pl.DataFrame) -> str:
        missing = expected.join(found, on=expected.columns, how="anti", nulls_equal=True)
        if missing.is_empty():
            return ""
        row = missing.row(0, named=True)
        return (
            f"; the first that is missing: image {row['image_id']} of case {row['case_id']}, label"
            f" {row['label']}, configuration {row['configuration']}"
        )

    def _table(self, name: str, columns: tuple[str, ...]) -> pl.DataFrame:
        file, types = self._file(name), {column: _NUMBERS.get(column, pl.String) for column in columns}
        if file.read_bytes().count(b"\n") <= 1:  # the header alone
            return pl.DataFrame(schema=types)
        try:
            return read_text_table(file, columns).select(columns).cast(types)  # type: ignore[arg-type]
        except pl.exceptions.PolarsError as error:
            numbers = ", ".join(column for column in columns if column in _NUMBERS)
            raise InputError(f"{file}: expected numbers as {numbers} ({error})") from error


def identify_cache(cache: "Cache") -> CacheRecord:
    """Return what identifies a cache."""
    failed = int(np.count_nonzero(cache.failed))
    labels, content = labels_sha256(cache), cache.content_sha256
    return CacheRecord(cache.fingerprint, cache.images, labels, content, failed)


def labels_sha256(cache: "Cache") -> str:
    """Return the digest of a cache's images, their cases, labels and patients."""
    columns = ("image_id", "case_id", "label", *_of_cases(cache.manifest))
    return rows_sha256(cache.manifest.select(columns).iter_rows())


def _open_same(recorded: str, given: str | None, option: str, expected: CacheRecord) -> "Cache":
    from trust_cache.cache.cache_reader import open_cache  # noqa: PLC0415 - zarr takes seconds to import

    try:
        cache = open_cache(given if given is not None else recorded)
    except InputError as error:
        if given is not None:
            raise
        raise InputError(
            f"{error}; the run was made from this cache: give its place with {option}"
        ) from error
    require_same_fingerprint(expected.fingerprint, cache.fingerprint, cache.source)
    if labels_sha256(cache) != expected.manifest_sha256:
        raise InputError(
            f"{cache.source}: expected the images and labels of the run, found others;"
            f" name the run's cache with {option}"
        )
    failed = int(np.count_nonzero(cache.failed))
    if failed != expected.images_without_features:
        raise InputError(
            f"{cache.source}: expected {expected.images_without_features} images without features, as the"
            f" run had, found {failed}; name the run's cache with {option}, or make the run again"
        )
    if cache.content_sha256 != expected.content_sha256:
        raise InputError(
            f"{cache.source}: expected the features that the run was made from (content"
            f" {expected.content_sha256[:12]}), found others ({cache.content_sha256[:12]}); name the run's"
            f" cache with {option}, or make the run again"
        )
    return cache


def render_run(
    record: RunRecord, results: Sequence[FoldResult], folds: Folds, manifest: pl.DataFrame
) -> dict[str, bytes]:
    """Return the files of one repeat by name: one result per fold, and a manifest of all images scored."""
    names = list(record.configurations)
    manifest = with_feature_tails(manifest, ((result.images, result.tails) for result in results))
    # Whoever has the scores alone can score the cases.
    sides = any(head.aggregation == NEEDS_SIDES for head in record.configurations.values())
    scores = scores_table(results, manifest, names, folds.names, (LATERALITY,) if sides else ())
    labels = find_cases(manifest).labels
    files = {
        MANIFEST: manifest.write_csv().encode(),  # subgroups by any column, without the cache
        FOLDS_FILE: folds.table.write_csv().encode(),
        SCORES: scores.write_csv().encode(),
        THRESHOLDS: _thresholds(results, record.configurations, folds.names),
        TRAJECTORIES: _trajectories(results, record.configurations, folds.names),
        HEADS: _heads(results, names, folds.names),
    }
    counts = {"rows": scores.height, "cases": labels.size, "positive_cases": int(labels.sum())}
    choices = _choices(results, names, folds.names)
    record = msgspec.structs.replace(record, files=digests_of(files), choices=choices, **counts)
    files[RECORD] = sealed_bytes(record.as_document())
    return {repeat_name(record.repeat, name): content for name, content in files.items()}


def with_feature_tails(
    manifest: pl.DataFrame, folds: Iterable[tuple[NDArray[np.int64], NDArray[np.float64]]]
) -> pl.DataFrame:
    """Return a manifest with what the feature gate of each fold says about its images."""
    tails = np.full(manifest.height, np.nan)
    for images, found in folds:
        tails[images] = found
    texts = [None if math.isnan(tail) else repr(tail) for tail in tails.tolist()]
    return manifest.with_columns(pl.Series(FEATURE_TAIL, texts, dtype=pl.String))


def repeat_name(repeat: int, name: str) -> str:
    """Return the name of a repeat's file inside the folder."""
    return f"{REPEATS}/{repeat}/{name}" if repeat else name


def scores_table(
    results: Sequence[FoldScores],
    manifest: pl.DataFrame,
    names: Sequence[str],
    fold_names: Sequence[str],
    further: Sequence[str] = (),
) -> pl.DataFrame:
    """Return scores.csv as a table: one row per configuration and image, scores as text with all digits.

    The label and the patient of the case follow where the manifest has them, then its `further` columns.
    """
    tables = []
    of_cases = (*_of_cases(manifest), *further)
    for head, name in enumerate(names):
        for fold, result in zip(fold_names, results, strict=True):
            rows = manifest.select("case_id", "image_id", "label", *of_cases)[result.images]
            texts = [None if math.isnan(value) else repr(value) for value in result.scores[head].tolist()]
            rows = rows.with_columns(pl.Series("score", texts, dtype=pl.String)).sort("case_id", "image_id")
            named = rows.with_columns(configuration=pl.lit(name), fold=pl.lit(fold))
            tables.append(named.select(*_SCORE_COLUMNS, *of_cases))
    return pl.concat(tables)


def score_columns(table: pl.DataFrame) -> tuple[str, ...]:
    """Return the columns of scores.csv for the images of this table."""
    return (*_SCORE_COLUMNS, *_of_cases(table))


def _of_cases(table: pl.DataFrame) -> tuple[str, ...]:
    """Return the columns of a table that say something about whole cases."""
    return tuple(name for name in (CASE_LABEL, PATIENT) if name in table.columns)


def _thresholds(
    results: Sequence[FoldResult], configurations: Mapping[str, HeadSettings], fold_names: Sequence[str]
) -> bytes:
    recorded = _THRESHOLD_COLUMNS[-2:]
    rows = (
        {"configuration": name, "fold": fold, "epoch": epoch, "tau": float(taus[head])}
        | {column: int(getattr(result.trained, column)[epoch, head]) for column in recorded}
        for head, (name, settings) in enumerate(configurations.items())
        if settings.tau is not None
        for fold, result in zip(fold_names, results, strict=True)
        for epoch, taus in enumerate(result.trained.taus)
    )
    return write_rows(_THRESHOLD_COLUMNS, rows)


def _choices(
    results: Sequence[FoldResult], names: Sequence[str], fold_names: Sequence[str]
) -> dict[str, dict[str, TunedChoice]]:
    """Return what the tuned heads chose, by configuration and fold."""
    found: dict[str, dict[str, TunedChoice]] = {}
    for fold, result in zip(fold_names, results, strict=True):
        for name, choice in zip(names, result.trained.choices, strict=False):  # empty without a tuned head
            if choice is not None:
                found.setdefault(name, {})[fold] = choice
    return found


def _trajectories(
    results: Sequence[FoldResult], configurations: Mapping[str, HeadSettings], fold_names: Sequence[str]
) -> bytes:
    rows = (
        {"configuration": name, "fold": fold, "epoch": epoch, "label": label}
        | {
            quantile: None if np.isnan(value) else float(value)
            for quantile, value in zip(QUANTILE_NAMES, quantiles[head, label], strict=True)
        }
        for head, (name, settings) in enumerate(configurations.items())
        if not settings.tuned  # it has no epochs
        for fold, result in zip(fold_names, results, strict=True)
        for epoch, quantiles in enumerate(result.trained.trajectories)
        for label in (0, 1)
    )
    return write_rows(_TRAJECTORY_COLUMNS, rows)


def _heads(results: Sequence[FoldResult], names: Sequence[str], fold_names: Sequence[str]) -> bytes:
    heads = [result.trained.parameters for result in results]
    arrays = {
        part: np.ascontiguousarray(np.stack([getattr(head, part) for head in heads], axis=1))
        for part in _PARTS
    }
    # One key: safetensors writes several in an order of its own, and the same run must give the same bytes.
    names_of_axes = json.dumps({"schema": SCHEMA, "configurations": list(names), "folds": list(fold_names)})
    return save(arrays, metadata={"names": names_of_axes})


def summarise_run(folder: Path) -> Table:
    """Read a run folder's scores and thresholds and summarise them by configuration."""
    run = RunFolder(folder)
    texts = dict.fromkeys(("case_id", "image_id", "configuration", PATIENT), pl.String)
    types = {**texts, "label": pl.Int64, "score": pl.Float64}
    scores = pl.read_csv(run.scores_file, schema_overrides=types, glob=False)
    aggregations = run.aggregations if run.has(RECORD) else {}
    last = run.thresholds().filter(pl.col("epoch") == pl.col("epoch").max())
    rows = []
    incomplete = 0
    for (name,), part in scores.group_by("configuration", maintain_order=True):
        images, labels = part["score"].fill_null(np.nan).to_numpy(), part["label"].to_numpy()
        cases = find_cases(part)
        by_case = cases.score(images, aggregations.get(str(name), MAXIMUM))
        scored = np.isfinite(images)
        complete = np.isfinite(by_case)
        incomplete = max(incomplete, int(np.count_nonzero(~complete)))
        taus = last.filter(pl.col("configuration") == name)["tau"].to_list()
        aurocs = auroc(by_case[complete], cases.labels[complete]), auroc(images[scored], labels[scored])
        numbers = (NO_NUMBER if value is None else f"{value:.4f}" for value in aurocs)
        rows.append((str(name), *numbers, f"{min(taus):.4f} - {max(taus):.4f}" if taus else NO_NUMBER))
    scored_images = scores.filter(pl.col("score").is_not_null())["image_id"].n_unique()
    title = f"Out-of-fold scores of {scored_images:,} images, {scores['case_id'].n_unique():,} cases"
    if incomplete:
        title += f", {incomplete:,} of them incomplete and not in the case AUROC"
    header = ("Configuration", "Case AUROC", "Image AUROC", "τ of the last epoch, by fold")
    return Table(title, header, tuple(rows))
