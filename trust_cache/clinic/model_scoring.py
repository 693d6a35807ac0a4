"""Apply a model's head to a cache, and recognise the cases and images that the head was trained on."""

import hashlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import Cache, shown
from trust_cache.cache.feature_rows import FeatureRows
from trust_cache.heads.bank import HeadParameters, score_rows
from trust_cache.manifest.cases import Cases, find_cases
from trust_cache.statistics.sketches import SKETCH_NUMBERS, Sketches, same_sketches, sketch_vector

Floats = NDArray[np.float64]
FEWEST_DIMS = 16  # with fewer features two images may agree by chance


@dataclass(frozen=True)
class ScoredCache:
    """One head's scores of a cache's images and cases."""

    cases: Cases
    images: Floats
    by_case: Floats


def score_cache(cache: Cache, rows: FeatureRows, head: HeadParameters) -> ScoredCache:
    """Score every image and every case of a cache."""
    cases = find_cases(cache.manifest)
    images = score_rows(rows, np.arange(cache.images), head)[0]
    return ScoredCache(cases, images, cases.score(images))


def sketch_images(rows: FeatureRows) -> Sketches:
    """Return the sketch [image, number] of every image; zeros where features are constant or too few."""
    if rows.dim < FEWEST_DIMS or not rows.images:
        return np.zeros((rows.images, SKETCH_NUMBERS), dtype=np.int16)
    return np.stack([sketch_vector(rows.clean(image)) for image in range(rows.images)])


def digest_of(case_id: str) -> str:
    """Return the digest that stands for a case id in a model folder."""
    return hashlib.blake2b(case_id.encode(errors="surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True)
class TrainedOn:
    """Digests of the case ids and sketches of the images that a head was trained on.

    They detect reuse; they do not anonymise: anyone who can guess a case id can find its digest.
    """

    cases: frozenset[str]
    sketches: Sketches = field(repr=False)  # [image, number]

    @classmethod
    def from_cache(cls, cache: Cache, rows: FeatureRows) -> "TrainedOn":
        """Return the record of a head that was trained on this cache."""
        return cls(frozenset(map(digest_of, cache.manifest["case_id"].unique())), sketch_images(rows))

    def refuse_seen(self, cache: Cache, rows: FeatureRows) -> tuple[str, ...]:
        """Refuse a cache with cases that the head was trained on; return warnings.

        Images are compared by their features. Where these differ, an equal case id is only a warning:
        different data sets number their cases alike. With too few features the case ids decide.
        """
        manifest = cache.manifest
        images = manifest["image_id"][same_sketches(self.sketches, sketch_images(rows))].to_list()
        shared = sorted(name for name in manifest["case_id"].unique() if digest_of(name) in self.cases)
        if images or (shared and rows.dim < FEWEST_DIMS):
            kind, names = ("images", images) if images else ("cases", shared)
            raise InputError(
                f"{cache.source}: expected cases that the model never saw, found {len(names)} {kind} that it"
                f" was trained on ({shown(names)}); leave them out with `trust-cache cache subset`"
            )
        if not shared:
            return ()
        return (
            f"{len(shared)} case ids also occur among the cases that the model was trained on (the first:"
            f" {shared[0]}). Their images differ, so they count as different cases. If the same patients"
            " occur in both, the certificate is not exact",
        )
