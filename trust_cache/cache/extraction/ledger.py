"""What is known of a run while it runs: the failures, kept in failures.csv, and where the time went."""

from collections.abc import Sequence

from trust_cache.cache.backends import Source
from trust_cache.cache.extraction.recipe import Seconds, ShardFiles, ShardReport
from trust_cache.cache.extraction.side_files import read_side_file, write_side_file
from trust_cache.cache.extraction.work import OnShard
from trust_cache.images.failures import Failure, failures_bytes, parse_failures

FAILURES = "failures.csv"


class Ledger:
    """Takes the reports of shards; a failure of an earlier start stands until its shard is reported."""

    def __init__(self, cache: Source, shards: Sequence[ShardFiles], on_shard: OnShard) -> None:
        self._cache = cache
        self._on_shard = on_shard
        self._ids = {shard.shard: [file.image_id for file in shard.files] for shard in shards}
        open_ids = {image_id for ids in self._ids.values() for image_id in ids}
        earlier = parse_failures(read_side_file(cache, FAILURES) or b"")
        self._rows = {row.image_id: row for row in earlier if row.image_id in open_ids}
        self.seconds = Seconds()

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The images that have no features, as far as was seen."""
        return tuple(self._rows.values())

    def enter(self, report: ShardReport) -> None:
        """Take a shard's report and pass it on; a new failure is on the disk at once."""
        for image_id in self._ids[report.shard]:
            self._rows.pop(image_id, None)
        self._rows |= {failure.image_id: failure for failure in report.failures}
        self.seconds += report.seconds
        if report.failures:
            self.write()
        self._on_shard(report)

    def write(self) -> None:
        """Write failures.csv with the cache."""
        write_side_file(self._cache, FAILURES, failures_bytes(self._rows.values()))
