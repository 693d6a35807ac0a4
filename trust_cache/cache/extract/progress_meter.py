"""Measure the progress of an extraction: images per second, device load, time per step, time left."""

import time
from collections.abc import Callable

from trust_cache.cache.extract.shard_work import Seconds, ShardReport


class Meter:
    """Adds up reports of shards against the clock."""

    def __init__(
        self,
        images: int,
        images_before: int,
        processes: int | None,  # unknown on a cluster, whose workers come and go
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.images = images
        self.done = images_before
        self._processes = processes
        self._clock = clock
        self._start = clock()
        self._made = 0
        self._seconds = Seconds()

    def add(self, report: ShardReport) -> None:
        """Count a shard."""
        self._made += report.images
        self.done = min(self.images, self.done + report.images)
        self._seconds += report.seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return max(self._clock() - self._start, 1e-9)

    @property
    def rate(self) -> float:
        """Images per second."""
        return self._made / self.elapsed

    @property
    def busy(self) -> float | None:
        """The share of time in which the devices were busy, if their number is known."""
        if self._processes is None:
            return None
        return min(1.0, self._seconds.encode / (self.elapsed * self._processes))

    @property
    def seconds_left(self) -> float | None:
        """The estimated time for the remaining images; None until one shard is done."""
        return (self.images - self.done) / self.rate if self._made else None

    def words(self) -> str:
        """Return the progress as one line."""
        spent = self._seconds
        total = max(spent.decode + spent.encode + spent.write, 1e-9)
        split = ", ".join(
            f"{name} {100 * seconds / total:.0f}%"
            for name, seconds in (("decode", spent.decode), ("encode", spent.encode), ("write", spent.write))
        )
        rate = f"{self.rate:.1f} images/s" if self.rate >= 1 else f"{60 * self.rate:.1f} images/min"
        busy = "" if self.busy is None else f", device busy {100 * self.busy:.0f}%"
        return f"{rate}{busy} ({split})"
