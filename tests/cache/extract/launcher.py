"""Runs the command line in processes that can be killed: forked from one that has imported torch once.

Each line of stdin is a JSON object: the words, the log and, if another, the current folder; the answers are
the process's number and its exit code. Forking before torch has computed anything is safe, and saves forty
imports. The further modules to import are the words of the launcher's own command line.
"""

import json
import os
import sys
import warnings
from importlib import import_module

import torch

from trust_cache.cache.extract import extract  # noqa: F401 (imported once, for all children)
from trust_cache.encoders.timm_models import import_timm
from trust_cache_cli.main import main


def run(words: list[str], log: str, folder: str = ".") -> None:
    os.chdir(folder)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.argv = ["trust-cache", *words]
    torch.set_num_threads(1)
    main()


def answer(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    import_timm()
    for name in sys.argv[1:]:
        import_module(name)
    warnings.simplefilter("ignore")  # of forking beside threads: none of them computes
    answer("ready")
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                run(**order)
            except SystemExit as stop:
                os._exit(stop.code if isinstance(stop.code, int) else 0)
            except BaseException:
                os._exit(99)
            os._exit(0)
        answer(child)
        _, status = os.waitpid(child, 0)
        answer(os.waitstatus_to_exitcode(status))
