"""Find cases that two caches share: a certificate on cases that the model saw is not external."""

import hashlib
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import Cache
from trust_cache.cache.feature_rows import FeatureRows
from trust_cache.manifest.cases import PATIENT

TELLING_DIMS = 16  # with fewer features equal ones may be a coincidence
# Relative. Other decoders, batches and threads move features by far less, other images by more.
SAME_TO = 0.01


@dataclass(frozen=True)
class Overlap:
    """What two caches have in common."""

    case_ids: tuple[str, ...]  # in both, sorted
    patients: tuple[str, ...]  # the patient ids in both, sorted
    images: tuple[tuple[str, str], ...]  # image_id in train and in test, of the same features


def find_overlap(train: Cache, test: Cache, rows: FeatureRows, test_rows: FeatureRows) -> Overlap:
    """Find the case and patient ids that are in both caches, and the images whose clean features are.

    Features are compared bit by bit whatever the ids, and to `SAME_TO` where the image ids are equal.
    """
    cases, patients = (_shared_ids(train.manifest, test.manifest, name) for name in ("case_id", PATIENT))
    images: list[tuple[str, str]] = []
    if train.dim >= TELLING_DIMS:
        pairs = _same_bits(rows, test_rows) | _alike(train, test, rows, test_rows)
        ids = [cache.manifest["image_id"] for cache in (train, test)]
        images = [(ids[0][one], ids[1][other]) for one, other in sorted(pairs)]
    return Overlap(cases, patients, tuple(images))


def _shared_ids(train: pl.DataFrame, test: pl.DataFrame, column: str) -> tuple[str, ...]:
    if column not in train.columns or column not in test.columns:
        return ()
    ids = (set(table[column].cast(pl.String).drop_nulls()) for table in (train, test))
    return tuple(sorted(set.intersection(*ids)))


def refuse_overlap(overlap: Overlap, train: str, test: str) -> list[str]:
    """Refuse shared images; return warnings where only the ids of cases or patients are the same."""
    if overlap.images:
        one, other = overlap.images[0]
        named = one if one == other else f"{one} there, {other} here"
        raise InputError(
            f"{test}: the features of {len(overlap.images)} images are also in {train} ({named}): a model"
            " would be certified on cases that it saw; leave those cases out with"
            " `trust-cache cache subset`"
        )
    named_ids = ((overlap.case_ids, "case"), (overlap.patients, "patient"))
    return [
        f"{len(ids)} {word} ids are in both {train} and {test} (the first: {ids[0]}); their features differ,"
        f" so they are taken for different {word}s. If some are of the same patients, the certificate is"
        " not exact"
        for ids, word in named_ids
        if ids
    ]


def _same_bits(rows: FeatureRows, others: FeatureRows) -> set[tuple[int, int]]:
    """Return the images with the same clean features bit by bit, except constant features."""
    here = {_digest(rows.clean(image)): image for image in np.flatnonzero(rows.present).tolist()}
    clean = ((image, others.clean(image)) for image in np.flatnonzero(others.present).tolist())
    found = (
        (here.get(_digest(features)), image) for image, features in clean if np.any(features != features[0])
    )
    return {(one, other) for one, other in found if one is not None}


def _alike(train: Cache, test: Cache, rows: FeatureRows, others: FeatureRows) -> set[tuple[int, int]]:
    """Return the images of the same id whose features agree up to rounding."""
    here, there = (cache.manifest.select("image_id").with_row_index("row") for cache in (train, test))
    pairs = here.join(there, on="image_id").select("row", "row_right").iter_rows()
    both = ((one, other) for one, other in pairs if rows.present[one] and others.present[other])
    return {(one, other) for one, other in both if _agree(rows.clean(one), others.clean(other))}


def _agree(one: NDArray[np.float16], other: NDArray[np.float16]) -> bool:
    centred = one.astype(np.float64) - one.mean(dtype=np.float64)
    difference = one.astype(np.float64) - other.astype(np.float64)
    spread = float(np.linalg.norm(centred))
    return spread > 0.0 and float(np.linalg.norm(difference)) <= SAME_TO * spread


def _digest(features: NDArray[np.float16]) -> bytes:
    return hashlib.blake2b(features.tobytes(), digest_size=16).digest()
