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
