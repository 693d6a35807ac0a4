"""The sweep folder: names, columns and keys of its files, read and written here.

sweep.json                    what the sweep is, its settings, its looks at evaluation (`SweepDocument`)
folds.csv, repeats/<r>/       which case each fold fits on, calibrates on and tests, as in a run folder
split.csv                     search or evaluation, one row per case
scores/<bank>/                the scores of each fold (`ScoreFiles`)
results.csv, results.parquet  one row per setting, repeat and target
fold_results.csv              the same thresholds on the search cases of each fold
failures.csv                  settings whose training diverged
incomplete.csv                cases that do not fulfil the protocol, with the reasons
certificates/, winner/        the winners' certificates, scores and configurations
figures/                      search dismissal over the axes
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import load, save

from trust_cache.base.csv_tables import write_rows
from trust_cache.base.digests import bind_bytes, changed_files, file_sha256, rows_sha256, unbind_bytes
from trust_cache.base.documents import Document, read_json, sealed_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.files import PARTIAL, write_file
from trust_cache.base.versions import versions_of
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.certificate.certification import CertifySettings, Composition
from trust_cache.certificate.certified_folder import INCOMPLETE
from trust_cache.certificate.points import POINT_KEYS, Counts, Point
from trust_cache.certificate.split import Split
from trust_cache.heads.folds import FOLDS, TEST, Folds, read_folds
from trust_cache.heads.head_settings import SETTING_NAMES, HeadSettings
from trust_cache.heads.run_folder import FOLDS_FILE, FoldScores, RecordedTraining, repeat_name
from trust_cache.heads.training_data import Preparation
from trust_cache.manifest.protocol import Protocol
from trust_cache.studies.sweep.sweep_space import Bank, Value, cut_banks, find_axes, in_order, name_setting

SCHEMA = 1
NAME, SPLIT, FAILURES = "sweep.json", "split.csv", "failures.csv"
RESULTS, PARQUET, FOLD_RESULTS = "results.csv", "results.parquet", "fold_results.csv"
CONFIGURATIONS, FIGURES, _SCORES = "winner/configurations.toml", "figures", "scores"
OWN = frozenset(
    {NAME, SPLIT, FAILURES, INCOMPLETE, RESULTS, PARQUET, FOLD_RESULTS, FIGURES, _SCORES, FOLDS_FILE}
    | {"repeats", "certificates", "winner"}
)
TRAINING, FINISHED = "training", "finished"

# A point and a setting both have a tau: the setting keeps the name.
POINT_COLUMNS = {
    key: f"point_{key}" if key in SETTING_NAMES else key for key in POINT_KEYS if key != "target"
}
_SEARCH_COUNTS = tuple(f"search_{field.name}" for field in fields(Counts))
COLUMNS = (
    "setting", *SETTING_NAMES, "repeat", "target", *POINT_COLUMNS.values(),
    *(name for name in _SEARCH_COUNTS if name not in POINT_KEYS), "search_dismissal", "search_auroc_case",
    "winner", "evaluation_shown",
)  # fmt: skip
FOLD_COLUMNS = ("setting", "repeat", "target", "fold", *_SEARCH_COUNTS)


def _type_of(hint: Any) -> type[pl.DataType]:
    """Return the type of a column from that of a point's field, which may be None."""
    (kind,) = {type(item) if isinstance(item, str) else item for item in _alternatives(hint)} - {NoneType}
    return {bool: pl.Boolean, int: pl.Int64, float: pl.Float64, str: pl.String}[kind]


def _alternatives(hint: Any) -> Iterator[Any]:
    """Yield the types of a union and the words of a literal."""
    for item in get_args(hint) or (hint,):
        yield from _alternatives(item) if get_args(item) else (item,)


_TYPES: dict[str, type[pl.DataType]] = {
    **dict.fromkeys((*COLUMNS, *FOLD_COLUMNS), pl.Float64),
    **{POINT_COLUMNS.get(name, name): _type_of(hint) for name, hint in get_type_hints(Point).items()},
    **dict.fromkeys(("setting", "tau"), pl.String),  # tau may be `closed-loop`
    **dict.fromkeys(("winner", "evaluation_shown"), pl.Boolean),
    **dict.fromkeys(("repeat", "fold", *_SEARCH_COUNTS), pl.Int64),
}
_FOLD_TYPES = {name: _TYPES[name] for name in FOLD_COLUMNS}
_LONGEST = 40  # characters of a value in a message


class SweepIdentity(Document, frozen=True, kw_only=True):
    """What all settings of a sweep share."""

    seeds: dict[str, int]
    repeats: int
    views: int
    training: RecordedTraining
    targets: tuple[float, ...]
    delta: float
    rule: str
    limit: float | None  # the largest acceptable bound; None: the prevalence of the drawn cases
    protocol: Protocol  # what a case must be to be dismissed
    fingerprint: Fingerprint
    images: int
    dim: int
    manifest_sha256: str
    content_sha256: str  # of the cache
    images_without_features: int = 0
    folds_sha256: tuple[str, ...]
    split_sha256: str

    @property
    def certify_settings(self) -> CertifySettings:
        """The settings of `certify` that give the same points."""
        return CertifySettings(
            self.targets, self.delta, self.seeds["split"], self.rule, limit=self.limit, protocol=self.protocol
        )


class EvaluationLook(Document, frozen=True):
    """One look at the evaluation subset: the settings that the winner was chosen from, by their digest."""

    settings: int
    settings_sha256: str
    after_showing: bool = False  # whether evaluation of single settings had been shown before
    winners: dict[str, str] = msgspec.field(default_factory=dict)  # target -> setting


class NamedSettings(HeadSettings, frozen=True, kw_only=True):
    """A setting in sweep.json."""

    setting: str

    @property
    def values(self) -> HeadSettings:
        """The settings without the name."""
        return HeadSettings(**{name: getattr(self, name) for name in SETTING_NAMES})


class NamedBank(Document, frozen=True):
    """A bank in sweep.json."""

    bank: str
    settings: tuple[str, ...]


class SweepCounts(Document, frozen=True, kw_only=True):
    """How much a finished sweep trained and compared."""

    settings: int
    folds: int
    repeats: int
    heads: int
    banks: int
    diverged: int
    cases: int
    positives: int
    search_cases: int
    search_positives: int
    looks: int
    compared: int


class WinnerRecord(Document, frozen=True, kw_only=True):
    """The winner at a target in sweep.json, with its files."""

    setting: str
    values: HeadSettings
    search_dismissal: float
    point: Point
    certificate: str
    scores: str


def setting_words(winner: WinnerRecord, axes: Iterable[str]) -> str:
    """Name a setting by its values on the axes: lr=0.001, tau=closed-loop."""
    values = ((axis, getattr(winner.values, axis)) for axis in axes)
    words = (f"{axis}={value:g}" if isinstance(value, float) else f"{axis}={value}" for axis, value in values)
    return ", ".join(words) or winner.setting


class SweepDocument(SweepIdentity, frozen=True, kw_only=True, omit_defaults=True):
    """The content of sweep.json; the last four keys before the versions are those of a finished sweep."""

    schema: int
    status: str
    axes: dict[str, list[Value | None]]
    settings: tuple[NamedSettings, ...]
    banks: tuple[NamedBank, ...]
    looks: tuple[EvaluationLook, ...]
    evaluation_shown: tuple[str, ...]
    counts: SweepCounts | None = None
    winner: dict[str, WinnerRecord] | None = None
    warnings: tuple[str, ...] | None = None
    files: dict[str, str] = msgspec.field(default_factory=dict)  # sha256 of the other files by name
    versions: dict[str, str]


@dataclass(frozen=True)
class SweepRecord:
    """The state of a sweep; all other files of its folder follow from it and the scores."""

    identity: SweepIdentity
    banks: tuple[Bank, ...] = ()
    looks: tuple[EvaluationLook, ...] = ()
    shown: frozenset[str] = frozenset()  # settings whose evaluation was ever shown

    @cached_property
    def settings(self) -> tuple[HeadSettings, ...]:
        """All settings in their one order."""
        return in_order(item for bank in self.banks for item in bank.settings)

    @property
    def composition(self) -> Composition:
        """What delta is shared among: settings x targets x looks at evaluation."""
        return Composition(
            configurations=tuple(name_setting(item) for item in self.settings),
            targets=self.identity.targets,
            groups={},
            looks=max(len(self.looks), 1),
        )

    @cached_property
    def compared(self) -> int:
        """What delta is divided by."""
        return self.composition.points

    def extended(self, settings: Iterable[HeadSettings]) -> "SweepRecord":
        """Return the record with the settings that it lacks, cut into banks of their own."""
        known = set(self.settings)
        new = in_order(item for item in settings if item not in known)
        return replace(self, banks=self.banks + cut_banks(new))

    def looked(self, *, show: bool) -> "SweepRecord":
        """Return the record with this look counted; the same settings again are the same look."""
        names = [name_setting(item) for item in self.settings]
        look = EvaluationLook(len(names), rows_sha256([[name] for name in names]), bool(self.shown))
        same = self.looks and self.looks[-1].settings_sha256 == look.settings_sha256
        looks = self.looks if same else (*self.looks, look)
        return replace(self, looks=looks, shown=self.shown | frozenset(names if show else ()))

    def won(self, winners: Mapping[str, str]) -> "SweepRecord":
        """Return the record with the winners of its last look."""
        last = msgspec.structs.replace(self.looks[-1], winners=dict(winners))
        return replace(self, looks=(*self.looks[:-1], last))

    def document(self, status: str, **finished: Any) -> SweepDocument:
        """Return the content of sweep.json."""
        return SweepDocument(
            **msgspec.structs.asdict(self.identity),
            schema=SCHEMA,
            status=status,
            axes=find_axes(self.settings),
            settings=tuple(
                NamedSettings(setting=name_setting(item), **item.as_document()) for item in self.settings
            ),
            banks=tuple(NamedBank(bank.name, tuple(map(name_setting, bank.settings))) for bank in self.banks),
            looks=self.looks,
            evaluation_shown=tuple(sorted(self.shown)),
            **finished,
            versions=versions_of("numpy", "scipy", "numba", "scikit-learn", "polars"),
        )


def write_document(out: Path, document: SweepDocument) -> None:
    """Write sweep.json; it is on the disk when this returns."""
    write_file(out / NAME, sealed_bytes(document.as_document()))


def read_document(out: Path) -> SweepDocument:
    """Read sweep.json."""
    return read_json(out / NAME, SweepDocument, what="the record of a sweep", schema=SCHEMA, sealed=True)


def read_record(out: Path) -> SweepRecord | None:
    """Return the record of the sweep in a folder, finished or not; None where there is none."""
    if not (out / NAME).exists():
        return None
    document = read_document(out)
    settings = {item.setting: item.values for item in document.settings}
    try:
        banks = tuple(Bank(tuple(settings[name] for name in bank.settings)) for bank in document.banks)
    except KeyError as error:
        raise InputError(
            f"{out / NAME}: banks: expected names of its settings, found {error}; choose another --out"
        ) from error
    identity = SweepIdentity(**{name: getattr(document, name) for name in SweepIdentity.__struct_fields__})
    return SweepRecord(identity, banks, document.looks, frozenset(document.evaluation_shown))


def require_same(out: Path, found: SweepIdentity, wanted: SweepIdentity) -> None:
    """Refuse to extend a sweep of another cache, other seeds or other targets; name what differs."""
    there, here = _flat(found.as_document()), _flat(wanted.as_document())
    differing = [key for key in here | there if there.get(key) != here.get(key)]
    if differing:
        words = (f"{key}: {_short(there.get(key))} there, {_short(here.get(key))} now" for key in differing)
        raise InputError(
            f"{out}: the sweep in this folder differs in {'; '.join(words)};"
            " use the same options and cache, or choose another --out"
        )


def _flat(content: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        inner = value.items() if isinstance(value, dict) else ()
        flat |= {f"{key}.{name}": item for name, item in inner} or {key: value}
    return flat


def _short(value: object) -> str:
    text = str(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@dataclass(frozen=True)
class FinishedSweep:
    """A finished sweep as a report shows it."""

    document: SweepDocument
    results: pl.DataFrame
    fold_results: pl.DataFrame

    @property
    def winners(self) -> dict[float, WinnerRecord]:
        """The winners by target."""
        return {float(target): winner for target, winner in (self.document.winner or {}).items()}


def read_sweep(folder: Path) -> FinishedSweep:
    """Read the folder of a finished sweep; refuse one with a file that was changed since."""
    document = read_document(folder)
    if document.status != FINISHED:
        raise InputError(f"{folder}: the sweep is not finished; continue it with `trust-cache sweep`")
    for problem in changed_files(folder, document.files, "run the same sweep again, which writes it again"):
        raise InputError(problem)
    try:
        results = pl.read_parquet(folder / PARQUET)
        folds = pl.read_csv(folder / FOLD_RESULTS, schema_overrides=_FOLD_TYPES, glob=False)
        folds = folds.select(FOLD_COLUMNS)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{folder}: the results are not readable ({error}); sweep again") from error
    if tuple(results.columns) != COLUMNS:
        raise InputError(f"{folder / PARQUET}: expected other columns than {results.columns}; sweep again")
    return FinishedSweep(document, results, folds)


def draw_files(folds: Sequence[Folds], split: Split, incomplete: bytes | None) -> dict[str, bytes]:
    """Return the folds of every repeat, the split, and the incomplete cases if there are any, by name."""
    tables = (item.table.write_csv().encode() for item in folds)
    files = {repeat_name(repeat, FOLDS_FILE): table for repeat, table in enumerate(tables)}
    listed = {} if incomplete is None else {INCOMPLETE: incomplete}
    return files | {SPLIT: split.as_csv()} | listed


def read_draws(out: Path, work: Preparation, earlier: SweepIdentity) -> Preparation:
    """Return the work with the folder's folds, if the number of repeats is the same."""
    if earlier.repeats != work.settings.repeats:
        return work
    files = (out / repeat_name(repeat, FOLDS_FILE) for repeat in range(earlier.repeats))
    return replace(work, folds=tuple(read_folds(file, work.cases)[0] for file in files))


def results_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return the results as a table with types."""
    columns = {name: [row.get(name) for row in rows] for name in COLUMNS}
    columns["tau"] = [None if tau is None else str(tau) for tau in columns["tau"]]
    return pl.DataFrame({name: pl.Series(name, cells, dtype=_TYPES[name]) for name, cells in columns.items()})


def folds_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return the results by fold as a table with types."""
    return pl.DataFrame(rows, schema=_FOLD_TYPES)


def table_files(
    results: Sequence[Mapping[str, Any]],
    folds: Sequence[Mapping[str, Any]],
    diverged: Mapping[tuple[str, int], int],
) -> dict[str, bytes]:
    """Return results.csv and its parquet, fold_results.csv and, where a setting diverged, failures.csv."""
    parquet = io.BytesIO()
    results_frame(results).write_parquet(parquet)
    files = {
        RESULTS: write_rows(COLUMNS, ({name: row.get(name) for name in COLUMNS} for row in results)),
        PARQUET: parquet.getvalue(),
        FOLD_RESULTS: write_rows(FOLD_COLUMNS, folds),
    }
    if diverged:
        reason = "training diverged: lower lr or the losses"
        rows = (
            {"setting": name, "repeat": repeat, "fold": fold, "reason": reason}
            for (name, repeat), fold in sorted(diverged.items())
        )
        files[FAILURES] = write_rows(("setting", "repeat", "fold", "reason"), rows)
    return files


class ScoreFiles:
    """The scores inside a sweep folder: one file per bank, repeat and fold, bound to them and the cache."""

    def __init__(self, out: Path, work: Preparation) -> None:
        self.folder = out / _SCORES
        self.work = work
        self._identity = work.identity.as_document()

    def missing(self, bank: Bank, repeat: int) -> list[int]:
        """Return the folds that have no scores yet, or whose file is not as it was written."""
        return [fold for fold in range(FOLDS) if self._content(bank, repeat, fold) is None]

    def keep(self, bank: Bank, repeat: int, fold: int, scores: NDArray[np.float64]) -> None:
        """Write the scores of one fold; they are on the disk when this returns."""
        content = save({"scores": np.ascontiguousarray(scores)})
        identity = self._identity, bank.name, repeat, fold
        write_file(self._file(bank, repeat, fold), bind_bytes(content, *identity))

    def read(self, bank: Bank, repeat: int) -> list[FoldScores]:
        """Read the scores of all folds."""
        return [self._read(bank, repeat, fold) for fold in range(FOLDS)]

    def digests(self, banks: Iterable[Bank]) -> dict[str, str]:
        """Return the sha256 of each file of these banks by its name in the sweep folder."""
        repeats = range(self.work.settings.repeats)
        files = [self._file(bank, r, fold) for bank in banks for r in repeats for fold in range(FOLDS)]
        return {path.relative_to(self.folder.parent).as_posix(): file_sha256(path) for path in files}

    def clean(self) -> None:
        """Remove files that a kill left half written, here and in the sweep folder around."""
        for path in self.folder.parent.rglob(f"*{PARTIAL}"):
            path.unlink()

    def _read(self, bank: Bank, repeat: int, fold: int) -> FoldScores:
        content = self._content(bank, repeat, fold)
        if content is None:
            path = self._file(bank, repeat, fold)
            raise InputError(
                f"{path}: missing, changed or moved since it was written; run the same command again:"
                " this part alone is trained again"
            )
        return FoldScores(self.work.images(repeat, fold, TEST), load(content)["scores"])

    def _content(self, bank: Bank, repeat: int, fold: int) -> bytes | None:
        try:
            found = self._file(bank, repeat, fold).read_bytes()
        except FileNotFoundError:
            return None
        return unbind_bytes(found, self._identity, bank.name, repeat, fold)

    def _file(self, bank: Bank, repeat: int, fold: int) -> Path:
        return self.folder / bank.name / f"repeat-{repeat}-fold-{fold}.safetensors"
