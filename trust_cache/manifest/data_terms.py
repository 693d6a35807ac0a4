"""The terms under which a data set may be used: they follow its images from the manifest to the model.

A manifest names the data set of each image in the column `dataset`. Caches and run folders keep the column,
so the terms of all data sets behind a model are known wherever it is passed on.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import polars as pl

from trust_cache.base.documents import Document
from trust_cache.manifest.datasets.dataset import describe_dataset, described_datasets

DATASET = "dataset"  # the column
Permission = Literal["allowed", "forbidden", "unknown"]
_UNKNOWN: Permission = "unknown"


class DataTerms(Document, frozen=True, kw_only=True):
    """A data set with its licence, and whether its features or weights trained on it may be passed on."""

    dataset: str
    title: str
    source: str
    licence: str
    features: Permission
    weights: Permission


def terms_of(manifest: pl.DataFrame) -> tuple[DataTerms, ...]:
    """Return the terms of the data sets of a manifest, by name; unknown where the manifest names none."""
    names = manifest[DATASET].unique().to_list() if DATASET in manifest.columns else [None]
    return tuple(_terms(name) for name in sorted(names, key=str))


def _terms(name: str | None) -> DataTerms:
    if name not in described_datasets():
        title = "own data, or a data set without a description" if name is None else name
        return DataTerms(
            dataset=name or _UNKNOWN,
            title=title,
            source=_UNKNOWN,
            licence=_UNKNOWN,
            features=_UNKNOWN,
            weights=_UNKNOWN,
        )
    found = describe_dataset(str(name))
    return DataTerms(
        dataset=found.name,
        title=found.title,
        source=found.source,
        licence=found.licence,
        features=found.terms["features"],
        weights=found.terms["weights"],
    )


def sharing_warnings(terms: Mapping[str, Sequence[DataTerms]]) -> tuple[str, ...]:
    """Say what the licences of a model's data forbid or leave open about passing the model on.

    A model folder has weights trained on the training data, scores of the evaluation data, and sketches of
    features.
    """
    found = []
    for part, sets in terms.items():
        for item in sets:
            kinds = {"weights": item.weights, "features": item.features} if part == "training" else {}
            kinds = kinds or {"features": item.features}
            forbidden = [kind for kind, permission in kinds.items() if permission == "forbidden"]
            if forbidden:
                found.append(
                    f"do not pass this model on: the terms of {item.title} ({part} data: {item.licence})"
                    f" forbid to pass on {' and '.join(forbidden)} without permission"
                )
            elif "unknown" in kinds.values():
                found.append(
                    f"before you pass this model on, read the terms of the {part} data ({item.title};"
                    f" licence: {item.licence}): whether {' and '.join(kinds)} may be passed on is not"
                    " recorded here"
                )
    return tuple(found)


def describe_terms(terms: Sequence[DataTerms]) -> str:
    """List data sets with their licences on one line."""
    return "; ".join(
        f"{item.title} (licence: {item.licence}; passing on features: {item.features}, weights:"
        f" {item.weights})"
        for item in terms
    )
