"""Are the cases of a cache those of its data set? Counts tell swapped caches and partial ones."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.cache.known_stores import Source
from trust_cache.manifest.cases import find_cases
from trust_cache.manifest.datasets.dataset import describe_dataset
from trust_cache.studies.reproduction.published import NLBS, RSNA

Counts = tuple[int, int, int]  # images, cases, positive cases


def refuse_other_data(name: str, manifest: pl.DataFrame, source: Source) -> None:
    """Refuse a cache that has exactly the counts of the other data set."""
    other = NLBS if name == RSNA else RSNA
    if (found := _counted(manifest)) == _counts_of(other):
        raise InputError(
            f"{source}: expected the cache of {name.upper()} (--{name}), found the {found[1]:,} cases of"
            f" {other.upper()}; are the two swapped?"
        )


def unlike_the_data(name: str, manifest: pl.DataFrame) -> Iterator[str]:
    """Warn where the cases are not those of the data set."""
    if (found := _counted(manifest)) != (whole := _counts_of(name)):
        yield (
            f"{name.upper()}: expected the data set's {_words(whole)}, found {_words(found)}: the counts of"
            " the split cannot be the paper's."
        )


def _counted(manifest: pl.DataFrame) -> Counts:
    labels = find_cases(manifest).labels
    return manifest.height, labels.size, int(np.count_nonzero(labels))


def _counts_of(name: str) -> Counts:
    counts = describe_dataset(name).counts
    return counts.images, counts.cases, counts.positive_cases


def _words(counts: Counts) -> str:
    images, cases, positive = counts
    return f"{cases:,} cases ({positive:,} positive) in {images:,} images"
