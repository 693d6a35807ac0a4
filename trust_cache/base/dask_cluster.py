"""Run work items on a Dask cluster, whose workers may die and return."""

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

from trust_cache.base.errors import InputError, StoppedError, first_line
from trust_cache.base.executor import Cluster, Item, ItemOutcome, Value, outcome_of
from trust_cache.base.versions import versions_of

_AHEAD = 2  # items submitted per worker thread, so that none waits for the next
_LOOK_SECONDS = 1.0  # between two checks of the scheduler
_COUNT_SECONDS = 5.0  # between two counts of the workers
# Dask itself tries an item on four workers before it gives up; each start is four such tries.
_STARTS = 3
_LOST_WORKER = (KilledWorker, CommClosedError)  # the second: it died while its result was fetched
_NOISY_LOGGERS = ("distributed", "distributed.client", "tornado.application", "asyncio")
_log = logging.getLogger(__name__)


def run_on_cluster(
    function: Callable[[Item], Value], items: Iterable[Item], cluster: Cluster
) -> Iterator[ItemOutcome[Item, Value]]:
    """Apply a function to items on the cluster's workers; yield outcomes as they come.

    An item may run twice (its worker died or seemed dead): the function must be idempotent. An item that
    keeps killing its workers has WorkerDiedError as its outcome. A lost scheduler raises StoppedError.
    """
    remaining = iter(items)
    with _connected(cluster) as client:
        pool = client.get_executor(pure=False, retries=0, resources=dict(cluster.resources) or None)
        under_way: dict[Future[Value], tuple[Item, int]] = {}
        threads = _Threads(client)
        try:
            while True:
                for item in islice(remaining, max(threads.count() * _AHEAD - len(under_way), 0)):
                    under_way[pool.submit(function, item)] = (item, 1)
                if not under_way:
                    return
                done, _ = wait(under_way, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
                if client.status != "running" or any(future.cancelled() for future in done):
                    raise _lost(cluster)
                for future in done:
                    item, starts = under_way.pop(future)
                    if isinstance(future.exception(), _LOST_WORKER) and starts < _STARTS:
                        _log.warning("an item lost its workers; it is started again")
                        under_way[pool.submit(function, item)] = (item, starts + 1)
                    else:
                        yield outcome_of(future, item, KilledWorker)
        finally:
            for future in under_way:
                future.cancel()


class _Threads:
    """The number of the cluster's worker threads, counted again from time to time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._counted = float("-inf")
        self._threads = 0

    def count(self) -> int:
        """Return the threads, at least one: an item may wait for the first worker."""
        if time.monotonic() - self._counted > _COUNT_SECONDS:
            self._counted = time.monotonic()
            self._threads = sum(self._client.nthreads().values())
            if not self._threads:
                _log.warning("the cluster has no workers at the moment; waiting for one")
        return max(self._threads, 1)


@contextmanager
def _connected(cluster: Cluster) -> Iterator[Client]:
    quiet = [logging.getLogger(name) for name in _NOISY_LOGGERS]
    levels = [logger.level for logger in quiet]
    for logger in quiet:
        logger.setLevel(logging.CRITICAL)  # it would print tracebacks of a lost connection
    try:
        try:
            client = Client(cluster.address, timeout=cluster.connect_seconds, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise InputError(
                f"{cluster.address}: no Dask scheduler answers ({first_line(error)});"
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
    """Refuse workers with another version of trust-cache: their results could differ."""
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


def _lost(cluster: Cluster) -> StoppedError:
    return StoppedError(
        f"{cluster.address}: the cluster's scheduler is gone; finished work is kept."
        " Start the cluster and run the same command again"
    )
