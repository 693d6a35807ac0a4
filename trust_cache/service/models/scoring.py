"""A model's head applied to a cache: scores by image and by case, and what the cases are known by."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.cache.reading import Cache
from trust_cache.cache.rows import FeatureRows
from trust_cache.heads.bank import HeadParameters, score_rows
from trust_cache.heads.folds import Cases, find_cases
from trust_cache.service.models.record import TrainedOn, digest_of
from trust_cache.service.models.sketches import sketch_images

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scored:
    """The scores of a cache's images by one head, and of its cases: the maximum over the images."""

    cases: Cases
    images: Floats
    by_case: Floats


def score_cache(cache: Cache, rows: FeatureRows, head: HeadParameters) -> Scored:
    """Score every image of a cache."""
    cases = find_cases(cache.manifest)
    images = score_rows(rows, np.arange(cache.images), head)[0]
    by_case = np.full(cases.labels.size, -np.inf)
    np.maximum.at(by_case, cases.of_image, images)
    return Scored(cases, images, by_case)


def scores_table(cache: Cache, scored: Scored, configuration: str) -> pl.DataFrame:
    """Return the scores as an external run's scores.csv has them, with the manifest's further columns."""
    identity = ("case_id", "image_id", "label", "configuration", "fold", "score")
    further = cache.manifest.select(pl.exclude(identity))
    return pl.DataFrame(
        {
            "configuration": [configuration] * cache.images,
            "fold": ["external"] * cache.images,
            **{name: cache.manifest[name] for name in ("case_id", "image_id", "label")},
            "score": [repr(score) for score in scored.images.tolist()],
        }
    ).hstack(further)


def known_by(cache: Cache, rows: FeatureRows) -> TrainedOn:
    """Return what a head trained on this cache remembers of it."""
    cases = frozenset(digest_of(name) for name in cache.manifest["case_id"].unique())
    return TrainedOn(cases, sketch_images(rows))
