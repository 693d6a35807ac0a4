"""Work items over a Dask cluster: workers may die and return; a lost scheduler ends in one sentence."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from itertools import islice
from typing import Any

from distributed import Client
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from trust_cache.base.errors import InputError, StoppedError
from trust_cache.base.versions import versions_of
from trust_cache.base.work import Cluster, Item, Outcome, Value, WorkerDiedError

_AHEAD = 2  # items under way per worker thread: the next one is there when one ends
_LOOK_SECONDS = 1.0  # between two looks at whether the scheduler still answers
_COUNT_SECONDS = 5.0  # between two counts of the workers: they come and go
# Dask itself tries an item on four workers before it gives up; each start here is four such tries.
_STARTS = 3
_TALKATIVE = ("distributed", "distributed.client", "tornado.application", "asyncio")  # each has a level
_log = logging.getLogger(__name__)


def run_on_cluster(
    function: Callable[[Item], Value], items: Iterable[Item], cluster: Cluster
) -> Iterator[Outcome[Item, Value]]:
    """Apply a function to items on the cluster's workers and yield each outcome as it comes.

    An item may run twice (its worker died, or was taken for dead): the function is idempotent. One that
    goes on killing its workers has WorkerDiedError as its outcome. A scheduler that is gone raises
    StoppedError.
    """
    remaining = iter(items)
    with _connected(cluster) as client:
        pool = client.get_executor(pure=False, retries=0, resources=dict(cluster.resources) or None)
        under_way: dict[Future[Value], tuple[Item, int]] = {}
        seats = _Seats(client)
        try:
            while True:
                for item in islice(remaining, max(seats.count() * _AHEAD - len(under_way), 0)):
                    under_way[pool.submit(function, item)] = (item, 1)
                if not under_way:
                    return
                done, _ = wait(under_way, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
                _refuse_lost(client, cluster, done)
                for future in done:
                    item, starts = under_way.pop(future)
                    if isinstance(future.exception(), KilledWorker) and starts < _STARTS:
                        _log.warning("an item lost several workers in turn; it is started again")
                        under_way[pool.submit(function, item)] = (item, starts + 1)
                    else:
                        yield _outcome(future, item)
        finally:
            for future in under_way:
                future.cancel()


class _Seats:
    """The number of the cluster's worker threads, counted again now and then."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._counted = float("-inf")
        self._threads = 0

    def count(self) -> int:
        """Return the threads, at least one: an item that waits for the first worker is under way."""
        if time.monotonic() - self._counted > _COUNT_SECONDS:
            self._counted = time.monotonic()
            threads = sum(self._client.nthreads().values())
            if not threads:
                _log.warning("the cluster has no workers at the moment; waiting for one")
            self._threads = threads
        return max(self._threads, 1)


@contextmanager
def _connected(cluster: Cluster) -> Iterator[Client]:
    """Give a client; whatever the connection does, the user meets one sentence."""
    quiet = [logging.getLogger(name) for name in _TALKATIVE]
    levels = [logger.level for logger in quiet]
    for logger in quiet:
        logger.setLevel(logging.CRITICAL)  # its tracebacks of a lost connection are ours to tell
    try:
        try:
            client = Client(cluster.address, timeout=cluster.connect_seconds, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise InputError(
                f"{cluster.address}: no Dask scheduler answers there ({_reason(error)});"
                " expected an address such as tcp://host:8786"
            ) from error
        try:
            _require_same_version(client, cluster)
            yield client
        except (OSError, TimeoutError) as error:
            if client.status == "running" and not isinstance(error, CommClosedError):
                raise
            raise _lost(cluster) from error
        finally:
            client.close(timeout=2)
    finally:
        for logger, level in zip(quiet, levels, strict=True):
            logger.setLevel(level)


def _require_same_version(client: Client, cluster: Cluster) -> None:
    """Refuse workers with another trust-cache: the same item would mean another result."""
    here = versions_of()["trust-cache"]
    answers: dict[str, Any] = client.run(versions_of, on_error="return")
    for worker, answer in answers.items():
        if isinstance(answer, OSError):
            continue  # it has just died
        found = answer.get("trust-cache") if isinstance(answer, dict) else f"none ({answer})"
        if found != here:
            raise InputError(
                f"{cluster.address}: expected trust-cache {here} on every worker, found {found} on {worker};"
                " install the same version there"
            )


def _refuse_lost(client: Client, cluster: Cluster, done: Iterable[Future[Value]]) -> None:
    if client.status != "running" or any(future.cancelled() for future in done):
        raise _lost(cluster)


def _lost(cluster: Cluster) -> StoppedError:
    return StoppedError(
        f"{cluster.address}: the cluster's scheduler is gone; what was finished is kept."
        " Start the cluster and run the same command again"
    )


def _reason(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _outcome(future: Future[Value], item: Item) -> Outcome[Item, Value]:
    error = future.exception()
    if error is None:
        return Outcome(item, future.result(), None)
    if isinstance(error, KilledWorker):
        return Outcome(item, None, WorkerDiedError("every worker that tried it ended without an answer"))
    if isinstance(error, Exception):
        return Outcome(item, None, error)
    raise error
