"""Find cases that two caches share: a certificate on cases that the model saw is not external."""

from dataclasses import dataclass

import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import Cache
from trust_cache.cache.feature_rows import FeatureRows
from trust_cache.manifest.cases import PATIENT
from trust_cache.studies.image_sketches import sketch_images


@dataclass(frozen=True)
class Overlap:
    """What two caches have in common."""

    case_ids: tuple[str, ...]  # in both, sorted
    patients: tuple[str, ...]  # the patient ids in both, sorted
    images: tuple[tuple[str, str], ...]  # image_id in train and in test, of the same features


def find_overlap(train: Cache, test: Cache, rows: FeatureRows, test_rows: FeatureRows) -> Overlap:
    """Find the case and patient ids that are in both caches, and the images whose clean features are.

    Features are compared by sketches, whatever the ids.
    """
    cases, patients = (_shared_ids(train.manifest, test.manifest, name) for name in ("case_id", PATIENT))
    known = sketch_images(rows)
    pairs = zip(*(found.tolist() for found in known.find(known.sketch(test_rows))), strict=True)
    ids = [cache.manifest["image_id"] for cache in (train, test)]
    images = tuple((ids[0][one], ids[1][other]) for one, other in sorted(pairs))
    return Overlap(cases, patients, images)


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
