"""The least of several wall times: the cost of a piece of work on an idle machine."""

import time
from collections.abc import Callable


def best(work: Callable[[], object], times: int = 3) -> float:
    """Return the seconds of the fastest of several runs."""

    def once() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return min(once() for _ in range(times))


def in_turn(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Return the least time of each; alternating, so that other load affects both equally."""
    theirs()  # the first call pays for memory and caches
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, taken in zip((ours, theirs), times, strict=True):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    return min(times[0]), min(times[1])
