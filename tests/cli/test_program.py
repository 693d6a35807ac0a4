"""The program as a process: it ends at once, with everything printed, and with the right exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

START = "from trust_cache_cli.__main__ import run\nrun()\n"
# A command that leaves work for the end of the interpreter.
LEFTOVERS = """
import atexit, sys, tempfile
from pathlib import Path
kept = tempfile.TemporaryDirectory(dir=sys.argv.pop())
atexit.register(print, "the last words")
class Slow:
    def __del__(self):
        print("freed")
slow = Slow()
"""
# Ctrl-C while the command line's libraries are imported.
INTERRUPTED = """
import os, signal, sys
class Interrupt:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt)
"""


def program(*words: str, before: str = "", stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", before + START, *words]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=60)


def test_all_is_printed_and_nothing_is_freed(tmp_path: Path) -> None:
    done = program("plan", "--cases", "100", "--positives", "5", "--json", str(tmp_path), before=LEFTOVERS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("{")
    assert done.stdout.endswith("}\nthe last words\n")
    assert list(tmp_path.iterdir()) == []


def test_exit_codes() -> None:
    assert program("--version").returncode == 0
    assert program("plan", "--cases", "none").returncode == 2
    wrong = program("certify", "no-such-folder", "--out", "certified")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no-such-folder" in wrong.stderr
    as_module = subprocess.run([sys.executable, "-m", "trust_cache_cli", "--version"], check=False)
    assert as_module.returncode == 0


def test_ctrl_c_while_the_program_starts() -> None:
    done = program("--version", before=INTERRUPTED)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.skipif(os.name == "nt", reason="a shell closes the streams")
def test_closed_streams() -> None:
    words = f"{sys.executable} -m trust_cache_cli plan --cases"
    for command, code in (
        (f"{words} 3000 --positives 200 2>&- >/dev/null", 0),
        (f"{words} none 2>&-", 2),
        (f"{words} 3000 --positives 200 >&-", 70),
    ):
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), command


POOLS = """
import concurrent.futures, sys, time
from pathlib import Path
def note(path):
    time.sleep(0.3)
    Path(path).write_text("")
kept = concurrent.futures.ThreadPoolExecutor(1)
kept.submit(note, sys.argv.pop())
"""


def test_threads_end_their_work_after_success_alone(tmp_path: Path) -> None:
    assert program("--version", str(tmp_path / "done"), before=POOLS).returncode == 0
    assert program("plan", "--cases", "none", str(tmp_path / "refused"), before=POOLS).returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["done"]


@pytest.mark.skipif(os.name == "nt", reason="pipes end differently on Windows")
def test_a_reader_that_has_gone() -> None:
    read, write = os.pipe()
    os.close(read)
    done = program("--help", stdout=write)
    os.close(write)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
