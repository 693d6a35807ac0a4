"""Trivial work items through a Dask cluster of two worker processes: what the scheduler costs each item."""

import time

from distributed import LocalCluster

from trust_cache.base.executor import Cluster, run_items

ITEMS, WARM, WORKERS = 2_000, 50, 2
AT_LEAST = 20  # per second: an item of extract takes seconds on each of many workers


def run() -> bool:
    """Print items per second; return whether the target was met."""
    with LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as local:
        cluster = Cluster(local.scheduler_address)
        list(run_items(abs, range(WARM), cluster))
        wall, processor = time.perf_counter(), time.process_time()
        done = sum(outcome.value == outcome.item for outcome in run_items(abs, range(ITEMS), cluster))
        rate = done / (time.perf_counter() - wall)
        each = 1e3 * (time.process_time() - processor) / done
    print(f"cluster: {rate:.0f} trivial items/s over {WORKERS} worker processes (at least {AT_LEAST}),"
          f" {each:.1f} ms of processor time here for each")  # fmt: skip
    return rate >= AT_LEAST
