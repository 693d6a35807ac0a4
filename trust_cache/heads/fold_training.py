"""The training of folds for every command: jobs from a prepared run, results kept as folds end, resuming."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import load, save
from threadpoolctl import threadpool_limits

from trust_cache.base.digests import bind_bytes, unbind_bytes
from trust_cache.base.documents import json_bytes, parse_json
from trust_cache.base.errors import InputError
from trust_cache.base.files import refusals_in_words, write_file
from trust_cache.base.locks import FileLock
from trust_cache.cache.feature_rows import FeatureRows
from trust_cache.heads.bank import HeadParameters, score_rows
from trust_cache.heads.draws import Draws
from trust_cache.heads.folds import CALIBRATE, FIT, FOLDS, TEST
from trust_cache.heads.head_settings import HeadSettings, TunedChoice
from trust_cache.heads.run_folder import FoldResult, RunIdentity, with_feature_tails
from trust_cache.heads.trainer import COMPILED, FoldImages, FoldJob, TrainedFold, Trainer
from trust_cache.heads.training_data import Preparation
from trust_cache.heads.tuned.tuned_training import train_jobs
from trust_cache.statistics.feature_gate import FEWEST_HELD_OUT, FeatureGate, evenly_spaced, fit_gate

_AT_ONCE = 4096  # images whose features are gathered
_COURSE = ("taus", "dismissed", "positives_dismissed", "trajectories")


@dataclass(frozen=True)
class FoldEpoch:
    """An epoch that ended."""

    repeat: int
    fold: int
    epoch: int
    taus: NDArray[np.float64]  # of each head; NaN where it has none
    done: int  # epochs of this call


def fold_job(
    work: Preparation, rows: FeatureRows, heads: Sequence[HeadSettings], repeat: int, fold: int
) -> FoldJob:
    """Return the job of training these heads on one fold of one repeat."""
    settings = work.settings
    if settings.views is not None:
        rows = replace(rows, views=settings.views + 1)
    cases = work.cases
    fit, calibrate = (work.images(repeat, fold, part) for part in (FIT, CALIBRATE))
    patients = cases.patients[cases.of_image]
    images = FoldImages(work.labels, fit, calibrate, cases.of_image, patients, cases.breasts)
    return FoldJob(rows, images, heads, settings.training, Draws(settings.seed, fold, repeat))


def fold_gate(work: Preparation, rows: FeatureRows, repeat: int, fold: int) -> FeatureGate:
    """Fit the feature gate on the fitting images of a fold; its calibration images are held out."""
    fitting, held_out = (work.images(repeat, fold, part) for part in (FIT, CALIBRATE))
    chosen = evenly_spaced(fitting) if held_out.size >= FEWEST_HELD_OUT else fitting
    with _one_blas_thread():
        return fit_gate(rows.gather_clean(chosen), rows.gather_clean(held_out))


def gate_tails(gate: FeatureGate, rows: FeatureRows, images: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what the feature gate says about images; NaN for an image without features."""
    tails = np.full(images.size, np.nan)
    present = np.flatnonzero(rows.present[images])
    with _one_blas_thread():
        for first in range(0, present.size, _AT_ONCE):
            part = present[first : first + _AT_ONCE]
            tails[part] = gate.tails(rows.gather_clean(images[part]))
    return tails


def _one_blas_thread() -> threadpool_limits:
    """Limit BLAS: beside training its threads take ten times the time, and its sums follow their number."""
    return threadpool_limits(limits=1, user_api="blas")


def train_fold(
    job: FoldJob,
    trainer: Trainer = COMPILED,
    *,
    threads: int = 1,
    on_epoch: Callable[[int], None] = lambda _: None,
) -> TrainedFold:
    """Train one job; `on_epoch` gets the number of epochs done."""

    def report(_job: int, epoch: int, _taus: NDArray[np.float64]) -> None:
        on_epoch(epoch)

    with closing(train_jobs(trainer, [job], threads=threads, on_epoch=report)) as done:
        _, trained = next(done)
    on_epoch(job.training.epochs)
    return trained


def gated_manifest(work: Preparation, rows: FeatureRows, repeat: int = 0) -> pl.DataFrame:
    """Return the cache's manifest with what the feature gate of the fold that tests an image says about it.

    The gate does not depend on heads: every study of these folds has the column that `fit-heads` writes.
    """
    tested = [(fold, work.images(repeat, fold, TEST)) for fold in range(FOLDS)]
    parts = (
        (images, gate_tails(fold_gate(work, rows, repeat, fold), rows, images)) for fold, images in tested
    )
    return with_feature_tails(work.cache.manifest, parts)


def train_folds(
    work: Preparation,
    rows: FeatureRows,
    heads: Sequence[HeadSettings],
    folds: Sequence[tuple[int, int]],
    keep: Callable[[int, int, FoldResult], None],
    *,
    scored: FeatureRows | None = None,
    gated: bool = False,
    trainer: Trainer = COMPILED,
    threads: int = 1,
    on_epoch: Callable[[FoldEpoch], None] = lambda _: None,
) -> None:
    """Train the heads on these folds, given as (repeat, fold); score and keep each fold as it ends.

    A fold scores its test images, or with `scored` all images of these rows; `gated` fits its feature gate
    too. A fold is kept before its last epoch is reported: whoever stops the training then does not lose it.
    """
    epochs = work.settings.training.epochs
    done = dict.fromkeys(range(len(folds)), 0)

    def report(number: int, epoch: int, taus: NDArray[np.float64]) -> None:
        done[number] = epoch
        on_epoch(FoldEpoch(*folds[number], epoch, taus, sum(done.values())))

    jobs = [fold_job(work, rows, heads, repeat, fold) for repeat, fold in folds]
    with closing(train_jobs(trainer, jobs, threads=threads, on_epoch=report)) as results:
        for number, trained in results:
            repeat, fold = folds[number]
            images = work.images(repeat, fold, TEST) if scored is None else np.arange(scored.images)
            scores = score_rows(rows if scored is None else scored, images, trained.parameters)
            tails = np.full(images.size, np.nan)
            if gated:
                gate = fold_gate(work, rows, repeat, fold)
                tails = gate_tails(gate, rows if scored is None else scored, images)
            keep(repeat, fold, FoldResult(images, scores, trained, tails))
            report(number, epochs, trained.taus[-1])


class PartialRun:
    """A hidden folder beside `out`: the identity of an unfinished run, and one file per finished fold.

    Each file is bound to the identity and its fold: one that was changed or moved is trained again.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self._identity: dict[str, Any] = {}
        self.folder = out.with_name(f".{out.name}.partial")

    @property
    def exists(self) -> bool:
        """Whether an earlier run was interrupted."""
        return self._identity_file.exists()

    def begin(self, identity: RunIdentity, *, resume: bool) -> None:
        """Start from nothing, or resume an interrupted run."""
        self._identity = identity.as_document()
        if not (resume and self.exists):
            self.discard()
            write_file(self._identity_file, json_bytes(self._identity))

    def require_same(self, identity: RunIdentity) -> None:
        """Refuse to resume an interrupted run of another identity."""
        if not self.exists:
            return
        try:
            found = parse_json(self._identity_file.read_bytes())
        except ValueError as error:
            raise InputError(f"{self._identity_file}: damaged; start over with --overwrite") from error
        expected = parse_json(json_bytes(identity.as_document()))
        found = found if isinstance(found, dict) else {}
        differing = [key for key in expected if found.get(key) != expected[key]]
        if differing:
            raise InputError(
                f"{self.out}: the interrupted run differs in {', '.join(differing)};"
                " resume it with the same options and cache, or start over with --overwrite"
            )

    def has(self, repeat: int, fold: str) -> bool:
        """Whether a fold is finished, and its file as it was written."""
        return self._content(repeat, fold) is not None

    def keep(self, repeat: int, fold: str, result: FoldResult) -> None:
        """Write a fold's result."""
        trained = result.trained
        arrays = {"images": result.images, "scores": result.scores, "tails": result.tails}
        arrays |= vars(trained.parameters)
        arrays |= {name: getattr(trained, name) for name in _COURSE}
        arrays["choices"] = np.frombuffer(msgspec.json.encode(trained.choices), np.uint8)
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        content = bind_bytes(save(contiguous), self._identity, repeat, fold)
        write_file(self._file(repeat, fold), content)

    def read(self, repeat: int, fold: str) -> FoldResult:
        """Read a finished fold's result."""
        path, content = self._file(repeat, fold), self._content(repeat, fold)
        if content is None:
            raise InputError(f"{path}: changed since it was written; run the same command again")
        arrays = load(content)
        course = {name: arrays.pop(name) for name in _COURSE}
        images, scores, tails = (arrays.pop(name) for name in ("images", "scores", "tails"))
        choices = msgspec.json.decode(arrays.pop("choices").tobytes(), type=tuple[TunedChoice | None, ...])
        return FoldResult(
            images, scores, TrainedFold(HeadParameters(**arrays), **course, choices=choices), tails
        )

    def _content(self, repeat: int, fold: str) -> bytes | None:
        try:
            return unbind_bytes(self._file(repeat, fold).read_bytes(), self._identity, repeat, fold)
        except FileNotFoundError:
            return None

    def discard(self) -> None:
        """Remove the folder."""
        if self.folder.exists():
            shutil.rmtree(self.folder)

    @property
    def _identity_file(self) -> Path:
        return self.folder / "identity.json"

    def _file(self, repeat: int, fold: str) -> Path:
        return self.folder / f"repeat-{repeat}-fold-{fold}.safetensors"


def lock_beside(out: Path) -> FileLock:
    """Return the lock on an output folder; it is a file beside it."""
    with refusals_in_words(str(out)):
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
    return FileLock(out.with_name(f".{out.name}.lock"), str(out))
