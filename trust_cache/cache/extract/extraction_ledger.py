"""Collect the reports of an extraction: failed images, what was found in pictures, and the time spent."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

from msgspec.structs import replace as replace_fields

from trust_cache.base.errors import TrustCacheError
from trust_cache.base.executor import run_in_order
from trust_cache.base.places import absolute
from trust_cache.cache.cache_reader import open_cache, read_examined, read_failures
from trust_cache.cache.cache_writer import write_examined, write_failures
from trust_cache.cache.extract.extraction_record import ExtractionRecord, write_record
from trust_cache.cache.extract.picture_source import ImageFile, PictureSource
from trust_cache.cache.extract.shard_work import OnShard, Seconds, ShardFiles, ShardReport
from trust_cache.cache.known_stores import Source
from trust_cache.images.dicom_file import read_header
from trust_cache.images.examined_table import ExaminedPicture
from trust_cache.images.gate.pixel_limits import LIMITS
from trust_cache.images.image_failures import Failure
from trust_cache.manifest.dicom_headers import ImageHeader, disagreements
from trust_cache.manifest.manifest_file import Manifest
from trust_cache.manifest.picture_checks import TOGETHER, check_of

_WRITE_SECONDS = 30.0  # between two writings of examined.csv, which is replaced as a whole


class Ledger:
    """Collects the reports of shards; a failure of an earlier start stays until its shard is reported."""

    def __init__(
        self, cache: Source, shards: Sequence[ShardFiles], record: ExtractionRecord, on_shard: OnShard
    ) -> None:
        self._cache = cache
        self._on_shard = on_shard
        self._ids = {shard.shard: [file.image_id for file in shard.files] for shard in shards}
        open_ids = {image_id for ids in self._ids.values() for image_id in ids}
        self._rows = {row.image_id: row for row in read_failures(cache) if row.image_id in open_ids}
        self._examined = {row.image_id: row for row in _examined_before(cache, record)}
        self._headers: dict[str, ImageHeader] = {}
        self._written = time.monotonic()
        self.seconds = Seconds()

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The images that are known to have no features."""
        return tuple(self._rows.values())

    def enter(self, report: ShardReport) -> None:
        """Record a shard's report and pass it on; new failures are written at once."""
        for image_id in self._ids[report.shard]:
            self._rows.pop(image_id, None)
        self._rows |= {failure.image_id: failure for failure in report.failures}
        self._examined |= {row.image_id: row for row in report.examined}
        self._headers |= dict(report.headers)
        self.seconds += report.seconds
        if report.failures:
            write_failures(self._cache, self._rows.values())
        if report.examined and time.monotonic() > self._written + _WRITE_SECONDS:
            # A killed run loses little: what it lacks is examined again at the end of the next.
            write_examined(self._cache, self._examined.values())
            self._written = time.monotonic()
        self._on_shard(report)

    @contextmanager
    def kept_on_error(self) -> Iterator[None]:
        """Write the tables if the block ends by an error, which is raised."""
        try:
            yield
        except BaseException:
            with suppress(TrustCacheError, OSError):  # raise the first error
                self.write()
            raise

    def write(self) -> None:
        """Write failures.csv of the cache, and examined.csv if pictures were examined here."""
        write_failures(self._cache, self._rows.values())
        if self._examined:
            write_examined(self._cache, self._examined.values())

    def examine_rest(self, files: Sequence[ImageFile], source: PictureSource) -> None:
        """Examine pictures with features whose row is lost or about another picture."""
        cache = open_cache(self._cache)
        known = {name: row.picture_blake3 for name, row in self._examined.items()}
        with_features = zip(files, cache.pictures, cache.done, strict=True)
        lost = [
            file
            for file, picture, has_features in with_features
            if has_features and file.external and known.get(file.image_id) != picture.tobytes().hex()
        ]
        with closing(source.decoded(lost, pinned=False)) as images:
            for file, decoded in zip(lost, images, strict=True):
                if decoded.examined is not None:
                    self._examined[file.image_id] = decoded.examined
                if decoded.header is not None:
                    self._headers[file.image_id] = decoded.header

    def look_together(self, manifest: Manifest, files: Sequence[ImageFile], workers: int) -> None:
        """Add to the rows of DICOM files what their headers say together, as `preprocess` does."""
        cases = dict(manifest.table.select("image_id", "case_id").iter_rows())
        done = open_cache(self._cache).done
        present = {
            file.image_id: absolute(file.location) for file, has in zip(files, done, strict=True) if has
        }
        unread = [name for name in present if name not in self._headers]
        outcomes = run_in_order(read_header, [present[name] for name in unread], workers)
        for name, outcome in zip(unread, outcomes, strict=True):
            if outcome.value is not None:  # else the file is gone; what was found in it stays
                self._headers[name] = outcome.value
        known = {name: (cases[name], self._headers[name]) for name in present if name in self._headers}
        found = disagreements(known, named=False)
        for name in known:
            if (row := self._examined.get(name)) is not None:
                alone = (text for text in row.warnings if check_of(text) not in TOGETHER)
                self._examined[name] = replace(row, warnings=(*alone, *found.get(name, ())))


def _examined_before(cache: Source, record: ExtractionRecord) -> tuple[ExaminedPicture, ...]:
    """Return what earlier starts found in pictures; nothing if the limits were others."""
    if record.limits == LIMITS:
        return read_examined(cache) or ()
    write_record(cache, replace_fields(record, limits=LIMITS))
    return ()
