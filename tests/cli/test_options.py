"""Options that several commands share."""

import pytest

from trust_cache.base.errors import InputError
from trust_cache.base.executor import Cluster
from trust_cache_cli.options import ClusterOptions

SCHEDULER = "tcp://127.0.0.1:8786"


@pytest.mark.parametrize(
    ("resources", "wanted"),
    [(None, {}), ("GPU=1", {"GPU": 1.0}), ("GPU, memory=2.5,", {"GPU": 1.0, "memory": 2.5})],
)
def test_resources_are_names_and_numbers(resources: str | None, wanted: dict[str, float]) -> None:
    assert ClusterOptions(SCHEDULER, resources).cluster() == Cluster(SCHEDULER, wanted)


def test_resources_need_a_scheduler_and_a_number() -> None:
    assert ClusterOptions().cluster() is None
    with pytest.raises(InputError, match="--resources: expected --scheduler with it, found none"):
        ClusterOptions(None, "GPU=1").cluster()
    with pytest.raises(InputError, match="--resources: expected NAME=NUMBER, found 'GPU=one'"):
        ClusterOptions(SCHEDULER, "GPU=one").cluster()
