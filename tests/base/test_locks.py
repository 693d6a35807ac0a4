"""A lock is one holder's, says whose, and ends with its process."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trust_cache.base.errors import InputError
from trust_cache.base.locks import FileLock

HOLD = """
import sys, time
from pathlib import Path
from trust_cache.base.locks import FileLock
with FileLock(Path(sys.argv[1]), "the cache"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path, "the cache"):
        with pytest.raises(
            InputError, match=f"the cache: is being written by process {os.getpid()} on"
        ) as caught:
            FileLock(path, "the cache").acquire()
        assert socket.gethostname() in str(caught.value)
    assert not path.exists()
    with FileLock(path, "the cache"):  # free again
        pass


def test_a_killed_holder_loses_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match=f"process {holder.pid}"):
            FileLock(path, "the cache").acquire()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with FileLock(path, "the cache"):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_worker_does_not_keep_it(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", "the cache").acquire()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # until the parent is done
        os._exit(0)
    try:
        lock.release()
        with FileLock(tmp_path / "lock", "the cache"):
            pass
    finally:
        os.close(write)
        os.waitpid(child, 0)
        os.close(read)


def test_a_lock_whose_file_was_removed_is_taken_anew(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = FileLock(path, "the cache").acquire()
    path.unlink()
    second = FileLock(path, "the cache").acquire()
    with pytest.raises(InputError):
        FileLock(path, "the cache").acquire()
    second.release()
    first.release()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write there"):
        FileLock(tmp_path / "none" / "lock", "the cache").acquire()
