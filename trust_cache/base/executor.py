"""Run work items in local processes or on a cluster; an item that kills its process fails alone."""

import atexit
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Generic, TypeVar

from trust_cache.base.errors import InputError

Item = TypeVar("Item")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Cluster:
    """A Dask scheduler's address, and the resources that a worker must have (say `{"GPU": 1}`)."""

    address: str
    resources: Mapping[str, float] = field(default_factory=dict)
    connect_seconds: float = 30.0


class WorkerDiedError(Exception):
    """The process that worked on an item ended without a result."""


@dataclass(frozen=True)
class ItemOutcome(Generic[Item, Value]):
    """The result of an item: a value or an error."""

    item: Item
    value: Value | None
    error: Exception | None


_POLL_SECONDS = 0.2
_AHEAD = 2  # items submitted per process: enough to keep it busy, few to run again when it dies


@dataclass
class LocalWorkers:
    """Local processes that are starting or wait for items."""

    count: int
    pool: ProcessPoolExecutor
    started: Event  # set once one of them has started
    died: bool = False  # one of them did, and with it the pool
    closed: bool = False  # the block that started them has ended


def run_items(
    function: Callable[[Item], Value], items: Iterable[Item], workers: int | LocalWorkers | Cluster
) -> Iterator[ItemOutcome[Item, Value]]:
    """Apply a function to items in `workers` local processes or on a cluster; yield outcomes as they come.

    When a process dies, each of the submitted items is run again alone; one that kills its process again
    has WorkerDiedError as its outcome. The function and the items are pickled; an item may run twice.
    In another thread than that which closes LocalWorkers, this ends with CancelledError.
    """
    if isinstance(workers, Cluster):
        try:
            from trust_cache.base.dask_cluster import run_on_cluster  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise InputError(
                f'{workers.address}: a cluster needs more packages: pip install "trust-cache[cluster]"'
            ) from error
        yield from run_on_cluster(function, items, workers)
        return
    count = workers.count if isinstance(workers, LocalWorkers) else workers
    if count < 1:
        raise InputError(f"workers: expected 1 or more, found {count}")
    remaining = iter(items)
    while suspects := (yield from _run_until_a_death(function, remaining, workers)):
        for item in suspects:
            yield _run_alone(function, item)


def run_in_order(
    function: Callable[[Item], Value], items: Iterable[Item], workers: int
) -> Generator[ItemOutcome[Item, Value], None, None]:
    """Apply a function to items in local processes as `run_items` does; yield the outcomes in order.

    At most `workers * _AHEAD + 1` items are under way or wait for those before them.
    """
    remaining = iter(items)
    again = True
    while again:
        suspects = yield from _run_in_order_until_a_death(function, remaining, workers)
        for item, future in suspects:
            broken = not future.done() or isinstance(future.exception(), BrokenProcessPool)
            yield _run_alone(function, item) if broken else outcome_of(future, item)
        again = bool(suspects)


def _run_in_order_until_a_death(
    function: Callable[[Item], Value], remaining: Iterator[Item], workers: int
) -> Generator[ItemOutcome[Item, Value], None, list[tuple[Item, Future[Value]]]]:
    """Run items until none is left or a process dies; return those without an outcome, in order."""
    first = next(remaining, None)
    if first is None:
        return []
    with _open_pool(workers) as local:
        under_way = deque([(first, _submit(local.pool, function, first))])
        while under_way:
            for item in islice(remaining, workers * _AHEAD + 1 - len(under_way)):
                under_way.append((item, _submit(local.pool, function, item)))
            item, future = under_way[0]
            wait([future])
            if isinstance(future.exception(), BrokenProcessPool):
                _require_start(local.started)
                wait([waiting for _, waiting in under_way])
                return list(under_way)
            under_way.popleft()
            for further in islice(remaining, 1):
                under_way.append((further, _submit(local.pool, function, further)))
            yield outcome_of(future, item)
    return []


def _run_alone(function: Callable[[Item], Value], item: Item) -> ItemOutcome[Item, Value]:
    with _open_pool(1) as local:
        future = _submit(local.pool, function, item)
        wait([future])
    return outcome_of(future, item)


def _run_until_a_death(
    function: Callable[[Item], Value], remaining: Iterator[Item], workers: int | LocalWorkers
) -> Generator[ItemOutcome[Item, Value], None, list[Item]]:
    """Run items until none is left or a process dies; return those without an outcome."""
    under_way: dict[Future[Value], Item] = {}
    with _usable(workers) as local:
        while True:
            for item in islice(remaining, local.count * _AHEAD - len(under_way)):
                under_way[_submit(local.pool, function, item)] = item
            if not under_way:
                return []
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            answered = [future for future in done if not isinstance(future.exception(), BrokenProcessPool)]
            for future in answered:
                yield outcome_of(future, under_way.pop(future))
            if len(answered) < len(done):
                if local.closed:
                    raise CancelledError
                _require_start(local.started)
                local.died = True
                return list(under_way.values())


def _usable(workers: int | LocalWorkers) -> AbstractContextManager[LocalWorkers]:
    """Return started workers, or new ones where there are none or one of them has died."""
    if isinstance(workers, LocalWorkers):
        return _open_pool(workers.count) if workers.died else nullcontext(workers)
    return _open_pool(workers)


def _require_start(started: Event) -> None:
    """Refuse to blame the items where no process ever got as far as waiting for one."""
    if not started.is_set():
        raise InputError(
            "the worker processes ended before they started. Each of them imports the script that started it:"
            ' keep the script in a file and make the call below `if __name__ == "__main__":`'
        )


@contextmanager
def start_workers(count: int, module: str) -> Iterator[LocalWorkers]:
    """Start processes before their items are known; each imports the module of its function meanwhile."""
    with _open_pool(count) as local:
        for _ in range(count):
            _submit(local.pool, _import, module)
        yield local


def _import(module: str) -> None:
    import_module(module)


@contextmanager
def _open_pool(count: int) -> Iterator[LocalWorkers]:
    """Open a pool whose processes end with the block, after an error in the middle of an item.

    They watch a pipe that only this process holds open: it closes here, or when this process is killed.
    """
    context = multiprocessing.get_context("spawn")  # decoders and threads do not survive a fork
    watched, held = context.Pipe(duplex=False)
    started = context.Event()
    with watched:
        pool = ProcessPoolExecutor(
            count, context, initializer=_follow_the_parent, initargs=(watched, started)
        )
        local = LocalWorkers(count, pool, started)
        try:
            yield local
        except BaseException:
            local.closed = True
            held.close()
            raise
        finally:
            local.closed = True
            # Not left to the interpreter's exit, where a pool that is still closing can raise.
            pool.shutdown(wait=True, cancel_futures=True)
            held.close()


def wait_for(future: Future[Value]) -> Value:
    """Return the result of a future. Ctrl-C ends the wait.

    Once polars has run a query, a signal does not interrupt a wait without an end: its handler of SIGINT
    lets the system continue the call (SA_RESTART).
    """
    while not wait([future], timeout=_POLL_SECONDS).done:
        pass
    return future.result()


def keep_freed_memory() -> None:
    """Let this process use freed memory again instead of returning it, where the C library is glibc.

    It returns large blocks at once by default, and every image then pays for new pages: half of the time
    that making views takes. For processes of our own, not for a library's caller.
    """
    if sys.platform == "linux":
        change = getattr(ctypes.CDLL(None), "mallopt", None)
        for option, size in ((_MMAP_THRESHOLD, 2**30), (_TRIM_THRESHOLD, 2**31 - 1)):
            if change is not None:
                change(option, size)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)


class _Stop:
    """In a worker process: whether to end, and whether an item is being worked on.

    A process that ended while it sends a result would leave half of it in the pipe, and the parent would wait
    for the rest for ever. So it ends inside an item, or before the next one, never in between.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wanted = False
        self.inside = False

    def enter(self, *, inside: bool) -> None:
        """Note the start or the end of an item; end the process if that is wanted."""
        with self.lock:
            if self.wanted:
                os._exit(1)
            self.inside = inside

    def want(self) -> None:
        """End the process now if it works on an item, else when it would start one."""
        with self.lock:
            if self.inside:
                os._exit(1)
            self.wanted = True


_STOP = _Stop()


def _follow_the_parent(watched: Connection, started: Event) -> None:
    """Leave Ctrl-C to the parent, and end when the parent lets go of the pipe."""
    started.set()
    keep_freed_memory()
    atexit.register(os._exit, 0)  # the process ends without freeing its memory first
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, args=(watched,), daemon=True).start()


def _end_with_the_parent(watched: Connection) -> None:
    watched.poll(None)  # nothing is ever written: it returns when the other end is closed
    _STOP.want()
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()  # a process that waits for an item gets none from a parent that was killed
        os._exit(1)


def _work(function: Callable[[Item], Value], item: Item) -> Value:
    _STOP.enter(inside=True)
    try:
        return function(item)
    finally:
        _STOP.enter(inside=False)


def _submit(pool: ProcessPoolExecutor, function: Callable[[Item], Value], item: Item) -> Future[Value]:
    try:
        return pool.submit(_work, function, item)
    except BrokenProcessPool as error:  # died since the last look
        failed: Future[Value] = Future()
        failed.set_exception(error)
        return failed


def outcome_of(
    future: Future[Value], item: Item, death: type[Exception] = BrokenProcessPool
) -> ItemOutcome[Item, Value]:
    """Return the outcome of a finished future; `death` is the exception of a worker that died."""
    error = future.exception()
    if error is None:
        return ItemOutcome(item, future.result(), None)
    if isinstance(error, death):
        return ItemOutcome(item, None, WorkerDiedError("the worker process ended without a result"))
    if isinstance(error, Exception):
        return ItemOutcome(item, None, error)
    raise error
