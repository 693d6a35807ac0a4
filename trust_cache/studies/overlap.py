"""Whether two sets share examinations: a model certified on cases that it saw is no external one."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.reading import Cache
from trust_cache.cache.rows import FeatureRows

TELLING_DIMS = 16  # with fewer features equal ones may be a coincidence
SAME_TO = (
    0.01  # relative: other decoders, batches and threads move features by far less, other images by more
)


@dataclass(frozen=True)
class Overlap:
    """What two sets have in common."""

    case_ids: tuple[str, ...]  # that stand in both, sorted
    images: tuple[tuple[str, str], ...]  # image_id in the source and in the target, of the same features


def find_overlap(source: Cache, target: Cache, rows: FeatureRows, target_rows: FeatureRows) -> Overlap:
    """Find the case ids that stand in both sets, and the images whose clean features do.

    Features are compared bit by bit whatever the ids, and to `SAME_TO` where the image ids are equal.
    """
    shared = set(source.manifest["case_id"]) & set(target.manifest["case_id"])
    images: list[tuple[str, str]] = []
    if source.dim >= TELLING_DIMS:
        pairs = _same_bits(rows, target_rows) | _alike(source, target, rows, target_rows)
        ids = [cache.manifest["image_id"] for cache in (source, target)]
        images = [(ids[0][one], ids[1][other]) for one, other in sorted(pairs)]
    return Overlap(tuple(sorted(shared)), tuple(images))


def refuse_overlap(overlap: Overlap, source: str, target: str) -> list[str]:
    """Refuse shared images; return a warning where only the case ids are the same."""
    if overlap.images:
        one, other = overlap.images[0]
        named = one if one == other else f"{one} there, {other} here"
        raise InputError(
            f"{target}: the features of {len(overlap.images)} images are also in {source} ({named}): a model"
            " would be certified on examinations that it saw; leave those cases out with"
            " `trust-cache cache subset`"
        )
    if not overlap.case_ids:
        return []
    return [
        f"{len(overlap.case_ids)} case ids stand in both {source} and {target} (the first:"
        f" {overlap.case_ids[0]}); their features differ, so they are taken for different examinations. If"
        " some are of the same women, the certificate is not exact"
    ]


def _same_bits(rows: FeatureRows, others: FeatureRows) -> set[tuple[int, int]]:
    """Return the images with the same clean features bit by bit; constant ones say nothing."""
    here = {_digest(rows.clean(image)): image for image in range(rows.images)}
    pairs = set()
    for image in range(others.images):
        features = others.clean(image)
        found = here.get(_digest(features))
        if found is not None and np.any(features != features[0]):
            pairs.add((found, image))
    return pairs


def _alike(source: Cache, target: Cache, rows: FeatureRows, others: FeatureRows) -> set[tuple[int, int]]:
    """Return the images of the same id whose features agree but for rounding."""
    numbered = [
        cache.manifest.select("image_id").with_row_index(name)
        for cache, name in ((source, "one"), (target, "other"))
    ]
    joined = numbered[0].join(numbered[1], on="image_id")
    pairs = zip(joined["one"].to_list(), joined["other"].to_list(), strict=True)
    return {(one, other) for one, other in pairs if _agree(rows.clean(one), others.clean(other))}


def _agree(one: NDArray[np.float16], other: NDArray[np.float16]) -> bool:
    centred = one.astype(np.float64) - one.mean(dtype=np.float64)
    difference = one.astype(np.float64) - other.astype(np.float64)
    spread = float(np.linalg.norm(centred))
    return spread > 0.0 and float(np.linalg.norm(difference)) <= SAME_TO * spread


def _digest(features: NDArray[np.float16]) -> bytes:
    return hashlib.blake2b(features.tobytes(), digest_size=16).digest()
