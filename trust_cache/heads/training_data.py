"""What a run trains on: the settings, the cases of a cache, their folds, and the run's identity.

Images without features are in no fitting or calibration part. They stay among the test images, without a
score, and their cases keep their labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import Cache, refuse_unfinished
from trust_cache.heads.folds import (
    CALIBRATE,
    FIT,
    TEST,
    Folds,
    draw_final,
    draw_folds,
    read_final,
    read_folds,
)
from trust_cache.heads.head_settings import DRAWS, HeadSettings, TrainingSettings, change_settings
from trust_cache.heads.run_folder import SCHEMA, RecordedTraining, RunIdentity, labels_sha256
from trust_cache.manifest.cases import Cases, case_maxima, count_incomplete, find_cases
from trust_cache.statistics.bounds import smallest_samples

_LARGEST_SEED = 2**32 - 1  # what scikit-learn's splitter takes


@dataclass(frozen=True)
class FitSettings:
    """All that decides the bytes of a run, besides the cache and given folds."""

    configurations: Mapping[str, HeadSettings]
    training: TrainingSettings
    seed: int = 0
    repeats: int = 1
    views: int | None = None  # augmented views to draw from; None: all of the cache

    def __post_init__(self) -> None:
        if not 0 <= self.seed <= _LARGEST_SEED:
            raise InputError(f"seed: expected 0 to {_LARGEST_SEED}, found {self.seed}")
        for name, value, least in (("repeats", self.repeats, 1), ("views", self.views, 0)):
            if value is not None and value < least:
                raise InputError(f"{name}: expected {least} or more, found {value}")


def fit_settings(
    configurations: Mapping[str, HeadSettings],
    *,
    epochs: int,
    lr: float | None,
    weight_decay: float | None,
    clip: float | None,
    batch_positives: int,
    batch_negatives: int,
    dropout: float,
    seed: int,
    views: int | None,
    repeats: int = 1,
) -> FitSettings:
    """Return the settings of a run; `lr`, `weight_decay` and `clip` replace those of every configuration."""
    chosen = change_settings(configurations, lr=lr, weight_decay=weight_decay, clip=clip)
    training = TrainingSettings.with_dropout(
        dropout, epochs=epochs, batch_positives=batch_positives, batch_negatives=batch_negatives
    )
    return FitSettings(chosen, training, seed, repeats, views)


@dataclass(frozen=True)
class Preparation:
    """A run prepared: what to train on, and what identifies it."""

    cache: Cache
    settings: FitSettings
    cases: Cases
    folds: tuple[Folds, ...]  # one per repeat
    labels: NDArray[np.int64]  # of images
    present: NDArray[np.bool_]  # which images have features
    warnings: tuple[str, ...]
    identity: RunIdentity

    @property
    def heads(self) -> int:
        """How many heads the run trains."""
        return len(self.settings.configurations) * sum(len(folds.names) for folds in self.folds)

    @property
    def fold_names(self) -> tuple[str, ...]:
        """The folds as the run's files name them."""
        return self.folds[0].names

    def images(self, repeat: int, fold: int, part: int) -> NDArray[np.int64]:
        """Return the images of a part of a fold by number; only test images may lack features."""
        chosen = self.folds[repeat].parts[fold][self.cases.of_image] == part
        return np.flatnonzero(chosen if part == TEST else chosen & self.present)

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Which cases have features of all their images."""
        return ~case_maxima(~self.present, self.cases.of_image)


def prepare(cache: Cache, settings: FitSettings, folds: Path | None) -> Preparation:
    """Find the cases, draw the folds or read them from a file, and collect warnings."""
    cases = find_cases(cache.manifest)
    if folds is None:
        drawn = [draw_folds(cases, settings.seed, repeat) for repeat in range(settings.repeats)]
        return _prepared(cache, settings, cases, drawn)
    given, warnings = read_folds(folds, cases)
    return _prepared(cache, settings, cases, [given] * settings.repeats, warnings)


def prepare_final(cache: Cache, settings: FitSettings, folds: Path | None) -> Preparation:
    """Prepare one model on the whole cache: a single fold without a test part."""
    cases = find_cases(cache.manifest)
    if folds is None:
        return _prepared(cache, settings, cases, [draw_final(cases, settings.seed)])
    given, warnings = read_final(folds, cases)
    return _prepared(cache, settings, cases, [given], warnings)


def _prepared(
    cache: Cache, settings: FitSettings, cases: Cases, folds: Sequence[Folds], warnings: Sequence[str] = ()
) -> Preparation:
    if settings.views is not None and settings.views > cache.views - 1:
        raise InputError(
            f"{cache.source}: expected at least {settings.views} augmented views, found {cache.views - 1}"
        )
    refuse_unfinished(cache)
    training = settings.training
    identity = RunIdentity(
        schema=SCHEMA,
        configurations=dict(settings.configurations),
        training=RecordedTraining(**training.as_document(), dropout=training.dropped_of_256 / DRAWS),
        seed=settings.seed,
        repeats=settings.repeats,
        views=cache.views - 1 if settings.views is None else settings.views,
        fingerprint=cache.fingerprint,
        images=cache.images,
        dim=cache.dim,
        manifest_sha256=labels_sha256(cache),
        content_sha256=cache.content_sha256,
        folds_sha256=[item.sha256 for item in folds],
        images_without_features=int(np.count_nonzero(cache.failed)),
    )
    labels = cache.manifest["label"].cast(int).to_numpy()
    work = Preparation(cache, settings, cases, tuple(folds), labels, cache.done, (), identity)
    return replace(work, warnings=(*warnings, *feature_warnings(cache), *part_warnings(work)))


def feature_warnings(cache: Cache) -> list[str]:
    """Warn of images without features and of the cases that are incomplete because of them."""
    if not cache.failed.any():
        return []
    found = count_incomplete(cache.manifest, ~cache.failed)
    return [f"{cache.source}: {found.sentence(f'`trust-cache cache info {cache.source} --json`')}"]


def part_warnings(work: Preparation) -> list[str]:
    """Warn of positives that are drawn with repetition and of calibration parts too small for a threshold."""
    fitted, calibrated = [], []
    for repeat, folds in enumerate(work.folds):
        for fold in range(len(folds.names)):
            fit, calibrate = (work.images(repeat, fold, part) for part in (FIT, CALIBRATE))
            fitted.append(int(work.labels[fit].sum()))
            calibrated.append(int(calibrate.size))
    warnings = []
    place = "a fold has" if len(work.fold_names) > 1 else "the training set has"
    wanted = work.settings.training.batch_positives
    if min(fitted) < wanted:
        warnings.append(
            f"{place} only {min(fitted)} positive images to fit on: a batch's {wanted} are drawn with"
            " repetition"
        )
    for name, head in work.settings.configurations.items():
        needed = int(smallest_samples(0, head.loop_level, head.loop_delta)[0]) if head.closed_loop else 0
        if min(calibrated) < needed:
            warnings.append(
                f"{name}: {place} only {min(calibrated)} calibration images; no threshold can qualify"
                f" with fewer than {needed}, so tau stays 0 there"
            )
    return warnings
