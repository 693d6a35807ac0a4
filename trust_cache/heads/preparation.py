"""What a run trains on: cases, folds and parts of a cache, and all that makes the run this run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.digests import rows_sha256
from trust_cache.base.errors import InputError
from trust_cache.cache.reading import Cache
from trust_cache.heads.final_split import draw_final, read_final
from trust_cache.heads.folds import CALIBRATE, FIT, Cases, Folds, draw_folds, find_cases, read_folds
from trust_cache.heads.settings import DRAWS, HeadSettings, TrainingSettings
from trust_cache.statistics.bounds import smallest_samples

_LARGEST_SEED = 2**32 - 1  # what scikit-learn's splitter takes


@dataclass(frozen=True)
class FitSettings:
    """All that decides the bytes of a run, besides the cache and given splits."""

    configurations: Mapping[str, HeadSettings]
    training: TrainingSettings
    seed: int = 0
    repeats: int = 1
    views: int | None = None  # augmented views to draw from; None: all that the cache has

    def __post_init__(self) -> None:
        if not 0 <= self.seed <= _LARGEST_SEED:
            raise InputError(f"seed: expected 0 to {_LARGEST_SEED}, found {self.seed}")
        if self.repeats < 1:
            raise InputError(f"repeats: expected 1 or more, found {self.repeats}")
        if self.views is not None and self.views < 0:
            raise InputError(f"views: expected 0 or more, found {self.views}")


@dataclass(frozen=True)
class Preparation:
    """A run prepared: what to train on, and what makes it this run."""

    cache: Cache
    settings: FitSettings
    cases: Cases
    folds: tuple[Folds, ...]  # one per repeat
    labels: NDArray[np.int64]  # of images
    warnings: tuple[str, ...]
    identity: dict[str, Any]

    @property
    def heads(self) -> int:
        """How many heads the run trains."""
        return len(self.settings.configurations) * sum(len(folds.names) for folds in self.folds)

    @property
    def fold_names(self) -> tuple[str, ...]:
        """The folds as the run's files name them."""
        return self.folds[0].names

    def images(self, repeat: int, fold: int, part: int) -> NDArray[np.int64]:
        """Return the images of a part of a fold by number."""
        return np.flatnonzero(self.folds[repeat].parts[fold][self.cases.of_image] == part)


def prepare(cache: Cache, settings: FitSettings, splits: Path | None) -> Preparation:
    """Find the cases, draw or read the folds, and say what is doubtful about them."""
    cases = find_cases(cache.manifest)
    if splits is None:
        return _prepared(
            cache, settings, cases, [draw_folds(cases, settings.seed, r) for r in range(settings.repeats)]
        )
    given, warnings = read_folds(splits, cases)
    return _prepared(cache, settings, cases, [given] * settings.repeats, warnings)


def prepare_final(cache: Cache, settings: FitSettings, splits: Path | None) -> Preparation:
    """Prepare one model on the whole cache: a single fold without a test part."""
    cases = find_cases(cache.manifest)
    if splits is None:
        return _prepared(cache, settings, cases, [draw_final(cases, settings.seed)])
    given, warnings = read_final(splits, cases)
    return _prepared(cache, settings, cases, [given], warnings)


def _prepared(
    cache: Cache, settings: FitSettings, cases: Cases, folds: Sequence[Folds], warnings: Sequence[str] = ()
) -> Preparation:
    if settings.views is not None and settings.views > cache.views - 1:
        raise InputError(
            f"{cache.source}: expected at least {settings.views} augmented views, found {cache.views - 1}"
        )
    labels = cache.manifest["label"].cast(int).to_numpy()
    work = Preparation(cache, settings, cases, tuple(folds), labels, (), _identity(cache, settings, folds))
    return replace(work, warnings=(*warnings, *part_warnings(work)))


def _identity(cache: Cache, settings: FitSettings, folds: Sequence[Folds]) -> dict[str, Any]:
    return {
        "configurations": {name: asdict(head) for name, head in settings.configurations.items()},
        "training": asdict(settings.training) | {"dropout": settings.training.dropped_of_256 / DRAWS},
        "seed": settings.seed,
        "repeats": settings.repeats,
        "views": cache.views - 1 if settings.views is None else settings.views,
        "fingerprint": cache.fingerprint.as_document(),
        "images": cache.images,
        "dim": cache.dim,
        "manifest_sha256": labels_sha256(cache),
        "splits_sha256": [item.sha256 for item in folds],
    }


def labels_sha256(cache: Cache) -> str:
    """Return the digest of a cache's images, their cases and labels."""
    return rows_sha256(cache.manifest.select("image_id", "case_id", "label").iter_rows())


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
        needed = int(smallest_samples(0, head.level, head.delta)[0]) if head.closed_loop else 0
        if min(calibrated) < needed:
            warnings.append(
                f"{name}: {place} only {min(calibrated)} calibration images; no threshold can qualify"
                f" with fewer than {needed}, so tau stays 0 there"
            )
    return warnings
