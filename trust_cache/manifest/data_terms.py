"""The terms of a data set and what its labels mean: both follow its images from the manifest to the model.

A manifest names the data set of each image in the column `dataset`, and by `label_definition` what a label
of 1 means there. Caches and run folders keep the columns, so the terms and warnings of all data sets behind a
result are known wherever it is shown or passed on.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import polars as pl

from trust_cache.base.documents import Document
from trust_cache.manifest.datasets.dataset import describe_dataset, described_datasets

DATASET = "dataset"  # the column
LABEL_DEFINITION = "label_definition"
Permission = Literal["allowed", "forbidden", "unknown"]
_UNKNOWN: Permission = "unknown"


class DataTerms(Document, frozen=True, kw_only=True):
    """A data set with its licence, whether features or weights may be passed on, and its labels."""

    dataset: str
    title: str
    source: str
    licence: str
    features: Permission
    weights: Permission
    labels: tuple[str, ...] = ()  # what a label of 1 means
    warnings: tuple[str, ...] = ()  # that belong beside every result on these data


def terms_of(manifest: pl.DataFrame) -> tuple[DataTerms, ...]:
    """Return the terms of the data sets of a manifest, by name; unknown where the manifest names none."""
    if DATASET not in manifest.columns:
        return (_terms(None, ()),)
    columns = [name for name in (DATASET, LABEL_DEFINITION) if name in manifest.columns]
    definitions: dict[str | None, list[str]] = {}
    for name, *definition in manifest.select(columns).unique().sort(columns).iter_rows():
        definitions.setdefault(name, []).extend(text for text in definition if text)
    return tuple(_terms(name, definitions[name]) for name in sorted(definitions, key=str))


def _terms(name: str | None, definitions: Sequence[str]) -> DataTerms:
    if name not in described_datasets():
        title = "own data, or a data set without a description" if name is None else name
        return DataTerms(
            dataset=name or _UNKNOWN,
            title=title,
            source=_UNKNOWN,
            licence=_UNKNOWN,
            features=_UNKNOWN,
            weights=_UNKNOWN,
            labels=tuple(definitions),
        )
    found = describe_dataset(str(name))
    labels, warnings = [], list(found.warnings)
    for text in definitions:
        key, _, settings = text.partition(";")
        known = found.labels.get(key)
        labels.append(
            text if known is None else known.meaning + (f" ({settings.strip()})" if settings else "")
        )
        warnings += [known.warning] if known is not None and known.warning else []
    return DataTerms(
        dataset=found.name,
        title=found.title,
        source=found.source,
        licence=found.licence,
        features=found.terms["features"],
        weights=found.terms["weights"],
        labels=tuple(labels),
        warnings=tuple(warnings),
    )


def label_warnings(terms: Sequence[DataTerms]) -> tuple[str, ...]:
    """Return what must be read beside every result on these data."""
    return tuple(f"{item.title}: {text}" for item in terms for text in item.warnings)


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


def export_warnings(terms: Sequence[DataTerms]) -> tuple[str, ...]:
    """Say what the licences of data sets with a description say about a file of their features."""
    found = []
    for item in terms:
        if item.features == "forbidden":
            found.append(
                f"do not pass this file on: the terms of {item.title} ({item.licence}) forbid to pass on"
                " features without permission"
            )
        elif item.features == _UNKNOWN and item.dataset in described_datasets():
            found.append(
                f"before you pass this file on, read the terms of {item.title} (licence: {item.licence}):"
                " whether features may be passed on is not recorded here"
            )
    return tuple(found)


def describe_terms(terms: Sequence[DataTerms]) -> str:
    """List data sets with their licences on one line."""
    return "; ".join(
        f"{item.title} (licence: {item.licence}; passing on features: {item.features}, weights:"
        f" {item.weights}{''.join(f'; positive: {text}' for text in item.labels)})"
        for item in terms
    )
