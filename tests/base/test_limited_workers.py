"""Workers of limited memory: every item has one outcome in order, also one that takes memory or kills."""

import os
import signal
import sys
from contextlib import suppress

import numpy as np
import pytest

from trust_cache.base.executor import WorkerDiedError, run_items, start_workers
from trust_cache.base.limited_workers import map_limited, problem_of

MEGABYTE = 2**20


def act(item: int) -> int | None:
    if item == 13:
        raise ValueError("unlucky")
    if item == 40:
        os.kill(os.getpid(), signal.SIGKILL)
    if item == 50:
        return None
    return int(np.ones(300 * MEGABYTE if item == 7 else 1, dtype=np.uint8)[0]) * item


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited on Linux alone")
def test_one_outcome_an_item_in_order() -> None:
    found = map_limited(act, range(70), memory=200 * MEGABYTE, workers=2)
    assert [outcome.item for outcome in found] == list(range(70))
    errors = {outcome.item: outcome.error for outcome in found if outcome.error is not None}
    assert set(errors) == {7, 13, 40}
    for item, kind in ((7, MemoryError), (13, ValueError), (40, WorkerDiedError)):
        assert isinstance(errors[item], kind)
    for outcome in found:
        if outcome.error is None:
            assert outcome.value == (None if outcome.item == 50 else outcome.item)
    assert "too much memory" in problem_of(errors[7])
    assert "ended without a result" in problem_of(errors[40])
    assert "unlucky" not in problem_of(errors[13])  # the text may quote a header


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited on Linux alone")
def test_the_limit_ends_with_the_items() -> None:
    with start_workers(1, __name__) as workers:
        (limited,) = map_limited(act, [7], memory=200 * MEGABYTE, workers=workers)
        (free,) = run_items(act, [7], workers)
    assert isinstance(limited.error, MemoryError)
    assert free.value == 7


def take_all(item: int) -> int:
    """Return how many megabytes can be taken; they are free afterwards, and stay with the process."""
    held: list[bytearray] = []
    with suppress(MemoryError):
        while len(held) < 10 * 20:
            held.append(bytearray(10 * MEGABYTE))
    return 10 * len(held) + 0 * item


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited on Linux alone")
def test_the_limit_does_not_grow_from_batch_to_batch() -> None:
    with start_workers(1, __name__) as workers:
        taken = [
            map_limited(take_all, [n], memory=200 * MEGABYTE, workers=workers)[0].value for n in range(4)
        ]
    assert all(0 < (megabytes or 0) <= 250 for megabytes in taken), taken


def test_no_items() -> None:
    assert map_limited(act, []) == []
