"""What the demonstration tells while it works: its steps, and how far the one under way is."""

from collections.abc import Callable
from dataclasses import dataclass

from trust_cache.heads.training import EpochReport


@dataclass(frozen=True)
class Listener:
    """Called at every step's start (`step`) and with the done and all parts of the step (`part`)."""

    step: Callable[[str], None] = lambda _title: None
    part: Callable[[int, int], None] = lambda _done, _of: None

    def epoch(self, report: EpochReport) -> None:
        """Pass on the epochs of a training."""
        self.part(report.done, report.epochs)

    def counter(self, of: int) -> Callable[[], None]:
        """Return what is called after each of a known number of parts."""
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            self.part(done, of)

        return advance
