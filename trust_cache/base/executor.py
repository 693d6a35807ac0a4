"""Work items over local processes or a cluster; one that kills its process costs that item, not the run."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice

from trust_cache.base.errors import InputError
from trust_cache.base.work import Cluster, Item, Outcome, Value, WorkerDiedError

_AHEAD = 2  # items under way per process: enough to keep it busy, few to suspect when it dies


def run_items(
    function: Callable[[Item], Value], items: Iterable[Item], workers: int | Cluster
) -> Iterator[Outcome[Item, Value]]:
    """Apply a function to items in processes (their number, or a cluster) and yield each outcome as it comes.

    When a process dies, all items under way are suspects: each is run again alone, and the one that kills
    again has WorkerDiedError as its outcome. The function and the items travel by pickling; an item may run
    twice.
    """
    if isinstance(workers, Cluster):
        yield from _run_on_cluster(function, items, workers)
        return
    if workers < 1:
        raise InputError(f"workers: expected 1 or more, found {workers}")
    remaining = iter(items)
    while suspects := (yield from _run_until_a_death(function, remaining, workers)):
        for item in suspects:
            yield _run_alone(function, item)


def _run_on_cluster(
    function: Callable[[Item], Value], items: Iterable[Item], cluster: Cluster
) -> Iterator[Outcome[Item, Value]]:
    try:
        from trust_cache.base.dask_cluster import run_on_cluster  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise InputError(
            f'{cluster.address}: a cluster needs more packages: pip install "trust-cache[cluster]"'
        ) from error
    yield from run_on_cluster(function, items, cluster)


def _run_until_a_death(
    function: Callable[[Item], Value], remaining: Iterator[Item], workers: int
) -> Generator[Outcome[Item, Value], None, list[Item]]:
    """Run items until none is left or a process dies; return those that were then under way."""
    under_way: dict[Future[Value], Item] = {}
    pool = _make_pool(workers)
    try:
        while True:
            for item in islice(remaining, workers * _AHEAD - len(under_way)):
                under_way[_submit(pool, function, item)] = item
            if not under_way:
                return []
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            answered = [future for future in done if not _died(future)]
            for future in answered:
                yield _outcome(future, under_way.pop(future))
            if len(answered) < len(done):
                return list(under_way.values())
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _run_alone(function: Callable[[Item], Value], item: Item) -> Outcome[Item, Value]:
    with _make_pool(1) as pool:
        future = _submit(pool, function, item)
        wait([future])
        return _outcome(future, item)


def _make_pool(workers: int) -> ProcessPoolExecutor:
    # Spawned, not forked: decoders and threads of this process do not survive a fork.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_obey_the_parent)


def _obey_the_parent() -> None:
    """Leave Ctrl-C to the parent, and end when it has ended: a killed parent tells its processes nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _submit(pool: ProcessPoolExecutor, function: Callable[[Item], Value], item: Item) -> Future[Value]:
    try:
        return pool.submit(function, item)
    except BrokenProcessPool as error:  # died since we last looked: this item is one of those under way
        failed: Future[Value] = Future()
        failed.set_exception(error)
        return failed


def _died(future: Future[Value]) -> bool:
    return isinstance(future.exception(), BrokenProcessPool)


def _outcome(future: Future[Value], item: Item) -> Outcome[Item, Value]:
    error = future.exception()
    if error is None:
        return Outcome(item, future.result(), None)
    if isinstance(error, BrokenProcessPool):
        return Outcome(item, None, WorkerDiedError("the process ended without an answer"))
    if isinstance(error, Exception):
        return Outcome(item, None, error)
    raise error
