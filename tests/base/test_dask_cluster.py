"""Work over a real Dask cluster: every item has one outcome, whoever dies."""

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Timer

import pytest

from tests.clusters import TestCluster, cluster_in
from trust_cache.base.errors import InputError, StoppedError
from trust_cache.base.executor import Cluster, WorkerDiedError, run_items

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TestCluster]:
    with cluster_in(tmp_path, workers=2) as started:
        yield started


def work(item: int) -> int:
    if item == 13:
        raise InputError("unlucky")
    return item * item


def die_once(item: int, folder: str) -> int:
    """Kill the worker at the first try of some items, as a machine that is taken away does."""
    mark = Path(folder) / f"tried-{item}"
    if item in {3, 8} and not mark.exists():
        mark.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def always_die(_item: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def wait_for_release(item: int, folder: str) -> int:
    while not (Path(folder) / "release").exists():
        time.sleep(0.05)
    return item


def test_one_outcome_an_item(cluster: TestCluster) -> None:
    outcomes = {outcome.item: outcome for outcome in run_items(work, range(20), Cluster(cluster.address))}
    assert sorted(outcomes) == list(range(20))
    for item, outcome in outcomes.items():
        if item == 13:
            assert isinstance(outcome.error, InputError)
        else:
            assert (outcome.value, outcome.error) == (item * item, None)


def test_dead_workers_cost_no_item(cluster: TestCluster, tmp_path: Path) -> None:
    for _ in range(2):  # two of four will die
        cluster.add_worker()
    function = partial(die_once, folder=str(tmp_path))
    outcomes = list(run_items(function, range(12), Cluster(cluster.address)))
    assert sorted(outcome.item for outcome in outcomes) == list(range(12))
    assert [outcome.error for outcome in outcomes if outcome.error is not None] == []
    assert sum(worker.poll() is not None for worker in cluster.workers) == 2


def test_an_item_that_kills_every_worker_is_named(tmp_path: Path) -> None:
    # Dask gives up at the first death here, so that three starts of ours are three workers.
    with cluster_in(tmp_path, workers=3, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0") as cluster:
        (outcome,) = run_items(always_die, [1], Cluster(cluster.address))
        assert isinstance(outcome.error, WorkerDiedError)
        for worker in cluster.workers:
            worker.wait(60)


def test_only_workers_with_the_resource_get_items(cluster: TestCluster) -> None:
    with_gpu = cluster.add_worker("--resources", "GPU=1")
    where = {outcome.value for outcome in run_items(pid, range(6), Cluster(cluster.address, {"GPU": 1}))}
    assert where == {with_gpu.pid}


def pid(_item: int) -> int:
    return os.getpid()


def test_a_killed_scheduler_is_one_sentence(cluster: TestCluster, tmp_path: Path) -> None:
    function = partial(wait_for_release, folder=str(tmp_path))
    outcomes = run_items(function, [tmp_path] * 3, Cluster(cluster.address))  # type: ignore[arg-type]
    timer = Timer(2, cluster.scheduler.kill)  # while the items wait: they are never released
    timer.start()
    try:
        with pytest.raises(StoppedError, match=r"scheduler is gone.*run the same command again"):
            list(outcomes)
    finally:
        timer.cancel()


def test_nobody_at_the_address() -> None:
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        list(run_items(work, [1], Cluster("tcp://127.0.0.1:9", connect_seconds=1)))
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        list(run_items(work, [1], Cluster("nonsense://x", connect_seconds=1)))
