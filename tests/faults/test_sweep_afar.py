"""A sweep on a cluster: the bytes of a sweep at home, whatever worker dies."""

import signal
from pathlib import Path

import pytest

from tests.clusters import cluster_in
from tests.heads.cohorts import a_cohort, write_cohort
from tests.studies.sweep.test_run import content, space
from trust_cache.base.executor import Cluster
from trust_cache.studies.sweep.sweep import sweep
from trust_cache.studies.sweep.sweep_training import HeadsReport

pytestmark = pytest.mark.slow


def test_a_sweep_on_two_workers_of_which_one_dies(tmp_path: Path) -> None:
    cache = write_cohort(tmp_path / "cache.zarr", *a_cohort())
    sweep(cache, tmp_path / "home" / "sweep", space(), epochs=2, repeats=2, threads=1)
    reports: list[HeadsReport] = []
    with cluster_in(tmp_path, workers=2) as cluster:

        def kill_one(report: HeadsReport) -> None:
            reports.append(report)
            if len(reports) == 2:
                cluster.workers[0].send_signal(signal.SIGKILL)

        where = Cluster(cluster.address)
        sweep(
            cache, tmp_path / "away" / "sweep", space(), epochs=2, repeats=2, cluster=where, on_heads=kill_one
        )
    assert [report.done for report in reports] == [8 * (n + 1) for n in range(10)]  # each fold once
    assert content(tmp_path / "away" / "sweep") == content(tmp_path / "home" / "sweep")
