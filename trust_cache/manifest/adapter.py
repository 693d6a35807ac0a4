"""What an adapter is: the columns it reads, how it reads them, and the checks that fit its data set."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from trust_cache.manifest import oddities
from trust_cache.manifest.descriptions import ExpectedCounts
from trust_cache.manifest.evidence import STANDARD, Adapted, stripped
from trust_cache.manifest.findings import Findings
from trust_cache.manifest.requirements import Check, columns_free
from trust_cache.manifest.verbatim import Metadata


@dataclass(frozen=True)
class Adapter:
    """One kind of metadata. `used` are the columns that become standard ones, `required` those needed."""

    name: str
    required: tuple[str, ...]
    used: tuple[str, ...]
    read: Callable[[Metadata], pl.DataFrame]
    requirements: tuple[Check, ...]
    oddities: tuple[Check, ...]
    expected: ExpectedCounts | None = None

    def adapt(self, metadata: Metadata) -> Adapted:
        """Bring the metadata to common columns; those that are not used stay as they are."""
        return Adapted(self.read(metadata), metadata.table.drop(self.used, strict=False))

    def errors(self, adapted: Adapted) -> Findings:
        """Return what stands against making a manifest."""
        found = _all(self.requirements, adapted.images)
        return columns_free(adapted.further.columns, STANDARD) + found

    def odd(self, images: pl.DataFrame) -> Findings:
        """Return what is worth knowing."""
        counts = () if self.expected is None else oddities.counts_expected(images, self.expected)
        return counts + _all(self.oddities, images)


def text_columns(metadata: Metadata, **columns: str) -> pl.DataFrame:
    """Return stripped columns of the metadata under new names, with the lines they stand on."""
    texts = metadata.table.select(stripped(source).alias(name) for name, source in columns.items())
    return texts.with_columns(metadata.lines)


def first_of(names: Sequence[str], table: pl.DataFrame) -> str | None:
    """Return the first of these columns that the table has."""
    return next((name for name in names if name in table.columns), None)


def _all(checks: Iterable[Check], images: pl.DataFrame) -> Findings:
    return tuple(found for check in checks for found in check(images))
