"""Technical tags of images as further columns of a manifest, for subgroups of a certificate.

Only what describes the machine and the exposure is read: no names, dates, places or serial numbers.
"""

import re
from collections.abc import Mapping, Sequence

import polars as pl

# Column by the keyword of PS3.6. Texts are of the machine, numbers of the exposure.
_TEXTS = {
    "Manufacturer": "manufacturer",
    "ManufacturerModelName": "model",
    "AnodeTargetMaterial": "anode",
    "FilterMaterial": "filter",
}
_NUMBERS = {
    "KVP": "kvp",
    "Exposure": "exposure_mas",
    "RelativeXRayExposure": "relative_exposure",
    "BodyPartThickness": "compression_thickness_mm",
    "CompressionForce": "compression_force_n",
}
TAG_ELEMENTS = (*_TEXTS, *_NUMBERS)
TAG_COLUMNS = (*_TEXTS.values(), *_NUMBERS.values())
_LONGEST = 64
_UNUSUAL = re.compile(r"[^A-Za-z0-9 .,&+()/_-]")

TagValues = dict[str, str | float]


def tags_of(values: Mapping[str, str]) -> TagValues:
    """Return the tags of a header by column; a value that is no plain text or no finite number is absent."""
    tags: TagValues = {}
    for keyword, column in _TEXTS.items():
        text = values.get(keyword, "").strip()
        if text and len(text) <= _LONGEST and not _UNUSUAL.search(text):
            tags[column] = text
    for keyword, column in _NUMBERS.items():
        try:
            number = float(values.get(keyword, "").strip())
        except ValueError:
            continue
        if 0 <= number < float("inf"):
            tags[column] = number
    return tags


def with_tags(table: pl.DataFrame, tags: Sequence[TagValues]) -> pl.DataFrame:
    """Return a manifest with the tags of its images.

    A number is the median over the images of the case, so that `certify --by` can group cases by it.
    """
    texts = [
        pl.Series(name, [found.get(name) for found in tags], dtype=pl.String) for name in _TEXTS.values()
    ]
    numbers = [
        pl.Series(name, [found.get(name) for found in tags], dtype=pl.Float64) for name in _NUMBERS.values()
    ]
    names = list(_NUMBERS.values())
    median = pl.col(names).median().over("case_id").round(3)
    return table.with_columns(*texts, *numbers).with_columns(median.cast(pl.String))
