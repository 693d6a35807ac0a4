"""Apply a function to untrusted items in worker processes of limited memory; a bad item fails alone."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

from trust_cache.base.executor import ItemOutcome, LocalWorkers, WorkerDiedError, run_items

Item = TypeVar("Item")
Value = TypeVar("Value")

MEMORY = 2**30  # bytes, beyond what the process has when it starts
_TOGETHER = 32  # items sent to a process at once


def map_limited(
    function: Callable[[Item], Value],
    items: Sequence[Item],
    *,
    memory: int = MEMORY,
    workers: int | LocalWorkers | None = None,
) -> list[ItemOutcome[Item, Value]]:
    """Return the outcome of each item, in order, from processes that may take `memory` bytes more each.

    An item that needs more has MemoryError as its outcome, one that kills its process WorkerDiedError. Where
    the platform cannot limit memory (Windows, macOS), only the processes are separate. Afterwards the limit
    is gone: workers that are started already may do other work next.
    """
    limited = _Limited(function, memory)
    numbered = list(enumerate(items))
    groups = [numbered[low : low + _TOGETHER] for low in range(0, len(numbered), _TOGETHER)]
    most = workers if workers is not None else min(os.cpu_count() or 1, max(1, len(groups)))
    found: dict[int, ItemOutcome[Item, Value]] = {}
    while groups:
        unfinished: list[list[tuple[int, Item]]] = []
        for outcome in run_items(limited, groups, most):
            if outcome.value is not None:
                found |= outcome.value
            elif len(outcome.item) > 1:  # one of them killed the process: each is tried alone
                unfinished += [[pair] for pair in outcome.item]
            else:
                ((number, item),) = outcome.item
                found[number] = ItemOutcome(item, None, outcome.error)
        groups = unfinished
    return [found[number] for number in range(len(items))]


def problem_of(error: Exception) -> str:
    """Return in words why an item has no value."""
    if isinstance(error, MemoryError):
        return "reading it takes too much memory"
    if isinstance(error, WorkerDiedError):
        return "the process that read it ended without a result"
    return f"it cannot be read ({type(error).__name__})"


@dataclass(frozen=True)
class _Limited(Generic[Item, Value]):
    """A function over numbered items, which limits the memory of its process first."""

    function: Callable[[Item], Value]
    memory: int

    def __call__(self, items: Sequence[tuple[int, Item]]) -> dict[int, ItemOutcome[Item, Value]]:
        found = {}
        with _limited_memory(self.memory):
            for number, item in items:
                try:
                    found[number] = ItemOutcome(item, self.function(item), None)
                except Exception as error:  # the outcome of this item alone
                    found[number] = ItemOutcome(item, None, error.with_traceback(None))
        return found


@contextmanager
def _limited_memory(memory: int) -> Iterator[None]:
    """Limit the address space of this process to what it had the first time and `memory` bytes more."""
    try:
        import resource  # noqa: PLC0415 - not on Windows

        wanted = _pages_at_first() * resource.getpagesize() + memory
    except (ImportError, OSError):
        yield
        return
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = min((bytes_ for bytes_ in (before, hard) if bytes_ != resource.RLIM_INFINITY), default=wanted)
    resource.setrlimit(resource.RLIMIT_AS, (min(wanted, most), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


@cache
def _pages_at_first() -> int:
    """Return the pages of memory at the first call: freed memory stays with the process and counts later."""
    return int(Path("/proc/self/statm").read_text().split()[0])
