"""Work over processes: every item has one outcome, also where an item kills its process."""

import os
import signal

import pytest

from trust_cache.base.errors import InputError
from trust_cache.base.executor import WorkerDiedError, run_items


def work(item: int) -> int:
    if item == 13:
        raise InputError("unlucky")
    if item in {7, 20}:
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


@pytest.mark.parametrize("workers", [1, 3])
def test_one_outcome_an_item_whatever_dies(workers: int) -> None:
    outcomes = {outcome.item: outcome for outcome in run_items(work, range(24), workers)}
    assert sorted(outcomes) == list(range(24))
    for item, outcome in outcomes.items():
        if item in {7, 20}:
            assert isinstance(outcome.error, WorkerDiedError)
        elif item == 13:
            assert isinstance(outcome.error, InputError)
        else:
            assert (outcome.value, outcome.error) == (item * item, None)


def test_nothing_to_do_and_nobody_to_do_it() -> None:
    assert list(run_items(work, [], 2)) == []
    with pytest.raises(InputError, match="workers"):
        list(run_items(work, [1], 0))
