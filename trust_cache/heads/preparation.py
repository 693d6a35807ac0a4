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
from trust_cache.heads.folds import CALIBRATE, FIT, FOLDS, Cases, Folds, draw_folds, find_cases, read_folds
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
        return len(self.settings.configurations) * FOLDS * self.settings.repeats

    def images(self, repeat: int, fold: int, part: int) -> NDArray[np.int64]:
        """Return the images of a part of a fold by number."""
        return np.flatnonzero(self.folds[repeat].parts[fold][self.cases.of_image] == part)


def prepare(cache: Cache, settings: FitSettings, splits: Path | None) -> Preparation:
    """Find the cases, draw or read the folds, and say what is doubtful about them."""
    manifest = cache.manifest
    if settings.views is not None and settings.views > cache.views - 1:
        raise InputError(
            f"{cache.source}: expected at least {settings.views} augmented views, found {cache.views - 1}"
        )
    cases = find_cases(manifest)
    warnings: list[str] = []
    if splits is None:
        folds = tuple(draw_folds(cases, settings.seed, repeat) for repeat in range(settings.repeats))
    else:
        given, warnings = read_folds(splits, cases)
        folds = (given,) * settings.repeats
    labels = manifest["label"].cast(int).to_numpy()
    work = Preparation(cache, settings, cases, folds, labels, (), _identity(cache, settings, folds))
    return replace(work, warnings=(*warnings, *_part_warnings(work)))


def _identity(cache: Cache, settings: FitSettings, folds: Sequence[Folds]) -> dict[str, Any]:
    manifest = cache.manifest.select("image_id", "case_id", "label")
    return {
        "configurations": {name: asdict(head) for name, head in settings.configurations.items()},
        "training": asdict(settings.training) | {"dropout": settings.training.dropped_of_256 / DRAWS},
        "seed": settings.seed,
        "repeats": settings.repeats,
        "views": cache.views - 1 if settings.views is None else settings.views,
        "fingerprint": cache.fingerprint.as_document(),
        "images": cache.images,
        "dim": cache.dim,
        "manifest_sha256": rows_sha256(manifest.iter_rows()),
        "splits_sha256": [item.sha256 for item in folds],
    }


def _part_warnings(work: Preparation) -> list[str]:
    """Warn of positives that are drawn with repetition and of calibration parts too small for a threshold."""
    fitted, calibrated = [], []
    for repeat in range(work.settings.repeats):
        for fold in range(FOLDS):
            fit, calibrate = (work.images(repeat, fold, part) for part in (FIT, CALIBRATE))
            fitted.append(int(work.labels[fit].sum()))
            calibrated.append(int(calibrate.size))
    warnings = []
    wanted = work.settings.training.batch_positives
    if min(fitted) < wanted:
        warnings.append(
            f"a fold has only {min(fitted)} positive images to fit on: a batch's {wanted} are drawn with"
            " repetition"
        )
    for name, head in work.settings.configurations.items():
        needed = int(smallest_samples(0, head.level, head.delta)[0]) if head.closed_loop else 0
        if min(calibrated) < needed:
            warnings.append(
                f"{name}: a fold has only {min(calibrated)} calibration images; no threshold can qualify"
                f" with fewer than {needed}, so tau stays 0 there"
            )
    return warnings
