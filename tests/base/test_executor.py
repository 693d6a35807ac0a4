"""Work over processes: every item has one outcome, also where an item kills its process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest

from trust_cache.base.errors import InputError
from trust_cache.base.executor import WorkerDiedError, run_items, start_workers


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


def test_started_workers_are_ready_and_are_replaced_when_they_die() -> None:
    with start_workers(1, "colorsys") as workers:
        first, again = (
            {outcome.item: outcome.value for outcome in run_items(imported, ["colorsys", "turtle"], workers)}
            for _ in range(2)
        )
        assert first == again  # in the same process
        assert [found[0] for name in ("colorsys", "turtle") if (found := first[name])] == [True, False]
        outcomes = {outcome.item: outcome for outcome in run_items(work, range(24), workers)}
        assert {item for item, outcome in outcomes.items() if outcome.error is not None} == {7, 13, 20}
        rest = [outcome.value for outcome in run_items(work, [1, 2, 3], workers)]
        assert sorted(filter(None, rest)) == [1, 4, 9]


def test_a_death_costs_the_next_call_nothing_and_a_closed_pool_ends_the_work() -> None:
    with ThreadPoolExecutor(1) as beside:
        with start_workers(2, "colorsys") as workers:
            list(run_items(work, [7], workers))
            assert workers.died
            processes = {outcome.value for outcome in run_items(process, range(8), workers)}
            assert len(processes) <= 2  # not one for each item
        with start_workers(1, "colorsys") as workers:
            running = beside.submit(lambda: list(run_items(time.sleep, [0.05] * 2000, workers)))
            wait_until(workers.started.is_set)
        with pytest.raises((CancelledError, RuntimeError)):
            running.result(timeout=60)


def process(_item: int) -> int:
    return os.getpid()


INTERRUPTED = """
import os, signal, threading
from concurrent.futures import Future
import polars as pl
from trust_cache.base.executor import wait_for
pl.DataFrame({"a": [2, 1]}).sort("a")  # from now on, a signal ends no wait of the system
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    wait_for(Future())
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_ends_a_wait() -> None:
    words = [sys.executable, "-c", INTERRUPTED]
    assert subprocess.run(words, capture_output=True, check=True, timeout=60).stdout == b"interrupted\n"


def imported(module: str) -> tuple[bool, int]:
    return module in sys.modules, os.getpid()


def test_processes_end_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom tests.base.test_executor import note_and_sleep\n"
        "from trust_cache.base.executor import run_items\n"
        "if __name__ == '__main__':\n    list(run_items(note_and_sleep, [sys.argv[1]] * 2, 2))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    parent = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=environment)
    wait_until(lambda: len(list(tmp_path.glob("pid-*"))) == 2)
    parent.kill()
    parent.wait()
    workers = [int(path.name[4:]) for path in tmp_path.glob("pid-*")]
    wait_until(lambda: not any(runs(pid) for pid in workers))


def note_and_sleep(folder: str) -> None:
    (Path(folder) / f"pid-{os.getpid()}").write_text("")
    time.sleep(60)


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_nothing_to_do_and_nobody_to_do_it() -> None:
    assert list(run_items(work, [], 2)) == []
    with pytest.raises(InputError, match="workers"):
        list(run_items(work, [1], 0))


@pytest.mark.parametrize("run", ["run_items", "run_in_order"])
def test_a_script_without_a_main_guard_is_told_so_and_no_item_is_blamed(tmp_path: Path, run: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tests.base.test_executor import work\n"
        f"from trust_cache.base.executor import {run}\nprint(list({run}(work, [1, 2, 3], 2)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    words = [sys.executable, str(script)]
    done = subprocess.run(words, capture_output=True, check=False, text=True, timeout=120, env=environment)
    assert done.stdout == ""
    last = done.stderr.strip().splitlines()[-1]
    assert "InputError: the worker processes ended before they started" in last
    assert 'if __name__ == "__main__":' in last
